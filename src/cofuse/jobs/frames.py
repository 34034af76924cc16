"""The frames of a job: which are taken, what they say of themselves, what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cofuse.alignment import Alignment, aligned
from cofuse.errors import CofuseError
from cofuse.files import Metadata, picture_files, read_alphas, read_metadata, read_stack
from cofuse.files.formats import format_of
from cofuse.files.tiff import inspect_tiff
from cofuse.images import Pixels, Stack
from cofuse.images.white import white_of_type
from cofuse.jobs.options import Reading
from cofuse.progress import ProgressCallback
from cofuse.sensor.hot_pixels import find_hot_pixels, without_hot_pixels

__all__ = [
    "Frames",
    "alpha_of",
    "in_words",
    "mend_hot_pixels",
    "parse_range",
    "range_parts",
    "read_frames",
    "take",
]

_RANGE = re.compile(r"(\d{1,9})(?:(-)(\d{1,9})?)?(?::(\d{1,9}))?")

#: Frames that are looked at for hot pixels: they are hot in all, and so many are enough.
_LOOKED_AT = 12


@dataclass(frozen=True)
class Frames:
    """The frames taken, and where they are from.

    Attributes
    ----------
    stack
        The frames.
    files
        All files that were named.
    taken
        Which of the files' frames they are, counted from 0.
    sources
        The file of every frame taken.
    versions
        Size and time of change of all files, before any was read.
    """

    stack: Stack
    files: tuple[Path, ...]
    taken: tuple[int, ...]
    sources: tuple[Path, ...]
    versions: tuple[tuple[int, int] | None, ...]

    def check_unchanged(self) -> None:
        """Refuse frames that were exchanged since: parts of a picture may be of either."""
        for file, before in zip(self.files, self.versions, strict=True):
            # What is gone was read before, or that was an error then.
            if _version(file) not in (before, None):
                raise CofuseError(f"{file} changed while it was read; run again when it is whole")

    def file_of(self, index: int) -> Path:
        """The file a frame lies in."""
        return self.sources[index]


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def read_frames(inputs: Sequence[str], reading: Reading) -> Frames:
    """Find the frames; none is decoded yet."""
    files = tuple(picture_files(inputs))
    if not files:
        raise CofuseError("no frames were given; name picture files, a folder or a TIFF")
    versions = tuple(map(_version, files))
    stack = read_stack(
        files, white=reading.white, raw_mode=reading.raw, on_damage=reading.on_damage
    )
    sources = _file_of_every_frame(files, len(stack))
    taken = tuple(range(len(stack)))
    if reading.frames is not None:
        taken = parse_range(reading.frames, len(stack))
        stack = take(stack, taken)
    return Frames(stack, files, taken, tuple(sources[index] for index in taken), versions)


def in_words(stack: Stack, *, given: bool) -> str:
    """Say what the frames' values are, and where white is not that of their type, whence it is."""
    kind = f"{'RGB' if stack.is_colour else 'grey'} {stack.dtype}"
    if stack.white == white_of_type(stack.dtype):
        return kind
    source = "given" if given else "found in them" if stack.white_is_found else "from the files"
    return f"{kind} with white at {stack.white:g} ({source})"


def _file_of_every_frame(files: Sequence[Path], count: int) -> list[Path]:
    """Repeat every file as often as it has frames."""
    if len(files) == count:
        return list(files)
    if len(files) == 1:
        return [files[0]] * count
    # Of all formats only TIFF holds several frames.
    pages = (len(inspect_tiff(f, all_pages=True)) if format_of(f) == "tiff" else 1 for f in files)
    return [file for file, n in zip(files, pages, strict=True) for _ in range(n)]


def range_parts(text: str) -> list[tuple[str, re.Match[str]]]:
    """Take frame numbers such as 3-40:2 or 1,5,9- apart at the commas."""
    parts = [part.strip() for part in text.split(",")]
    found = [(part, match) for part in parts if (match := _RANGE.fullmatch(part))]
    if len(found) < len(parts):
        raise CofuseError(
            f"`frames` is {text!r}, which is no range; expected numbers from 1 such as 3-40, "
            "3-40:2 or 1,5,9-"
        )
    return found


def parse_range(text: str, count: int) -> tuple[int, ...]:
    """Read frame numbers such as 3-40:2 or 1,5,9-; the indices are from 0."""
    found: list[int] = []
    for part, match in range_parts(text):
        first, dash, last, step = match.groups()
        end = int(last) if last else count if dash else int(first)
        if not 1 <= int(first) <= end <= count or int(step or 1) < 1:
            raise CofuseError(
                f"the frames {part!r} are not among the {count} there are; expected "
                f"numbers from 1 to {count}, the smaller first"
            )
        found += range(int(first) - 1, end, int(step or 1))
    if len(set(found)) < len(found):
        raise CofuseError(f"the frames {text!r} name a frame twice; name each once")
    return tuple(found)


def take(stack: Stack, indices: Sequence[int]) -> Stack:
    """Return a stack of some of the frames."""
    if tuple(indices) == tuple(range(len(stack))):
        return stack
    readers = [partial(stack.__getitem__, index) for index in indices]
    return stack.made_into(readers, names=[stack.names[index] for index in indices])


def mend_hot_pixels(stack: Stack, progress: ProgressCallback) -> tuple[Stack, int]:
    """Mend pixels that are hot in all frames; also says how many there are."""
    if len(stack) < 3:
        # Of two frames detail that is sharp in both cannot be told from a hot pixel safely.
        return stack, 0
    spread = np.linspace(0, len(stack) - 1, min(len(stack), _LOOKED_AT)).round().astype(int)
    found = find_hot_pixels(take(stack, [int(k) for k in spread]), progress=progress)
    places = set(zip(found.rows.tolist(), found.columns.tolist(), strict=True))
    return without_hot_pixels(stack, found), len(places)


def alpha_of(frames: Frames, alignment: Alignment | None, *, crop: bool) -> Stack | None:
    """How opaque the frames are, in the place of the aligned frames; None where all are so.

    Its white is what hides all: that of the frames, or all that their type holds where alpha goes
    beyond that, as programs write it that know nothing of 12 bits in 16.
    """
    planes = list(read_alphas(frames.files))
    taken = [planes[index] for index in frames.taken]
    most = max((float(plane.max()) for plane in taken if plane is not None), default=None)
    if most is None:
        return None
    stack = frames.stack
    beyond = most > stack.white and stack.dtype.kind == "u"
    opaque = white_of_type(stack.dtype) if beyond else stack.white
    whole = np.broadcast_to(np.asarray(opaque, stack.dtype), (stack.height, stack.width))
    readers = [
        partial(np.asarray, whole if plane is None else plane.astype(stack.dtype, copy=False))
        for plane in taken
    ]
    alphas = Stack(readers, white=opaque, names=stack.names)
    if alignment is None:
        return alphas
    # There is nothing in alphas by which they could be bent.
    unchanged = replace(alignment, gains=tuple((1.0,) for _ in alignment.gains), parallax=False)
    return aligned(alphas, unchanged, crop=crop)


def chosen_alpha(alphas: Stack, source_map: Pixels) -> Pixels:
    """Take every pixel's opacity from the frame it came from."""
    result = np.zeros(source_map.shape, alphas.dtype)
    for index, plane in enumerate(alphas):
        np.copyto(result, plane, where=source_map == index)
    return result


def reference_metadata(frames: Frames, index: int, reading: Reading) -> Metadata:
    """What the reference frame says of itself."""
    return read_metadata(frames.file_of(index), raw_mode=reading.raw)
