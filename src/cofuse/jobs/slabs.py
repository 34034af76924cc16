"""Slabs: neighbouring frames fused first, kept as pictures of their own, and fused again."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import read_stack
from cofuse.files.encoding import suffix_of
from cofuse.files.transaction import Transaction
from cofuse.images import Fusion, Stack
from cofuse.jobs.frames import take
from cofuse.jobs.options import Writing
from cofuse.jobs.outputs import check_distinct, write_picture
from cofuse.progress import Progress, ProgressCallback
from cofuse.sensor import NoiseLaw

if TYPE_CHECKING:
    from cofuse.jobs.run import Job

__all__ = [
    "check_slab_size",
    "check_slabs",
    "fuse_slabs",
    "slab_folder",
    "slab_paths",
    "slab_ranges",
]

_SLAB = re.compile(r"slab-\d{3,}\.tif")


def slab_ranges(count: int, size: int, overlap: int) -> list[range]:
    """Cut frames into slabs of ``size``, neighbours sharing ``overlap``; the last may be short.

    >>> slab_ranges(7, 3, 1)
    [range(0, 3), range(2, 5), range(4, 7)]
    """
    check_slab_size(size, overlap)
    ranges, start = [], 0
    while True:
        stop = min(start + size, count)
        ranges.append(range(start, stop))
        if stop == count:
            return ranges
        start += size - overlap


def check_slab_size(size: int | None, overlap: int) -> None:
    """Refuse slabs of fewer than two frames, and such as share all of them or fewer than none."""
    if size is None:
        if overlap:
            raise CofuseError("`slab_overlap` is for slabs; say how many frames with `slab`")
        return
    if size < 2:
        raise CofuseError(f"a slab is to have {size} frames; expected 2 or more")
    if not 0 <= overlap < size:
        raise CofuseError(
            f"slabs of {size} frames are to share {overlap}; expected 0 to {size - 1}"
        )


def slab_folder(output: Path) -> Path:
    """Where the slabs' pictures go: out.tif has the folder out-slabs beside it."""
    return output.with_name(f"{output.name[: -len(suffix_of(output))]}-slabs")


def slab_paths(output: Path, count: int) -> list[Path]:
    """Name the slabs' pictures."""
    # TIFF holds any depth without loss, which a picture that is fused again needs.
    return [slab_folder(output) / f"slab-{n + 1:03d}.tif" for n in range(count)]


def check_slabs(job: Job) -> None:
    """Refuse, before any work, slabs that cannot be cut or written."""
    request = job.request
    if request.fusing.slab is None:
        return
    count = len(job.frames.stack)
    ranges = slab_ranges(count, request.fusing.slab, request.fusing.slab_overlap)
    folder, paths = slab_folder(request.output), slab_paths(request.output, len(ranges))
    if folder.exists() and not folder.is_dir():
        raise CofuseError(f"{folder} is a file, but the slabs need a folder of that name")
    if not request.writing.overwrite and _slabs_in(folder):
        raise CofuseError(
            f"{folder} holds slabs of an earlier run; pass `overwrite=True` to replace them"
        )
    check_distinct(paths, request, job.frames)


def _slabs_in(folder: Path) -> set[Path]:
    return {path for path in folder.glob("slab-*.tif") if _SLAB.fullmatch(path.name)}


def fuse_slabs(
    job: Job, stack: Stack, transaction: Transaction, progress: ProgressCallback
) -> Fusion:
    """Fuse every slab, write its picture, and fuse the pictures."""
    fusing = job.request.fusing
    assert fusing.slab is not None
    ranges = slab_ranges(len(stack), fusing.slab, fusing.slab_overlap)
    named = slab_paths(job.request.output, len(ranges))
    paths = [transaction.place(path) for path in named]
    for old in _slabs_in(slab_folder(job.request.output)).difference(named):
        transaction.remove(old)  # of a run with more slabs
    sources = []
    slab: Fusion | None = None
    for number, (frames, path) in enumerate(zip(ranges, paths, strict=True)):
        with warnings.catch_warnings():
            # A frame may be left over at the end.
            warnings.filterwarnings("ignore", message="one frame only")
            slab = job.fuse(
                take(stack, frames),
                _within(progress, number, len(ranges)),
                noise=None if job.noise is None else job.noise.only(frames),
            )
        assert slab.source_map is not None, "every preset chooses frames"
        sources.append(slab.source_map)
        write_picture(
            path,
            slab.image,
            Writing(),
            metadata=job.metadata,
            alpha=None,
            white=stack.white,
        )
    assert slab is not None
    if len(ranges) == 1:
        return slab
    # What noise there was is gone from the slabs, or was to stay.
    fused = job.fuse(
        read_stack(paths, white=stack.white),
        progress,
        noise=NoiseLaw.white(0.0, colour=stack.is_colour),
    )
    assert fused.source_map is not None
    index = np.zeros_like(fused.source_map, dtype=np.min_scalar_type(len(stack) - 1))
    for number, (frames, source) in enumerate(zip(ranges, sources, strict=True)):
        here = fused.source_map == number
        # A slab's own indices have fewer bits than those of all frames may need.
        index[here] = source[here].astype(index.dtype) + index.dtype.type(frames.start)
    return replace(
        fused,
        source_map=index,
        sigma=slab.sigma,
        sigma_estimated=slab.sigma_estimated,
        noise=job.noise or slab.noise,
    )


def _within(progress: ProgressCallback, number: int, slabs: int) -> ProgressCallback:
    """Say which slab is at work."""

    def tell(step: Progress) -> None:
        progress(replace(step, stage=f"slab {number + 1}/{slabs} {step.stage}"))

    return tell
