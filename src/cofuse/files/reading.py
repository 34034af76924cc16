"""Pictures in: one file to an array, files and folders to a `Stack`."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.files.decoding import (
    Picture,
    describe,
    explained,
    inspect_bmp,
    inspect_jpeg,
    inspect_png,
    inspect_webp,
)
from cofuse.files.tiff import inspect_tiff
from cofuse.images import Stack

__all__ = ["IN_MEMORY_BYTES", "picture_files", "read_image", "read_stack"]

Pixels = NDArray[Any]
PathLike = str | os.PathLike[str]

#: A stack of at most this many decoded bytes is kept in memory, so that it is decoded once.
IN_MEMORY_BYTES = 512 * 2**20

#: What counts as a picture inside a folder. A file given by name may have any suffix.
_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".png", ".tif", ".tiff", ".webp", ".bmp")

_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def read_image(path: PathLike) -> Pixels:
    """Read one picture, in the dtype it is stored in.

    JPEG, PNG, TIFF (the first page of several), WebP and BMP are told apart by their content, not
    by their name. Palettes become RGB, pictures of less than 8 bits uint8, alpha that is opaque
    everywhere is dropped, and the orientation a camera recorded is applied.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    array
        Shape (H, W) for grey, (H, W, 3) for RGB; uint8, uint16, float32 or float64.

    Raises
    ------
    CofuseError
        The file is missing, damaged, transparent, or of a kind that is not read.
    """
    return _inspect(Path(path), all_pages=False)[0].decode()


def read_stack(paths: PathLike | Sequence[PathLike], *, white: float | None = None) -> Stack:
    """Gather the frames of a focus series, to be decoded when they are asked for.

    All headers are read at once, so that a missing or unfitting file is reported before any work.
    The frames are read-only arrays, kept in memory where all of them take at most
    `IN_MEMORY_BYTES`.

    Parameters
    ----------
    paths
        One path or several, in the order of the frames: picture files, multi-page TIFF files
        (each page is a frame), and folders (their pictures by name, ``img2`` before ``img10``;
        hidden files and other files are left out).
    white
        The value that stands for white; see `Stack`.

    Returns
    -------
    Stack
        The frames, all of one shape and dtype.

    Raises
    ------
    CofuseError
        A file cannot be read, a folder holds no pictures, or the frames do not fit together.
    """
    files = picture_files(paths)
    if not files:
        raise CofuseError("no pictures were given; expected at least one file or folder")
    for file in files:  # the cheap look at all of them first: headers can be far apart on a disk
        _check_file(file)
    pictures = [picture for file in files for picture in _inspect(file, all_pages=True)]
    first = pictures[0]
    for picture in pictures[1:]:
        if picture.shape != first.shape or picture.dtype != first.dtype:
            raise CofuseError(
                f"{picture.label} is {describe(picture.shape, picture.dtype)} but {first.label} "
                f"is {describe(first.shape, first.dtype)}; all frames must agree"
            )
    total = len(pictures) * math.prod(first.shape) * first.dtype.itemsize
    readers = [functools.partial(_read_only, picture) for picture in pictures]
    kept: Sequence[Callable[[], Pixels]] = readers
    if total <= IN_MEMORY_BYTES:
        kept = [functools.cache(reader) for reader in readers]
    return Stack(kept, white=white, names=_short_names([p.label for p in pictures]))


def picture_files(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """Name the files meant by paths: a folder stands for its pictures in natural order."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return [file for path in given for file in _expand(Path(path))]


def _read_only(picture: Picture) -> Pixels:
    """Decode a frame that several readers may share, hence nobody may write to."""
    pixels = picture.decode()
    pixels.flags.writeable = False
    return pixels


def _short_names(labels: list[str]) -> list[str]:
    """Leave out the folders, unless two frames would then bear one name."""
    short = [Path(label).name for label in labels]
    return short if len(set(short)) == len(short) else labels


def _expand(path: Path) -> list[Path]:
    """Return the pictures of a folder in natural order; of a file, the file."""
    try:
        if not path.is_dir():
            return [path]
        entries = [p for p in path.iterdir() if p.suffix.lower() in _SUFFIXES and not p.is_dir()]
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    files = sorted((p for p in entries if not p.name.startswith(".")), key=_natural_key)
    if not files:
        raise CofuseError(
            f"{path} holds no pictures; expected files ending in {', '.join(_SUFFIXES)}"
        )
    return files


def _natural_key(path: Path) -> tuple[list[str | int], str]:
    """Sort numbers in names by their value; the plain name decides between 1 and 01."""
    parts = re.split(r"(\d+)", path.name.casefold())
    return [int(p) if k % 2 else p for k, p in enumerate(parts)], path.name


def _check_file(path: Path) -> bytes:
    """Refuse what is no file with something in it; return its first bytes."""
    try:
        if path.is_dir():
            raise CofuseError(f"{path} is a folder; expected a picture file")
        if not path.is_file():  # a pipe would block, a device never end
            what = "is not an ordinary file" if path.exists() else "does not exist"
            raise CofuseError(f"{path} {what}; expected a picture file, check the path")
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    if not start:
        raise CofuseError(f"{path} is empty (0 bytes); copy or export it again")
    return start


def _inspect(path: Path, *, all_pages: bool) -> list[Picture]:
    """Tell the format by the first bytes and read the header, or those of all pages."""
    start = _check_file(path)
    with explained(path):
        if start.startswith(b"\x89PNG\r\n\x1a\n"):
            return inspect_png(path)
        if start.startswith(b"\xff\xd8\xff"):
            return inspect_jpeg(path)
        if start.startswith(_TIFF_STARTS):
            return inspect_tiff(path, all_pages=all_pages)
        if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
            return inspect_webp(path)
        if start.startswith(b"BM"):
            return inspect_bmp(path)
    raise CofuseError(
        f"{path} is not a picture cofuse reads (it starts with {start[:8].hex(' ')}); expected "
        "JPEG, PNG, TIFF, WebP or BMP: export it as one of them"
    )
