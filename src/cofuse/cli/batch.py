"""``cofuse batch``: many stacks in one go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cofuse.cli import Interruption, say
from cofuse.cli.application import Flag, Output, Printing, Whole, columns, in_options
from cofuse.cli.fuse import HIDDEN, FusingOptions, PlacingOptions, ReadingOptions, WritingOptions
from cofuse.errors import CofuseError
from cofuse.jobs.options import Request

if TYPE_CHECKING:
    from cofuse.jobs.batch import Result


@dataclass(frozen=True)
class BatchAligning(PlacingOptions):
    transforms: Annotated[Path | None, HIDDEN] = None  # of one stack


def batch(
    *folders: Path,
    output: Output,
    recursive: Flag = False,
    pattern: str | None = None,
    gap: float | None = None,
    least: Whole = 2,
    picture_format: Annotated[
        Literal["tif", "png", "jpg", "webp"], Parameter(name="--format")
    ] = "tif",
    depth_maps: Flag = False,
    source_maps: Flag = False,
    reading: ReadingOptions = ReadingOptions(),
    aligning: BatchAligning = BatchAligning(),
    fusing: FusingOptions = FusingOptions(),
    writing: WritingOptions = WritingOptions(),
    dry_run: Flag = False,
    printing: Printing = Printing(),
) -> int:
    r"""Fuse many stacks in one go; run again, it does what is not done yet.

    Every folder that holds pictures is one stack: those given and their sub-folders. A stack that
    fails, or a folder that cannot be read, does not stop the others; the exit code is then 1.
    Several runs may share the work: each leaves out the stacks that another one is at.

    Parameters
    ----------
    folders
        Where to look for stacks.
    output
        The folder for the results, made if need be: of every stack NAME.tif and NAME.json, its
        report, by which a later run knows what is done; and batch.json, which tells of all.
    recursive
        Look into sub-folders at any depth.
    pattern
        Group the pictures of a folder by their names instead: a regular expression for the whole
        name, whose first group (or that named stack) names the stack, such as (.+)_\d+.jpg; one
        that repeats a repetition, as (a+)+ does, may take hours over a name (Ctrl-C stops it)
    gap
        Begin a new stack where the pause between two pictures of a folder, by the time they were
        taken, is longer than this many seconds; a stack is named after its first picture. With
        --pattern, within each of its groups.
    least
        Fewest frames of a stack; stacks with fewer are skipped.
    picture_format
        Format of the pictures.
    depth_maps
        Also write the depth of every stack, as NAME-depth.png; see --depth-map of cofuse fuse.
    source_maps
        Also write which frames the pixels came from, as NAME-source.png.
    reading, aligning, fusing, writing
        Options in groups. With --overwrite, stacks are done again whose frames or options have
        changed since they were done.
    dry_run
        List the stacks and what would be done; do nothing.
    """
    from cofuse.jobs.batch import LEFT, SUMMARY, Batch
    from cofuse.jobs.grouping import find_groups

    start = time.perf_counter()
    if not folders:
        raise CofuseError("no folders were given; name those that hold the stacks")
    groups = find_groups(
        folders,
        recursive=recursive,
        pattern=pattern,
        gap=gap,
        leave_out=output,
        taken=(Path(SUMMARY).stem,),  # whose report would be the summary
    )
    like = Request((), output, reading, aligning, fusing, writing)
    jobs = Batch(output, like, f".{picture_format}", least, depth_maps, source_maps)
    jobs.check(groups)
    plan = [jobs.plan(group) for group in groups]
    if all(stack.state == "skipped" for stack in plan):
        few = f" but {len(plan)} with fewer than {least} frames" if plan else ""
        raise CofuseError(
            f"no stacks were found{few}; expected folders of pictures, or a --pattern or --gap by "
            "which they can be told apart"
        )
    if dry_run:
        replace(printing, quiet=False).result(jobs.facts(plan), _table(plan))
        return 0
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CofuseError(f"the folder {output} cannot be made: {error.strerror}") from error
    results: dict[str, Result] = {}
    # What another run is at work on comes last: that may fail, or be stopped.
    for number, group in [*enumerate(groups, 1)] * 2:
        if group.name in results and results[group.name].state != "in work":
            continue
        with printing.progress() as progress:
            result = jobs.run(group, progress)
        Interruption.check()
        for warning in result.warnings:
            say(f"warning: {group.name}: {in_options(warning, ['batch'])}")
        if (not printing.quiet or result.state in LEFT) and result != results.get(group.name):
            say(f"[{number}/{len(groups)}] {group.name}: {in_options(str(result), ['batch'])}")
        results[group.name] = result
    outcome = jobs.write_summary(groups, [results[group.name] for group in groups])
    words = f"{_table(outcome)}, {time.perf_counter() - start:.1f} s: {output}"
    printing.result(jobs.facts(outcome), words)
    return int(any(result.state in LEFT for result in outcome))


def _table(results: Sequence[Result]) -> str:
    """Lay out the stacks and their states, with a count of each state in the last line."""
    rows = [("stack", "frames", "size", "sigma", "seconds", "state")]
    for result in results:
        facts = ("-", "-", "-")
        if result.width is not None:
            size = f"{result.width}x{result.height}"
            facts = (size, f"{result.sigma:.1f}", f"{result.seconds:.1f}")
        rows.append((result.name, str(result.frames), *facts, str(result)))
    counts = Counter(result.state for result in results)
    last = ", ".join(f"{count} {state}" for state, count in counts.items())
    return in_options("\n".join([*columns(rows, left=(0, 5)), last]), ["batch"])
