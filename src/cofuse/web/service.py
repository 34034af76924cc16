"""All parts of a running server, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request

from cofuse.errors import CofuseError
from cofuse.model.runtime import DEVICES, resolve_device
from cofuse.web.frames import add_sample
from cofuse.web.options import Config
from cofuse.web.queue import JobQueue
from cofuse.web.schemas import JobRecord, StackRecord
from cofuse.web.store import Store
from cofuse.web.uploads import Uploads
from cofuse.web.viewer import Viewer, result_of
from cofuse.web.worker import Worker

_MOST_WATCHERS = 100
#: Header ``cache-control`` of what never changes: a browser keeps what it gets on its disk, where
#: pictures are not to lie for long.
BRIEFLY = "private, max-age=600"
#: For the API's description: the answer is a JPEG.
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}


class Service:
    """What routes work with. Its folder is taken over at once; nothing runs before `start`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = Store(config)
        self.queue = JobQueue(config, self.store)
        #: Answers small questions, retouches, and makes frames again; gives way to the running job.
        self.questions = Worker(niceness=15, idle_seconds=120.0)
        self.uploads = Uploads(self.store)
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
        self.queue.start()

    def close(self) -> None:
        """Stop all work."""
        self.queue.close()
        self.questions.close()


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
