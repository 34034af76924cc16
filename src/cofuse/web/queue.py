"""The queue: one job runs, a few wait, and all that happens to them is written down."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cofuse.errors import CofuseError
from cofuse.files import write_json
from cofuse.images.memory import available_memory, parse_size
from cofuse.jobs.options import check_options
from cofuse.web.options import Config, Options, command_line, fusing_request
from cofuse.web.schemas import JobRecord, Result, StackRecord, now
from cofuse.web.store import DISK_FULL, Full, Missing, Store, is_full
from cofuse.web.tasks import fuse
from cofuse.web.worker import Cancelled, Worker

#: Unix niceness of the job process: it takes all processors, yet the page must answer at once.
_NICENESS = 10


class JobQueue:
    """Does jobs one after the other, in a process of their own."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config, self.store = config, store
        self.worker = Worker(niceness=_NICENESS, stop_seconds=config.stop_seconds)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process, which takes a second or two, before there is a job."""
        self.worker.submit(self.worker.start)

    def close(self) -> None:
        """Stop at once; what was not finished is interrupted."""
        self.worker.close()
        for job in self.store.jobs.all():
            if not job.is_over:
                self.store.finish(job, "interrupted", "the server was stopped")

    def submit(self, stack: StackRecord, options: Options) -> JobRecord:
        """Put a job at the end of the queue."""
        _check_job(stack, options)
        free = shutil.disk_usage(self.config.folder).free
        # Frames may have to be kept in a file while they are fused, and beside it for the viewer.
        if 2 * stack.decoded_bytes > free:
            raise CofuseError("there is not enough room on the disk to fuse this stack")
        with self._lock:
            waiting = sum(job.state == "waiting" for job in self.store.jobs.all())
            if waiting >= self.config.max_waiting:
                raise Full(f"{waiting} jobs are waiting already; try again later")
            job = self.store.new_job(stack, options, command_line(stack.names, options))
            self.worker.submit(self._take_turn, job)
        return job

    def cancel(self, job: JobRecord) -> None:
        """Take a job out of the queue, or stop it; one that is over stays as it is."""
        with self._lock:
            if job.state == "waiting":
                self.store.finish(job, "cancelled")
            elif job.state == "running":
                self.worker.cancel.set()
                job.stage = "stopping"
                job.version += 1

    def _take_turn(self, job: JobRecord) -> None:
        """Do one job; whatever happens to it, the queue goes on."""
        with self._lock:
            if job.is_over:  # cancelled while it waited
                return
            self.worker.cancel.clear()
            job.state, job.started, job.stage = "running", now(), "reading"
        try:
            self._run(job)
        except Exception as error:  # not even its record could be written
            job.state, job.ended = "failed", now()
            job.error = (
                DISK_FULL
                if is_full(error)
                else f"the job's files cannot be written ({type(error).__name__})"
            )
            job.version += 1
        with suppress(OSError):
            self.store.clean_up()

    def _run(self, job: JobRecord) -> None:
        store = self.store
        store.change_job(job)
        frames = [store.frame_path(job.stack, frame) for frame in job.frames]
        # What to say instead of our own paths.
        names = {f"{folder}{os.sep}": "" for folder in (job.folder, frames[0].parent)}
        names |= {path.name: frame.name for path, frame in zip(frames, job.frames, strict=True)}

        def take(facts: dict[str, Any]) -> None:
            for name, value in facts.items():
                if name != "stage" or not self.worker.cancel.is_set():
                    setattr(job, name, value)
            job.version += 1

        try:
            request = fusing_request(job.folder, frames, job.options)
            options = {"request": request, "keep_frames": self.config.keep_frames}
            found = with_own_names(self.worker.run(fuse, options, take), names)
            write_json(job.folder / "report.json", found["report"], overwrite=True)
            store.change_job(
                job,
                result=Result.model_validate(found["result"]),
                white=found["white"],
                state="done",
                ended=now(),
                progress=1.0,
                seconds_left=None,
                stage="",
                done=job.total,
            )
        except Cancelled:
            if self.worker.closing.is_set():
                store.finish(job, "interrupted", "the server was stopped while the job was running")
            else:
                store.finish(job, "cancelled")
        except CofuseError as error:
            store.finish(job, "failed", with_own_names(str(error), names))
        except (Missing, OSError) as error:
            store.finish(job, "failed", f"the job's files cannot be used ({error})")


def _check_job(stack: StackRecord, options: Options) -> None:
    """Refuse, before a job is made, what could only fail."""
    if not stack.frames:
        raise CofuseError("the stack has no frames; upload some first")
    if stack.problem:
        raise CofuseError(stack.problem)
    if options.max_memory is not None and parse_size(options.max_memory) > available_memory():
        raise CofuseError(f"there is less memory than {options.max_memory}; ask for less")
    if options.depth and stack.pages < 2:
        raise CofuseError("one frame has no depth; add frames or leave depth out")
    check_options(fusing_request(Path(), [], options))


def with_own_names(value: Any, names: Mapping[str, str]) -> Any:
    """Say what clients call their frames instead of our paths, in texts at any depth.

    ``value`` is what JSON can hold; ``names`` maps what may stand in a text to what shall stand
    there, the longest first.
    """
    text = json.dumps(value)
    for ours, theirs in names.items():
        text = text.replace(json.dumps(ours)[1:-1], json.dumps(theirs)[1:-1])
    return json.loads(text)
