"""``cofuse learn``: an operator, or the joint model, from a folder of pictures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cofuse.arguments import check_number
from cofuse.cli.console import Flag, Output, Whole, progress_bars
from cofuse.errors import CofuseError
from cofuse.learning import (
    MOST_PATCHES,
    LearningSettings,
    learn_operator,
    learn_separable_operator,
    sample_patches,
)

__all__ = ["learn"]

_DEFAULTS = LearningSettings()
# Of the training; its own module would import torch just to print a help text.
_STEPS, _BATCH, _SIDE, _RATE = 5000, 32, 160, 3e-3
_FRAMES = (1, 2, 3, 4, 5, 8, 10)


def learn(
    *images: Path,
    output: Output,
    patch_size: Whole = 7,
    rows: Whole | None = None,
    patches: Whole = 10_000,
    separable: Flag = False,
    end_to_end: Flag = False,
    steps: Whole = _STEPS,
    batch: Whole = _BATCH,
    side: Whole = _SIDE,
    frames: Annotated[tuple[Whole, ...], Parameter(negative=())] = _FRAMES,
    rate: float = _RATE,
    device: str = "auto",
    start_from: Path | None = None,
    checkpoint: Path | None = None,
    subspace_dimension: Whole | None = _DEFAULTS.subspace_dimension,
    rounds: Whole = _DEFAULTS.rounds,
    seed: Whole = _DEFAULTS.seed,
    name: str | None = None,
    overwrite: Flag = False,
    quiet: Flag = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Learn an analysis operator, or the model that fuses and restores, from sharp pictures.

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
    end_to_end
        Train the joint model on focus stacks made of the pictures, as they are needed; wants the
        extra "gpu". A model card is written beside the model.
    steps
        Updates of the training (end to end).
    batch
        Stacks a step (end to end).
    side
        Side of the stacks in pixels (end to end).
    frames
        Number of frames of the stacks; may be given more than once (end to end).
    rate
        Largest learning rate (end to end).
    device
        auto, cpu, cuda or mps (end to end).
    start_from
        Name or file of a trained model to set out from (end to end).
    checkpoint
        File to keep the state of the training in, and to go on from where it exists (end to end).
    subspace_dimension
        Dimension r of the subspaces patches are taken to lie in: 3/7 of the patch's pixels.
    rounds
        Rounds of coding and renewing rows, up to 10000.
    seed
        Seed of all that is random.
    name
        The operator's name: that of the file by default.
    overwrite
        Replace an operator file that exists.
    quiet
        No progress bar and no summary.
    as_json
        Print the course of the learning as JSON instead of the summary.
    """
    from cofuse import __version__
    from cofuse.files import check_report, picture_files, read_image, written_whole
    from cofuse.images import Stack
    from cofuse.operators import operator_bytes

    check_report(output, overwrite=overwrite)
    check_number("patch_size", patch_size, 2, 32, whole=True)
    check_number("patches", patches, 1, MOST_PATCHES, whole=True)
    if rows is None:
        rows = 64 if patch_size <= 8 else 8 * round(1.28 * patch_size**2 / 8)
    settings = LearningSettings(
        rows=rows, subspace_dimension=subspace_dimension, rounds=rounds, seed=seed
    )
    if end_to_end and (separable or name):
        raise CofuseError(
            "--separable and --name are about operators; leave them out with --end-to-end"
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
    if end_to_end:
        from cofuse.cli.learn_end_to_end import Request, learn_end_to_end

        learn_end_to_end(
            Request(pictures, tuple(files), digest.hexdigest(), output, overwrite, quiet, as_json),
            steps=steps,
            batch=batch,
            side=side,
            frames=frames,
            rate=rate,
            seed=seed,
            device=device,
            start_from=start_from,
            checkpoint=checkpoint,
        )
        return
    provenance = {
        "cofuse": __version__,
        "pictures": len(files),
        "pictures_sha256": digest.hexdigest(),
        "patches": patches,
        "patch_size": patch_size,
        "seed": seed,
    }
    samples = sample_patches(pictures, patch_size=patch_size, count=patches, seed=seed)
    learner = learn_separable_operator if separable else learn_operator
    with progress_bars(quiet=quiet) as progress:
        learned = learner(
            samples,
            settings,
            name=name or output.stem,
            provenance=provenance,
            progress=progress,
        )
    with written_whole(output, overwrite=overwrite) as file:
        file.write(operator_bytes(learned.operator))
    trace = learned.trace
    if as_json:
        print(json.dumps({"reason": trace.reason, "history": trace.history}, indent=2))
    elif not quiet:
        h, m = learned.operator.rows.shape
        print(
            f"{h}x{m} operator from {patches} patches of {len(files)} pictures, rank "
            f"{trace.last('rank'):.0f}, coherence {trace.last('coherence'):.3f}, {trace.reason}: "
            f"{output}"
        )
