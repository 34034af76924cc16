"""Pictures of a finished job, opened when they are asked for, and retouching.

All of this may block; routes call it in threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from cofuse.errors import CofuseError
from cofuse.files import read_metadata, write_json
from cofuse.images import Pixels
from cofuse.web import tasks
from cofuse.web.arrays import mapped
from cofuse.web.pyramid import Pyramid, map_pyramid
from cofuse.web.retouching import Stroke
from cofuse.web.schemas import JobRecord, Result, Strokes
from cofuse.web.store import Busy, Missing, Store
from cofuse.web.worker import Worker

#: Pictures that stay open; opening one again costs little.
_OPEN = 64

#: Maps have PNG tiles: their colours mean something.
MAPS = {"source": "Source map", "confidence": "Confidence", "depth": "Depth"}


class Viewer:
    """Opens the pictures of jobs."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._store, self._worker = store, worker
        self._open: OrderedDict[tuple[str, str], Pyramid] = OrderedDict()
        self._lock = threading.Lock()
        self._making_frames, self._retouching = threading.Lock(), threading.Lock()
        store.forget = self._forget

    def titles(self, job: JobRecord) -> dict[str, str]:
        """All pictures of a job by name, with what to call them."""
        titles = {"result": "Result", "average": "Average of the frames"}
        titles |= {f"frame-{index}": name for index, name in enumerate(result_of(job).names)}
        return titles | {name: MAPS[name] for name in self.maps(job)}

    def pyramid(self, job: JobRecord, name: str) -> Pyramid:
        """One picture, in tiles."""
        file = result_file(job.retouched) if name == "result" else name
        key = job.id, file
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        if name not in self.titles(job):
            raise Missing("there is no such picture")
        kind, _, number = name.partition("-")
        pixels = self.frame(job, int(number)) if kind == "frame" else self.array(job, file)
        levels = job.folder / "levels" / f"{file}.npy"
        if name in MAPS:
            pyramid = map_pyramid(name, pixels, result_of(job).frames, levels)
        else:
            pyramid = Pyramid(pixels, levels, white=job.white, profile=profile_of(job))
        with self._lock:
            self._store.jobs[job.id]  # if it was deleted meanwhile, nothing of it may stay open
            pyramid = self._open.setdefault(key, pyramid)
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return pyramid

    def array(self, job: JobRecord, name: str) -> Pixels:
        """One of the arrays that the job left, mapped."""
        try:
            return mapped(job.folder / f"{name}.npy")
        except (OSError, ValueError) as error:
            raise Missing("this picture does not exist") from error

    def current(self, job: JobRecord) -> Pixels:
        """The result as it was last retouched."""
        return self.array(job, result_file(job.retouched))

    def maps(self, job: JobRecord) -> dict[str, Pixels]:
        """The maps that the job left."""
        there = (name for name in MAPS if (job.folder / f"{name}.npy").exists())
        return {name: self.array(job, name) for name in there}

    def frame(self, job: JobRecord, index: int) -> Pixels:
        """One aligned frame; made again if all were too large to be kept."""
        path = job.folder / "frames" / f"{index:04d}.npy"
        with self._making_frames:
            if not path.exists():
                files = [self._store.frame_path(job.stack, frame) for frame in job.frames]
                if not all(file.exists() for file in files):
                    raise Missing("the frames are too large to be kept, and their stack is deleted")
                self._make_room(path.parent)
                mend = job.options.hot_pixels == "auto"
                self._worker.wait_for(
                    tasks.frame, folder=job.folder, files=tuple(files), mend=mend, index=index
                )
        return self.array(job, f"frames/{index:04d}")

    def _make_room(self, folder: Path) -> None:
        """Delete the frames that were made first, as far as the limit asks for it."""
        files = sorted(folder.glob("*.npy"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files:
            if total + file.stat().st_size <= self._store.config.keep_frames:
                break
            total -= file.stat().st_size
            file.unlink()

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
                raise Busy("the strokes were changed elsewhere; look at them, then try again")
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
                self._store.change_job(job, retouched=job.retouched + 1)
            # The version before may still be shown, or be on its way to a client.
            old = f"retouched-{job.retouched - 2}.npy"
            for file in (*folder.glob(f"download-{job.retouched - 2}-*"), folder / old):
                file.unlink(missing_ok=True)
            (folder / "levels" / old).unlink(missing_ok=True)

    def _paint(self, job: JobRecord, before: list[Stroke], strokes: list[Stroke]) -> None:
        """Make the next version; a beginning that is painted already is not painted again."""
        result = result_of(job)
        for index in {0, *(stroke.frame for stroke in strokes)}:
            self.frame(job, index)
        goes_on = job.retouched > 0 and strokes[: len(before)] == before
        try:
            self._worker.wait_for(
                tasks.retouch,
                folder=job.folder,
                start=f"{result_file(job.retouched if goes_on else 0)}.npy",
                end=f"{result_file(job.retouched + 1)}.npy",
                strokes=strokes[len(before) if goes_on else 0 :],
                # Frames are restored only if the result was.
                restore=result.sigma > 0 and job.options.denoise > 0,
                white=job.white,
                count=result.frames,
            )
        except CofuseError:
            self._store.jobs[job.id]  # if it was deleted meanwhile, that is the reason
            raise

    def _forget(self, identifier: str) -> None:
        """Close the pictures of a job that is gone."""
        with self._lock:
            for key in [key for key in self._open if key[0] == identifier]:
                del self._open[key]


def result_file(version: int) -> str:
    """The name of the array that holds a version of the result; 0 is as it was fused."""
    return f"retouched-{version}" if version else "result"


def result_of(job: JobRecord) -> Result:
    """The result of a job that has one."""
    if job.result is None:
        raise Busy("the job has no result; it is not done")
    return job.result


def profile_of(job: JobRecord) -> bytes | None:
    """The colour profile of a job's frames, which its result has as well."""
    return read_metadata(job.folder / "result.tif").icc


def strokes_of(job: JobRecord) -> Strokes:
    """The strokes of a result: those that it was retouched with, and those that wait."""
    try:
        found = Strokes.model_validate_json((job.folder / "strokes.json").read_bytes())
    except OSError:
        found = Strokes(strokes=[])
    # Earlier versions kept applied strokes alone, and did not count changes.
    applied, version = len(found.painted), found.version or 0
    return found.model_copy(update={"applied": applied, "version": version})
