"""Hidden files of runs: whose they are, and locks that end with the process that holds them.

All that a run keeps hidden beside its results bears its machine, process and the moment that
process began. A later run removes what belongs to a dead process of this machine, and nothing else.
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

__all__ = ["hidden_name", "is_abandoned", "is_of_this_machine", "locked", "who"]

#: What systems say of a folder that is not empty.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)

_HIDDEN = re.compile(r"\.cofuse-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-[0-9a-f]{16}(?:\.tmp)?")


def hidden_name() -> str:
    """Name a hidden file or folder of this process that nobody else has."""
    pid = os.getpid()
    return f".cofuse-{_machine()}-{pid}-{_began(pid) or 0}-{secrets.token_hex(8)}"


def is_abandoned(name: str) -> bool:
    """Tell whether a name is of `hidden_name`, by a process of this machine that is dead."""
    if not is_of_this_machine(name):
        return False
    import psutil

    pid, named = map(int, name.split("-")[2:4])
    if not psutil.pid_exists(pid):
        return True
    began = _began(pid)
    # A process of which nobody can tell counts as alive.
    return began != named and 0 not in (began, named)


def is_of_this_machine(name: str) -> bool:
    """Tell whether a hidden name is of a process that can be asked after here."""
    match = _HIDDEN.fullmatch(name)
    return match is not None and match[1] == _machine()


def who(name: str) -> str:
    """Say in words whose a hidden name is."""
    return f"process {name.split('-')[2]}" if is_of_this_machine(name) else "another machine"


@cache
def _machine() -> str:
    """Tell machines apart, and containers, which count processes of their own."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:8]


def _began(pid: int) -> int | None:
    """When a process began, in a count that no change of the clock touches.

    None for one that has ended, 0 where nobody tells.
    """
    if sys.platform.startswith("linux"):
        try:
            # The name of the program is in brackets and may hold anything.
            state, *fields = (
                Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
            )
        except OSError:  # ended, or hidden from us
            return 0
        return None if state in "ZX" else int(fields[18])
    import psutil

    try:
        return int(100 * psutil.Process(pid).create_time())
    except psutil.Error:
        return 0


@contextmanager
def locked(path: Path) -> Iterator[str | None]:
    """Hold a lock; yields None, or the hidden name of the living run that holds it.

    A lock is a folder that holds one file, named after its holder. Folders are given their name
    only when the file is in them, and none is renamed over another that is not empty: on every
    file system just one run gets the name. Giving back, and taking what a dead holder left,
    removes the file of that one name and then the folder if it is empty: a lock that another run
    took in between stays where it is.
    """
    mine = path.with_name(hidden_name())
    try:
        mine.mkdir()
        (mine / mine.name).touch()
        yield _taken(mine, path)
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        _free(path, mine.name)


def _taken(mine: Path, path: Path) -> str | None:
    """Give a lock its name; returns the holder where a living one has it."""
    while True:
        try:
            mine.rename(path)
            return None
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        holder = _holder(path)
        if holder is not None and not is_abandoned(holder):
            return holder
        _free(path, holder)


def _free(lock: Path, holder: str | None) -> None:
    """Take away a holder's file, and the folder where nobody else has come into it.

    What may not be removed is an error: whoever waits for such a lock waits for ever.
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


def _holder(lock: Path) -> str | None:
    with suppress(FileNotFoundError):
        return next((entry.name for entry in lock.iterdir()), None)
    return None
