"""Pictures of a finished job, opened when they are asked for, and retouching.

All of this may block; routes call it in threads.
"""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from starlette.exceptions import HTTPException

from cofuse.errors import CofuseError
from cofuse.files import read_metadata, write_json
from cofuse.images import Pixels
from cofuse.web import tasks
from cofuse.web.pyramid import Pyramid, map_pyramid
from cofuse.web.retouching import Stroke
from cofuse.web.schemas import JobRecord, Result, Strokes
from cofuse.web.store import Store
from cofuse.web.worker import Worker

#: Maps have PNG tiles: their colours mean something.
MAPS = {"source": "Source map", "confidence": "Confidence", "depth": "Depth"}


class Viewer:
    """Opens the pictures of jobs, each time they are asked for, and holds none open."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._store, self._worker = store, worker
        self._retouching = threading.Lock()

    def titles(self, job: JobRecord) -> dict[str, str]:
        """All pictures of a job by name, with what to call them."""
        titles = {"result": "Result", "average": "Average of the frames"}
        titles |= {f"frame-{index}": name for index, name in enumerate(result_of(job).names)}
        there = (name for name in MAPS if (job.folder / f"{name}.npy").exists())
        return titles | {name: MAPS[name] for name in there}

    def pyramid(self, job: JobRecord, name: str) -> Pyramid:
        """One picture, in tiles."""
        if name not in self.titles(job):
            raise HTTPException(404, "there is no such picture")
        result = result_of(job)
        file = result_file(job.retouched) if name == "result" else name
        read, levels = partial(self.array, job, file), job.folder / "levels" / f"{file}.npy"
        shape = result.height, result.width
        if name in MAPS:
            return map_pyramid(name, shape, read, result.frames, levels)
        colours = (3,) if result.colour else ()
        profile = profile_of(job.folder)
        return Pyramid((*shape, *colours), read, levels, white=job.white, profile=profile)

    def array(self, job: JobRecord, name: str) -> Pixels:
        """Map one of the arrays that the job left, or an aligned frame."""
        kind, _, number = name.partition("-")
        path = self._frame(job, int(number)) if kind == "frame" else job.folder / f"{name}.npy"
        try:
            return np.asanyarray(np.load(path, mmap_mode="r"))
        except (OSError, ValueError) as error:
            raise HTTPException(404, "this picture does not exist") from error

    def current(self, job: JobRecord) -> Pixels:
        """The result as it was last retouched."""
        return self.array(job, result_file(job.retouched))

    def _frame(self, job: JobRecord, index: int) -> Path:
        """The file of an aligned frame; made again if all were too large to be kept."""
        path = tasks.frame_file(job.folder, index)
        if not path.exists():
            files = [self._store.frame_path(job.stack, frame) for frame in job.frames]
            if not all(file.exists() for file in files):
                line = "the frames are too large to be kept, and their stack is deleted"
                raise HTTPException(404, line)
            most = self._store.config.keep_frames
            self._worker.wait_for(
                tasks.frame, job=job, files=tuple(files), index=index, keep_frames=most
            )
        return path

    def retouch(self, job: JobRecord, new: Strokes) -> None:
        """Keep the strokes of a result, and paint those that are to be applied."""
        result, folder = result_of(job), job.folder
        for index in {stroke.frame for stroke in new.strokes}:
            if index >= result.frames:
                last = result.frames - 1
                raise CofuseError(f"there is no frame {index}; expected 0 to {last}")
        with self._retouching:
            known = strokes_of(job)
            if new.version not in (None, known.version):
                line = "the strokes were changed elsewhere; look at them, then try again"
                raise HTTPException(409, line)
            painting = new.painted != known.painted
            if painting:
                self._paint(job, known.painted, new.painted)
            applied, version = len(new.painted), (known.version or 0) + 1
            kept = new.model_copy(update={"applied": applied, "version": version})
            with self._store.lock:
                self._store.jobs[job.id]
                write_json(folder / "strokes.json", kept.model_dump(mode="json"), overwrite=True)
                if not painting:
                    return
                self._store.jobs.change(job, retouched=job.retouched + 1)
            # The version before may still be shown, or be on its way to a client.
            old = f"retouched-{job.retouched - 2}.npy"
            for file in (*folder.glob(f"download-{job.retouched - 2}-*"), folder / old):
                file.unlink(missing_ok=True)
            (folder / "levels" / old).unlink(missing_ok=True)

    def _paint(self, job: JobRecord, before: list[Stroke], strokes: list[Stroke]) -> None:
        """Make the next version; a beginning that is painted already is not painted again."""
        for index in {0, *(stroke.frame for stroke in strokes)}:
            self._frame(job, index)
        goes_on = job.retouched > 0 and strokes[: len(before)] == before
        try:
            self._worker.wait_for(
                tasks.retouch,
                job=job,
                start=f"{result_file(job.retouched if goes_on else 0)}.npy",
                end=f"{result_file(job.retouched + 1)}.npy",
                strokes=strokes[len(before) if goes_on else 0 :],
            )
        except CofuseError:
            self._store.jobs[job.id]  # if it was deleted meanwhile, that is the reason
            raise


def result_file(version: int) -> str:
    """The name of the array that holds a version of the result; 0 is as it was fused."""
    return f"retouched-{version}" if version else "result"


def result_of(job: JobRecord) -> Result:
    """The result of a job that has one."""
    if job.result is None:
        raise HTTPException(409, "the job has no result; it is not done")
    return job.result


@lru_cache(maxsize=64)
def profile_of(folder: Path) -> bytes | None:
    """The colour profile of a job's frames, which its result has as well."""
    return read_metadata(folder / "result.tif").icc


def strokes_of(job: JobRecord) -> Strokes:
    """The strokes of a result: those that it was retouched with, and those that wait."""
    try:
        found = Strokes.model_validate_json((job.folder / "strokes.json").read_bytes())
    except OSError:
        found = Strokes(strokes=[])
    # Earlier versions kept applied strokes alone, and did not count changes.
    applied, version = len(found.painted), found.version or 0
    return found.model_copy(update={"applied": applied, "version": version})
