"""Small questions, answered in a second process that gives way to the running job.

How noisy is a stack, how good a result? Clients ask again until the answer is known. Retouching
and making frames again are done here as well, and waited for.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from cofuse.errors import CofuseError
from cofuse.web.store import Full
from cofuse.web.worker import Cancelled, Worker

__all__ = ["Questions"]

_MOST = 50
_NICENESS = 15
#: Seconds without a question after which the process ends.
_PATIENCE = 120.0

Answer = dict[str, Any]


class Questions:
    """Answers one question after the other."""

    def __init__(self) -> None:
        self._worker = Worker(niceness=_NICENESS)
        self._thread = ThreadPoolExecutor(1, "cofuse questions")
        self._asked: dict[str, Future[Answer]] = {}
        self._lock = threading.RLock()
        self._cancel = threading.Event()
        self._rest = threading.Timer(0, lambda: None)

    def close(self) -> None:
        """Stop at once."""
        with self._lock:
            self._cancel.set()
            self._rest.cancel()
        self._thread.shutdown(cancel_futures=True)
        self._worker.stop()

    def ask(self, key: str, task: str, arguments: Answer) -> Answer | None:
        """Return the answer if it is known; otherwise see to it that it will be.

        ``key`` names the question: asked again meanwhile, it is still the same.
        """
        with self._lock:
            if key not in self._asked:
                if sum(not future.done() for future in self._asked.values()) >= _MOST:
                    raise Full("too much is asked at once; try again later")
                self._asked[key] = self._put(task, arguments)
            if not self._asked[key].done():
                return None
            future = self._asked.pop(key)
        return _answer_of(future)

    def wait_for(self, task: str, arguments: Answer) -> Answer:
        """Ask, and wait for the answer."""
        return _answer_of(self._put(task, arguments))

    def _put(self, task: str, arguments: Answer) -> Future[Answer]:
        with self._lock:
            if self._cancel.is_set():
                raise CofuseError("the server is stopping")
            self._rest.cancel()
            future = self._thread.submit(self._worker.run, task, arguments, self._cancel)
            future.add_done_callback(self._end_later)
        return future

    def _end_later(self, _: Future[Answer]) -> None:
        """End the process after a while, unless something is asked before."""
        with self._lock:
            if not self._cancel.is_set():
                self._rest.cancel()
                self._rest = threading.Timer(_PATIENCE, self._thread.submit, [self._worker.stop])
                self._rest.daemon = True
                self._rest.start()


def _answer_of(future: Future[Answer]) -> Answer:
    """Wait for an answer; what was cancelled becomes an error of one line."""
    try:
        return future.result()
    except (Cancelled, CancelledError) as error:
        raise CofuseError("the server is stopping") from error
