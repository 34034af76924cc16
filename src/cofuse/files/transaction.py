"""All results of a run appear together, or none does.

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
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cofuse.errors import CofuseError
from cofuse.files.owners import hidden_name, is_abandoned

__all__ = ["Transaction", "clear_leftovers", "exists", "move_without_replacing"]

#: In a stage: new files, under the names they will have in the folder around it; empty files named
#: like those to be removed there; the journal; and the path of the stage that has the journal.
_FILES, _OUTDATED, _JOURNAL, _HOME = "files", "outdated", "journal.json", "home"


class Transaction:
    """Results that are to appear together when the block ends well; otherwise none is left.

    Parameters
    ----------
    overwrite
        Whether existing files may be replaced.
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
        staged = self._staged(path, _FILES)
        self._places[staged] = path
        return staged

    def remove(self, path: Path) -> None:
        """Remove a file that is out of date when the others appear."""
        self._staged(path, _OUTDATED).touch()

    def _staged(self, path: Path, kind: str) -> Path:
        """Return the path in a stage that stands for ``path``; the stage is made if need be."""
        target = Path(os.path.realpath(path))  # a link is written through, not replaced
        folder = next(parent for parent in target.parents if parent.is_dir())
        stage = folder / self._name
        try:
            if stage not in self._stages:
                clear_leftovers(folder)
                self._stages.append(stage)
                stage.mkdir()
                (stage / _HOME).write_bytes(os.fsencode(self._stages[0]))
            staged = stage / kind / target.relative_to(folder)
            staged.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(path, error) from error
        return staged

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            if not self._overwrite:
                for path in self._places.values():
                    if path.exists():
                        raise exists(path)
            stages = [os.fsdecode(stage) for stage in self._stages]
            facts = {"overwrite": self._overwrite, "stages": stages}
            _write_durably(home / _JOURNAL, json.dumps(facts).encode())
        except BaseException as error:
            self._drop()
            if isinstance(error, OSError):
                raise _failed(next(iter(self._places.values())), error) from error
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
        failed = error.filename2 or error.filename
        if not moved:
            return _failed(failed, error)
        return CofuseError(
            f"{failed} could not be written ({error.strerror}), only "
            f"{', '.join(map(str, moved.values()))}; mend that and run again"
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
        for staged in _files_below(stage / _FILES):
            target = stage.parent / staged.relative_to(stage / _FILES)
            target.parent.mkdir(parents=True, exist_ok=True)
            if facts["overwrite"]:
                staged.replace(target)
            elif yielding and target.exists() and not target.samefile(staged):
                continue
            else:
                move_without_replacing(staged, target)
            moved.append(target)
        for marker in _files_below(stage / _OUTDATED):
            (stage.parent / marker.relative_to(stage / _OUTDATED)).unlink(missing_ok=True)
    for stage in reversed(stages):  # the journal last
        shutil.rmtree(stage, ignore_errors=True)
    return moved


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def move_without_replacing(file: Path, target: Path) -> None:
    """Rename a finished file, unless the new name was taken meanwhile."""
    try:
        os.link(file, target)
    except FileExistsError as error:
        if not target.samefile(file):
            raise exists(target) from error
        file.unlink()  # stopped half way before
    except OSError as error:  # a file system without hard links: look, then rename
        if target.exists():
            raise exists(target) from error
        file.replace(target)
    else:
        file.unlink()


def exists(path: Path) -> CofuseError:
    """Return the error that a file is in the way."""
    return CofuseError(f"{path} exists; pass `overwrite=True` to replace it")


def _failed(path: Path | str, error: OSError) -> CofuseError:
    return CofuseError(
        f"{path} could not be written ({error.strerror}); nothing was left behind, try another "
        "folder"
    )


def _write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole if it is there."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
