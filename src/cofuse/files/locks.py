"""Hidden names that tell who made them, and locks that end with their process.

The name of a hidden file or folder holds the machine, the process, and the time that process
started. What belongs to a dead process of this machine may be removed, and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_HIDDEN = re.compile(r"\.cofuse-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-[0-9a-f]{16}(?:\.tmp)?")

#: Errors of renaming over, or removing, a folder that is not empty.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


def hidden_name() -> str:
    """Return a new unique name for a hidden file or folder of this process."""
    pid = os.getpid()
    return f".cofuse-{_machine()}-{pid}-{_started(pid) or 0}-{secrets.token_hex(8)}"


def is_of_this_machine(name: str) -> bool:
    """Whether a hidden name was made on this machine, where its process can be looked up."""
    match = _HIDDEN.fullmatch(name)
    return match is not None and match[1] == _machine()


def is_abandoned(name: str) -> bool:
    """Whether a name is one of `hidden_name`, made by a dead process of this machine."""
    if not is_of_this_machine(name):
        return False
    import psutil

    pid, named = map(int, name.split("-")[2:4])
    if not psutil.pid_exists(pid):
        return True
    started = _started(pid)
    # Where the time is unknown, the process counts as alive.
    return started != named and 0 not in (started, named)


def who(name: str) -> str:
    """Say who owns a hidden name: a process of this machine, or another machine."""
    return f"process {name.split('-')[2]}" if is_of_this_machine(name) else "another machine"


@cache
def _machine() -> str:
    """Identify this machine, or container, which numbers its own processes."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:8]


def _started(pid: int) -> int | None:
    """Return when a process started: None if it has ended, 0 if that is unknown.

    On Linux in ticks since the machine started, which setting the clock does not change.
    """
    if sys.platform.startswith("linux"):
        try:
            text = Path(f"/proc/{pid}/stat").read_text("latin-1")
        except OSError:  # ended, or hidden from us
            return 0
        # The name of the program is in brackets and may hold anything.
        state, *fields = text.rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    import psutil

    try:
        return int(100 * psutil.Process(pid).create_time())
    except psutil.Error:
        return 0


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
