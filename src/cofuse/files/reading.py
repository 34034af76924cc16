"""Pictures in: one file to an array or its metadata, files and folders to a `Stack`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np

from cofuse.arguments import check, check_path
from cofuse.errors import CofuseError
from cofuse.files import camera, formats
from cofuse.files.decoding import OnDamage, Picture, RawMode, explained
from cofuse.files.metadata import Metadata, checked, tiff_metadata
from cofuse.files.sources import PathLike, format_of, picture_files
from cofuse.files.tiff import inspect_tiff
from cofuse.images import Pixels, Stack
from cofuse.images.pixels import describe, white_of_type


def read_image(
    path: PathLike, *, raw_mode: RawMode = "display", on_damage: OnDamage = "refuse"
) -> Pixels:
    """Read one picture: shape (H, W) or (H, W, 3); uint8, uint16, float32 or float64 as stored.

    JPEG, PNG, TIFF (the first page of several), WebP, BMP, and with the extra ``raw`` HEIC and
    camera RAW are told apart by their content, not by their name. Palettes become RGB, pictures of
    less than 8 bits uint8, and the orientation a camera recorded is applied. Alpha is left out;
    `read_alpha` reads it. A file that is missing, damaged, or of another kind is a `CofuseError`.

    Parameters
    ----------
    path
        The file.
    raw_mode
        How to develop camera RAW, always to 16 bits with the white balance the camera chose:
        ``"display"`` to sRGB as a screen shows it, or ``"linear"`` to values in proportion to the
        light.
    on_damage
        What to do with a JPEG file whose packed pixels are damaged or end too early:
        ``"refuse"`` it, or ``"warn"`` and take what could be decoded. Damage that leaves a file
        in which all codes are valid cannot be noticed.
    """
    check_path("path", path)
    pictures = inspect([Path(path)], all_pages=False, raw_mode=raw_mode, on_damage=on_damage)
    _warn_of_what_is_left_out(pictures)
    return pictures[0].decode()


def read_alpha(path: PathLike) -> Pixels | None:
    """Read alpha: shape (H, W), from 0 to white; None if the picture is opaque."""
    return inspect([Path(path)], all_pages=False)[0].decode_alpha()


def read_stack(
    paths: PathLike | Sequence[PathLike],
    *,
    white: float | None = None,
    raw_mode: RawMode = "display",
    on_damage: OnDamage = "refuse",
) -> Stack:
    """Gather the frames of a focus series, to be decoded when they are asked for.

    All headers are read at once, so that a missing or unfitting file is a `CofuseError` before any
    work. The frames are arrays of one shape and dtype, not to be written to. Each is decoded once
    and then kept in a temporary file, which goes with the stack.

    Parameters
    ----------
    paths
        One path or several, in the order of the frames, as `picture_files` takes them: picture
        files, folders, patterns and lists. Each page of a multi-page TIFF file is a frame.
    white
        The value that stands for white. Default: what the files say (the significant bits of OME,
        the largest sample of TIFF; the largest possible value where a colour profile speaks of
        it, and for camera RAW and HEIC), else as `Stack` finds it.
    raw_mode, on_damage
        See `read_image`. All frames of camera RAW get the white balance of the first, and one
        exposure.
    """
    pictures = inspect(picture_files(paths), raw_mode=raw_mode, on_damage=on_damage)
    return stack_of(pictures, white=white)


def stack_of(pictures: Sequence[Picture], *, white: float | None) -> Stack:
    """Gather pictures whose headers were read, as `read_stack` does."""
    if not pictures:
        raise CofuseError("no frames were given; name picture files, a folder or a TIFF")
    _check_agreement(pictures)
    _warn_of_what_is_left_out(pictures)
    first = pictures[0]
    # Without the folders, unless two frames would have the same name then.
    labels = [picture.label for picture in pictures]
    short = [Path(label).name for label in labels]
    names = short if len(set(short)) == len(short) else labels
    if white is None and first.dtype.kind == "u":
        white = stated_white(pictures)
    kind = first.shape, first.dtype
    readers = [picture.decode for picture in pictures]
    return Stack(readers, white=white, names=names, concurrent=True, kind=kind).read_once()


def read_metadata(path: PathLike, *, raw_mode: RawMode = "display") -> Metadata:
    """Read what a picture says of itself without decoding it; of several pages, the first.

    ``raw_mode`` is how camera RAW is developed, for the profile its pixels then have. Damaged
    blocks are left out with a warning: they must never stop a picture from being read. A file that
    is missing or no picture is a `CofuseError`.
    """
    path = Path(path)
    kind = format_of(path)
    with explained(path):
        if kind == "raw":
            found = camera.raw_metadata(path, raw_mode)
        elif kind == "tiff":
            found = tiff_metadata(path)
        elif kind == "jpeg":
            found = formats.jpeg_metadata(path)
        else:
            found = _PLAIN[kind](path)[1]
        return checked(found, path)


def stated_white(pictures: Sequence[Picture]) -> float | None:
    """Return the value of white that the first file, or the headers of all frames, state."""
    file = pictures[0].path
    kind, deep = format_of(file), pictures[0].dtype == np.uint16
    if deep and kind in ("raw", "heif"):
        return white_of_type(np.uint16)  # they are developed to it
    known = read_metadata(file) if deep or kind == "tiff" else Metadata()
    if known.white is not None:
        return known.white
    in_use = [picture.white for picture in pictures if picture.white is not None]
    if len(in_use) == len(pictures):
        return max(in_use)
    return white_of_type(np.uint16) if deep and known.icc is not None else None


def _check_agreement(pictures: Sequence[Picture]) -> None:
    """Refuse frames of different shape or dtype; the error names one that differs from most."""
    kinds = [(picture.shape, picture.dtype) for picture in pictures]
    usual = Counter(kinds).most_common(1)[0][0]  # of equally many the first
    for odd, kind in zip(pictures, kinds, strict=True):
        if kind != usual:
            other = pictures[kinds.index(usual)]
            raise CofuseError(
                f"{odd.label} is {describe(*kind)} but {other.label} is {describe(*usual)}; "
                "all frames must agree"
            )


def _warn_of_what_is_left_out(pictures: Sequence[Picture]) -> None:
    """Warn of what in the files is not read; once for all frames alike."""
    for words, count in Counter(picture.left_out for picture in pictures).items():
        if words:
            label = next(p.label for p in pictures if p.left_out == words)
            others = f" (and so of {count - 1} more)" if count > 1 else ""
            warnings.warn(f"{label} {words}{others}", stacklevel=3)


def inspect(
    files: Sequence[Path],
    *,
    all_pages: bool = True,
    raw_mode: RawMode = "display",
    on_damage: OnDamage = "refuse",
) -> list[Picture]:
    """Read the headers of all pictures in files, or only of the first in each, without decoding."""
    check("raw_mode", raw_mode, "'display' or 'linear'", get_args(RawMode).__contains__)
    check("on_damage", on_damage, "'refuse' or 'warn'", get_args(OnDamage).__contains__)
    # The cheap look at all of them first: headers can be far apart on a disk.
    kinds = [format_of(file) for file in files]
    # All RAW files are developed as the first is.
    balance = camera.white_balance(files[kinds.index("raw")]) if "raw" in kinds else None
    pictures: list[Picture] = []
    for file, kind in zip(files, kinds, strict=True):
        with explained(file):
            if kind == "tiff":
                pictures += inspect_tiff(file, all_pages=all_pages)
            elif kind == "jpeg":
                pictures.append(formats.inspect_jpeg(file, on_damage=on_damage))
            elif kind == "raw":
                pictures.append(camera.inspect_raw(file, balance=balance, mode=raw_mode))
            else:
                pictures.append(_PLAIN[kind](file)[0])
    return pictures


#: What reads a header with its metadata, of formats that have no choices and one picture a file.
_PLAIN: dict[str, Callable[[Path], tuple[Picture, Metadata]]] = {
    "png": formats.inspect_png,
    "webp": partial(formats.inspect_by_pillow, kind="WEBP"),
    "bmp": partial(formats.inspect_by_pillow, kind="BMP"),
    "heif": camera.inspect_heif,
}
