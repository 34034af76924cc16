"""Threads for work that waits for nobody: frames are decoded and brought into place a few ahead.

What runs here is compiled code that lets go of Python's lock. The threads live no longer than the
work; OpenCV keeps its own, whose number is its owner's affair and not touched: while one thread
is in OpenCV with all of them, it serves others on theirs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

__all__ = ["done_ahead", "processors"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def done_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[Iterator[Result]]:
    """Give the results of ``work`` on items, in their order, made on threads before they are due.

    As many items are under way or waiting as there are workers, beside the one that was given
    last. An error comes where its result was due, and ends the iteration. On leaving, what has
    not begun is dropped and what has is waited for: no thread is left. One worker is one thread
    beside the caller's; with none, all is done by the caller when it is due.
    """
    if workers < 1:
        yield map(work, items)
        return
    rest = iter(items)
    pool = ThreadPoolExecutor(workers, "cofuse-ahead")

    def results() -> Iterator[Result]:
        due: deque[Future[Result]] = deque(
            pool.submit(work, item) for item in islice(rest, workers)
        )
        while due:
            # No name is left that would hold a result after it was given.
            result = due.popleft().result()
            due.extend(pool.submit(work, item) for item in islice(rest, 1))
            yield result
            del result

    try:
        yield results()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
