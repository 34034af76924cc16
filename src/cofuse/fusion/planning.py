"""What a fusion will take: which of its data to keep in memory and which in files, and the time.

The figures were measured on colour stacks of 2 to 24 megapixels (`benchmarks/memory.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import DTypeLike

from cofuse.errors import CofuseError
from cofuse.images.memory import default_ceiling, format_size, most_memory
from cofuse.model import restoring, weighing

__all__ = ["Plan", "Work", "estimate_seconds", "least_memory", "plan_fusion"]

#: More than this beside what the process already has makes nothing notably faster: what is written
#: to a file and read again soon has not left the memory that the system has to spare.
_COMFORTABLE = 1_200_000_000
#: Libraries and compiled kernels, where they are not loaded yet.
_PROGRAM = 220_000_000
#: What every stage takes in bands, blocks, patches and leftovers, whatever the picture's size.
_SPARE = 60_000_000
_NOISE_BYTES = 360_000_000

#: Bytes a pixel, beside frames and result, of the other methods.
_SHRINKAGE_BYTES, _SHRINKAGE_BYTES_A_CHANNEL = 40, 20
_LETTER_BYTES = 650

#: Seconds of one processor for a pixel of a frame to be weighed and mixed, and for one of the
#: picture to be restored.
_SECONDS_TO_WEIGH, _SECONDS_TO_RESTORE = 1.2e-6, 2.4e-6


@dataclass(frozen=True)
class Plan:
    """What is kept in memory; the rest is in temporary files or read again.

    Attributes
    ----------
    keep_features
        What the networks saw in all frames of a large tile; otherwise they look twice, in small
        ones.
    keep_pictures
        The whole mixture, and the noise left in it.
    keep_frames
        All frames as they were read.
    peak
        Most bytes of memory that the process is expected to have.
    """

    keep_features: bool = True
    keep_pictures: bool = True
    keep_frames: bool = True
    peak: int = 0


@dataclass(frozen=True)
class Work:
    """What is to be fused: so many frames of a shape and dtype, by a method of `FusionSettings`.

    ``in_memory`` says that the frames are arrays which the process has already, ``restores`` that
    noise may have to be taken out.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    frames: int
    method: str = "mixed"
    in_memory: bool = False
    restores: bool = True


_SWITCHES = [field.name for field in fields(Plan) if field.name != "peak"]
_NOTHING = Plan(**dict.fromkeys(_SWITCHES, False))


def least_memory(work: Work, used: int = _PROGRAM) -> int:
    """Return the bytes that a fusion takes with everything in files."""
    return _peak(work, _NOTHING, used)


def plan_fusion(
    work: Work, *, max_memory: int | None = None, used: int = _PROGRAM, begun: bool = False
) -> Plan:
    """Decide what to keep in memory.

    Parameters
    ----------
    work
        What is to be fused.
    max_memory
        Most bytes that the process may have. Default: a safe share of what is free, and no more
        than helps.
    used
        Bytes it has before, with all libraries.
    begun
        Whether the frames are at hand already, so that it is too late to ask what there is.
        Named bytes count all the same.

    Raises
    ------
    CofuseError
        Even with everything in files it would take more than ``max_memory``, or than there is.
    """
    # Leftovers of earlier work and arrays of the caller's are no reason to refuse.
    least = least_memory(work, min(used, _PROGRAM))
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
    ceiling = max_memory
    if ceiling is None:
        ceiling = min(default_ceiling(), max(used + _COMFORTABLE, least_memory(work, used)))
    plan = _NOTHING
    # In the order of what it would cost to do without, by the byte.
    for name in _SWITCHES:
        more = replace(plan, **{name: True})
        if _peak(work, more, used) <= ceiling:
            plan = more
    return replace(plan, peak=_peak(work, plan, used))


def estimate_seconds(work: Work, *, restore: bool, processors: int) -> float:
    """Estimate roughly, to a factor of two or so, how long the trained model will take."""
    height, width = work.shape[:2]
    seconds = work.frames * _SECONDS_TO_WEIGH + _SECONDS_TO_RESTORE * restore
    return height * width * seconds / processors


def _peak(work: Work, plan: Plan, used: int) -> int:
    """Most bytes at any stage."""
    frame = math.prod(work.shape) * np.dtype(work.dtype).itemsize
    kept = work.frames * frame if plan.keep_frames and not work.in_memory else 0
    # While frames come in: file, picture, what it becomes in its place, and the reference.
    reading = 0 if work.in_memory else 5 * frame
    stages = _mixed(work, plan, frame) if work.method == "mixed" else [_other(work, frame)]
    return used + kept + _SPARE + max(reading, *stages)


def _mixed(work: Work, plan: Plan, frame: int) -> list[int]:
    """Bytes in the stages of the trained model's method, beside the frames."""
    height, width = work.shape[:2]
    pixels = height * width
    maps = pixels * ((1 if work.frames <= 256 else 2) + 4)
    one = 0 if work.in_memory or plan.keep_frames else frame
    # The mixture in floats, and the noise left in it.
    pictures = pixels * 4 * (_channels(work) + 1) if plan.keep_pictures and work.restores else 0
    weighed = weighing.working_bytes((height, width), work.frames, keep=plan.keep_features)
    restored = restoring.working_bytes((height, width)) if work.restores else 0
    return [
        one + _NOISE_BYTES,
        maps + frame + pictures + max(weighed, restored),
        maps + 3 * frame,  # writing, in a format that is compressed
    ]


def _other(work: Work, frame: int) -> int:
    """Bytes of the other methods, which hold whole pictures in floats."""
    pixels = work.shape[0] * work.shape[1]
    if work.method == "letter":
        return _LETTER_BYTES * pixels + frame
    return (_SHRINKAGE_BYTES + _SHRINKAGE_BYTES_A_CHANNEL * _channels(work)) * pixels + frame


def _channels(work: Work) -> int:
    return work.shape[2] if len(work.shape) == 3 else 1
