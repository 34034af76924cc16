"""Memory: how much there is and may be used, and sizes as people write them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cofuse.errors import CofuseError

#: Share of the free memory that is used when nobody names a ceiling.
_SAFE_SHARE = 0.6

#: Addresses that libraries and threads will take up, most of them without memory behind them:
#: measured on two processors.
_ADDRESSES = 500_000_000

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]I?)?B?\s*", re.IGNORECASE)

#: Where Linux tells which control groups, by which containers are limited, a process is in, and
#: what they are.
_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


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


def available_memory(groups: tuple[Path, Path] = _GROUPS) -> int:
    """Return the bytes that can be had without swapping, within a container's limit and ulimit.

    ``groups`` is where Linux tells of control groups.
    """
    import psutil

    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_left_in_groups(*groups), *_left_of_addresses()]))


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


def _left_in_groups(of_process: Path, groups: Path) -> Iterator[int]:
    """Bytes left under the limit of every control group this process is in, of either version."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = groups / "memory"
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
