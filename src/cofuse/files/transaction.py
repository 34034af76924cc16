"""Files appear whole or not at all, and all results of a run together.

Every result is written to a hidden folder (a stage) beside its place. When all are written, a
journal is written too; from then on the run counts as done, and the files are moved to their
places. A run killed before that leaves only hidden folders, which the next run that writes there
removes; one killed while files are moved leaves a journal, and the next run moves the rest.

The name of what is hidden holds the machine, the process, and the time that process started. What
belongs to a dead process of this machine may be removed, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cofuse.errors import CofuseError

_HIDDEN = re.compile(r"\.cofuse-([0-9a-f]{8})-(\d{1,10})-(\d{1,20})-[0-9a-f]{16}(?:\.tmp)?")

#: In a stage: new files, by their paths below the folder around it; the journal; and the path of
#: the stage that has the journal.
_FILES, _JOURNAL, _HOME = "files", "journal.json", "home"


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


class Transaction:
    """Results that are to appear together when the block ends well; otherwise none is left.

    With ``overwrite`` existing files may be replaced.
    """

    def __init__(self, *, overwrite: bool) -> None:
        self._overwrite = overwrite
        self._name = hidden_name()
        self._stages: list[Path] = []
        #: Where a file is written, and the path that the user gave for it.
        self._places: dict[Path, Path] = {}

    def __enter__(self) -> Transaction:
        return self

    def place(self, path: Path) -> Path:
        """Return where to write what will become ``path``; its folder is made if need be."""
        target = Path(os.path.realpath(path))  # a link is written through, not replaced
        folder = next(parent for parent in target.parents if parent.is_dir())
        stage = folder / self._name
        staged = stage / _FILES / target.relative_to(folder)
        try:
            if stage not in self._stages:
                clear_leftovers(folder)
                self._stages.append(stage)
                stage.mkdir()
                (stage / _HOME).write_bytes(os.fsencode(self._stages[0]))
            staged.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(path, error.strerror) from error
        self._places[staged] = path
        return staged

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._commit()
            return
        self._drop()
        if isinstance(error, CofuseError):
            text = str(error)
            for staged, path in self._places.items():
                text = text.replace(str(staged), str(path))
            if text != str(error):
                raise CofuseError(text) from error

    def _commit(self) -> None:
        if not self._stages:
            return
        home = self._stages[0]
        try:
            taken = [path for path in self._places.values() if path.exists()]
            if taken and not self._overwrite:
                raise in_the_way(taken[0])
            stages = [os.fsdecode(stage) for stage in self._stages]
            with (home / "new").open("w", encoding="ascii") as file:
                json.dump({"overwrite": self._overwrite, "stages": stages}, file)
                file.flush()
                os.fsync(file.fileno())
            (home / "new").replace(home / _JOURNAL)  # whole if it is there
        except BaseException as error:
            self._drop()
            if isinstance(error, OSError):
                raise not_written(next(iter(self._places.values())), error.strerror) from error
            raise
        try:
            _carry_out(home)
        except (CofuseError, OSError) as error:
            raise self._undone(error) from error
        except BaseException:  # interrupted, but done: what remains takes no time
            _carry_out(home)
            raise

    def _undone(self, error: CofuseError | OSError) -> CofuseError:
        """Take back what was moved, if nothing was replaced; return the error to raise."""
        moved = {staged: path for staged, path in self._places.items() if not staged.exists()}
        if not self._overwrite:
            for staged, path in moved.items():
                Path(os.path.realpath(path)).rename(staged)
            moved = {}
        self._drop()
        if isinstance(error, CofuseError):
            return error
        path, there = error.filename2 or error.filename, ", ".join(map(str, moved.values()))
        if not there:
            return not_written(path, error.strerror)
        return CofuseError(
            f"{path} could not be written ({error.strerror}), only {there}; mend that and run again"
        )

    def _drop(self) -> None:
        for stage in self._stages:
            with suppress(OSError):  # without a journal nobody takes the rest for results
                (stage / _JOURNAL).unlink()
            shutil.rmtree(stage, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Remove what dead runs left in a folder, and finish moving what they had begun to move."""
    try:
        abandoned = [entry for entry in folder.iterdir() if is_abandoned(entry.name)]
    except OSError:
        return
    for entry in abandoned:
        with suppress(OSError):
            if hasattr(os, "getuid") and entry.lstat().st_uid != os.getuid():
                continue
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
            else:
                _settle(entry)


def _settle(stage: Path) -> None:
    """Remove a dead run's stage, after moving its files if it had written a journal."""
    home = stage
    with suppress(OSError):
        home = Path(os.fsdecode((stage / _HOME).read_bytes()))
    if home.name == stage.name and (home / _JOURNAL).exists():
        moved = _carry_out(home, yielding=True)
        names = ", ".join(path.name for path in moved)
        warnings.warn(
            f"a run was stopped as it put its results in place; the rest was put there: {names}",
            stacklevel=4,
        )
    shutil.rmtree(stage, ignore_errors=True)


def _carry_out(home: Path, *, yielding: bool = False) -> list[Path]:
    """Move all files of a journal to their places; may be interrupted and repeated.

    A file that exists by now and may not be replaced is an error; with ``yielding`` it is kept,
    and the new one dropped.
    """
    facts: dict[str, Any] = json.loads((home / _JOURNAL).read_bytes())
    stages = [Path(stage) for stage in facts["stages"] if Path(stage).name == home.name]
    moved = []
    for stage in stages:
        for staged in sorted(path for path in (stage / _FILES).rglob("*") if not path.is_dir()):
            target = stage.parent / staged.relative_to(stage / _FILES)
            target.parent.mkdir(parents=True, exist_ok=True)
            taken = target.exists() and not target.samefile(staged)
            if not (yielding and taken and not facts["overwrite"]):
                move(staged, target, overwrite=facts["overwrite"])
                moved.append(target)
    for stage in reversed(stages):  # the journal last
        shutil.rmtree(stage, ignore_errors=True)
    return moved


def move(file: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a finished file; unless it may ``overwrite``, the new name must not be taken."""
    if overwrite:
        file.replace(target)
        return
    try:
        os.link(file, target)
    except FileExistsError as error:
        if not target.samefile(file):  # else stopped half way before
            raise in_the_way(target) from error
    except OSError as error:  # a file system without hard links: look, then rename
        if target.exists():
            raise in_the_way(target) from error
        file.replace(target)
        return
    file.unlink()


def in_the_way(path: Path) -> CofuseError:
    """Return the error that a file is in the way."""
    return CofuseError(f"{path} exists; pass `overwrite=True` to replace it")


def not_written(path: Path | str, reason: str | None) -> CofuseError:
    """Return the error that a file could not be written."""
    return CofuseError(
        f"{path} could not be written ({reason}); nothing was left behind, try another folder"
    )
