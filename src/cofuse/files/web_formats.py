"""PNG, WebP and BMP: headers read, and pixels decoded by the library that does it best."""

from __future__ import annotations

import math
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.files import containers
from cofuse.files.decoding import (
    Picture,
    check_packing,
    check_size,
    orient,
    orientation_of,
    oriented_shape,
)

if TYPE_CHECKING:
    from PIL import Image, ImageFile

__all__ = ["inspect_bmp", "inspect_png", "inspect_webp", "inspect_with_pillow", "warnings_lock"]

Pixels = NDArray[Any]

_WEBP_ANIMATION = 0b10

# How many bytes a packed byte can stand for at most: deflate by its design; a JPEG block of 64
# pixels takes more than a bit, run-length codes two bytes for up to 255 pixels.
_DEFLATE_RATIO, _JPEG_RATIO, _RUN_LENGTH_RATIO = 1032, 2048, 1024

# Pillow warns about odd metadata; Python's warning filters are one global list, not one a thread.
warnings_lock = threading.Lock()


def inspect_png(path: Path) -> list[Picture]:
    """Read the header of a PNG file."""
    chunks, packed = containers.png_chunks(path)
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    check_size(width, height, path)
    channels = {2: 3, 4: 2, 6: 4}.get(colour_type, 1)
    check_packing(width, height, channels * depth, packed, _DEFLATE_RATIO, path)
    orientation = orientation_of(chunks.get(b"eXIf"))

    def load() -> Pixels:
        # Pillow would reduce 16-bit RGB to 8 bits without a word.
        import imagecodecs

        return orient(imagecodecs.png_decode(path.read_bytes()), orientation)

    shape = oriented_shape(width, height, colour_type in (2, 3, 6), orientation)
    dtype = np.dtype(np.uint16 if depth == 16 else np.uint8)
    alpha = colour_type in (4, 6) or b"tRNS" in chunks
    frames = int.from_bytes(chunks.get(b"acTL", b"")[:4], "big")
    left_out = _animation(frames)
    return [Picture(str(path), shape, dtype, load, alpha, left_out)]


def inspect_webp(path: Path) -> list[Picture]:
    """Read the header of a WebP file; of an animation the first picture counts."""
    from PIL.WebPImagePlugin import WebPImageFile

    with path.open("rb") as file:
        start = file.read(30)
    if start[12:16] == b"VP8X" and len(start) == 30:  # the plugin allocates before it tells
        width, height = (int.from_bytes(start[k : k + 3], "little") + 1 for k in (24, 27))
        check_size(width, height, path)
    block = containers.webp_blocks(path).exif
    picture = inspect_with_pillow(path, WebPImageFile, block)
    animated = start[12:16] == b"VP8X" and bool(start[20] & _WEBP_ANIMATION)

    def load() -> Pixels:
        import imagecodecs

        pixels = imagecodecs.webp_decode(path.read_bytes(), hasalpha=picture.alpha)
        return orient(pixels, orientation_of(block))

    # imagecodecs takes a third of the memory, but knows no animations.
    return [picture if animated else replace(picture, load=load)]


def inspect_bmp(path: Path) -> list[Picture]:
    """Read the header of a BMP file."""
    from PIL.BmpImagePlugin import BmpImageFile

    return [inspect_with_pillow(path, BmpImageFile, None)]


# What to convert a Pillow mode into; modes that are not here are refused.
_PILLOW_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}


def inspect_with_pillow(
    path: Path, opener: type[ImageFile.ImageFile], block: bytes | None
) -> Picture:
    """Read a header through one Pillow plugin.

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
    target, orientation = _PILLOW_MODES[mode], orientation_of(block)

    def load() -> Pixels:
        with path.open("rb") as file, _open_with_pillow(file, opener) as image:
            image.load()
            # Converting a mode to itself would copy the picture.
            pixels = _to_array(image if mode == target else image.convert(target))
        return orient(pixels, orientation)

    shape = oriented_shape(width, height, target != "L", orientation)
    left_out = _animation(frames)
    return Picture(str(path), shape, np.dtype(np.uint8), load, target == "RGBA", left_out)


def _animation(frames: int) -> str:
    """Say of an animation what is not read."""
    return f"is an animation of {frames} pictures, of which the first is read" if frames > 1 else ""


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
