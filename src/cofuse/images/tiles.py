"""Tiles: parts of a picture that are worked on one after the other, each with a halo."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GREY", "MULTIPLE", "Tile", "padded", "tiles_of"]

#: Sides of the networks' inputs are multiples of this.
MULTIPLE = 16
#: The value that networks count from, white at 1: padding with it is as good as nothing.
GREY = 0.5


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
    def within(self) -> tuple[slice, slice]:
        """Rows and columns of the tile within its halo."""
        rows, columns = (
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip(self.here, self.around, strict=True)
        )
        return rows, columns


def tiles_of(shape: tuple[int, int], side: int, halo: int) -> Iterator[Tile]:
    """Cut a picture into tiles of ``side`` pixels with a ``halo``, both multiples of `MULTIPLE`."""
    assert side % MULTIPLE == halo % MULTIPLE == 0
    spans = [
        [(start, min(start + side, length)) for start in range(0, length, side)] for length in shape
    ]
    for places in itertools.product(*spans):
        rows, columns = (slice(a, b) for a, b in places)
        yield Tile.of((rows, columns), shape, halo)


def padded(
    planes: NDArray[np.float32], multiple: int = MULTIPLE, beyond: float | None = None
) -> NDArray[np.float32]:
    """Lengthen planes (channels, h, w) to multiples: (1, …); by a value, or by their last ones."""
    down, right = (-length % multiple for length in planes.shape[1:])
    if not down and not right:
        return np.ascontiguousarray(planes)[None]
    sides = (0, 0), (0, down), (0, right)
    if beyond is None:
        return np.pad(planes, sides, mode="edge")[None]
    return np.pad(planes, sides, constant_values=beyond)[None]
