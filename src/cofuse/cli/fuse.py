"""``cofuse fuse``: a stack in, one sharp and clean picture out."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cofuse.cli.console import Flag, Output, Whole, progress_bars, say
from cofuse.errors import CofuseError
from cofuse.jobs.options import Aligning, Fusing, Maps, Reading, Request, Writing

__all__ = [
    "AlignOptions",
    "FuseOptions",
    "MapOptions",
    "ReadOptions",
    "WriteOptions",
    "check_pictures",
    "fuse",
]


@dataclass(frozen=True)
class FusingOptions(Fusing):
    __doc__ = Fusing.__doc__

    setting: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = ()


@dataclass(frozen=True)
class AligningOptions(Aligning):
    __doc__ = Aligning.__doc__

    reference: Whole | None = None
    align_only: Flag = False


@dataclass(frozen=True)
class WritingOptions(Writing):
    __doc__ = Writing.__doc__

    quality: Whole | None = None
    overwrite: Flag = False


ReadOptions = Annotated[Reading, Parameter(name="*", group="Frames")]
AlignOptions = Annotated[AligningOptions, Parameter(name="*", group="Alignment")]
FuseOptions = Annotated[FusingOptions, Parameter(name="*", group="Fusion")]
WriteOptions = Annotated[WritingOptions, Parameter(name="*", group="Pictures written")]
MapOptions = Annotated[Maps, Parameter(name="*", group="Maps and reports")]


def check_pictures(pictures: Sequence[str], command: str) -> None:
    """Refuse options that there are not; hyphens are let through for the lone one, a list."""
    for picture in pictures:
        if picture.startswith("-") and picture != "-" and not Path(picture).exists():
            raise CofuseError(f"there is no option {picture}; see cofuse {command} --help")


def fuse(
    *pictures: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Output,
    reading: ReadOptions = Reading(),  # noqa: B008 - frozen
    aligning: AlignOptions = AligningOptions(),
    fusing: FuseOptions = FusingOptions(),
    maps: MapOptions = Maps(),  # noqa: B008
    writing: WriteOptions = WritingOptions(),
    quiet: Flag = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Fuse pictures focused at different distances into one sharp picture, and remove noise.

    Parameters
    ----------
    pictures
        The frames in the order of their focus: picture files, folders, patterns such as
        "shots/*.tif", a multi-page TIFF, a list (@names or names.txt), or - for a list on
        standard input.
    output
        The picture to write: .tif, .png, .jpg, .webp, .ome.tif or .bmp.
    reading, aligning, fusing, maps, writing
        Options in groups.
    quiet
        No plan, no progress bars and no summary.
    as_json
        Print the report instead of the plan and the summary.
    """
    from cofuse.files import plain
    from cofuse.jobs.placing import alignment_facts
    from cofuse.jobs.run import Job

    start = time.perf_counter()
    check_pictures(pictures, "fuse")
    job = Job(Request(pictures, output, reading, aligning, fusing, writing, maps))
    told = not (quiet or as_json)
    if told:
        say(str(job.plan))
    with progress_bars(quiet=quiet) as progress:
        if aligning.align_only:
            alignment = job.align_only(progress)
            if as_json:
                print(json.dumps(plain(alignment_facts(alignment)), indent=2, ensure_ascii=False))
            elif told:
                print(
                    f"{len(alignment.kept)} of {len(alignment.names)} frames aligned, moved by up "
                    f"to {alignment.largest_displacement():.1f} pixels, "
                    f"{time.perf_counter() - start:.1f} s: {output}"
                )
            return
        outcome = job.run(progress)
    if as_json:
        print(json.dumps(outcome.report, indent=2, ensure_ascii=False))
    elif told:
        print(outcome.summary(time.perf_counter() - start, output))
