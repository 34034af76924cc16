"""Stacks and jobs on disk: one folder each, its state as JSON, written whole or not at all.

What clients send is never part of a path: folders and files bear random names of our own, and are
found by looking an identifier up among the records.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from cofuse.errors import CofuseError
from cofuse.files import write_json
from cofuse.web.options import Config, Options
from cofuse.web.schemas import FrameRecord, JobRecord, StackRecord, State, now

#: Names of folders that are on their way out begin with this.
_GONE = ".gone-"
#: Names of folders that the store made itself.
_OWN_NAME = re.compile(r"x[A-Za-z0-9_-]{16}")

#: A file that marks a folder as a server's.
_MARK = "cofuse-serve.txt"

_Record = TypeVar("_Record", StackRecord, JobRecord)


class Records(dict[str, _Record]):
    """All records of one kind, ``word``, by identifier, each with a folder of its own."""

    def __init__(self, folder: Path, word: str, kind: type[_Record], lock: threading.RLock) -> None:
        super().__init__()
        self._folder, self._word, self._lock = folder, word, lock
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for place in sorted(folder.iterdir()):
            # A server may have been killed while it made or deleted a folder.
            own = _OWN_NAME.fullmatch(place.name) and not (place / f"{word}.json").exists()
            if not place.is_symlink() and (own or place.name.startswith(_GONE)):
                _remove(place)
                continue
            try:
                record = kind.model_validate_json((place / f"{word}.json").read_bytes())
            except (OSError, ValidationError):  # not there or not whole: not ours to judge
                continue
            if record.id == place.name:
                record.folder = place
                self[record.id] = record

    def __missing__(self, identifier: str) -> _Record:
        raise HTTPException(404, f"there is no such {self._word}")

    def all(self) -> list[_Record]:
        """All records, newest first."""
        # Reading takes no lock: a writer may hold it until the disk has answered.
        return sorted(self.values(), key=lambda one: one.created, reverse=True)

    def add(self, record: _Record) -> None:
        """Take up a new record and make its folder."""
        record.folder = self._folder / record.id
        with self._lock:
            record.folder.mkdir(mode=0o700)
            self[record.id] = record
            try:
                self.change(record)
            except BaseException:
                del self[record.id]
                _remove(record.folder)
                raise

    def change(self, record: _Record, **values: Any) -> None:
        """Give a record new values once they are written; one that was deleted is not written."""
        with self._lock:
            if record.id in self:
                path = record.folder / f"{self._word}.json"
                changed = record.model_copy(update=values)
                write_json(path, changed.model_dump(mode="json"), overwrite=True)
            record.show(**values)


class Store:
    """All stacks and jobs of a folder that is `taken`; may be used by several threads."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lock = threading.RLock()
        #: Bytes of all stacks and jobs at the last clean-up, and of uploads since.
        self.size = 0
        #: Bytes on their way to every stack.
        self.coming: defaultdict[str, int] = defaultdict(int)
        self.stacks = Records(config.folder / "stacks", "stack", StackRecord, self.lock)
        self.jobs = Records(config.folder / "jobs", "job", JobRecord, self.lock)
        for stack in self.stacks.all():
            folder = stack.folder / "frames"
            if stack.folder.is_symlink() or folder.is_symlink():
                continue  # what lies elsewhere is not ours to delete
            files = {self.frame_path(stack.id, frame).name for frame in stack.frames}
            for file in folder.glob("*"):  # uploads that were cut
                if file.name.removesuffix(".thumbnail.jpg") not in files:
                    file.unlink()
        self.interrupt_all()

    # --- stacks ----------------------------------------------------------------------------------

    def new_stack(self, name: str, *, sample: bool = False) -> StackRecord:
        """Make an empty stack."""
        stack = StackRecord(id=new_id(), name=name, created=now(), sample=sample)
        with self.lock:
            if len(self.stacks) >= self.config.max_stacks:
                line = f"there are {len(self.stacks)} stacks; delete some first"
                raise HTTPException(409, line)
            self.stacks.add(stack)
            (stack.folder / "frames").mkdir(mode=0o700)
        return stack

    def frame_path(self, stack: str, frame: FrameRecord) -> Path:
        """Where a frame of a stack, which may be deleted, lies."""
        folder = self.config.folder / "stacks" / stack / "frames"
        return folder / f"{frame.id}{frame.suffix}"

    def delete_stack(self, identifier: str) -> None:
        """Delete a stack, unless a job still needs it."""
        with self.lock:
            stack = self.stacks[identifier]
            self.check_unused(stack)
            del self.stacks[identifier]
        _remove(stack.folder)

    def check_unused(self, stack: StackRecord) -> None:
        """Refuse to take away frames that a job still needs."""
        if any(job.stack == stack.id and not job.is_over for job in self.jobs.all()):
            raise HTTPException(409, "a job is using this stack; cancel it first")

    # --- jobs ------------------------------------------------------------------------------------

    def new_job(self, stack: StackRecord, options: Options, command: str) -> JobRecord:
        """Make a job that waits."""
        job = JobRecord(
            id=new_id(),
            stack=stack.id,
            name=stack.name,
            state="waiting",
            created=now(),
            options=options,
            command=command,
            frames=list(stack.frames),
        )
        with self.lock:
            self.jobs.add(job)
            self.stacks.change(stack, used=now())
        return job

    def finish(self, job: JobRecord, state: State, error: str | None = None) -> None:
        """End a job without a result; of its folder only the record stays."""
        with suppress(OSError):
            for path in list(job.folder.iterdir()):
                if path.name != "job.json":
                    _remove(path)
        facts: dict[str, Any] = {"error": error, "ended": now(), "state": state}
        facts |= {"seconds_left": None, "stage": "", "preview": 0}
        try:
            self.jobs.change(job, **facts)
        except (CofuseError, OSError):  # where there is no room for it, who looks is told at least
            job.show(**facts)

    def interrupt_all(self) -> None:
        """End all jobs that are not over, as no server is at work on them any more."""
        for job in self.jobs.all():
            if not job.is_over:
                error = "the server was stopped before the job was done"
                self.finish(job, "interrupted", error)

    def delete_job(self, identifier: str) -> None:
        """Delete a job that is over."""
        with self.lock:
            job = self.jobs[identifier]
            if not job.is_over:
                raise HTTPException(409, "the job is still running; cancel it first")
            del self.jobs[identifier]
        _remove(job.folder)

    # --- clean-up --------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Delete stacks that were not used for long, and the oldest while all is too large.

        Their frames are copies; results are not, and only their owner deletes them. Stacks of jobs
        that wait or run stay.
        """
        limit = now() - timedelta(days=self.config.keep_days)
        left = folder_bytes(self.config.folder)
        for stack in sorted(self.stacks.all(), key=lambda stack: stack.used):
            if stack.used >= limit and left <= self.config.keep_size:
                break
            size = folder_bytes(stack.folder)
            with suppress(HTTPException):  # in use, or deleted meanwhile
                self.delete_stack(stack.id)
                left -= size
        self.size = left


@contextmanager
def taken(folder: Path) -> Iterator[Path]:
    """Take a folder for one server, and see to it that what is written is its user's alone."""
    folder, before = folder.absolute(), os.umask(0o077)
    try:
        with _claimed(folder):
            yield folder
    finally:
        os.umask(before)


