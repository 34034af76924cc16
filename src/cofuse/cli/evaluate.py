"""``cofuse evaluate``: how good fused pictures are, by the scores of the field."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cofuse.cli.console import Flag, progress_bars
from cofuse.errors import CofuseError
from cofuse.files.formats import OnDamage
from cofuse.images import Pixels
from cofuse.progress import Progress

if TYPE_CHECKING:
    from cofuse.evaluation.scenes import Scene

__all__ = ["evaluate", "plain_scores", "score_digits", "score_table", "split_names"]

#: Digits after the point, where they are not four.
_DIGITS = {"psnr": 2, "gradient_error": 3, "seconds": 2}


def evaluate(
    *fused: Path,
    sources: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
    truth: Path | None = None,
    clean_sources: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
    scenes: Path | None = None,
    metrics: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
    white: float | None = None,
    on_damage: OnDamage = "refuse",
    csv_file: Annotated[Path | None, Parameter(name="--csv")] = None,
    report: Path | None = None,
    overwrite: Flag = False,
    quiet: Flag = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
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
        The sharp picture without noise, for psnr, ssim and gradient_error.
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
    overwrite
        Replace output files that exist.
    quiet
        No progress bars and no table.
    as_json
        Print JSON instead of the table.
    """
    from cofuse.evaluation.metrics.scoring import choose_metrics, score_columns
    from cofuse.evaluation.scenes import find_scenes, gather_scene
    from cofuse.files import check_report, write_json, written_whole

    if not fused:
        raise CofuseError("no fused pictures were given; name picture files or folders of them")
    if scenes is None:
        plan = [
            gather_scene(sources, clean_sources=clean_sources, truth=truth, fused=fused),
        ]
    elif sources or clean_sources or truth:
        raise CofuseError("--scenes brings sources and truth of its own; leave the others out")
    else:
        plan = find_scenes(scenes, fused)
    names = choose_metrics(
        split_names(metrics),
        sources=all(scene.sources for scene in plan),
        truth=all(scene.truth for scene in plan),
    )
    clean = all(scene.clean_sources for scene in plan)
    outputs = [path for path in (csv_file, report) if path is not None]
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise CofuseError("two outputs have the same file name; give each its own")
    for path in outputs:
        check_report(path, overwrite=overwrite)
    rows = _score_all(plan, names, clean=clean, white=white, on_damage=on_damage, quiet=quiet)
    columns = score_columns(names, clean=clean)
    facts = _facts(rows, columns)
    if csv_file:
        with written_whole(csv_file, overwrite=overwrite) as file:
            file.write(_csv(rows, columns).encode())
    if report:
        write_json(report, facts, overwrite=overwrite)
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif not quiet:
        print(score_table(_means(rows), columns))
        if scenes is not None:
            print(f"means over {len(plan)} scene{'s' * (len(plan) > 1)}")


