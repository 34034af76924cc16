"""``cofuse compare``: many methods on the same frames, side by side on one page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cofuse import __version__, fusion
from cofuse.cli.application import IntoFolder, Names, Output, Printing, check_empty, in_options
from cofuse.cli.evaluate import mismatch, score_table, split_names
from cofuse.errors import CofuseError
from cofuse.evaluation import metrics as scoring
from cofuse.evaluation import pages
from cofuse.evaluation.pages import Exhibit
from cofuse.evaluation.scenes import find_picture, gather_scene, scene_names
from cofuse.files import plain, read_image, read_stack, write_image, write_json, written_whole
from cofuse.files.decoding import OnDamage
from cofuse.files.transaction import Transaction
from cofuse.images import Fusion, Pixels, Stack
from cofuse.images.pixels import white_of_type
from cofuse.jobs.options import noise_of, read_noise
from cofuse.progress import Progress
from cofuse.sensor import NoiseLaw, estimate_noise

#: What is compared unless methods are named. With noise, fusion alone would be no fair rival.
_CLEAN_METHODS = ("auto", "paper", "average", "laplacian", "gff", "sf-dct")
_NOISY_METHODS = ("auto", "paper", "average", "tv+laplacian", "tv+gff", "sf-dct")

#: Side of the part of the frames that is fused first, so that loading and compiling is not timed.
_WARM_UP_SIDE = 48


def compare(
    *frames: Path,
    output: Output,
    methods: Names = (),
    sigma: str = "auto",
    noise: Path | None = None,
    truth: Path | None = None,
    external: Names = (),
    metrics: Names = (),
    name: str | None = None,
    white: float | None = None,
    on_damage: OnDamage = "refuse",
    overwrite: IntoFolder = False,
    printing: Printing = Printing(),
) -> None:
    """Fuse the same frames by many methods; write a page to look at, the pictures and the scores.

    Parameters
    ----------
    frames
        Picture files, a multi-page TIFF, or a scene's folder: its truth.png is the truth.
    output
        The folder to write: index.html, one picture a method, results.json.
    methods
        Names separated by commas: auto, fast and paper are cofuse's own, others such as gff or
        laplacian may have a denoiser before or after, as in tv+gff or gff+nlm; a wrong name lists
        all.
    sigma
        Noise level in 8-bit grey levels for all methods, or auto to estimate it once.
    noise
        Take the noise from this file that cofuse noise wrote; methods other than cofuse's own get
        its level only.
    truth
        The sharp picture without noise, if it is known.
    external
        A picture another program fused, as NAME=PATH; in a folder the one named as the stack is
        taken. May be given more than once.
    metrics
        Names separated by commas; by default every metric that has something to compare with.
    name
        The stack's name: by default that of its folder, or what the frames' names have in common.
    white
        Value of white (4095 for 12 bits in 16); default what the files say, or the frames show.
    on_damage
        What to do with a frame, a JPEG file, whose packed pixels are damaged: refuse it, or warn
        and take what could be decoded.
    """
    from cofuse.jobs.frames import frame_facts  # takes a while to load

    noise_given = read_noise(sigma, noise)  # refuses wrong values before anything is read
    wanted = list(dict.fromkeys(split_names(methods)))
    for method in wanted:
        _resolve(method)
    if not frames:
        raise CofuseError("no frames were given; name picture files, a folder or a TIFF")
    scene = gather_scene(frames, truth=truth)
    stack = read_stack(scene.sources, white=white, on_damage=on_damage)
    given = noise_of(stack, noise_given)
    if len(stack) < 2:
        raise CofuseError("only one frame was given; there is nothing to fuse and compare")
    names = [name] if name else scene_names(frames, scene.sources)
    reference = None if scene.truth is None else read_image(scene.truth)
    if scene.truth is not None and reference is not None and reference.shape != stack.shape:
        raise mismatch(scene.truth, reference, "the frames are", stack)
    chosen = scoring.choose_metrics(split_names(metrics), sources=True, truth=reference is not None)
    outsiders = _read_external(external, names, stack, wanted, colour=reference is not None)
    check_empty(output, overwrite=overwrite)
    law = estimate_noise(stack).to_remove() if given is None else given
    wanted = wanted or list(_NOISY_METHODS if law.overall > 0 else _CLEAN_METHODS)
    entries = _run_all(wanted, stack, law, printing)
    if all(entry.failure for entry in entries):
        raise CofuseError(f"all methods failed; {entries[0].name}: {entries[0].failure}")
    entries += outsiders
    if white is None and stack.dtype == "uint16":
        white = stack.white  # the results are on the scale of the frames
    sources = [scoring.to_scored_grey(frame, white=stack.white) for frame in stack]
    for entry in entries:
        if entry.picture is not None:
            entry.scores = scoring.score(
                entry.picture, metrics=chosen, sources=sources, truth=reference, white=white
            )
    facts = {
        "name": names[0],
        "frames": frame_facts(stack),
        "sigma": law.sigma,
        "sigma_counts": law.sigma * (stack.white / 255.0),
        "sigma_estimated": given is None,
        "noise": law.facts(),
    }
    with Transaction(overwrite=overwrite) as transaction:
        facts |= _write_page(output, facts, entries, stack, reference, chosen, transaction)
        write_json(transaction.place(output / "results.json"), plain(facts))
    lines = [score_table({entry.name: entry.scores for entry in entries if entry.scores})]
    lines += [f"{entry.name} failed: {entry.failure}" for entry in entries if entry.failure]
    lines.append(f"look at {output / 'index.html'}")
    printing.result(facts, "\n".join(lines))


def _resolve(name: str) -> Callable[[Stack, NoiseLaw], Fusion]:
    """Find a method by its name: a preset of cofuse's own, or a rival, given one level of noise."""
    if name in fusion.PRESETS:
        return lambda stack, noise: fusion.fuse(stack, noise=noise, preset=name)
    from cofuse.evaluation.baselines import resolve_method

    try:
        method = resolve_method(name)
    except CofuseError as error:
        raise CofuseError(f"{error}; cofuse's own are {', '.join(fusion.PRESETS)}") from None
    return lambda stack, noise: method(stack, sigma=noise.sigma)


