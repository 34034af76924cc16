"""``cofuse fuse``: a stack in, one sharp and clean picture out."""

# Annotations are not postponed: commands in other modules take these classes further.

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from cofuse.cli import say
from cofuse.cli.application import COMMON, Flag, Output, Printing, Whole
from cofuse.errors import CofuseError
from cofuse.jobs.options import Aligning, Fusing, Maps, Reading, Request, Writing

#: What most people need is shown first, all else in groups of its own.
_COMMON = Parameter(group=COMMON)
HIDDEN = Parameter(parse=False)
_FUSION, _MAPS, _ALIGNMENT, _FILES = (
    Parameter(name="*", group=Group(name, sort_key=number), show_choices=False)
    for number, name in enumerate(
        ("Fusion", "Maps and reports", "Alignment", "Frames and files"), 1
    )
)


@_FUSION
@dataclass(frozen=True)
class FusingOptions(Fusing):
    preset: Annotated[str, _COMMON] = "auto"
    sigma: Annotated[str, _COMMON] = "auto"
    denoise: Annotated[float, _COMMON] = 1.0
    setting: Annotated[
        tuple[str, ...], Parameter(name="--set", negative=(), show_default=False)
    ] = ()


@_MAPS
@dataclass(frozen=True)
class MapOptions(Maps):
    depth_map: Annotated[Path | None, _COMMON] = None


@_ALIGNMENT
@dataclass(frozen=True)
class AligningOptions(Aligning):
    align: Annotated[bool, _COMMON] = True
    reference: Whole | None = None
    align_only: Flag = False


@dataclass(frozen=True)
class PlacingOptions(AligningOptions):
    """Those of a command that finds where frames lie, and writes something else."""

    save_transforms: Annotated[Path | None, HIDDEN] = None
    align_only: Annotated[bool, HIDDEN] = False


@_FILES
@dataclass(frozen=True)
class ReadingOptions(Reading):
    frames: Annotated[str | None, _COMMON] = None


@_FILES
@dataclass(frozen=True)
class WritingOptions(Writing):
    bit_depth: Annotated[Literal["8", "16", "float"] | None, _COMMON] = None
    quality: Whole | None = None
    overwrite: Annotated[Flag, _COMMON] = False


def check_pictures(pictures: Sequence[str], command: str) -> None:
    """Refuse unknown options: hyphens are let through for the lone one, a list of frames."""
    for picture in pictures:
        if picture.startswith("-") and picture != "-" and not Path(picture).exists():
            raise CofuseError(f"there is no option {picture}; see cofuse {command} --help")


def fuse(
    *pictures: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Output,
    fusing: FusingOptions = FusingOptions(),
    aligning: AligningOptions = AligningOptions(),
    reading: ReadingOptions = ReadingOptions(),
    maps: MapOptions = MapOptions(),
    writing: WritingOptions = WritingOptions(),
    printing: Printing = Printing(),
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
    """
    from cofuse.jobs.frames import alignment_facts
    from cofuse.jobs.run import Job

    start = time.perf_counter()
    check_pictures(pictures, "fuse")
    job = Job(Request(pictures, output, reading, aligning, fusing, writing, maps))
    if not (printing.quiet or printing.as_json):
        say(job.plan)
    with printing.progress() as progress:
        if aligning.align_only:
            alignment = job.align_only(progress)
            facts = alignment_facts(alignment)
            words = (
                f"{len(alignment.kept)} of {len(alignment.names)} frames aligned, moved by up to "
                f"{alignment.largest_displacement():.1f} pixels"
            )
        else:
            outcome = job.run(progress)
            facts, words = outcome.report, outcome.summary()
    words = f"{words}, {time.perf_counter() - start:.1f} s: {output}"
    printing.result(facts, words)