def _claimed(folder: Path) -> TextIO:
    """Mark a folder as a server's, and lock it by a file as long as that is open.

    One that holds other files is refused, as we delete in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / _MARK).exists():
            if any(path.name != ".lock" for path in folder.iterdir()):
                raise CofuseError(
                    f"{folder} holds files that are not cofuse's; name a new or empty folder"
                )
            (folder / _MARK).write_text("cofuse serve keeps stacks and jobs in this folder.\n")
        lock = (folder / ".lock").open("w")
        with suppress(ImportError):  # not Unix
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CofuseError(
            f"{folder} is in use by another server; open its page, stop it, or name another folder "
            "with --data-dir"
        ) from error
    except OSError as error:
        raise CofuseError(f"{folder} cannot be used: {error.strerror}; name another") from error
    return lock


def content_of(path: Path, missing: str) -> bytes:
    """Read a whole file; ``missing`` says what a client misses if it is not there."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise HTTPException(404, missing) from error


def new_id() -> str:
    """A random name that never starts with a hyphen."""
    return "x" + secrets.token_urlsafe(12)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may go while we look
            total += path.lstat().st_size if path.is_file() else 0
    return total


def _remove(path: Path) -> None:
    """Remove a file or a folder, but nothing that a link leads to."""
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):  # on Windows what is open cannot be renamed
            # Nothing can be written to it by its own name any more.
            path = path.rename(path.with_name(f"{_GONE}{path.name}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
