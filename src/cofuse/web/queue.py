"""The queue: one job runs, a few wait, and all that happens to them is written down."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from cofuse.errors import CofuseError
from cofuse.images.memory import available_memory, parse_size
from cofuse.jobs.settings import check_settings, chosen_settings
from cofuse.web.asking import fusing_request
from cofuse.web.commands import command_line
from cofuse.web.limits import Config
from cofuse.web.naming import with_own_names
from cofuse.web.pacing import Glide
from cofuse.web.schemas import JobRecord, Options, Result, StackRecord, now
from cofuse.web.store import Missing, Store
from cofuse.web.worker import Cancelled, Worker, WorkerDied

__all__ = ["Full", "JobQueue", "names_of_frames"]

_CLEAN_UP_EVERY = 600.0
#: A job takes all processors; it stands back so that the page answers at once.
_POLITENESS = 10
#: Seconds after which the time left is told anew, should nothing else happen.
_SAY_EVERY = 0.5


class Full(Exception):
    """So many wait already that no more are taken."""


class JobQueue:
    """Does jobs one after the other, in a process of their own."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config, self.store = config, store
        self.worker = Worker(politeness=_POLITENESS, stop_seconds=config.stop_seconds)
        self._waiting: deque[JobRecord] = deque()
        self._running: JobRecord | None = None
        self._cancel = threading.Event()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="cofuse queue", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what was not finished is interrupted."""
        with self._wake:
            self._closing = True
            self._cancel.set()
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for job in self.store.jobs():
            if not job.is_over:
                self.store.finish(job, "interrupted", "the server was stopped")

    def submit(self, stack: StackRecord, options: Options) -> JobRecord:
        """Put a job at the end of the queue."""
        check(stack, options)
        free = shutil.disk_usage(self.config.folder).free
        # Frames may have to be kept in a file while they are fused, and beside it for the viewer.
        if 2 * stack.decoded_bytes > free:
            raise CofuseError("there is not enough room on the disk to fuse this stack")
        with self._wake:
            if len(self._waiting) >= self.config.max_waiting:
                raise Full(f"{len(self._waiting)} jobs are waiting already; try again later")
            job = self.store.new_job(stack, options, command_line(names(stack), options))
            self._waiting.append(job)
            self._wake.notify_all()
        return job

    def cancel(self, job: JobRecord) -> None:
        """Take a job out of the queue, or stop it; one that is over stays as it is."""
        with self._wake:
            if job in self._waiting:
                self._waiting.remove(job)
                self.store.finish(job, "cancelled")
            elif job is self._running:
                self._cancel.set()
                job.stage = "stopping"
                job.version += 1

    # --- what the thread does --------------------------------------------------------------------

    def _work(self) -> None:
        """Take one job after the other until the server closes."""
        cleaned = time.monotonic()
        self.worker.start()  # it takes a second or two: better before the first job
        while True:
            with self._wake:
                if not self._waiting and not self._closing:
                    self._wake.wait(_CLEAN_UP_EVERY)
                if self._closing:
                    break
                job = self._waiting.popleft() if self._waiting else None
                self._running = job
                self._cancel.clear()
            if job is not None:
                try:
                    self._run(job)
                except Exception as error:  # not even its record could be written
                    job.state, job.ended = "failed", now()
                    job.error = f"the job's files cannot be written ({type(error).__name__})"
                    job.version += 1
                with self._wake:
                    self._running = None
            if job is not None or time.monotonic() - cleaned > _CLEAN_UP_EVERY:
                with suppress(OSError):
                    self.store.clean_up()
                cleaned = time.monotonic()
        self.worker.stop()

    def _run(self, job: JobRecord) -> None:
        """Do one job; whatever happens to it, the queue goes on."""
        store = self.store
        job.state, job.started = "running", now()
        store.save_job(job)
        ours = names_of_frames(store, job)
        arguments = {
            "folder": str(store.job_folder(job.id)),
            "frames": [str(store.frame_path(job.stack, frame)) for frame in job.frames],
            "names": ours,
            "options": job.options.model_dump(mode="json"),
            "keep_frames": self.config.keep_frames,
        }

        glide, said = Glide(), time.monotonic()

        def told(facts: dict[str, Any]) -> None:
            nonlocal said
            moment = time.monotonic()
            if not facts and moment - said < _SAY_EVERY:
                return
            said = moment
            for name, value in facts.items():
                if name != "stage" or not self._cancel.is_set():
                    setattr(job, name, value)
            if "seconds_left" in facts:
                glide.set(facts.get("progress", 0.0), facts["seconds_left"], moment=moment)
            job.progress, job.seconds_left = glide.at(moment)
            job.version += 1

        try:
            found = self.worker.run("fuse", arguments, told, self._cancel)
            job.result, job.white = Result.model_validate(found["result"]), found["white"]
            job.state, job.ended, job.progress = "done", now(), 1.0
            job.seconds_left, job.stage, job.done = None, "", job.total
            store.save_job(job)
        except Cancelled:
            if self._closing:
                store.finish(job, "interrupted", "the server was stopped while the job was running")
            else:
                store.finish(job, "cancelled")
        except CofuseError as error:
            store.finish(job, "failed", with_own_names(str(error), ours))
        except WorkerDied as error:
            remedy = "perhaps for want of memory; try fewer or smaller frames"
            store.finish(job, "failed", f"{error}, {remedy}")
        except (Missing, OSError) as error:
            store.finish(job, "failed", f"the job's files cannot be used ({error})")


def check(stack: StackRecord, options: Options) -> None:
    """Refuse, before a job is made, what could only fail."""
    if not stack.frames:
        raise CofuseError("the stack has no frames; upload some first")
    if stack.problem:
        raise CofuseError(stack.problem)
    if options.max_memory is not None and parse_size(options.max_memory) > available_memory():
        raise CofuseError(f"there is less memory than {options.max_memory}; ask for less")
    if options.depth and stack.pages < 2:
        raise CofuseError("the depth of one frame cannot be told; add frames or leave depth out")
    if options.z_step == 0:
        raise CofuseError("z_step is 0; expected a number other than 0")
    fusing = fusing_request(Path(), [], options.model_dump(mode="json")).fusing
    check_settings(chosen_settings(fusing), fusing)


def names(stack: StackRecord) -> list[str]:
    """What people call the frames."""
    return [frame.name for frame in stack.frames]


def names_of_frames(store: Store, job: JobRecord) -> dict[str, str]:
    """What to say instead of our own paths: whole paths first, then their last parts."""
    paths = {store.frame_path(job.stack, frame): frame.name for frame in job.frames}
    spoken = {str(path): name for path, name in paths.items()}
    spoken |= {path.name: name for path, name in paths.items()}
    return spoken | {f"{store.job_folder(job.id)}/": ""}
