"""All parts of a running server, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from cofuse.errors import CofuseError
from cofuse.model.devices import DEVICES, resolve_device
from cofuse.web.events import Watchers
from cofuse.web.frames import add_sample
from cofuse.web.limits import Config
from cofuse.web.questions import Questions
from cofuse.web.queue import JobQueue
from cofuse.web.store import Store
from cofuse.web.uploads import Uploads
from cofuse.web.viewer import Viewer

__all__ = ["Here", "Service"]


@dataclass
class Service:
    """What routes work with."""

    config: Config
    store: Store
    queue: JobQueue
    questions: Questions
    uploads: Uploads
    viewer: Viewer
    watchers: Watchers = field(default_factory=Watchers)
    #: Whether the server is about to stop: endless answers then end.
    closing: Callable[[], bool] = field(default=lambda: False)
    #: Whether each device is there.
    devices: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def open(cls, config: Config) -> Service:
        """Take over the folder; nothing runs yet."""
        store, questions = Store(config), Questions()
        return cls(
            config,
            store,
            JobQueue(config, store),
            questions,
            Uploads(store),
            Viewer(store, questions),
        )

    def start(self) -> None:
        """Begin to work."""
        self.devices = {name: _is_there(name) for name in DEVICES}
        self.store.clean_up()
        if self.config.demo and not any(stack.sample for stack in self.store.stacks()):
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


async def _service(request: Request) -> Service:
    # Not a plain function: that would be called in a thread, for every request.
    service: Service = request.app.state.service
    return service


#: The service, as an argument of routes.
Here = Annotated[Service, Depends(_service)]
