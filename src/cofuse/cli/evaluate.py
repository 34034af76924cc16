"""``cofuse evaluate``: how good fused pictures are, by the scores of the field."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from cyclopts import Parameter

from cofuse import __version__
from cofuse.cli.application import Overwrite, Printing, columns
from cofuse.errors import CofuseError
from cofuse.evaluation import metrics as scoring
from cofuse.evaluation.scenes import Scene, find_scenes, gather_scene
from cofuse.files import check_destination, plain, read_image, write_json, written_whole
from cofuse.files.decoding import OnDamage
from cofuse.images import Pixels, Stack
from cofuse.images.pixels import describe
from cofuse.progress import Progress

_MANY = Parameter(consume_multiple=True, negative=(), show_default=False)


def evaluate(
    *fused: Path,
    sources: Annotated[tuple[Path, ...], _MANY] = (),
    truth: Path | None = None,
    clean_sources: Annotated[tuple[Path, ...], _MANY] = (),
    scenes: Path | None = None,
    metrics: Annotated[tuple[str, ...], _MANY] = (),
    white: float | None = None,
    on_damage: OnDamage = "refuse",
    csv_file: Annotated[Path | None, Parameter(name="--csv")] = None,
    report: Path | None = None,
    overwrite: Overwrite = False,
    printing: Printing = Printing(),
) -> None:
    """Score fused pictures against their sources, and against the truth where it is known.

    One scene: cofuse evaluate FUSED... --sources A B --truth T. Many scenes: cofuse evaluate
    METHOD... --scenes DIR, where DIR holds one folder a scene and every METHOD is a folder with
    one picture a scene, named as the scene; prints means over the scenes.

    Parameters
    ----------
    fused
        Fused pictures, or folders of them; with --scenes, one folder a method.
    sources
        The frames they were fused from: files or folders.
    truth
        The sharp picture without noise, for psnr and ssim.
    clean_sources
        The sources before noise was added: scores against them stand beside the others.
    scenes
        Folder of scenes: in each its frames (or a folder stack with them) and, if known, truth.png
        (or .tif, .jpg, ...) and a folder clean with the frames before noise was added.
    metrics
        Names such as q_mi,q_abf; by default every metric that has something to compare with.
    white
        Value of white in pictures of more than 8 bits, where it is not the largest possible.
    on_damage
        What to do with a source, a JPEG file, whose packed pixels are damaged: refuse it, or warn
        and take what could be decoded.
    csv_file
        Also write a table with one row a picture.
    report
        Also write what --json prints to a file.
    """
    if not fused:
        raise CofuseError("no fused pictures were given; name picture files or folders of them")
    if scenes is None:
        plan = [gather_scene(sources, clean_sources=clean_sources, truth=truth, fused=fused)]
    elif sources or clean_sources or truth:
        raise CofuseError("--scenes brings sources and truth of its own; leave the others out")
    else:
        plan = find_scenes(scenes, fused)
    names = scoring.choose_metrics(
        split_names(metrics),
        sources=all(scene.sources for scene in plan),
        truth=all(scene.truth for scene in plan),
    )
    outputs = [path for path in (csv_file, report) if path is not None]
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise CofuseError("two outputs have the same file name; give each its own")
    for path in outputs:
        check_destination(path, overwrite=overwrite)
    rows = []
    total = sum(len(scene.fused) for scene in plan)
    with printing.progress() as progress:
        for scene in plan:
            for row in _scored(scene, names, white=white, on_damage=on_damage):
                rows.append(row)
                progress(Progress("scoring", len(rows), total))
    facts = _facts(rows)
    if csv_file:
        with written_whole(csv_file, overwrite=overwrite) as file:
            file.write(_csv(rows).encode())
    if report:
        write_json(report, plain(facts), overwrite=overwrite)
    words = score_table({m["method"]: m["means"] for m in facts["methods"]})
    if scenes is not None:
        words += f"\nmeans over {len(plan)} scene{'s' * (len(plan) > 1)}"
    printing.result(facts, words)


def _scored(
    scene: Scene, names: Sequence[str], *, white: float | None, on_damage: OnDamage
) -> Iterator[dict[str, Any]]:
    """Score every picture of a scene; one row a picture."""
    sources = {path: read_image(path, on_damage=on_damage) for path in scene.sources}
    clean = {path: read_image(path) for path in scene.clean_sources}
    truth = None if scene.truth is None else read_image(scene.truth)
    greys, clean_greys = (
        [scoring.to_scored_grey(frame, white=white) for frame in frames.values()]
        for frames in (sources, clean)
    )
    for method, path in scene.fused.items():
        picture = read_image(path)
        for other_path, other in (sources | clean).items():
            if other.shape[:2] != picture.shape[:2]:
                raise mismatch(path, picture, f"{other_path} is", other)
        if truth is not None and truth.shape != picture.shape:
            raise mismatch(path, picture, f"{scene.truth} is", truth)
        scores = scoring.score(
            picture,
            metrics=names,
            sources=greys,
            clean_sources=clean_greys,
            truth=truth,
            white=white,
        )
        yield {"method": method, "scene": scene.name, "picture": str(path), "scores": scores}


def mismatch(path: Path, picture: Pixels, others: str, other: Pixels | Stack) -> CofuseError:
    """Say that pictures cannot be compared; ``others`` is such as "b.png is"."""
    one, two = describe(picture.shape, picture.dtype), describe(other.shape, other.dtype)
    return CofuseError(f"{path} is {one} but {others} {two}; sizes and colour must agree")


def _facts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores, and by method their means over the scenes and its ranks."""
    names = list(rows[0]["scores"])
    of_method: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        of_method.setdefault(row["method"], []).append(row["scores"])
    means = {
        # Not fsum, which refuses the infinite PSNR of an exact copy.
        method: {name: sum(scores[name] for scores in own) / len(own) for name in names}
        for method, own in of_method.items()
    }
    methods = [
        {"method": method, "means": means[method], "ranks": own, "mean_rank": fmean(own.values())}
        for method, own in _ranks(means).items()
    ]
    higher = dict.fromkeys(names, True)
    return {"cofuse": __version__, "higher_is_better": higher, "scores": rows, "methods": methods}


def _ranks(means: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, int]]:
    """Rank every method by every score, 1 for the best; equals share the better rank."""
    return {
        method: {
            name: 1 + sum(other[name] > score for other in means.values())
            for name, score in scores.items()
        }
        for method, scores in means.items()
    }


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line a picture, values to their last digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "scene", "picture", *rows[0]["scores"]])
    for row in rows:
        writer.writerow([row["method"], row["scene"], row["picture"], *row["scores"].values()])
    return text.getvalue()


def split_names(given: Sequence[str]) -> list[str]:
    """Read names separated by commas, or given one by one."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def score_table(means: Mapping[str, Mapping[str, float]]) -> str:
    """Lay scores out for people: the longer list downwards, ranks beside the values."""
    many = len(means) > 1
    ranks = _ranks(means)
    names = list(next(iter(means.values())))
    cells = [["", *(name.replace(scoring.CLEAN, " (clean)") for name in names)]]
    for method, scores in means.items():
        values = [f"{scores[name]:.{scoring.digits(name)}f}" for name in names]
        places = [f" ({ranks[method][name]})" if many else "" for name in names]
        cells.append([method, *map("".join, zip(values, places, strict=True))])
    if len(means) < len(names):
        cells = [list(row) for row in zip(*cells, strict=True)]
    return "\n".join([*columns(cells), "more is better" + "; (1) is the best" * many])
