"""The frames of a job: found, mended, brought into place."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofuse.alignment import Alignment, align_stack, aligned, alignment_from_json
from cofuse.alignment.warping import check_fits
from cofuse.arguments import check_number
from cofuse.errors import CofuseError
from cofuse.files import Metadata, picture_files, read_metadata
from cofuse.files.decoding import Picture
from cofuse.files.reading import inspect, stack_of
from cofuse.images import Stack
from cofuse.images.pixels import white_of_type
from cofuse.jobs.options import Aligning, Request, parse_range, read_saved
from cofuse.progress import ProgressCallback
from cofuse.sensor.hot_pixels import find_hot_pixels, without_hot_pixels

#: Most frames that are searched for hot pixels: these are hot in all frames.
_SEARCHED = 12


@dataclass(frozen=True)
class Frames:
    """The frames taken for a request, and where they are from."""

    request: Request
    stack: Stack
    #: All files that were named, with their size and time of change before any was read.
    files: dict[Path, tuple[int, int] | None]
    #: Index of every frame taken among all frames of the files, and what its header says.
    taken: tuple[int, ...]
    pictures: tuple[Picture, ...]
    #: The alignment that was saved by an earlier run, if one was given, and the reference frame.
    saved: Alignment | None
    reference: int

    @cached_property
    def metadata(self) -> Metadata:
        """Metadata of the reference frame."""
        return self.metadata_of(self.reference)

    def metadata_of(self, index: int) -> Metadata:
        """Read the metadata of a frame."""
        return read_metadata(self.pictures[index].path, raw_mode=self.request.reading.raw)

    def distance(self, kept: Sequence[int]) -> float | None:
        """Micrometres between the focus planes of neighbouring frames among those kept.

        None if the files do not say it, or these are not evenly spaced.
        """
        size, steps = self.metadata.pixel_size, np.diff([self.taken[index] for index in kept])
        if size is None or size[2] is None or not (steps == steps[0]).all():
            return None
        return float(size[2] * steps[0])

    def check_unchanged(self) -> None:
        """Refuse frames that were exchanged since: parts of a picture may be of either."""
        for file, before in self.files.items():
            # What is gone was read before, or that was an error then.
            if _version(file) not in (before, None):
                raise CofuseError(f"{file} changed while it was read; run again when it is whole")


def _version(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = file.stat()
        return found.st_size, found.st_mtime_ns
    return None


def read_frames(request: Request) -> Frames:
    """Find the frames, and read the transforms that were saved for them; none is decoded yet."""
    reading, files = request.reading, picture_files(request.inputs)
    versions = {file: _version(file) for file in files}
    pictures = inspect(files, raw_mode=reading.raw, on_damage=reading.on_damage)
    stack, taken = stack_of(pictures, white=reading.white), tuple(range(len(pictures)))
    if reading.frames is not None:
        taken = parse_range(reading.frames, len(stack))
        stack = stack.only(taken)
    saved, reference = _reference(stack, request.aligning)
    own = tuple(pictures[index] for index in taken)
    return Frames(request, stack, versions, taken, own, saved, reference)


def stack_in_words(stack: Stack) -> str:
    """Say how many frames there are, their size and their type."""
    kind = f"{'RGB' if stack.is_colour else 'grey'} {stack.dtype}"
    return f"{frames_in_words(len(stack))} of {stack.width}x{stack.height} {kind}"


def frames_in_words(count: int) -> str:
    """Say a number of frames."""
    return f"{count} frame{'s' * (count != 1)}"


def frame_facts(stack: Stack) -> dict[str, Any]:
    """Describe frames for reports."""
    return {
        "count": len(stack),
        "names": stack.names,
        "width": stack.width,
        "height": stack.height,
        "colour": stack.is_colour,
        "dtype": stack.dtype.name,
        "white": stack.white,
        "white_found": stack.white_is_found,
    }


def _reference(stack: Stack, aligning: Aligning) -> tuple[Alignment | None, int]:
    """Read the saved alignment, if one is given; and find the index of the reference frame."""
    asked, path = aligning.reference, aligning.transforms
    if path is None:
        if asked is None:
            return None, len(stack) // 2
        check_number("reference", asked, 1, len(stack), whole=True)
        return None, asked - 1
    alignment = read_saved(path, alignment_from_json, "a file that `save_transforms` named")
    try:
        check_fits(stack, alignment)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error
    if asked not in (None, alignment.reference + 1):
        raise CofuseError(
            f"the reference is frame {asked}, but the transforms in {path} are for "
            f"frame {alignment.reference + 1}; leave `reference` out, or align the stack anew"
        )
    if not aligning.match_exposure:
        alignment = replace(alignment, gains=tuple((1.0,) * len(g) for g in alignment.gains))
    alignment = replace(alignment, parallax=alignment.parallax and aligning.parallax)
    return alignment, alignment.reference


class Prepared(NamedTuple):
    """Frames without hot pixels and in place, the alignment if any, and the hot pixels' number."""

    stack: Stack
    alignment: Alignment | None
    hot_pixels: int


