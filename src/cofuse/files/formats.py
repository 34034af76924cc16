"""The format of a file, found by its first bytes, and among TIFF files by the name as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from cofuse.errors import CofuseError

__all__ = ["PICTURE_SUFFIXES", "RAW_SUFFIXES", "OnDamage", "PathLike", "RawMode", "format_of"]

PathLike = str | os.PathLike[str]

#: How camera RAW is developed.
RawMode = Literal["display", "linear"]

#: What to do with a JPEG file whose packed pixels are damaged.
OnDamage = Literal["refuse", "warn"]

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

_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
#: Fujifilm, Olympus, Panasonic, Sigma, Minolta, Canon before 2004.
_RAW_STARTS = (b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"FOVb", b"\0MRM")
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def format_of(path: Path) -> str:
    """Return the format of a file: png, jpeg, tiff, webp, bmp, heif or raw.

    Raises
    ------
    CofuseError
        There is no such file, nothing in it, or it is none of these.
    """
    start = _first_bytes(path)
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if start.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if start.startswith(_TIFF_STARTS):
        canon = start[8:10] == b"CR"
        return "raw" if canon or path.suffix.lower() in RAW_SUFFIXES else "tiff"
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "webp"
    if start.startswith(b"BM"):
        return "bmp"
    if start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS:
        return "heif"
    if start.startswith(_RAW_STARTS) or start[4:12] == b"ftypcrx " or start[6:10] == b"HEAP":
        return "raw"
    raise CofuseError(
        f"{path} is not a picture cofuse reads (it starts with {start[:8].hex(' ')}); expected "
        "JPEG, PNG, TIFF, WebP or BMP, HEIC or camera RAW: export it as one of them"
    )


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file; refuse what is no file, or empty."""
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
    except ValueError as error:  # a null in the name
        raise CofuseError(f"{path} is no file name ({error}); check the path") from error
    if not start:
        raise CofuseError(f"{path} is empty (0 bytes); copy or export it again")
    return start
