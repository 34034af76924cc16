"""Whether a job will have to wait for its kernels to be compiled, told without loading them.

Numba keeps what it compiled beside the source, in the folder that NUMBA_CACHE_DIR names, or, where
neither can be written to, in the user's own cache. An index is kept for every function, and is
void when the source has changed after it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import cofuse

__all__ = ["COMPILING_SECONDS", "kernels_missing"]

#: About how long compiling takes on one processor of 2020 or so.
COMPILING_SECONDS = 15


def kernels_missing() -> bool:
    """Tell whether kernels were never compiled here, or before their source changed."""
    source = Path(cofuse.__file__).parent / "kernels" / "loops.py"
    python = f".py{sys.version_info[0]}{sys.version_info[1]}.nbi"
    try:
        changed = source.stat().st_mtime
        found = (index for pattern in _places(source) for index in pattern)
        return not any(
            index.name.endswith(python) and index.stat().st_mtime >= changed for index in found
        )
    except OSError:  # nobody knows; then nothing is said
        return False


def _places(source: Path) -> Iterator[Iterator[Path]]:
    """Indices of a module's functions, wherever they may be."""
    name = f"{source.stem}.*.nbi"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given).glob(f"*/{name}")
        return
    yield (source.parent / "__pycache__").glob(name)
    own = {
        "win32": Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
        / "numba"
        / "numba"
        / "Cache",
        "darwin": Path("~/Library/Caches/numba"),
    }.get(sys.platform, Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "numba")
    yield own.expanduser().glob(f"*/{name}")
