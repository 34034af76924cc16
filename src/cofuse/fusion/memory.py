"""The memory and time that a fusion will take, known before the first frame is decoded.

Frames, and whole pictures in floats, lie in temporary files, which the system keeps in memory as
long as there is room. What the process itself holds are the result, its maps and the tiles at work.
The byte counts were measured on colour stacks of 2 to 24 megapixels (`benchmarks/memory.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from cofuse.errors import CofuseError
from cofuse.images.memory import default_ceiling, format_size, most_memory, used_memory

#: Bytes of the program with its libraries and compiled kernels.
_PROGRAM = 220_000_000
#: Bytes that every stage takes whatever the size of the picture, and that the noise estimate takes.
_SPARE, _NOISE = 60_000_000, 360_000_000
#: Bytes a pixel, beside the result, of `paper`.
_PAPER_BYTES = 650
#: Seconds of one processor to weigh and mix a pixel of a frame, and to restore one of the picture.
_SECONDS_TO_WEIGH, _SECONDS_TO_RESTORE = 1.2e-6, 2.4e-6


@dataclass(frozen=True)
class Work:
    """What is to be fused: frames of a shape and dtype, by a preset.

    ``in_memory`` says that the frames are arrays which the process has already, ``restores`` that
    noise may have to be taken out.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    frames: int
    preset: str = "auto"
    in_memory: bool = False
    restores: bool = True


@dataclass(frozen=True)
class Plan:
    """Side of the tiles of `auto` in pixels, and the bytes needed at most."""

    side: int
    peak: int


def plan_fusion(work: Work, *, max_memory: int | None = None, begun: bool = False) -> Plan:
    """Choose the tiles.

    Parameters
    ----------
    work
        What is to be fused.
    max_memory
        Most bytes that the process may have. Default: a safe share of what is free.
    begun
        Whether the frames are at hand already: then too little free memory is no longer a reason
        to refuse, only ``max_memory`` is.

    Raises
    ------
    CofuseError
        Even with small tiles it would take more than ``max_memory``, or than there is.
    """
    from cofuse.model import weighing  # loads OpenCV, which takes a while

    least = _peak(work, weighing.LEAST_SIDE)
    most = max_memory or least if begun else most_memory(max_memory)
    if least > most:
        height, width = work.shape[:2]
        named = max_memory is not None and most == max_memory
        remedy = "close other programs, raise the limit that is set"
        if named:
            remedy = "allow more with `max_memory`"
        raise CofuseError(
            f"{work.frames} frames of {width}x{height} pixels need {format_size(least)} of memory "
            f"at least, but only {format_size(most)} {'may be used' if named else 'can be had'}; "
            f"{remedy}, or make the frames smaller"
        )
    # What the caller has already, leftovers and arrays, makes tiles smaller but refuses nothing.
    more = max(0, used_memory() - _PROGRAM)
    left = (default_ceiling() if max_memory is None else max_memory) - more
    side = next(
        (s for s in weighing.tile_sides(work.frames) if _peak(work, s) <= left), weighing.LEAST_SIDE
    )
    return Plan(side, _peak(work, side))


def least_memory(work: Work) -> int:
    """Bytes that a fusion takes with small tiles."""
    from cofuse.model import weighing  # loads OpenCV, which takes a while

    return _peak(work, weighing.LEAST_SIDE)


def estimate_seconds(work: Work, *, restore: bool, processors: int) -> float:
    """Estimate roughly, to a factor of two or so, how long the trained model will take."""
    height, width = work.shape[:2]
    seconds = work.frames * _SECONDS_TO_WEIGH + _SECONDS_TO_RESTORE * restore
    return height * width * seconds / processors


def _peak(work: Work, side: int) -> int:
    """Most bytes of the process at any stage, beside arrays of the caller's."""
    from cofuse.fusion import fast
    from cofuse.model import restoring, weighing

    height, width = work.shape[:2]
    pixels, channels = height * width, math.prod(work.shape[2:])
    frame = pixels * channels * np.dtype(work.dtype).itemsize
    # While frames come in: the file, the picture, the aligned picture, and the reference.
    stages = [0 if work.in_memory else 5 * frame]
    if work.preset == "paper":
        stages.append(_PAPER_BYTES * pixels + frame)
    else:
        maps = pixels * ((1 if work.frames <= 256 else 2) + 4)
        tiles = weighing.working_bytes((height, width), work.frames, side)
        if work.preset == "fast":
            tiles = fast.working_bytes((height, width))
        if work.restores:
            tiles = max(tiles, restoring.working_bytes((height, width)))
        stages += [
            (0 if work.in_memory else frame) + _NOISE,
            maps + frame + tiles,
            maps + 3 * frame,  # writing to a compressed format
        ]
    return _PROGRAM + _SPARE + max(stages)
