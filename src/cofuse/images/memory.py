"""Memory: how much there is, and temporary files for what does not fit.

What was written and is read again soon has not left the memory that the system has to spare, but
does not count as this process's: there is no limit to the size of a stack but the disk's.
"""

from __future__ import annotations

import math
import mmap
import os
import re
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

#: Share of the free memory that is used when nobody names a ceiling.
_SAFE_SHARE = 0.6

#: Addresses that libraries and threads will take up, most of them without memory behind them:
#: measured on two processors.
_ADDRESSES = 500_000_000

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]I?)?B?\s*", re.IGNORECASE)

#: Where Linux tells of control groups, which containers are limited by.
_GROUP_OF_PROCESS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def parse_size(text: str) -> int:
    """Read a number of bytes as people write it: ``"800M"``, ``"1.5 GiB"``, ``"2gb"``.

    K, M, G and T are powers of a thousand, with an i (``GiB``) of 1024; the B may be left out.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise CofuseError(
            f"{text!r} is no amount of memory; expected a number and a unit, as in 800MB, 1.5GB "
            "or 2GiB"
        )
    unit = (match[2] or "").upper()
    size = float(match[1]) * (_UNITS | _BINARY_UNITS)[unit]
    if not 1 <= size < 2**63:
        raise CofuseError(f"{text!r} is no memory that a machine has; expected for example 1GB")
    return int(size)


def format_size(size: float) -> str:
    """Write a number of bytes for people, rounded up: never less than it is."""
    if size < 1e9:
        return f"{math.ceil(size / 1e6)} MB"
    return f"{math.ceil(size / 1e7) / 100:.2f} GB"


def used_memory() -> int:
    """Return the bytes of memory this process holds (its resident set)."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def available_memory() -> int:
    """Return the bytes that can be had without swapping, within a container's limit and ulimit."""
    import psutil

    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_left_in_groups(), *_left_of_addresses()]))


def most_memory(named: int | None = None) -> int:
    """Return the bytes this process can come to have: those named, or all that are free.

    What is named may be more than is free, for those who let the system swap, but nobody gets
    beyond the limit on addresses (``ulimit -v``).
    """
    if named is None:
        return used_memory() + available_memory()
    return min([named, *(used_memory() + max(0, left) for left in _left_of_addresses())])


def default_ceiling() -> int:
    """Return a safe number of bytes for this process: what it has and a share of what is free."""
    return used_memory() + int(_SAFE_SHARE * available_memory())


def _left_of_addresses() -> Iterator[int]:
    """Bytes left under the limit on addresses, where there is one."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    import psutil

    coming = 0 if "onnxruntime" in sys.modules else _ADDRESSES
    yield limit - int(psutil.Process().memory_info().vms) - coming


def _left_in_groups() -> Iterator[int]:
    """Bytes left under the limit of every control group this process is in, of either version."""
    try:
        lines = _GROUP_OF_PROCESS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = _GROUPS / "memory"
            files = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # Groups above have limits of their own. A container sees its own group as the root, while
        # the path may be the one outside.
        group = Path(path.lstrip("/"))
        for folder in {root / group, *(root / parent for parent in group.parents), root}:
            if (left := _left_in_group(folder, *files)) is not None:
                yield left


def _left_in_group(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    """Bytes left under one group's limit, files' pages that would give way counted as left."""
    try:
        most, used = ((folder / name).read_text().strip() for name in (limit, usage))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if most == "max" else int(most) - int(used) + int(stat.get(reclaimable, 0))
    except (OSError, ValueError):
        return None


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
