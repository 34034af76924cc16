"""``cofuse learn``: an operator from a folder of pictures."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cofuse import __version__
from cofuse.arguments import check_number
from cofuse.cli.application import Flag, Output, Overwrite, Printing, Whole
from cofuse.errors import CofuseError
from cofuse.files import check_destination, picture_files, read_image, written_whole
from cofuse.images import Stack
from cofuse.learning import MOST_PATCHES, LearningSettings, learn_operator, sample_patches
from cofuse.operators import operator_bytes

_DEFAULTS = LearningSettings()


def learn(
    *images: Path,
    output: Output,
    patch_size: Whole = 7,
    rows: Whole | None = None,
    patches: Whole = 10_000,
    separable: Flag = False,
    subspace_dimension: Whole | None = _DEFAULTS.subspace_dimension,
    rounds: Whole = _DEFAULTS.rounds,
    seed: Whole = _DEFAULTS.seed,
    name: str | None = None,
    overwrite: Overwrite = False,
    printing: Printing = Printing(),
) -> None:
    """Learn an analysis operator from sharp pictures.

    Parameters
    ----------
    images
        Picture files or folders of them; any size and depth, colour is turned to grey.
    output
        The operator file to write, by custom named .npz.
    patch_size
        Side of the patches in pixels, 2 to 32.
    rows
        Number of filters, up to 4096: 64 for patches up to 8x8, 1.28 a pixel of the patch above.
    patches
        Number of patches to learn from, up to a million.
    separable
        Learn two small factors whose product is the operator.
    subspace_dimension
        Dimension r of the subspaces patches are taken to lie in: 3/7 of the patch's pixels.
    rounds
        Rounds of coding and renewing rows, up to 10000.
    seed
        Seed of all that is random.
    name
        The operator's name: that of the file by default.
    """
    check_destination(output, overwrite=overwrite)
    check_number("patch_size", patch_size, 2, 32, whole=True)
    check_number("patches", patches, 1, MOST_PATCHES, whole=True)
    if rows is None:
        rows = 64 if patch_size <= 8 else 8 * round(1.28 * patch_size**2 / 8)
    settings = LearningSettings(
        rows=rows, subspace_dimension=subspace_dimension, rounds=rounds, seed=seed
    )
    files = picture_files(images)
    if not files:
        raise CofuseError("no pictures were given; name picture files or folders of them")
    if output.resolve() in {path.resolve() for path in files}:
        raise CofuseError(f"{output} is one of the pictures; write the result elsewhere")
    pictures = []
    digest = hashlib.sha256()
    for path in files:
        picture = read_image(path)
        pictures.append(Stack.from_arrays([picture], names=[path.name]).luminance(0))
        digest.update(pictures[-1].tobytes())
    provenance = {
        "cofuse": __version__,
        "pictures": len(files),
        "pictures_sha256": digest.hexdigest(),
        "patches": patches,
        "patch_size": patch_size,
        "seed": seed,
    }
    samples = sample_patches(pictures, patch_size=patch_size, count=patches, seed=seed)
    with printing.progress() as progress:
        learned = learn_operator(
            samples,
            settings,
            separable=separable,
            name=name or output.stem,
            provenance=provenance,
            progress=progress,
        )
    with written_whole(output, overwrite=overwrite) as file:
        file.write(operator_bytes(learned.operator))
    trace = learned.trace
    h, m = learned.operator.rows.shape
    words = (
        f"{h}x{m} operator from {patches} patches of {len(files)} pictures, rank "
        f"{trace.last('rank'):.0f}, coherence {trace.last('coherence'):.3f}, {trace.reason}: "
        f"{output}"
    )
    printing.result({"reason": trace.reason, "history": trace.history}, words)
