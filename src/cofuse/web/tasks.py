"""What worker processes do: fuse a stack, measure noise and quality, retouch.

Every task takes ``send`` and options that can go through a pipe, and returns values that JSON
knows; pictures are left in the job's folder. ``send`` reports facts to the server. With an empty
dictionary it only looks whether the task is cancelled, and raises if it is.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.alignment import Alignment, aligned, alignment_from_json, alignment_to_json
from cofuse.files import plain, read_stack, written_whole
from cofuse.images import Pixels, Stack
from cofuse.jobs import Request
from cofuse.jobs.frames import mend_hot_pixels
from cofuse.jobs.run import Job
from cofuse.progress import Progress, silent
from cofuse.sensor import NoiseLaw, estimate_noise
from cofuse.web.reporting import Preview, reporter
from cofuse.web.retouching import Stroke
from cofuse.web.retouching import retouch as paint
from cofuse.web.schemas import JobRecord
from cofuse.web.worker import Report

#: Rows that are averaged at a time.
_STRIP = 128
#: What the page shows of a report.
_REPORTED = "device", "hot_pixels", "sigma", "sigma_counts", "sigma_estimated"
#: Side of the part of large pictures that metrics look at.
_METRICS_SIDE = 1536


def frame_file(folder: Path, index: int) -> Path:
    """Where an aligned frame of a job lies."""
    return folder / "frames" / f"{index:04d}.npy"


def write_array(path: Path, pixels: Pixels) -> None:
    """Write an array that replaces whatever is there.

    Not through a memory map: where the disk is full, the system ends a process that does so.
    """
    with written_whole(path, overwrite=True) as file:
        np.save(file, np.asanyarray(pixels))


def fuse(send: Report, *, request: Request, keep_frames: int) -> dict[str, Any]:
    """Fuse a stack exactly as the command line does, and keep what a viewer shows.

    Of the aligned frames ``keep_frames`` bytes may be kept.
    """
    start = time.perf_counter()
    folder = request.output.parent
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        job = Job(request)
        frames = job.frames
        profile = frames.metadata.icc
        path = folder / "preview.jpg"
        preview = Preview(path, frames.stack, frames.reference, profile=profile)
        report_to = reporter(request, preview, send)

        def keep(stack: Stack, alignment: Alignment | None) -> None:
            """Save the frames in their places, to be shown."""
            preview.begin(stack, len(stack) // 2)
            if stack.frame_bytes * len(stack) <= keep_frames:
                (folder / "frames").mkdir()
                for index, frame in enumerate(stack):
                    write_array(frame_file(folder, index), frame)
                    report_to(Progress("frames", index + 1, len(stack)))
            if alignment is not None:
                (folder / "alignment.json").write_text(alignment_to_json(alignment), "utf-8")
            write_array(folder / "average.npy", _average(stack))

        outcome = job.run(report_to, preview=preview.paint, on_aligned=keep)
    report, fusion, stack = outcome.report, outcome.fusion, outcome.stack
    report_to(Progress("writing", 1, 2))
    maps = {"result": fusion.image, "source": fusion.source_map, "confidence": fusion.confidence}
    maps["depth"] = None if outcome.depth is None else outcome.depth.position
    for name, pixels in maps.items():
        if pixels is not None:
            write_array(folder / f"{name}.npy", pixels)
    (folder / "noise.json").write_text(fusion.noise.to_json(), "utf-8")
    report_to(Progress("writing", 2, 2))
    return {
        "white": stack.white,
        "report": report,
        "result": report["frames"]
        | {name: report[name] for name in _REPORTED}
        | {
            "depth": 8 * stack.dtype.itemsize,
            "frames": len(stack),
            "character": list(fusion.noise.character),
            "seconds": time.perf_counter() - start,
            "stages": {k: float(v) for k, v in report["seconds"].items() if k != "total"},
            "moved": float(outcome.alignment.largest_displacement()) if outcome.alignment else 0.0,
            "has_depth": outcome.depth is not None,
            "notes": list(dict.fromkeys(str(warning.message) for warning in warned)),
        },
    }


def _average(stack: Stack) -> Pixels:
    """The mean of all frames, a few rows at a time: sums take several times a frame's memory."""
    readers = [stack.part_reader(index) for index in range(len(stack))]
    average = np.empty(stack.shape, stack.dtype)
    for top in range(0, stack.height, _STRIP):
        rows = slice(top, min(top + _STRIP, stack.height))
        total = np.zeros(average[rows].shape, np.float64)
        for read in readers:
            total += read(rows, slice(0, stack.width))
        total /= len(stack)
        average[rows] = np.rint(total) if stack.dtype.kind == "u" else total
    return average


