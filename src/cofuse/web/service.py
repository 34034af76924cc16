"""All parts of a running server, put together: one job runs, a few wait."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from cofuse.errors import CofuseError
from cofuse.files import write_json
from cofuse.images.memory import available_memory, parse_size
from cofuse.jobs.options import check_options
from cofuse.model.runtime import DEVICES, resolve_device
from cofuse.web.frames import add_sample
from cofuse.web.options import Config, Options, command_line, fusing_request
from cofuse.web.schemas import JobRecord, Result, StackRecord, now
from cofuse.web.store import Store
from cofuse.web.tasks import fuse
from cofuse.web.viewer import Viewer, result_of
from cofuse.web.worker import Cancelled, Worker, in_one_line

#: Unix niceness of the job process: it takes all processors, yet the page must answer at once.
_NICENESS = 10
_MOST_WATCHERS = 100
#: Header ``cache-control`` of what never changes: a browser keeps what it gets on its disk, where
#: pictures are not to lie for long.
BRIEFLY = "private, max-age=600"
#: For the API's description: the answer is a JPEG.
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}


class Service:
    """What routes work with. Nothing runs before `start`; jobs are done one after the other."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = Store(config)
        #: Does jobs.
        self.worker = Worker(niceness=_NICENESS, stop_seconds=config.stop_seconds)
        #: Answers small questions, retouches, and makes frames again; gives way to the running job.
        self.questions = Worker(niceness=15, idle_seconds=120.0)
        self.viewer = Viewer(self.store, self.questions)
        self.watchers = asyncio.Semaphore(_MOST_WATCHERS)
        #: Whether the server is about to stop: endless answers then end.
        self.closing: Callable[[], bool] = lambda: False
        #: Whether each device is there.
        self.devices: dict[str, bool] = {}

    def start(self) -> None:
        """Begin to work."""
        self.devices = {name: _is_there(name) for name in DEVICES}
        self.store.clean_up()
        if self.config.demo and not any(stack.sample for stack in self.store.stacks.all()):
            add_sample(self.store)
        self.worker.submit(self.worker.start)  # takes a second or two

    def close(self) -> None:
        """Stop at once; jobs that were not finished are interrupted."""
        self.worker.close()
        self.store.interrupt_all()
        self.questions.close()

    def submit(self, stack: StackRecord, options: Options) -> JobRecord:
        """Put a job at the end of the queue."""
        _check_job(stack, options)
        free = shutil.disk_usage(self.config.folder).free
        # Frames may have to be kept in a file while they are fused, and beside it for the viewer.
        pixels = ((f, f.width * f.height * f.pages) for f in stack.frames)
        if 2 * sum(n * (3 if f.colour else 1) * f.depth // 8 for f, n in pixels) > free:
            raise CofuseError("there is not enough room on the disk to fuse this stack")
        with self.store.lock:
            waiting = sum(job.state == "waiting" for job in self.store.jobs.all())
            if waiting >= self.config.max_waiting:
                raise HTTPException(429, f"{waiting} jobs are waiting already; try again later")
            job = self.store.new_job(stack, options, command_line(stack.names, options))
            self.worker.submit(self._take_turn, job)
        return job

    def cancel(self, job: JobRecord) -> None:
        """Take a job out of the queue, or stop it; one that is over stays as it is."""
        with self.store.lock:
            if job.state == "waiting":
                self.store.finish(job, "cancelled")
            elif job.state == "running":
                self.worker.cancel.set()
                job.show(stage="stopping")

    def _take_turn(self, job: JobRecord) -> None:
        """Do one job; whatever happens to it, the queue goes on."""
        store = self.store
        with store.lock:
            if job.is_over:  # cancelled while it waited
                return
            self.worker.cancel.clear()
            job.show(state="running", started=now(), stage="reading")
        frames = [store.frame_path(job.stack, frame) for frame in job.frames]
        # What to say instead of our own paths.
        names = {f"{folder}{os.sep}": "" for folder in (job.folder, frames[0].parent)}
        names |= {path.name: frame.name for path, frame in zip(frames, job.frames, strict=True)}

        def take(facts: dict[str, Any]) -> None:
            if self.worker.cancel.is_set():
                facts.pop("stage", None)
            job.show(**facts)

        try:
            store.jobs.change(job)
            request = fusing_request(job.folder, frames, job.options)
            options = {"request": request, "keep_frames": self.config.keep_frames}
            found = with_own_names(self.worker.run(fuse, options, take), names)
            write_json(job.folder / "report.json", found["report"], overwrite=True)
            store.jobs.change(
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
            if not self.worker.closing.is_set():  # else it is interrupted
                store.finish(job, "cancelled")
        except Exception as error:
            store.finish(job, "failed", with_own_names(in_one_line(error), names))
        with suppress(OSError):
            store.clean_up()


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


def _is_there(device: str) -> bool:
    """Whether jobs can run on a device; may take seconds where there are signs of one."""
    try:
        resolve_device(device)
    except CofuseError:
        return False
    return True


# The following are not plain functions: those would be called in a thread, for every request.


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service)]


async def _job(job: str, here: Here) -> JobRecord:
    return here.store.jobs[job]


async def _stack(stack: str, here: Here) -> StackRecord:
    return here.store.stacks[stack]


#: The job and the stack that a path names, as arguments of routes.
AnyJob = Annotated[JobRecord, Depends(_job)]
AnyStack = Annotated[StackRecord, Depends(_stack)]


async def _done(job: AnyJob) -> JobRecord:
    result_of(job)
    return job


#: A job that has a result.
DoneJob = Annotated[JobRecord, Depends(_done)]