def _read_external(
    given: Sequence[str],
    stack_names: Sequence[str],
    stack: Stack,
    methods: Sequence[str],
    *,
    colour: bool,
) -> list[Exhibit]:
    """Read the pictures other programs fused; a bad one is bad input, not a method's failure."""
    entries: list[Exhibit] = []
    for text in given:
        name, equals, place = text.partition("=")
        name = name.strip()
        if not (equals and name and place):
            raise CofuseError(f"--external {text} names no picture; expected NAME=PATH")
        # Default methods are not known before the noise is, hence all of them are refused.
        taken = {*(methods or (*_CLEAN_METHODS, *_NOISY_METHODS)), *(e.name for e in entries)}
        if name in taken:
            raise CofuseError(f"--external {text}: the name {name} is taken; choose another")
        path = Path(place)
        if path.is_dir():
            path = find_picture(path, stack_names)
        picture = read_image(path)
        if picture.shape[:2] != stack.shape[:2] or (colour and picture.shape != stack.shape):
            raise mismatch(path, picture, "the frames are", stack)
        entries.append(Exhibit(name, "external", picture))
    return entries


def _run_all(
    names: Sequence[str], stack: Stack, noise: NoiseLaw, printing: Printing
) -> list[Exhibit]:
    """Run every method; one that fails says why and does not stop the others."""
    y, x = ((side - min(side, _WARM_UP_SIDE)) // 2 for side in stack.shape[:2])
    window = slice(y, y + _WARM_UP_SIDE), slice(x, x + _WARM_UP_SIDE)
    small = Stack.from_arrays([frame[window].copy() for frame in stack], white=stack.white)
    entries = []
    with printing.progress() as progress:
        for count, name in enumerate(names, 1):
            entry = Exhibit(name, "method")
            entries.append(entry)
            try:
                method = _resolve(name)
                with suppress(Exception):  # the real run reports the same error
                    method(small, noise)
                start = time.perf_counter()
                entry.picture = method(stack, noise).image
                entry.seconds = time.perf_counter() - start
            except CofuseError as error:
                entry.failure = in_options(str(error), ["compare"])
            except Exception as error:  # a rival's defect must not cost the other results
                entry.failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
            progress(Progress("methods", count, len(names)))
    return entries


def _write_page(
    folder: Path,
    facts: dict[str, Any],
    entries: Sequence[Exhibit],
    stack: Stack,
    truth: Pixels | None,
    metrics: Sequence[str],
    transaction: Transaction,
) -> dict[str, Any]:
    """Write the pictures and the page; return what results.json says of them."""
    # Pictures to hold the results against.
    shown = [*entries, *(Exhibit(f"frame {k + 1}", "frame", stack[k]) for k in (0, len(stack) - 1))]
    if truth is not None:
        shown.append(Exhibit("truth", "truth", truth))
    taken: set[str] = set()
    for entry in shown:
        if entry.picture is not None:
            alike = entry.picture.dtype == stack.dtype
            white = stack.white if alike else white_of_type(entry.picture.dtype)
            entry.picture = pages.page_picture(entry.picture, white=white)
            entry.file = pages.page_file(entry.name, taken)
            write_image(transaction.place(folder / entry.file), entry.picture)
    details = pages.choose_details([entry for entry in shown if entry.picture is not None])
    sigma = f"σ {facts['sigma']:.1f}" if facts["sigma"] else "no noise"
    summary = [
        f"{len(stack)} frames",
        f"{stack.width} × {stack.height} {'RGB' if stack.is_colour else 'grey'} {stack.dtype}",
        sigma + (" (estimated)" if facts["sigma_estimated"] else ""),
        f"cofuse {__version__}",
    ]
    note = "Scores q_… hold a result against the noisy frames: keeping noise pays there."
    page = pages.comparison_page(
        facts["name"], summary, metrics, shown, details, note=note if facts["sigma"] else ""
    )
    with written_whole(transaction.place(folder / "index.html"), overwrite=False) as file:
        file.write(page.encode())
    fields = ("name", "kind", "file", "seconds", "scores", "failure")
    return {
        "cofuse": __version__,
        "higher_is_better": dict.fromkeys(metrics, True),
        "details": [detail._asdict() for detail in details],
        "results": [{name: getattr(entry, name) for name in fields} for entry in entries],
    }
