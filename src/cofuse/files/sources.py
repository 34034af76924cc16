"""Which files are meant: by names, folders, patterns and lists of names."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cofuse.arguments import check, check_path
from cofuse.errors import CofuseError
from cofuse.files.formats import PICTURE_SUFFIXES, RAW_SUFFIXES

__all__ = ["natural_key", "picture_files"]

PathLike = str | os.PathLike[str]

#: A list of names is text; what is longer is something else.
_LONGEST_LIST = 16 * 2**20


def picture_files(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """Name the files meant by paths.

    Parameters
    ----------
    paths
        One or several, in the order of the frames. Each is a file; a folder, which stands for its
        pictures in natural order (``img2`` before ``img10``; hidden and other files are left out);
        a pattern such as ``shots/*.tif``, in natural order too; a list, ``@names`` or a file ending
        in ``.txt``, with one path a line, taken from the list's own folder, empty lines and
        lines starting with ``#`` left out; or ``-``, a list on standard input, which can be read
        only once.

    Returns
    -------
    list of Path
        The files; that they exist was checked only where folders and patterns were looked into.

    Raises
    ------
    CofuseError
        A folder or list is empty or cannot be read, or a pattern matches nothing.
    """
    single = isinstance(paths, str | os.PathLike)
    check("paths", paths, "a path or several", lambda paths: single or isinstance(paths, Iterable))
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        check_path("paths", path)
    return [file for path in given for file in _expand(os.fspath(path))]


def _expand(name: str) -> list[Path]:
    """Name the files meant by one path."""
    path = Path(name)
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            return _in_list(path) if path.suffix.lower() == ".txt" else [path]
    except (OSError, ValueError) as error:  # a name too long; a null in it
        reason = getattr(error, "strerror", None) or error
        raise CofuseError(f"{path} cannot be opened: {reason}; check the path") from error
    if name == "-":
        return _listed(sys.stdin.read(_LONGEST_LIST), Path(), "standard input")
    if name.startswith("@"):
        return _in_list(Path(name[1:]))
    return _matching(name) if glob.has_magic(name) else [path]


def _in_folder(folder: Path) -> list[Path]:
    """Return the pictures of a folder in natural order."""
    entries = [p for p in folder.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES]
    files = [p for p in entries if not p.name.startswith(".") and not p.is_dir()]
    if not files:
        raise CofuseError(
            f"{folder} holds no pictures; expected files ending in {', '.join(PICTURE_SUFFIXES)}"
        )
    # Cameras write RAW and JPEG side by side: two series of the same shots.
    raw = [p for p in files if p.suffix.lower() in RAW_SUFFIXES]
    if 0 < len(raw) < len(files):
        other = next(p for p in files if p not in raw)
        raise CofuseError(
            f"{folder} holds camera RAW ({raw[0].name}) beside other pictures ({other.name}); "
            f"name one kind with a pattern, for example '{folder / f'*{other.suffix}'}'"
        )
    return sorted(files, key=natural_key)


def _matching(pattern: str) -> list[Path]:
    """Return the files a pattern matches, in natural order, for shells that left it as it is."""
    # Path.glob takes no pattern that starts at the root.
    found = [Path(match) for match in glob.iglob(pattern, recursive=True)]  # noqa: PTH207
    files = [p for p in found if not p.is_dir()]
    # `shots/*` means the pictures, as the folder does; `shots/*.dat` means what it says.
    files = [p for p in files if p.suffix.lower() in PICTURE_SUFFIXES] or files
    if not files:
        raise CofuseError(f"{pattern} matches no file; check the folder and the pattern")
    return sorted(files, key=_natural_path)


def _in_list(path: Path) -> list[Path]:
    """Return the files that a list names."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_LIST)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CofuseError(
            f"{path} cannot be read as a list of pictures ({reason}); expected one path a line"
        ) from error
    return _listed(text, path.parent, str(path))


def _listed(text: str, folder: Path, label: str) -> list[Path]:
    """Return the files named line by line, relative names taken from a folder."""
    lines = [line.strip() for line in text.splitlines()]
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise CofuseError(f"{label} names no pictures; expected one path a line")
    files: list[Path] = []
    for name in names:
        entry = folder / name
        if name == "-" or name.startswith("@") or entry.suffix.lower() == ".txt":
            raise CofuseError(f"{label} names another list, {name}; expected pictures or folders")
        files += _expand(os.fspath(entry))
    return files


def natural_key(path: Path) -> tuple[list[str | int], str]:
    """Sort numbers in names by their value; the plain name decides between 1 and 01."""
    parts = re.split(r"(\d+)", path.name.casefold())
    return [int(p) if k % 2 else p for k, p in enumerate(parts)], path.name


def _natural_path(path: Path) -> list[tuple[list[str | int], str]]:
    """Sort by folder first, each part of the path by its natural order."""
    return [natural_key(Path(part)) for part in path.parts]
