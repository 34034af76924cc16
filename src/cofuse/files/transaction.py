"""Files appear whole or not at all, and all results of a run together.

Every result is written to a hidden folder (a stage) beside its place. When all are written, a
journal is written too; from then on the run counts as done, and the files are moved to their
places. A run killed before that leaves only hidden folders, which the next run that writes there
removes; one killed while files are moved leaves a journal, and the next run moves the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cofuse.errors import CofuseError
from cofuse.files.locks import hidden_name, is_abandoned
from cofuse.files.sources import PathLike

#: In a stage: new files, by their paths below the folder around it; the journal; and the path of
#: the stage that has the journal.
_FILES, _JOURNAL, _HOME = "files", "journal.json", "home"


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
            raise _failed(path, error.strerror) from error
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
                raise _exists(taken[0])
            stages = [os.fsdecode(stage) for stage in self._stages]
            with (home / "new").open("w", encoding="ascii") as file:
                json.dump({"overwrite": self._overwrite, "stages": stages}, file)
                file.flush()
                os.fsync(file.fileno())
            (home / "new").replace(home / _JOURNAL)  # whole if it is there
        except BaseException as error:
            self._drop()
            if isinstance(error, OSError):
                raise _failed(next(iter(self._places.values())), error.strerror) from error
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
            return _failed(path, error.strerror)
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
                _move(staged, target, overwrite=facts["overwrite"])
                moved.append(target)
    for stage in reversed(stages):  # the journal last
        shutil.rmtree(stage, ignore_errors=True)
    return moved


def _move(file: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a finished file; unless it may ``overwrite``, the new name must not be taken."""
    if overwrite:
        file.replace(target)
        return
    try:
        os.link(file, target)
    except FileExistsError as error:
        if not target.samefile(file):  # else stopped half way before
            raise _exists(target) from error
    except OSError as error:  # a file system without hard links: look, then rename
        if target.exists():
            raise _exists(target) from error
        file.replace(target)
        return
    file.unlink()


def check_destination(path: PathLike, *, overwrite: bool) -> Path:
    """Refuse a file that may not be replaced, and a folder that cannot be written to."""
    path = Path(path)
    folder = path.parent
    try:
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise CofuseError(f"{path} cannot be written: {folder} {what}; create the folder first")
        if path.is_dir():
            raise CofuseError(f"{path} is a folder; expected the name of a file to write")
        if path.exists() and not path.is_file():  # renaming over /dev/null would be the end of it
            raise CofuseError(f"{path} is not an ordinary file; choose another name")
        if path.exists() and not overwrite:
            raise _exists(path)
    except OSError as error:
        raise CofuseError(f"{path} cannot be written: {error.strerror}; check the path") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CofuseError(f"{path} cannot be written: no permission in {folder}; choose another")
    return path


@contextmanager
def written_whole(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that becomes ``path`` on success and vanishes on failure.

    The content goes into a temporary file in the same folder, is flushed to the disk, and then
    renamed: a reader sees the old file or the new one, never a part.
    """
    check_destination(path, overwrite=overwrite)
    # A link is written through, not replaced. The name is short: `path` may be of full length.
    target = Path(os.path.realpath(path))
    clear_leftovers(target.parent)
    temporary = target.with_name(f"{hidden_name()}.tmp")
    try:
        # Opened plainly, not by mkstemp, so that the umask decides on the permissions.
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _move(temporary, target, overwrite=overwrite)
    except CofuseError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # the disk; Pillow; imagecodecs
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise _failed(path, reason) from error
    finally:
        temporary.unlink(missing_ok=True)


def _exists(path: Path) -> CofuseError:
    """Return the error that a file is in the way."""
    return CofuseError(f"{path} exists; pass `overwrite=True` to replace it")


def _failed(path: Path | str, reason: str | None) -> CofuseError:
    """Return the error that a file could not be written."""
    return CofuseError(
        f"{path} could not be written ({reason}); nothing was left behind, try another folder"
    )
