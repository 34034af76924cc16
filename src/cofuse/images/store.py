"""Temporary files: a shelf of pictures, and the store that keeps every frame once it was read.

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
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images.memory import format_size

#: Pixels of the reduced copy of a frame, at most.
_MOST_PIXELS = 2_000_000
#: Its longest side: OpenCV looks nothing up in pictures beyond 32767.
_MOST_SIDE = 32_000


class Reduced(NamedTuple):
    """A smaller copy of a frame, in its own type, and the largest value of each of its channels."""

    pixels: NDArray[Any]
    largest: tuple[float, ...]


def reduced_copy(frame: NDArray[Any]) -> Reduced:
    """Average a frame down to two million pixels, or take it as it is if it has no more."""
    import cv2  # takes a while to load

    of_columns = np.asarray(cv2.reduce(frame, 0, cv2.REDUCE_MAX)).reshape(frame.shape[1], -1)
    largest = tuple(of_columns.max(axis=0).astype(float).tolist())
    return Reduced(reduce(frame, _MOST_PIXELS), largest)


def reduce(frame: NDArray[Any], most_pixels: int) -> NDArray[Any]:
    """Shrink a frame to a number of pixels, in its own type.

    Averages of native values are cheap, 24 million float luminances are not.
    """
    size = _reduced_size(frame.shape, most_pixels)
    return frame if size == frame.shape[1::-1] else shrunk(frame, size)


def _reduced_size(shape: tuple[int, ...], most_pixels: int) -> tuple[int, int]:
    """Width and height of a reduced copy of a frame of this shape."""
    height, width = shape[:2]
    factor = min(math.sqrt(most_pixels / (height * width)), 1.0)
    columns, rows = (min(max(round(side * factor), 1), _MOST_SIDE) for side in (width, height))
    return columns, rows


def shrunk(picture: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Average a picture down to a (width, height); by halves first, which is many times faster."""
    import cv2

    height, width = picture.shape[:2]
    while min(width / size[0], height / size[1]) >= 2 and width % 2 == height % 2 == 0:
        width, height = width // 2, height // 2
        picture = np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))


class FrameStore:
    """Frames that are read once each: when first asked for they are put on a shelf.

    Beside every frame lies its reduced copy. Several threads may ask at once.

    Parameters
    ----------
    read
        Reads a frame by its index; an error is the caller's, and the next one who asks tries again.
    count, shape, dtype
        How many frames, and the kind of each.
    """

    def __init__(
        self,
        read: Callable[[int], NDArray[Any]],
        count: int,
        shape: tuple[int, ...],
        dtype: DTypeLike,
    ) -> None:
        self._read = read
        self._frames = Shelf(count, shape, dtype)
        columns, rows = _reduced_size(shape, _MOST_PIXELS)
        small = (rows, columns, *shape[2:])
        #: Copies as large as the frames would be the frames once more.
        self._copies = self._frames if small == shape else Shelf(count, small, dtype)
        #: Of every frame on the shelf the largest value of each channel.
        self._largest: dict[int, tuple[float, ...]] = {}
        self._reading = tuple(threading.Lock() for _ in range(count))

    @property
    def full(self) -> bool:
        """Whether every frame was read."""
        return len(self._largest) == len(self._reading)

    def fetch(self, index: int) -> NDArray[Any] | None:
        """Put a frame on the shelf and return it; None if it lies there already."""
        with self._reading[index]:
            if index in self._largest:
                return None
            frame = self._read(index)
            copy = reduced_copy(frame)
            self._frames.write(index, frame)
            if self._copies is not self._frames:
                self._copies.write(index, copy.pixels)
            self._largest[index] = copy.largest
            return frame

    def read(
        self, index: int, rows: slice = slice(None), columns: slice = slice(None)
    ) -> NDArray[Any]:
        """Return a frame, or some rows and columns of it; not to be written to."""
        frame = self.fetch(index)
        return self._frames.read(index, rows, columns) if frame is None else frame[rows, columns]

    def reduced(self, index: int) -> Reduced:
        """Return the reduced copy of a frame."""
        self.fetch(index)
        return Reduced(self._copies.read(index), self._largest[index])


class Shelf:
    """Pictures of one shape and dtype in a nameless temporary file, which goes with the shelf.

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
        self._pixel_bytes = self.dtype.itemsize * math.prod(shape[2:])
        # Unbuffered: what is written is large, and goes straight from arrays.
        self._file = tempfile.TemporaryFile(buffering=0, dir=spill_folder())  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        #: Held from finding a place in the file to the end of what is written there.
        self._moving = threading.Lock()

    def write(
        self,
        index: int,
        values: NDArray[Any],
        rows: slice = slice(None),
        columns: slice = slice(None),
    ) -> None:
        """Put a picture, or some rows and columns of it, on the shelf."""
        # Not through a map: a full disk would end the process.
        values = np.ascontiguousarray(values, self.dtype)
        height, width = self.shape[:2]
        top, left = rows.indices(height)[0], columns.indices(width)[0]
        whole = values.shape[1] == width
        try:
            for row, part in [(0, values)] if whole else enumerate(values):
                start = ((index * height + top + row) * width + left) * self._pixel_bytes
                data = part.reshape(-1).view(np.uint8).data
                with self._moving:
                    self._file.seek(start)
                    while data:
                        data = data[self._file.write(data) :]
        except OSError as error:
            size = self.count * height * width * self._pixel_bytes
            raise CofuseError(
                f"{format_size(size)} do not fit into the temporary folder: {error.strerror}; "
                "name a larger one in TMPDIR"
            ) from error

    def read(
        self, index: int, rows: slice = slice(None), columns: slice = slice(None)
    ) -> NDArray[Any]:
        """Return a picture, or some rows and columns of it; not to be written to."""
        height, width = self.shape[:2]
        top, bottom, _ = rows.indices(height)
        row_bytes = width * self._pixel_bytes
        first, last = ((index * height + row) * row_bytes for row in (top, bottom))
        start = first - first % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(
                self._file.fileno(), last - start, access=mmap.ACCESS_READ, offset=start
            )
        except ValueError as error:
            raise CofuseError("a temporary file has become shorter; was it cut off?") from error
        # The map goes at once: its pages count as the process's memory.
        with mapped:
            flat = np.frombuffer(mapped, np.uint8, last - first, first - start)
            every = flat.view(self.dtype).reshape(bottom - top, *self.shape[1:])
            values = every[:, columns].copy()
            del flat, every  # a map in use cannot be closed
        return values


def spill_folder(mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Return a folder on a disk if the usual temporary one lies in memory, as on many Linuxes.

    ``mounts`` is the system's list of what is mounted where.
    """
    if any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    usual, other = tempfile.gettempdir(), "/var/tmp"
    if not sys.platform.startswith("linux") or not os.access(other, os.W_OK | os.X_OK):
        return None
    kinds: dict[str, str] = {}
    try:
        for line in mounts.read_text().splitlines():
            _, place, kind, *_ = line.split()
            kinds[place] = kind
    except (OSError, ValueError):
        return None

    def in_memory(folder: str) -> bool:
        path = Path(os.path.realpath(folder))
        above = (str(place) for place in (path, *path.parents))
        return kinds.get(next((m for m in above if m in kinds), ""), "") in ("tmpfs", "ramfs")

    return other if in_memory(usual) and not in_memory(other) else None
