"""The frames of a tile: read when they are asked for, as far as each use needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lazy", "PlaneReader", "Span", "Spans", "TileFrames", "within"]

Levels = NDArray[np.float32]
Span = tuple[int, int]
Spans = tuple[Span, Span]
#: Reads rows and columns of one frame as planes in grey levels, shape (h, w, planes).
PlaneReader = Callable[[slice, slice], Levels]


class TileFrames:
    """A tile's frames in units of noise, all kept or each read when asked for."""

    def __init__(
        self,
        looks: Sequence[PlaneReader],
        readers: Sequence[PlaneReader],
        looked: Spans,
        mixed: Spans,
        factors: Levels,
        keep: bool,
    ) -> None:
        self.looks, self.readers, self.factors = looks, readers, factors
        self.looked, self.mixed = looked, mixed
        self.most = len(readers) if keep else 1
        self.first: dict[int, Levels] = {}
        self.all: dict[int, list[Levels]] = {}

    def look(self, number: int) -> Levels:
        """First plane, as far as the weigher looks."""
        if number not in self.first:
            _make_room(self.first, self.most)
            plane = self.looks[number](*(slice(*span) for span in self.looked))[..., 0]
            self.first[number] = np.multiply(plane, self.factors[0], dtype=np.float32)
        return self.first[number]

    def planes(self, number: int) -> list[Levels]:
        """All planes, as far as they are mixed."""
        first = self.look(number)[within(self.looked, self.mixed)]
        if len(self.factors) == 1:
            return [first]
        if number not in self.all:
            _make_room(self.all, self.most)
            planes = self.readers[number](*(slice(*span) for span in self.mixed))
            self.all[number] = [
                np.multiply(planes[..., i], self.factors[i], dtype=np.float32)
                for i in range(1, len(self.factors))
            ]
        return [first, *self.all[number]]


def _make_room(kept: dict[int, Any], most: int) -> None:
    """Forget what is kept if there is as much as may be."""
    if len(kept) == most:
        kept.clear()


class Lazy(Sequence[Any]):
    """So many things, each made when it is asked for."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._make(index)


def within(have: Spans, want: Spans) -> tuple[slice, slice]:
    """Where spans lie in others."""
    rows, columns = (slice(w[0] - h[0], w[1] - h[0]) for h, w in zip(have, want, strict=True))
    return rows, columns
