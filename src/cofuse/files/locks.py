"""Locks that end with their process."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cofuse.files.transaction import hidden_name, is_abandoned

#: Errors of renaming over, or removing, a folder that is not empty.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


@contextmanager
def locked(path: Path) -> Iterator[str | None]:
    """Take a lock; yields None if it was taken, else the hidden name of the living holder.

    A lock is a folder with one file in it, named after its holder. The folder is made under
    another name and renamed to ``path`` with the file in it. No file system renames over a folder
    that is not empty, so only one run succeeds. To release a lock, or to remove that of a dead
    holder, the file of that one name is removed and then the folder if it is empty: a lock that
    another run took in between stays.
    """
    mine = path.with_name(hidden_name())
    try:
        mine.mkdir()
        (mine / mine.name).touch()
        yield _take(mine, path)
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        _free(path, mine.name)


def _take(mine: Path, path: Path) -> str | None:
    """Rename a folder to the lock; returns the holder if a living one has it."""
    while True:
        try:
            mine.rename(path)
            return None
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        holder = None
        with suppress(FileNotFoundError):
            holder = next((entry.name for entry in path.iterdir()), None)
        if holder is not None and not is_abandoned(holder):
            return holder
        _free(path, holder)


def _free(lock: Path, holder: str | None) -> None:
    """Remove a holder's file, and the folder if no other holder's file is in it.

    What may not be removed is an error: `_take` would try for ever.
    """
    try:
        if holder is not None:
            (lock / holder).unlink()
        lock.rmdir()
    except FileNotFoundError:  # another run was faster
        pass
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
