"""Pictures of a finished job, opened when they are asked for; retouching and downloads.

All of this may block; routes call it in threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import read_alpha, read_metadata, write_image, write_json
from cofuse.images import Pixels, Stack
from cofuse.web.facts import pixel_facts
from cofuse.web.pyramid import OVERLAP, TILE, Pyramid, map_pyramid
from cofuse.web.questions import Questions
from cofuse.web.schemas import JobRecord, PictureInfo, Result, Strokes
from cofuse.web.store import Busy, Missing, Store

__all__ = ["SUFFIXES", "Viewer", "result_of"]

SUFFIXES = {"tiff": ".tif", "png": ".png", "jpeg": ".jpg"}

#: Pictures that stay open; opening one again costs little.
_OPEN = 64

#: Maps have PNG tiles: their colours mean something.
_MAPS = {"source": "Source map", "confidence": "Confidence", "depth": "Depth"}


class Viewer:
    """Opens the pictures of jobs."""

    def __init__(self, store: Store, questions: Questions) -> None:
        self._store, self._questions = store, questions
        self._open: OrderedDict[tuple[str, str], Pyramid] = OrderedDict()
        self._lock = threading.Lock()
        self._making_frames, self._retouching = threading.Lock(), threading.Lock()
        store.forget = self.forget

    def pictures(self, job: JobRecord) -> list[PictureInfo]:
        """All pictures of a job."""
        result = result_of(job)
        titles = {"result": "Result", "average": "Average of the frames"}
        titles |= {f"frame-{index}": name for index, name in enumerate(result.names)}
        titles |= {name: _MAPS[name] for name in self._maps(job)}
        levels = self.pyramid(job, "result").top + 1
        return [
            PictureInfo(
                name=name,
                title=title,
                width=result.width,
                height=result.height,
                tile=TILE,
                overlap=OVERLAP,
                levels=levels,
                format="png" if name in _MAPS else "jpeg",
            )
            for name, title in titles.items()
        ]

    def pyramid(self, job: JobRecord, name: str) -> Pyramid:
        """One picture, in tiles."""
        file = _result_file(job.retouched) if name == "result" else name
        key = job.id, file
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        frames = result_of(job).frames
        levels = self._store.job_folder(job.id) / "levels" / f"{file}.npy"
        kind, _, number = name.partition("-")
        if name in _MAPS:
            pyramid = map_pyramid(name, self.array(job, name), frames, levels)
        elif name in ("result", "average"):
            pyramid = Pyramid(self.array(job, file), levels, white=job.white)
        elif kind == "frame" and number in map(str, range(frames)):
            pyramid = Pyramid(self.frame(job, int(number)), levels, white=job.white)
        else:
            raise Missing("there is no such picture")
        with self._lock:
            pyramid = self._open.setdefault(key, pyramid)
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        return pyramid

    def array(self, job: JobRecord, name: str) -> Pixels:
        """One of the arrays that the job left, mapped."""
        return _mapped(self._store.job_folder(job.id) / f"{name}.npy")

    def current(self, job: JobRecord) -> Pixels:
        """The result as it was last retouched."""
        return self.array(job, _result_file(job.retouched))

    def _maps(self, job: JobRecord) -> dict[str, Pixels]:
        """The maps that the job left."""
        folder = self._store.job_folder(job.id)
        return {name: self.array(job, name) for name in _MAPS if (folder / f"{name}.npy").exists()}

    def frame(self, job: JobRecord, index: int) -> Pixels:
        """One aligned frame; made again if all were too large to be kept."""
        path = self._store.job_folder(job.id) / "frames" / f"{index:04d}.npy"
        with self._making_frames:
            if not path.exists():
                files = [self._store.frame_path(job.stack, frame) for frame in job.frames]
                if not all(file.exists() for file in files):
                    raise Missing("the frames are too large to be kept, and their stack is deleted")
                arguments = {
                    "folder": str(self._store.job_folder(job.id)),
                    "frames": [str(file) for file in files],
                    "hot_pixels": job.options.hot_pixels,
                    "index": index,
                }
                self._make_room(path.parent)
                self._questions.wait_for("frame", arguments)
        return _mapped(path)

    def _make_room(self, folder: Path) -> None:
        """Delete the frames that were made first, as far as the limit asks for it."""
        files = sorted(folder.glob("*.npy"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files:
            if total + file.stat().st_size <= self._store.config.keep_frames:
                break
            total -= file.stat().st_size
            file.unlink()

    def pixel(self, job: JobRecord, x: int, y: int) -> dict[str, Any]:
        """All that is known about one pixel."""
        readers = [partial(self.frame, job, index) for index in range(result_of(job).frames)]
        stack = Stack(readers, white=job.white)
        return pixel_facts(x, y, image=self.current(job), stack=stack, maps=self._maps(job))

    def strokes(self, job: JobRecord) -> Strokes:
        """The strokes a result was retouched with."""
        try:
            text = (self._store.job_folder(job.id) / "strokes.json").read_text("utf-8")
        except OSError:
            return Strokes(strokes=[])
        return Strokes.model_validate_json(text)

    def retouch(self, job: JobRecord, new: Strokes) -> None:
        """Paint strokes; a beginning of the list that is painted already is not painted again."""
        result, folder = result_of(job), self._store.job_folder(job.id)
        with self._retouching:
            for index in {0, *(stroke.frame for stroke in new.strokes)}:
                if index >= result.frames:
                    last = result.frames - 1
                    raise CofuseError(f"there is no frame {index}; expected 0 to {last}")
                self.frame(job, index)
            before = self.strokes(job).strokes
            goes_on = job.retouched > 0 and new.strokes[: len(before)] == before
            number = job.retouched + 1
            arguments = {
                "folder": str(folder),
                "start": f"{_result_file(job.retouched if goes_on else 0)}.npy",
                "end": f"{_result_file(number)}.npy",
                "strokes": new.strokes[len(before) if goes_on else 0 :],
                # Frames are restored only if the result was.
                "restore": result.sigma > 0 and job.options.denoise > 0,
                "white": job.white,
                "count": result.frames,
            }
            try:
                self._questions.wait_for("retouch", arguments)
            except CofuseError:
                self._store.job(job.id)  # if it was deleted meanwhile, that is the reason
                raise
            with self._store.lock:
                self._store.job(job.id)
                write_json(folder / "strokes.json", new.model_dump(mode="json"), overwrite=True)
                job.retouched = number
                self._store.save_job(job)
            # The version before may still be shown, or be on its way to a client.
            old = f"retouched-{number - 2}.npy"
            for file in (*folder.glob(f"download-{number - 2}-*"), folder / old):
                file.unlink(missing_ok=True)
            (folder / "levels" / old).unlink(missing_ok=True)

    def download(self, job: JobRecord, kind: str, depth: int | None) -> Path:
        """A file of the result with all metadata, made when it is first asked for."""
        result, folder = result_of(job), self._store.job_folder(job.id)
        whole, version = folder / "result.tif", job.retouched
        deepest = {"png": 16, "jpeg": 8}.get(kind, result.depth)
        if depth is None:
            depth = min(result.depth, deepest)
        if kind == "jpeg" and depth > deepest:
            raise CofuseError("JPEG holds 8 bits only; ask for depth 8, or another format")
        if kind == "tiff" and depth == result.depth and not version:
            return whole  # as the job wrote it
        path = folder / f"download-{version}-{depth}{SUFFIXES[kind]}"
        if not path.exists():
            write_image(
                path,
                self.array(job, _result_file(version)),
                metadata=read_metadata(whole),
                alpha=None if kind == "jpeg" else read_alpha(whole),
                depth=None if depth == result.depth else depth,  # type: ignore[arg-type]
                white=job.white,
                overwrite=True,
            )
        return path

    def forget(self, identifier: str) -> None:
        """Close the pictures of a job that is gone."""
        with self._lock:
            for key in [key for key in self._open if key[0] == identifier]:
                del self._open[key]


def _result_file(version: int) -> str:
    """The name of the array that holds a version of the result; 0 is as it was fused."""
    return f"retouched-{version}" if version else "result"


def result_of(job: JobRecord) -> Result:
    """The result of a job that has one."""
    if job.result is None:
        raise Busy("the job has no result; it is not done")
    return job.result


def _mapped(path: Path) -> Pixels:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError) as error:
        raise Missing("this picture does not exist") from error