def _frames_of(job: JobRecord) -> Stack:
    """The aligned frames of a job, mapped from their files."""
    assert job.result is not None, "it is done"
    files = (frame_file(job.folder, index) for index in range(job.result.frames))
    return Stack([partial(np.load, file, mmap_mode="r") for file in files], white=job.white)


@lru_cache(maxsize=1)
def _aligned_again(folder: Path, files: tuple[Path, ...], *, mend: bool) -> Stack:
    """The frames of a job that did not keep them, in their places."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack = read_stack(files)
        if mend:
            stack, _ = mend_hot_pixels(stack, silent)
        if (folder / "alignment.json").exists():
            found = alignment_from_json((folder / "alignment.json").read_text("utf-8"))
            stack = aligned(stack, found)
    return stack


def frame(
    _: Report, *, job: JobRecord, files: tuple[Path, ...], index: int, keep_frames: int
) -> dict[str, Any]:
    """Align one frame again, where all together take more than ``keep_frames`` bytes."""
    path = frame_file(job.folder, index)
    if path.exists():  # others asked for it as well
        return {}
    pixels = _aligned_again(job.folder, files, mend=job.options.hot_pixels == "auto")[index]
    path.parent.mkdir(exist_ok=True)
    # Those that were made first make room.
    made = sorted(path.parent.glob("*.npy"), key=lambda file: file.stat().st_mtime)
    total = sum(file.stat().st_size for file in made)
    while made and total + pixels.nbytes > keep_frames:
        total -= made[0].stat().st_size
        made.pop(0).unlink()
    write_array(path, pixels)
    return {}


def noise(_: Report, *, files: Sequence[Path]) -> dict[str, Any]:
    """Estimate the noise of a stack as fusing would: its level, and its character in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        law = estimate_noise(read_stack(files))
        return {"sigma": float(law.to_remove().sigma), "character": list(law.character)}


def metrics(_: Report, *, job: JobRecord) -> dict[str, Any]:
    """Score a result against its frames; of a large picture, its middle."""
    from cofuse.evaluation.metrics import WITHOUT_TRUTH, score

    stack = _frames_of(job)
    rows, columns = (_middle(side) for side in stack.shape[:2])
    part = [columns.start, rows.start, columns.stop, rows.stop]
    if len(stack) < 2:
        return {"values": {}, "part": part}
    result = np.load(job.folder / "result.npy", mmap_mode="r")
    picture, *sources = (np.ascontiguousarray(one[rows, columns]) for one in (result, *stack))
    values = score(picture, metrics=tuple(WITHOUT_TRUTH), sources=sources, white=job.white)
    return {"values": plain(values), "part": part}


def _middle(size: int) -> slice:
    start = max(size - _METRICS_SIDE, 0) // 2
    return slice(start, start + min(size, _METRICS_SIDE))


def retouch(
    _: Report, *, job: JobRecord, start: str, end: str, strokes: list[Stroke]
) -> dict[str, Any]:
    """Paint strokes into the picture in the file ``start`` and write it to ``end``."""
    assert job.result is not None, "it is done"
    noise = None
    # Frames are restored only if the result was.
    if job.result.sigma > 0 and job.options.denoise > 0:
        noise = NoiseLaw.from_json((job.folder / "noise.json").read_text("utf-8"))
    picture = np.load(job.folder / start, mmap_mode="r")
    write_array(job.folder / end, paint(picture, _frames_of(job), strokes, noise=noise))
    return {}
