"""Processes of their own for heavy work, so that the page always answers.

A `Worker` and its process talk through a pipe. To the process go ``(task, options)`` and,
meanwhile, ``"cancel"``. From it come ``(kind, content)``: ``"report"`` any number of times, then
``"done"`` with the result or ``"failed"`` with the error. A process that dies, or that does not
stop when it is asked to, is replaced.
"""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from cofuse.errors import CofuseError, is_lack_of_memory

#: Called with what a task reports on its way; in the process it raises if that is cancelled.
Report = Callable[[dict[str, Any]], None]
Answer = dict[str, Any]
_Value = TypeVar("_Value")
#: A function of `cofuse.web.tasks`: takes its way to report, and options by keyword.
Task = Callable[..., Answer]

_DISK_FULL = "the disk is full; delete stacks or results, or make room on it"
#: Seconds between two looks whether a task is to be cancelled.
_LOOK_EVERY = 0.1


class Cancelled(CofuseError):
    """The task was cancelled."""


class Worker:
    """One process, started when it is first needed, and a thread that gives it one task at a time.

    ``niceness`` is that of Unix: how far the process gives way to others. A cancelled task has
    ``stop_seconds`` to stop by itself before the process is ended, one of a worker that is closed
    has none. Without a task for ``idle_seconds`` the process ends itself.
    """

    def __init__(
        self, *, niceness: int, stop_seconds: float = 4.0, idle_seconds: float | None = None
    ) -> None:
        self.stop_seconds = stop_seconds
        #: Set to cancel the task at work; who sets it clears it.
        self.cancel = threading.Event()
        self.closing = threading.Event()
        self._niceness, self._idle_seconds = niceness, idle_seconds
        self._thread = ThreadPoolExecutor(1, "cofuse worker")
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._asked: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        return self._process.pid if self._process is not None else None

    def submit(self, function: Callable[..., _Value], *arguments: Any) -> Future[_Value]:
        """Call a function in the thread, after all that was submitted before."""
        if self.closing.is_set():
            raise CofuseError("the server is stopping")
        return self._thread.submit(function, *arguments)

    def close(self) -> None:
        """Cancel all tasks and end the process."""
        self.closing.set()
        self._thread.shutdown(cancel_futures=True)
        self._stop()

    def ask(self, key: str, task: Task, **options: Any) -> Answer | None:
        """Return the result of a task if it is known; otherwise see to it that it will be.

        ``key`` names the question: asked again meanwhile, it is still the same.
        """
        with self._lock:
            if key not in self._asked:
                self._asked[key] = self.submit(self.run, task, options)
            if not self._asked[key].done():
                return None
            return self._asked.pop(key).result()

    def wait_for(self, task: Task, **options: Any) -> Answer:
        """Do a task and wait for its result."""
        return self.submit(self.run, task, options).result()

    def start(self) -> Connection:
        """Start the process unless it runs; only to be called in the thread."""
        with suppress(OSError):  # on Windows a pipe that has ended cannot be looked at
            # Between tasks there is nothing to read from a pipe but its end.
            if self._pipe is not None and not self._pipe.poll():
                return self._pipe
        self._stop()
        # A fresh interpreter: threads and locks of the server are not copied into it.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        how = theirs, self._niceness, self._idle_seconds
        self._process = context.Process(target=_serve, args=how, name="cofuse worker", daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe

    def run(self, task: Task, options: dict[str, Any], report: Report = lambda _: None) -> Answer:
        """Do a task and return its result; only to be called in the thread.

        Raises `CofuseError` if the task refused or the process died, and `Cancelled` if it was
        cancelled.
        """
        deadline = math.inf
        try:
            pipe = self.start()
            pipe.send((task, options))
            while time.monotonic() <= deadline and not self.closing.is_set():
                if deadline == math.inf and self.cancel.is_set():
                    deadline = time.monotonic() + self.stop_seconds
                    pipe.send("cancel")
                if pipe.poll(_LOOK_EVERY):
                    kind, content = pipe.recv()
                    if kind == "done":
                        return dict(content)
                    if kind == "failed":
                        raise content
                    report(content)
        except (EOFError, OSError) as error:  # the process is gone
            if not (self.cancel.is_set() or self.closing.is_set()):
                raise CofuseError(
                    "the process that did the work ended unexpectedly, perhaps for want of memory; "
                    "try fewer or smaller frames"
                ) from error
        self._stop()
        raise Cancelled("the server is stopping")

    def _stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._process = self._pipe = None


def _serve(pipe: Connection, niceness: int, idle_seconds: float | None) -> None:
    """Do tasks until the server is gone, or has none for long; this runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when we end
    if hasattr(os, "nice"):
        os.nice(niceness)
    threading.Thread(target=_end_with_server, daemon=True).start()

    def report(content: dict[str, Any]) -> None:
        """Send a report unless it is empty; raises if the task is to be cancelled."""
        while pipe.poll():
            if pipe.recv() == "cancel":
                raise Cancelled
        if content:
            pipe.send(("report", content))

    with suppress(EOFError, OSError):  # the server is gone
        while pipe.poll(idle_seconds):
            message = pipe.recv()
            if message == "cancel":  # too late, the task was over
                continue
            task, options = message
            try:
                answer: tuple[str, Any] = "done", task(report, **options)
            except Cancelled as error:
                answer = "failed", error
            except Exception as error:
                answer = "failed", CofuseError(in_one_line(error))
            pipe.send(answer)


def _end_with_server() -> None:
    """End with the server, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is a disk without room."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or (error is not None and is_full(error.__cause__))


def in_one_line(error: BaseException) -> str:
    """Say what went wrong, whatever it was."""
    if is_full(error):
        return _DISK_FULL
    if isinstance(error, CofuseError):
        return " ".join(str(error).split())
    if is_lack_of_memory(error):
        return "there is not enough memory; make the frames smaller or fewer"
    if isinstance(error, OSError) and error.strerror:
        return f"a file of the server cannot be used ({error.strerror})"
    # A mistake of ours: the job fails, the server lives on.
    return f"an unexpected error ({type(error).__name__}: {error}"[:300] + ")"