def prepare_frames(
    frames: Frames, progress: ProgressCallback, seconds: dict[str, float]
) -> Prepared:
    """Mend and align frames, as far as that is asked for; ``seconds`` takes how long it took."""
    aligning, stack, hot = frames.request.aligning, frames.stack, 0
    if frames.request.reading.hot_pixels == "auto":
        with timed("hot pixels", seconds):
            stack, hot = mend_hot_pixels(stack, progress)
    if not aligning.align:
        return Prepared(stack, None, hot)
    with timed("alignment", seconds):
        alignment = frames.saved or align_stack(
            stack,
            model=aligning.transform,
            reference=frames.reference,
            on_failure=aligning.on_failure,
            match_exposure=aligning.match_exposure,
            parallax=aligning.parallax,
            progress=progress,
        )
    for index, reason in alignment.left_out.items():
        warnings.warn(f"{stack.names[index]} is left out: {reason}", stacklevel=2)
    return Prepared(aligned(stack, alignment, crop=aligning.crop), alignment, hot)


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    """Note how long a part of the work takes."""
    start = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - start


def mend_hot_pixels(stack: Stack, progress: ProgressCallback) -> tuple[Stack, int]:
    """Mend pixels that are hot in all frames; also returns how many there are."""
    spread = np.linspace(0, len(stack) - 1, min(len(stack), _SEARCHED)).round().astype(int)
    found = find_hot_pixels(stack.only(spread.tolist()), progress=progress)
    return without_hot_pixels(stack, found), len(np.unique(found[:, :2], axis=0))


def alpha_of(frames: Frames, alignment: Alignment | None) -> Stack | None:
    """Read how opaque the frames are, in the places of the aligned frames; None if all are.

    The white of the result is what is opaque: that of the frames, or the largest value of their
    type where alpha goes beyond that, as in files of programs that know nothing of 12 bits in 16.
    """
    planes = [picture.decode_alpha() for picture in frames.pictures]
    most = max((float(plane.max()) for plane in planes if plane is not None), default=None)
    if most is None:
        return None
    stack = frames.stack
    beyond = most > stack.white and stack.dtype.kind == "u"
    opaque = white_of_type(stack.dtype) if beyond else stack.white
    whole = np.broadcast_to(np.asarray(opaque, stack.dtype), (stack.height, stack.width))
    readers = [
        partial(np.asarray, whole if plane is None else plane.astype(stack.dtype, copy=False))
        for plane in planes
    ]
    alphas = Stack(readers, white=opaque, names=stack.names)
    if alignment is None:
        return alphas
    # There is nothing in alphas by which they could be bent.
    unchanged = replace(alignment, gains=tuple((1.0,) for _ in alignment.gains), parallax=False)
    return aligned(alphas, unchanged, crop=frames.request.aligning.crop)


def alignment_facts(alignment: Alignment) -> dict[str, object]:
    """Describe an alignment for reports."""
    return {
        "transform": alignment.model,
        "reference": alignment.names[alignment.reference],
        "already_aligned": alignment.already_aligned,
        "parallax": alignment.parallax,
        "largest_displacement": alignment.largest_displacement(),
        "left_out": {alignment.names[k]: reason for k, reason in alignment.left_out.items()},
        "matrices": [None if t is None else t.matrix.tolist() for t in alignment.transforms],
        "brightness": alignment.brightness,
        "gains": [list(gains) for gains in alignment.gains],
    }
