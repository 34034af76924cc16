"""Tiles, parts of a picture that are worked on one by one with a halo, and threads to do so.

What runs in threads is compiled code that lets go of Python's lock. They live no longer than the
work; OpenCV keeps its own, whose number is its owner's affair and not touched.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

#: Sides of the networks' inputs are multiples of this.
MULTIPLE = 16
#: Pixels that take a millisecond or so, ten times as long as to start and end a thread.
_WORTH_THREADS = 50_000


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a picture that are computed, and those with the halo around them."""

    rows: slice
    columns: slice
    around_rows: slice
    around_columns: slice

    @classmethod
    def of(cls, here: tuple[slice, slice], shape: tuple[int, int], halo: int) -> Tile:
        """Add a halo to rows and columns of a picture, cut off at its borders."""
        around = (
            slice(max(0, part.start - halo), min(length, part.stop + halo))
            for part, length in zip(here, shape, strict=True)
        )
        return cls(*here, *around)

    @property
    def here(self) -> tuple[slice, slice]:
        """Rows and columns in the picture."""
        return self.rows, self.columns

    @property
    def around(self) -> tuple[slice, slice]:
        """Rows and columns in the picture, halo included."""
        return self.around_rows, self.around_columns

    @property
    def pixels(self) -> int:
        """Number of pixels, halo included."""
        return math.prod(part.stop - part.start for part in self.around)

    @property
    def within(self) -> tuple[slice, slice]:
        """Rows and columns of the tile within its halo."""
        return relative(self.here, self.around)


def tiles_of(shape: tuple[int, int], side: int, halo: int) -> Iterator[Tile]:
    """Cut a picture into tiles of ``side`` pixels with a ``halo``, both multiples of `MULTIPLE`."""
    assert side % MULTIPLE == halo % MULTIPLE == 0
    spans = [
        [(start, min(start + side, length)) for start in range(0, length, side)] for length in shape
    ]
    for places in itertools.product(*spans):
        rows, columns = (slice(a, b) for a, b in places)
        yield Tile.of((rows, columns), shape, halo)


def parts_of(tile: Tile, side: int, shape: tuple[int, int], halo: int) -> Iterator[Tile]:
    """Cut a tile of a picture into parts of ``side`` pixels with a halo of their own."""
    rows, columns = tile.here
    for top in range(rows.start, rows.stop, side):
        for left in range(columns.start, columns.stop, side):
            here = (
                slice(top, min(top + side, rows.stop)),
                slice(left, min(left + side, columns.stop)),
            )
            yield Tile.of(here, shape, halo)


def box_of(part: Tile, wanted: NDArray[np.bool_], halo: int, multiple: int = 1) -> Tile | None:
    """The smallest box of a part that holds all that is ``wanted`` of its pixels, if anything is.

    It begins, and unless the part ends there also ends, at a ``multiple`` of pixels in the part;
    its halo is cut off where that of the part ends.
    """
    found = [np.flatnonzero(wanted.any(axis=axis)) for axis in (1, 0)]
    if not found[0].size:
        return None
    here = [
        slice(
            whole.start + own[0] // multiple * multiple,
            min(whole.start + (own[-1] // multiple + 1) * multiple, whole.stop),
        )
        for whole, own in zip(part.here, found, strict=True)
    ]
    around = (
        slice(max(whole.start, own.start - halo), min(whole.stop, own.stop + halo))
        for whole, own in zip(part.around, here, strict=True)
    )
    return Tile(*here, *around)


def relative(inner: tuple[slice, slice], outer: tuple[slice, slice]) -> tuple[slice, slice]:
    """Rows and columns counted from the start of others."""
    rows, columns = (
        slice(own.start - whole.start, own.stop - whole.start)
        for own, whole in zip(inner, outer, strict=True)
    )
    return rows, columns


def padded(
    planes: NDArray[np.float32], multiple: int = MULTIPLE, beyond: float | None = None
) -> NDArray[np.float32]:
    """Lengthen planes (channels, h, w) to multiples: (1, …); by a value, or mirrored."""
    down, right = (-length % multiple for length in planes.shape[1:])
    if not down and not right:
        return np.ascontiguousarray(planes)[None]
    sides = (0, 0), (0, down), (0, right)
    if beyond is None:
        return np.pad(planes, sides, mode="symmetric")[None]
    return np.pad(planes, sides, constant_values=beyond)[None]


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


def map_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], *, pixels: int
) -> Iterator[Result]:
    """Map items in their order, on as many threads as there are processors.

    Where a piece of work is about so few ``pixels`` that threads would cost more than they save,
    or is the only one, the caller does it.
    """
    items = list(items)
    workers = processors() if pixels >= _WORTH_THREADS and len(items) > 1 else 0
    with done_ahead(work, items, workers=workers) as coming:
        yield from coming
