"""Temporary files for frames and whole pictures in floats.

What was written and is read again soon has not left the memory that the system has to spare, but
does not count as this process's: there is no limit to the size of a stack but the disk's.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images.memory import format_size

__all__ = ["Shelf"]

_MOUNTS = Path("/proc/self/mounts")


class Shelf:
    """Pictures of one shape and dtype in a nameless temporary file, which goes when it is closed.

    Parts are read from the file into small arrays: pages of a file that is mapped would count as
    this process's memory.

    Parameters
    ----------
    count
        How many pictures.
    shape
        Shape of each, rows and columns first.
    dtype
        Type of their values.
    """

    def __init__(self, count: int, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.count, self.shape, self.dtype = count, shape, np.dtype(dtype)
        # Unbuffered: what is read and written is large, and goes straight to and from arrays.
        self._file = tempfile.TemporaryFile(buffering=0, dir=_spill_folder())  # noqa: SIM115
        #: Held from finding a place in the file to the end of what is read or written there.
        self._moving = threading.Lock()

    def __enter__(self) -> Shelf:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def write(
        self,
        index: int,
        values: NDArray[Any],
        rows: slice = slice(None),
        columns: slice = slice(None),
    ) -> None:
        """Put a picture, or some rows and columns of it, on the shelf."""
        values = np.ascontiguousarray(values, self.dtype)
        try:
            for offset, part in self._runs(index, values, rows, columns):
                with self._moving:
                    self._file.seek(offset)
                    while part:
                        part = part[self._file.write(part) :]
        except OSError as error:
            size = self.count * math.prod(self.shape) * self.dtype.itemsize
            raise CofuseError(
                f"{format_size(size)} do not fit into the temporary folder: {error.strerror}; "
                "name a larger one in TMPDIR"
            ) from error

    def read(
        self, index: int, rows: slice = slice(None), columns: slice = slice(None)
    ) -> NDArray[Any]:
        """Return a picture, or some rows and columns of it; not to be written to."""
        sizes = (
            len(range(*s.indices(n))) for s, n in zip((rows, columns), self.shape, strict=False)
        )
        values = np.empty((*sizes, *self.shape[2:]), self.dtype)
        if values.size and values.shape[1] < self.shape[1]:
            self._read_mapped(index, values, rows, columns)
            return values
        for offset, part in self._runs(index, values, rows, columns):
            with self._moving:
                self._file.seek(offset)
                while part:
                    got = self._file.readinto(part)
                    if not got:
                        raise CofuseError("a temporary file has become shorter; was it cut off?")
                    part = part[got:]
        return values

    def _read_mapped(self, index: int, values: NDArray[Any], rows: slice, columns: slice) -> None:
        """Read some columns through a map of their rows, many times faster than row by row.

        The map goes at once: its pages count as the process's memory.
        """
        top, bottom, _ = rows.indices(self.shape[0])
        row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        first, last = ((index * self.shape[0] + row) * row_bytes for row in (top, bottom))
        start = first - first % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(
                self._file.fileno(), last - start, access=mmap.ACCESS_READ, offset=start
            )
        except ValueError as error:
            raise CofuseError("a temporary file has become shorter; was it cut off?") from error
        with mapped:
            flat = np.frombuffer(mapped, np.uint8, last - first, first - start)
            values[:] = flat.view(self.dtype).reshape(bottom - top, *self.shape[1:])[:, columns]
            del flat  # a map in use cannot be closed

    def _runs(
        self, index: int, values: NDArray[Any], rows: slice, columns: slice
    ) -> Iterator[tuple[int, memoryview]]:
        """Places in the file, each with the part of ``values`` that lies there in one piece."""
        top, bottom, _ = rows.indices(self.shape[0])
        left, right, _ = columns.indices(self.shape[1])
        if not values.size:
            return
        pixel = self.dtype.itemsize * math.prod(self.shape[2:])
        width = self.shape[1] * pixel
        start = (index * self.shape[0] + top) * width + left * pixel
        data = values.reshape(-1).data.cast("B")
        if right - left == self.shape[1]:
            yield start, data
            return
        run = (right - left) * pixel
        for row in range(bottom - top):
            yield start + row * width, data[row * run : (row + 1) * run]


def _spill_folder() -> str | None:
    """Return a folder on a disk if the usual temporary one lies in memory, as on many Linuxes."""
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    usual, other = tempfile.gettempdir(), "/var/tmp"
    if not sys.platform.startswith("linux") or not os.access(other, os.W_OK | os.X_OK):
        return None
    kinds: dict[str, str] = {}
    try:
        for line in _MOUNTS.read_text().splitlines():
            _, place, kind, *_ = line.split()
            kinds[place] = kind
    except (OSError, ValueError):
        return None

    def in_memory(folder: str) -> bool:
        path = Path(os.path.realpath(folder))
        mounts = (str(place) for place in (path, *path.parents))
        return kinds.get(next((m for m in mounts if m in kinds), ""), "") in ("tmpfs", "ramfs")

    return other if in_memory(usual) and not in_memory(other) else None
