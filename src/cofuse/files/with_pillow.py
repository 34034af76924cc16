"""WebP and BMP, and what Pillow reads of their headers and those of JPEG."""

from __future__ import annotations

import math
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.decoding import (
    Picture,
    animation_note,
    check_packing,
    check_size,
    orientation_of,
    oriented_shape,
)
from cofuse.files.metadata import INCH_IN_METRES, LARGEST_BLOCK, MOST_BOXES, Metadata
from cofuse.images import Pixels

if TYPE_CHECKING:
    from PIL import Image, ImageFile

__all__ = [
    "bmp_metadata",
    "inspect_bmp",
    "inspect_webp",
    "inspect_with_pillow",
    "warnings_lock",
    "webp_metadata",
]

_WEBP_ANIMATION = 0b10

# The most bytes that one packed byte can stand for: a JPEG block of 64 pixels takes more than a
# bit, run-length codes take two bytes for up to 255 pixels.
_JPEG_RATIO, _RUN_LENGTH_RATIO = 2048, 1024

# Pillow warns about odd metadata; Python's warning filters are one global list, not one a thread.
warnings_lock = threading.Lock()


def inspect_webp(path: Path) -> list[Picture]:
    """Read the header of a WebP file, and of the first picture of an animation."""
    from PIL.WebPImagePlugin import WebPImageFile

    with path.open("rb") as file:
        start = file.read(30)
        orientation = orientation_of(webp_metadata(file).exif)
    extended = start[12:16] == b"VP8X"
    if extended and len(start) == 30:  # the plugin allocates before it tells the size
        width, height = (int.from_bytes(start[k : k + 3], "little") + 1 for k in (24, 27))
        check_size(width, height, path)
    picture = inspect_with_pillow(path, WebPImageFile, orientation)
    if extended and start[20] & _WEBP_ANIMATION:
        return [picture]

    def load() -> Pixels:
        # A third of the memory that Pillow takes; but imagecodecs reads no animations.
        import imagecodecs

        return imagecodecs.webp_decode(path.read_bytes(), hasalpha=picture.alpha)

    return [replace(picture, load=load)]


def webp_metadata(file: BinaryIO) -> Metadata:
    """Collect the metadata of an open WebP file."""
    found: dict[bytes, bytes] = {}
    file.seek(12)
    for _ in range(MOST_BOXES):
        header = file.read(8)
        if len(header) < 8:
            break
        kind, length = struct.unpack("<4sI", header)
        start = file.tell()
        if kind in (b"ICCP", b"EXIF", b"XMP ") and length <= LARGEST_BLOCK:
            found.setdefault(kind, file.read(length))
        file.seek(start + length + length % 2)
    return Metadata(found.get(b"ICCP"), found.get(b"EXIF"), found.get(b"XMP "))


def inspect_bmp(path: Path) -> list[Picture]:
    """Read the header of a BMP file."""
    from PIL.BmpImagePlugin import BmpImageFile

    return [inspect_with_pillow(path, BmpImageFile, 1)]


def bmp_metadata(file: BinaryIO) -> Metadata:
    """Read the resolution of an open BMP file, the only metadata it holds."""
    header = file.read(54)
    if len(header) < 54:
        return Metadata()
    x, y = struct.unpack_from("<ii", header, 38)
    return Metadata(dpi=(x * INCH_IN_METRES, y * INCH_IN_METRES) if x > 0 and y > 0 else None)


# What to convert a Pillow mode into; modes that are not here are refused.
_PILLOW_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}


def inspect_with_pillow(path: Path, opener: type[ImageFile.ImageFile], orientation: int) -> Picture:
    """Read a header through one Pillow plugin; the picture is to be turned by ``orientation``.

    The plugin is called directly: ``Image.open`` would warn or refuse from 89 megapixels on, by
    a limit that is one global variable for everyone in the process.
    """
    with path.open("rb") as file, _open_with_pillow(file, opener) as image:
        (width, height), mode, kind = image.size, image.mode, image.format
        frames = getattr(image, "n_frames", 1)
    check_size(width, height, path)
    if mode not in _PILLOW_MODES:
        raise CofuseError(
            f"{path} is a {mode} picture; expected grey or RGB: convert it to RGB first"
        )
    ratio: float = {"JPEG": _JPEG_RATIO, "BMP": 1}.get(kind or "", math.inf)
    if kind == "BMP" and mode not in ("RGB", "RGBA"):
        ratio = _RUN_LENGTH_RATIO
    # Of RGB the fewest bits are meant: JPEG may halve the colours, BMP has pixels of 16 bits.
    bits = 16 if mode in ("RGB", "RGBA") and kind == "BMP" else 8
    check_packing(width, height, bits, path.stat().st_size, ratio, path)
    target = _PILLOW_MODES[mode]

    def load() -> Pixels:
        with path.open("rb") as file, _open_with_pillow(file, opener) as image:
            image.load()
            # Converting a mode to itself would copy the picture.
            return _to_array(image if mode == target else image.convert(target))

    shape = oriented_shape(width, height, target != "L", orientation)
    dtype, alpha, left_out = np.dtype(np.uint8), target == "RGBA", animation_note(frames)
    return Picture(str(path), shape, dtype, load, alpha, left_out, orientation=orientation)


def _to_array(image: Image.Image) -> Pixels:
    """Copy the pixels band by band: in one go Pillow would make two more copies on the way."""
    width, height = image.size
    channels = len(image.getbands())
    pixels = np.empty((height, width, channels) if channels > 1 else (height, width), np.uint8)
    for top in range(0, height, 256):
        bottom = min(top + 256, height)
        pixels[top:bottom] = np.asarray(image.crop((0, top, width, bottom)))
    return pixels


@contextmanager
def _open_with_pillow(
    file: BinaryIO, opener: type[ImageFile.ImageFile]
) -> Iterator[ImageFile.ImageFile]:
    """Open a file with a Pillow plugin, without its warnings about odd metadata."""
    with warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = opener(file)
    with image:
        yield image
