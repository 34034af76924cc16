"""Stacks and jobs on disk: one folder each, its state as JSON, written whole or not at all.

What clients send is never part of a path: folders and files bear random names of our own, and are
found by looking an identifier up among the records.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cofuse.errors import CofuseError
from cofuse.files import write_json
from cofuse.web.limits import Config
from cofuse.web.options import Options
from cofuse.web.schemas import FrameRecord, JobRecord, StackRecord, State, now

__all__ = ["Busy", "Full", "Missing", "Store", "content_of", "folder_bytes", "new_id"]

#: A file that marks a folder as a server's.
_MARK = "cofuse-serve.txt"

_Record = TypeVar("_Record", StackRecord, JobRecord)


class Missing(Exception):
    """There is nothing by this name."""


class Busy(CofuseError):
    """It cannot be done now; perhaps later."""


class Full(Exception):
    """Too much is waiting already."""


class Store:
    """All stacks and jobs; may be used by several threads."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lock = threading.RLock()
        self._stacks: dict[str, StackRecord] = {}
        self._jobs: dict[str, JobRecord] = {}
        #: Bytes of all stacks and jobs at the last clean-up, and of uploads since.
        self.size = 0
        #: Called with the identifier of a job that is deleted: its pictures may be open.
        self.forget: Callable[[str], None] = lambda _: None
        _claim(config.folder)
        for part in ("stacks", "jobs"):
            (config.folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load()

    def _load(self) -> None:
        """Take over what an earlier server left; what it was doing is interrupted."""
        for folder in sorted((self.config.folder / "stacks").iterdir()):
            stack = _read(folder / "stack.json", StackRecord)
            if stack is None or stack.id != folder.name:
                continue  # not ours to judge
            self._stacks[stack.id] = stack
            files = {self.frame_path(stack.id, frame).name for frame in stack.frames}
            if folder.is_symlink() or (folder / "frames").is_symlink():
                continue  # what lies elsewhere is not ours to delete
            for file in (folder / "frames").glob("*"):  # uploads that were cut
                if file.name.removesuffix(".thumbnail.jpg") not in files:
                    file.unlink()
        for folder in sorted((self.config.folder / "jobs").iterdir()):
            job = _read(folder / "job.json", JobRecord)
            if job is None or job.id != folder.name:
                continue
            self._jobs[job.id] = job
            if not job.is_over:
                self.finish(job, "interrupted", "the server was stopped while the job was running")

    # --- stacks ----------------------------------------------------------------------------------

    def stacks(self) -> list[StackRecord]:
        """All stacks, newest first."""
        # Reading takes no lock: a writer may hold it until the disk has answered.
        return sorted(self._stacks.values(), key=lambda one: one.created, reverse=True)

    def stack(self, identifier: str) -> StackRecord:
        """Find one stack."""
        found = self._stacks.get(identifier)
        if found is None:
            raise Missing("there is no such stack")
        return found

    def new_stack(self, name: str, *, sample: bool = False) -> StackRecord:
        """Make an empty stack."""
        stack = StackRecord(id=new_id(), name=name, created=now(), sample=sample)
        with self.lock:
            if len(self._stacks) >= self.config.max_stacks:
                raise Busy(f"there are {len(self._stacks)} stacks; delete some first")
            (self.stack_folder(stack.id) / "frames").mkdir(parents=True, mode=0o700)
            self._stacks[stack.id] = stack
            self.save_stack(stack)
        return stack

    def stack_folder(self, identifier: str) -> Path:
        """Where a stack lies."""
        return self.config.folder / "stacks" / identifier

    def frame_path(self, stack: str, frame: FrameRecord) -> Path:
        """Where a frame lies."""
        return self.stack_folder(stack) / "frames" / f"{frame.id}{frame.suffix}"

    def save_stack(self, stack: StackRecord) -> None:
        """Write a stack's record."""
        with self.lock:
            if stack.id in self._stacks:
                path = self.stack_folder(stack.id) / "stack.json"
                write_json(path, stack.model_dump(mode="json"), overwrite=True)

    def delete_stack(self, identifier: str) -> None:
        """Delete a stack, unless a job still needs it."""
        with self.lock:
            self.stack(identifier)
            self.check_unused(identifier)
            del self._stacks[identifier]
        _remove(self.stack_folder(identifier))

    def check_unused(self, stack: str) -> None:
        """Refuse to take away frames that a job still needs."""
        if any(job.stack == stack and not job.is_over for job in self._jobs.values()):
            raise Busy("a job is using this stack; cancel it first")

    # --- jobs ------------------------------------------------------------------------------------

    def jobs(self) -> list[JobRecord]:
        """All jobs, newest first."""
        return sorted(self._jobs.values(), key=lambda one: one.created, reverse=True)

    def job(self, identifier: str) -> JobRecord:
        """Find one job."""
        found = self._jobs.get(identifier)
        if found is None:
            raise Missing("there is no such job")
        return found

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
            self.job_folder(job.id).mkdir(parents=True, mode=0o700)
            self._jobs[job.id] = job
            self.save_job(job)
            stack.used = now()
            self.save_stack(stack)
        return job

    def job_folder(self, identifier: str) -> Path:
        """Where a job lies."""
        return self.config.folder / "jobs" / identifier

    def save_job(self, job: JobRecord) -> None:
        """Write a job's record; event streams see that its version has changed."""
        with self.lock:
            job.version += 1
            if job.id in self._jobs:
                path = self.job_folder(job.id) / "job.json"
                write_json(path, job.model_dump(mode="json"), overwrite=True)

    def finish(self, job: JobRecord, state: State, error: str | None = None) -> None:
        """End a job without a result; of its folder only the record stays."""
        with suppress(OSError):
            for path in list(self.job_folder(job.id).iterdir()):
                if path.name != "job.json":
                    _remove(path)
        with self.lock:
            job.error, job.ended, job.seconds_left, job.stage = error, now(), None, ""
            job.preview, job.state = 0, state
            self.save_job(job)

    def delete_job(self, identifier: str) -> None:
        """Delete a job that is over."""
        with self.lock:
            if not self.job(identifier).is_over:
                raise Busy("the job is still running; cancel it first")
            del self._jobs[identifier]
        self.forget(identifier)
        _remove(self.job_folder(identifier))

    # --- clean-up --------------------------------------------------------------------------------

    def clean_up(self) -> list[str]:
        """Delete what was not used for long, and the oldest while all is too large.

        Returns the identifiers of what was deleted. Jobs that wait or run, and their stacks, stay;
        so does the last result, however large: a user has just waited for it.
        """
        gone: list[str] = []
        limit = now() - timedelta(days=self.config.keep_days)
        left = folder_bytes(self.config.folder)
        with self.lock:
            jobs = {job.id: _ended(job) for job in self._jobs.values() if job.is_over}
            stacks = {stack.id: stack.used for stack in self._stacks.values()}
            last = max((job for job in self._jobs.values() if job.result), key=_ended, default=None)
        used = jobs | stacks
        for identifier in sorted(used, key=used.__getitem__):
            is_job, is_recent = identifier in jobs, used[identifier] >= limit
            if is_recent and left <= self.config.keep_size:
                break
            if is_recent and last is not None and identifier == last.id:
                continue
            folder = self.job_folder(identifier) if is_job else self.stack_folder(identifier)
            size = folder_bytes(folder)
            with suppress(CofuseError, Missing):  # in use, or deleted meanwhile
                (self.delete_job if is_job else self.delete_stack)(identifier)
                gone.append(identifier)
                left -= size
        self.size = left
        return gone


def _claim(folder: Path) -> None:
    """Mark a folder as a server's; one that holds other files is refused, as we delete in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / _MARK).exists():
            if any(path.name != ".lock" for path in folder.iterdir()):
                raise CofuseError(
                    f"{folder} holds files that are not cofuse's; name a new or empty folder"
                )
            (folder / _MARK).write_text("cofuse serve keeps stacks and jobs in this folder.\n")
    except OSError as error:
        raise CofuseError(f"{folder} cannot be used: {error.strerror}; name another") from error


def _ended(job: JobRecord) -> datetime:
    return job.ended or job.created


def content_of(path: Path, missing: str) -> bytes:
    """Read a whole file; ``missing`` says what a client misses if it is not there."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Missing(missing) from error


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


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    """Read a record; None if it is not there or not whole."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _remove(path: Path) -> None:
    """Remove a file or folder of ours."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
