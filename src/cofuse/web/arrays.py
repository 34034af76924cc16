"""Arrays on disk: written whole and with ordinary writes, read as mapped files.

Nothing is written through a memory map: where the disk is full, the system ends a process that
does so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cofuse.files import written_whole
from cofuse.images import Pixels

#: Writes values from a place on, counted in values from the first.
Put = Callable[[int, NDArray[Any]], None]


def write_array(path: Path, pixels: Pixels) -> None:
    """Write an array that replaces whatever is there."""
    with written_whole(path, overwrite=True) as file:
        np.save(file, np.asanyarray(pixels))


@contextmanager
def written_by_parts(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[Put]:
    """Write an array part by part, in any order; it appears when all is there."""
    dtype = np.dtype(dtype)
    with written_whole(path, overwrite=True) as file:
        facts = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, facts)
        begin = file.tell()

        def put(place: int, values: NDArray[Any]) -> None:
            file.seek(begin + place * dtype.itemsize)
            file.write(np.ascontiguousarray(values, dtype).data)

        yield put
        end = file.seek(0, 2) - begin
        assert end == math.prod(shape) * dtype.itemsize, "every part was written"


def mapped(path: Path) -> Pixels:
    """Map an array to read."""
    return np.asanyarray(np.load(path, mmap_mode="r"))
