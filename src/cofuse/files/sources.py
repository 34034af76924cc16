"""Names, folders, patterns and lists of names, turned into picture files of a known format."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cofuse.arguments import check, check_path
from cofuse.errors import CofuseError

PathLike = str | os.PathLike[str]

#: Suffixes of camera RAW. Many are TIFF files inside, and only the name shows that their first
#: page is a thumbnail.
RAW_SUFFIXES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".iiq", ".k25"),
    *(".kdc", ".mef", ".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl"),
    *(".sr2", ".srf", ".srw", ".x3f"),
)

#: What counts as a picture inside a folder. A file given by name may have any suffix.
PICTURE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".png", ".tif", ".tiff", ".webp", ".bmp", ".heic", ".heif", ".hif"),
    *RAW_SUFFIXES,
)

#: First bytes of a file, as regular expressions. RAW is that of Canon, Fujifilm, Olympus,
#: Panasonic, Sigma and Minolta; of other makers it looks like TIFF.
_STARTS = {
    "png": rb"\x89PNG\r\n\x1a\n",
    "jpeg": rb"\xff\xd8\xff",
    "raw": rb"II\*\0....CR|....ftypcrx |......HEAP|FUJIFILMCCD-RAW|II(RO|RS|U\0)|MMOR|FOVb|\0MRM",
    "tiff": rb"II[*+]\0|MM\0[*+]",
    "webp": rb"RIFF....WEBP",
    "bmp": rb"BM",
    "heif": rb"....ftyp(hei[cxms]|hev[cx]|mif1|msf1)",
}

#: Bytes read of a list of names.
_LONGEST_LIST = 16 * 2**20


def format_of(path: Path) -> str:
    """Return the format of a file: png, jpeg, tiff, webp, bmp, heif or raw.

    It is found by the first bytes, among TIFF files by the name as well. What is missing, empty or
    none of these is a `CofuseError`.
    """
    try:
        if not path.is_file():  # a pipe would block, a device never end
            what = "is not an ordinary file" if path.exists() else "does not exist"
            what = "is a folder" if path.is_dir() else what
            raise CofuseError(f"{path} {what}; expected a picture file, check the path")
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    except ValueError as error:  # a null in the name
        raise CofuseError(f"{path} is no file name ({error}); check the path") from error
    if not start:
        raise CofuseError(f"{path} is empty (0 bytes); copy or export it again")
    for kind, pattern in _STARTS.items():
        if re.match(pattern, start, re.DOTALL):
            is_raw = kind == "tiff" and path.suffix.lower() in RAW_SUFFIXES
            return "raw" if is_raw else kind
    raise CofuseError(
        f"{path} is not a picture cofuse reads (it starts with {start[:8].hex(' ')}); expected "
        "JPEG, PNG, TIFF, WebP or BMP, HEIC or camera RAW: export it as one of them"
    )


def picture_files(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """Return the picture files that paths stand for; those given by name may not exist.

    Parameters
    ----------
    paths
        One or several, in the order of the frames. Each is a file; a folder, which stands for its
        pictures in natural order (``img2`` before ``img10``; hidden and other files are left out);
        a pattern such as ``shots/*.tif``, in natural order too; a list, ``@names`` or a file ending
        in ``.txt``, with one path a line, taken from the list's own folder, empty lines and
        lines starting with ``#`` left out; or ``-``, a list on standard input, which can be read
        only once. Folders and lists that are empty or cannot be read, and patterns that match
        nothing, are a `CofuseError`.
    """
    single = isinstance(paths, str | os.PathLike)
    check("paths", paths, "a path or several", lambda paths: single or isinstance(paths, Iterable))
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    for path in given:
        check_path("paths", path)
    return [file for path in given for file in _expand(os.fspath(path))]


def _expand(name: str) -> list[Path]:
    """Return the files that one path stands for."""
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


def pictures_in(folder: Path) -> list[Path]:
    """Return the pictures of a folder in natural order."""
    entries = [p for p in folder.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES]
    files = [p for p in entries if not p.name.startswith(".") and not p.is_dir()]
    return sorted(files, key=lambda file: natural_key(file.name))


def _in_folder(folder: Path) -> list[Path]:
    """Return the pictures of a folder, which must be of one kind."""
    files = pictures_in(folder)
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
    return files


def _matching(pattern: str) -> list[Path]:
    """Return the files a pattern matches, in natural order: not every shell expands patterns."""
    # Path.glob takes no pattern that starts at the root.
    found = [Path(match) for match in glob.iglob(pattern, recursive=True)]  # noqa: PTH207
    files = [p for p in found if not p.is_dir()]
    # `shots/*` means the pictures, as the folder does; `shots/*.dat` means what it says.
    files = [p for p in files if p.suffix.lower() in PICTURE_SUFFIXES] or files
    if not files:
        raise CofuseError(f"{pattern} matches no file; check the folder and the pattern")
    return sorted(files, key=lambda file: [natural_key(part) for part in file.parts])


def _in_list(path: Path) -> list[Path]:
    """Return the files that a text file names."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_LIST).decode("utf-8-sig")
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


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sort numbers in names by their value; the plain name decides between 1 and 01."""
    parts = re.split(r"(\d+)", name.casefold())
    return [int(p) if k % 2 else p for k, p in enumerate(parts)], name
