"""Writing aligned frames, for those who fuse them elsewhere."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cofuse.alignment import Alignment
from cofuse.errors import CofuseError
from cofuse.files import check_output, check_report, read_metadata
from cofuse.files.transaction import Transaction
from cofuse.images import Stack
from cofuse.jobs.frames import alpha_of
from cofuse.jobs.outputs import bit_depth, check_distinct, write_picture
from cofuse.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from cofuse.jobs.run import Job

__all__ = ["aligned_paths", "check_folder", "write_aligned"]


def aligned_paths(job: Job) -> list[Path]:
    """Name the file of every aligned frame: the frame's own name, as TIFF."""
    stems = [Path(job.frames.file_of(k).name).stem for k in range(len(job.frames.stack))]
    if len(set(stems)) < len(stems):  # pages of one file
        stems = [f"{stem}-{k + 1:04d}" for k, stem in enumerate(stems)]
    return [job.request.output / f"{stem}.tif" for stem in stems]


def check_folder(job: Job) -> None:
    """Refuse a folder that cannot be written to, and files that would be replaced."""
    request = job.request
    folder, overwrite = request.output, request.writing.overwrite
    for name, value in asdict(request.maps).items():
        if value is not None:
            raise CofuseError(
                f"`align_only=True` writes aligned frames and no more; leave out `{name}`"
            )
    if folder.exists() and not folder.is_dir():
        raise CofuseError(f"{folder} is a file; expected a folder for the frames")
    outputs = aligned_paths(job)
    if request.aligning.save_transforms is not None:
        check_report(request.aligning.save_transforms, overwrite=overwrite)
        outputs.append(request.aligning.save_transforms)
    check_distinct(outputs, request, job.frames)
    depth = bit_depth(request.writing)
    if folder.is_dir():
        for path in aligned_paths(job):
            check_output(path, overwrite=overwrite, dtype=job.frames.stack.dtype, depth=depth)
        return
    # It is made only when there are frames to write.
    parent = next(parent for parent in folder.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise CofuseError(f"the folder {folder} cannot be made: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise CofuseError(f"the folder {folder} cannot be made: no permission to write in {parent}")


def write_aligned(
    job: Job,
    stack: Stack,
    alignment: Alignment,
    transaction: Transaction,
    progress: ProgressCallback,
) -> None:
    """Write the kept frames of an aligned stack."""
    request, paths = job.request, aligned_paths(job)
    alphas = alpha_of(job.frames, alignment, crop=request.aligning.crop)
    for done, (index, frame) in enumerate(zip(alignment.kept, stack, strict=True)):
        metadata = read_metadata(job.frames.file_of(index), raw_mode=request.reading.raw)
        write_picture(
            transaction.place(paths[index]),
            frame,
            request.writing,
            metadata=metadata,
            alpha=None if alphas is None else alphas[done],
            white=stack.white,
            opaque=None if alphas is None else alphas.white,
        )
        progress(Progress("write", done + 1, len(stack)))
