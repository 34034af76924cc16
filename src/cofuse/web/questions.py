"""Small questions, answered in a second process that stands back for the running job.

How noisy a stack is, how good a result: whoever asks is told to come again until it is known.
Retouching is done here as well, and waited for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from cofuse.errors import CofuseError
from cofuse.web.queue import Full
from cofuse.web.worker import Cancelled, Worker, WorkerDied

__all__ = ["Questions"]

_MOST = 50
_POLITENESS = 15
#: Seconds without a question after which the process ends.
_PATIENCE = 120.0

Answer = dict[str, Any]


class Questions:
    """Answers one question after the other."""

    def __init__(self) -> None:
        self._worker = Worker(politeness=_POLITENESS)
        self._asked: dict[str, Future[Answer]] = {}
        self._waiting: deque[tuple[str, str, Answer, Future[Answer]]] = deque()
        self._wake = threading.Condition()
        self._cancel = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="cofuse questions", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop at once."""
        with self._wake:
            self._closing = True
            self._cancel.set()
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def ask(self, key: str, task: str, arguments: Callable[[], Answer]) -> Answer | None:
        """Return the answer if it is known; otherwise see to it that it will be.

        ``key`` names the question: asked again meanwhile, it is still the same.
        """
        with self._wake:
            future = self._asked.get(key)
            if future is None:
                future = self._put(key, task, arguments())
            if not future.done():
                return None
            del self._asked[key]
        return future.result()

    def wait_for(self, key: str, task: str, arguments: Answer) -> Answer:
        """Ask, and wait for the answer."""
        with self._wake:
            future = self._put(key, task, arguments)
        try:
            return future.result()
        finally:
            with self._wake:
                self._asked.pop(key, None)

    def _put(self, key: str, task: str, arguments: Answer) -> Future[Answer]:
        if len(self._waiting) >= _MOST:
            raise Full("too much is asked at once; try again later")
        future: Future[Answer] = Future()
        self._asked[key] = future
        self._waiting.append((key, task, arguments, future))
        self._wake.notify_all()
        return future

    def _work(self) -> None:
        while True:
            with self._wake:
                if not self._waiting and not self._closing and not self._wake.wait(_PATIENCE):
                    self._worker.stop()
                if self._closing:
                    break
                if not self._waiting:
                    continue
                _, task, arguments, future = self._waiting.popleft()
            try:
                future.set_result(self._worker.run(task, arguments, lambda _: None, self._cancel))
            except (CofuseError, Cancelled) as error:
                future.set_exception(CofuseError(str(error) or "the server is stopping"))
            except WorkerDied as error:
                future.set_exception(CofuseError(str(error)))
            except Exception as error:  # whoever asked must not wait for ever
                future.set_exception(CofuseError(f"unexpected ({type(error).__name__})"))
        self._worker.stop()
        for *_, future in self._waiting:
            future.set_exception(CofuseError("the server is stopping"))