def _score_all(
    plan: Sequence[Scene],
    names: Sequence[str],
    *,
    clean: bool,
    white: float | None,
    on_damage: OnDamage,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Score every picture of every scene; one row a picture."""
    from cofuse.evaluation.metrics.scoring import score, to_scored_grey
    from cofuse.files import read_image

    rows = []
    total = sum(len(scene.fused) for scene in plan)
    with progress_bars(quiet=quiet) as progress:
        for scene in plan:
            sources = [read_image(path, on_damage=on_damage) for path in scene.sources]
            clean_sources = [read_image(path) for path in scene.clean_sources]
            truth = None if scene.truth is None else read_image(scene.truth)
            paths = (*scene.sources, *scene.clean_sources)
            others = dict(zip(paths, sources + clean_sources, strict=True))
            greys = [to_scored_grey(source, white=white) for source in sources]
            clean_greys = [to_scored_grey(source, white=white) for source in clean_sources]
            for method, path in scene.fused.items():
                picture = read_image(path)
                for name, other in others.items():
                    if other.shape[:2] != picture.shape[:2]:
                        raise _mismatch(path, picture, name, other)
                if truth is not None and truth.shape != picture.shape:
                    assert scene.truth is not None
                    raise _mismatch(path, picture, scene.truth, truth)
                scores = score(
                    picture,
                    metrics=names,
                    sources=greys,
                    clean_sources=clean_greys,
                    truth=truth,
                    white=white,
                )
                rows.append(
                    {"method": method, "scene": scene.name, "picture": str(path), "scores": scores}
                )
                progress(Progress("scoring", len(rows), total))
    return rows


def _mismatch(path: Path, picture: Pixels, other_path: Path, other: Pixels) -> CofuseError:
    """Say that two pictures cannot be compared."""
    from cofuse.files.decoding import describe

    one, two = describe(picture.shape, picture.dtype), describe(other.shape, other.dtype)
    return CofuseError(f"{path} is {one} but {other_path} is {two}; crop or convert one of them")


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean scores over the scenes, by method."""
    gathered: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        gathered.setdefault(row["method"], []).append(row["scores"])
    return {
        method: {
            # Not fsum, which refuses the infinite PSNR of an exact copy.
            column: sum(scores[column] for scores in some) / len(some)
            for column in some[0]
        }
        for method, some in gathered.items()
    }


def _ranks(
    means: Mapping[str, Mapping[str, float]], columns: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Rank of every method in every column."""
    from cofuse.evaluation.metrics.scoring import higher_is_better, rank

    ranks: dict[str, dict[str, int]] = {method: {} for method in means}
    for column in columns:
        values = {method: scores[column] for method, scores in means.items()}
        for method, place in rank(values, higher_is_better=higher_is_better(column)).items():
            ranks[method][column] = place
    return ranks


def _facts(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Scores, means and ranks, as they stand in the JSON report."""
    from cofuse import __version__
    from cofuse.evaluation.metrics.scoring import higher_is_better

    means = _means(rows)
    ranks = _ranks(means, columns)
    return {
        "cofuse": __version__,
        "higher_is_better": {column: higher_is_better(column) for column in columns},
        "scores": [{**row, "scores": plain_scores(row["scores"])} for row in rows],
        "methods": [
            {
                "method": method,
                "means": plain_scores(scores),
                "ranks": ranks[method],
                "mean_rank": sum(ranks[method].values()) / len(columns),
            }
            for method, scores in means.items()
        ],
    }


def plain_scores(scores: Mapping[str, float]) -> dict[str, float | None]:
    """Replace by None what JSON cannot hold, such as the infinite PSNR of equal pictures."""
    return {name: float(v) if math.isfinite(v) else None for name, v in scores.items()}


def _csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """One line a picture, values to their last digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "scene", "picture", *columns])
    for row in rows:
        values = [repr(float(row["scores"][column])) for column in columns]
        writer.writerow([row["method"], row["scene"], row["picture"], *values])
    return text.getvalue()


def split_names(given: Sequence[str]) -> list[str]:
    """Read names separated by commas, or given one by one."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def score_digits(column: str) -> int:
    """Digits after the point that are worth reading."""
    return _DIGITS.get(column.removesuffix("_clean"), 4)


def score_table(means: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    """Lay scores out for people: the longer list downwards, ranks beside the values."""
    from cofuse.evaluation.metrics.scoring import higher_is_better

    ranks = _ranks(means, columns)
    up, down = _arrows()
    heads = {
        c: f"{c.replace('_clean', ' (clean)')} {up if higher_is_better(c) else down}"
        for c in columns
    }
    cells = [["", *heads.values()]]
    for method, scores in means.items():
        values = [f"{scores[column]:.{score_digits(column)}f}" for column in columns]
        if len(means) > 1:
            values = [f"{v} ({ranks[method][c]})" for v, c in zip(values, columns, strict=True)]
        cells.append([method, *values])
    if len(means) < len(columns):
        cells = [list(row) for row in zip(*cells, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first, *rest = row
        padded = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *padded]).rstrip())
    best = "; (1) is the best" if len(means) > 1 else ""
    lines.append(f"{up} more is better, {down} less is better{best}")
    return "\n".join(lines)


def _arrows() -> tuple[str, str]:
    """Arrows, where standard output can hold them."""
    try:
        "↑↓".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "+", "-"
    return "↑", "↓"
