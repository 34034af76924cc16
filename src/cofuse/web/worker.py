"""A process of its own for heavy work, so that the page always answers.

The two sides talk through a pipe. To the process go ``(task, arguments)`` and, meanwhile,
``"cancel"``; from it come ``(kind, content)``: ``"report"`` any number of times, then one of
``"done"``, ``"failed"`` or ``"cancelled"``. A process that dies, or that does not stop when it is
asked to, is replaced.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from cofuse.errors import CofuseError

__all__ = ["Cancelled", "Report", "Worker", "WorkerDied"]

#: Called with what a task reports on its way.
Report = Callable[[dict[str, Any]], None]

_LOOK_EVERY = 0.1


class Cancelled(Exception):
    """The task was cancelled."""


class WorkerDied(CofuseError):
    """The process ended during a task."""


class Worker:
    """One process, started when it is first needed.

    ``niceness`` is that of Unix: how far the process gives way to others. A cancelled task has
    ``stop_seconds`` to stop by itself before the process is ended.
    """

    def __init__(self, *, niceness: int = 0, stop_seconds: float = 4.0) -> None:
        self._niceness, self.stop_seconds = niceness, stop_seconds
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        return self._process.pid if self._process is not None else None

    def start(self) -> Connection:
        """Start the process unless it runs."""
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        self.stop()
        # A fresh interpreter: threads and locks of the server are not copied into it.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self._niceness), name="cofuse worker", daemon=True
        )
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    def run(
        self,
        task: str,
        arguments: dict[str, Any],
        cancel: threading.Event,
        report: Report = lambda _: None,
    ) -> dict[str, Any]:
        """Do a task and return its result.

        Raises `CofuseError` if the task refused, `Cancelled` if ``cancel`` was set, and
        `WorkerDied` if the process ended before the task did.
        """
        try:
            pipe = self.start()
            pipe.send((task, arguments))
            return self._listen(pipe, cancel, report)
        except (EOFError, OSError) as error:  # the process is gone
            self.stop()
            if cancel.is_set():
                raise Cancelled from error
            raise WorkerDied("the process that did the work ended unexpectedly") from error

    def _listen(self, pipe: Connection, cancel: threading.Event, report: Report) -> dict[str, Any]:
        deadline = math.inf
        while time.monotonic() <= deadline:
            if cancel.is_set() and deadline == math.inf:
                deadline = time.monotonic() + self.stop_seconds
                pipe.send("cancel")
            if pipe.poll(_LOOK_EVERY):
                kind, content = pipe.recv()
                if kind == "report":
                    report(content)
                elif kind == "done":
                    return dict(content)
                elif kind == "cancelled":
                    raise Cancelled
                else:
                    raise CofuseError(content)
        self.stop()
        raise Cancelled

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._process = self._pipe = None


def _serve(pipe: Connection, niceness: int) -> None:
    """Do tasks until the server is gone; this runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when we end
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    threading.Thread(target=_end_with_server, daemon=True).start()
    from cofuse.web.tasks import TASKS

    def tell(content: dict[str, Any]) -> None:
        """Send a report unless it is empty; raises if the task is to be cancelled."""
        while pipe.poll():
            if pipe.recv() == "cancel":
                raise Cancelled
        if content:
            pipe.send(("report", content))

    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return
        if message == "cancel":  # too late, the task was over
            continue
        task, arguments = message
        try:
            answer: tuple[str, Any] = "done", TASKS[task](arguments, tell)
        except Cancelled:
            answer = "cancelled", None
        except CofuseError as error:
            answer = "failed", " ".join(str(error).split())
        except MemoryError:
            answer = "failed", "there is not enough memory; make the frames smaller or fewer"
        except Exception as error:  # a mistake of ours: the job fails, the server lives on
            answer = "failed", f"an unexpected error ({type(error).__name__}: {error}"[:300] + ")"
        with suppress(OSError):
            pipe.send(answer)


def _end_with_server() -> None:
    """End with the server, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
