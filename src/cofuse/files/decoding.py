"""From the bytes of one file to pixels: what every format shares, then PNG, JPEG, WebP and BMP.

Each format has one ``inspect_*`` function that reads the header only and returns a `Picture`: the
declared shape and dtype, and a way to decode the pixels later. TIFF has a file of its own.
"""

from __future__ import annotations

import logging
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError

if TYPE_CHECKING:
    from PIL import ImageFile

__all__ = [
    "DTYPES",
    "MAX_PIXELS",
    "Picture",
    "check_size",
    "describe",
    "explained",
    "inspect_bmp",
    "inspect_jpeg",
    "inspect_png",
    "inspect_webp",
    "orient",
    "without_alpha",
]

Pixels = NDArray[Any]

#: The types of value a picture may have.
DTYPES = tuple(np.dtype(kind) for kind in ("uint8", "uint16", "float32", "float64"))

#: A header that declares more pixels than this is taken for a lie (a decompression bomb).
MAX_PIXELS = 1_000_000_000

_ORIENTATION_TAG = 0x0112

# The codecs log what is wrong with a file; with no handler Python would put that on stderr, beside
# the one line of our error. An application that sets up logging still gets to see it.
_NOWHERE = logging.NullHandler()
for _codec in ("PIL", "imagecodecs", "tifffile"):
    logging.getLogger(_codec).addHandler(_NOWHERE)

# Pillow warns about odd metadata; Python's warning filters are one global list, not one a thread.
_warnings_lock = threading.Lock()


@dataclass(frozen=True)
class Picture:
    """One picture of a file, as its header declares it.

    Attributes
    ----------
    label
        The file, and the page where it has several: for messages.
    shape, dtype
        What decoding will give, alpha dropped and orientation applied.
    load
        Decodes the pixels; opens the file anew.
    """

    label: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load: Callable[[], Pixels]

    def decode(self) -> Pixels:
        """Decode the pixels and hold them against the header."""
        with explained(self.label):
            pixels = self.load()
        if pixels.shape != self.shape or pixels.dtype != self.dtype:
            raise CofuseError(
                f"{self.label} is {describe(pixels.shape, pixels.dtype)} but its header says "
                f"{describe(self.shape, self.dtype)}; the file is damaged, export it again"
            )
        return pixels


def describe(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Say a picture's size and kind in a photographer's words."""
    return f"{shape[1]}x{shape[0]} {'RGB' if len(shape) == 3 else 'grey'} {dtype}"


@contextmanager
def explained(label: object) -> Iterator[None]:
    """Turn whatever a codec raises into one line that names the file."""
    try:
        yield
    except CofuseError:
        raise
    except MemoryError as error:
        raise CofuseError(f"{label} does not fit into memory; make it smaller") from error
    except Exception as error:  # on damaged files codecs raise anything, even KeyError
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CofuseError(
            f"{label} cannot be decoded ({reason}); the file is damaged, copy or export it again"
        ) from error


def check_size(width: int, height: int, label: object) -> None:
    """Refuse pictures without pixels, and decompression bombs before anything is allocated."""
    if width < 1 or height < 1:
        raise CofuseError(f"{label} declares {width}x{height} pixels; the file is damaged")
    if width * height > MAX_PIXELS:
        raise CofuseError(
            f"{label} declares {width}x{height} pixels, more than the {MAX_PIXELS // 10**6} "
            "megapixels cofuse reads; crop or split the picture"
        )


def without_alpha(pixels: Pixels, label: object) -> Pixels:
    """Drop a last channel that is opaque everywhere; refuse any other."""
    if pixels.ndim == 2 or pixels.shape[2] not in (2, 4):
        return pixels
    opaque = np.iinfo(pixels.dtype).max if pixels.dtype.kind == "u" else 1.0
    if (pixels[..., -1] != opaque).any():
        raise CofuseError(
            f"{label} is partly transparent; expected an opaque picture: "
            "flatten it (remove its alpha channel) first"
        )
    return pixels[..., 0] if pixels.shape[2] == 2 else pixels[..., :3]


def orient(pixels: Pixels, orientation: int) -> Pixels:
    """Turn and mirror stored rows and columns as EXIF orientation 1-8 asks for."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _oriented_shape(width: int, height: int, colour: bool, orientation: int) -> tuple[int, ...]:
    """Return the array shape of a picture once it is turned upright."""
    size = (width, height) if orientation in (5, 6, 7, 8) else (height, width)
    return (*size, 3) if colour else size


def _orientation(exif: bytes) -> int:
    """Find the orientation in an EXIF block; 1, upright, where it says nothing sensible."""
    if not exif:
        return 1
    from PIL import Image

    tags = Image.Exif()
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tags.load(exif)
            value = tags.get(_ORIENTATION_TAG, 1)
        except Exception:  # damaged metadata is no reason to refuse whole pixels
            return 1
    return int(value) if value in range(1, 9) else 1


def inspect_png(path: Path) -> list[Picture]:
    """Read the header of a PNG file."""
    with path.open("rb") as file:
        chunks = _png_chunks(file)
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    check_size(width, height, path)
    orientation = _orientation(chunks.get(b"eXIf", b""))

    def load() -> Pixels:
        # Pillow would reduce 16-bit RGB to 8 bits without a word.
        import imagecodecs

        pixels = without_alpha(imagecodecs.png_decode(path.read_bytes()), path)
        return orient(pixels, orientation)

    shape = _oriented_shape(width, height, colour_type in (2, 3, 6), orientation)
    return [Picture(str(path), shape, np.dtype(np.uint16 if depth == 16 else np.uint8), load)]


def _png_chunks(file: BinaryIO) -> dict[bytes, bytes]:
    """Collect the chunks of a PNG file that say how to show it, stepping over the others."""
    chunks: dict[bytes, bytes] = {}
    file.seek(8)
    while len(header := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", header)
        if kind in (b"IHDR", b"eXIf"):
            chunks[kind] = file.read(length)
            file.seek(4, 1)
        else:
            file.seek(length + 4, 1)
    return chunks


def inspect_jpeg(path: Path) -> list[Picture]:
    """Read the header of a JPEG file; of a multi-picture file (MPO) that of the first picture."""
    from PIL.JpegImagePlugin import JpegImageFile

    return [_inspect_with_pillow(path, JpegImageFile)]


def inspect_webp(path: Path) -> list[Picture]:
    """Read the header of a WebP file; of an animation the first picture counts."""
    from PIL.WebPImagePlugin import WebPImageFile

    return [_inspect_with_pillow(path, WebPImageFile)]


def inspect_bmp(path: Path) -> list[Picture]:
    """Read the header of a BMP file."""
    from PIL.BmpImagePlugin import BmpImageFile

    return [_inspect_with_pillow(path, BmpImageFile)]


# What to convert a Pillow mode into; modes that are not here are refused.
_PILLOW_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}


def _inspect_with_pillow(path: Path, opener: type[ImageFile.ImageFile]) -> Picture:
    """Read a header through one Pillow plugin.

    The plugin is called directly: ``Image.open`` would warn or refuse from 89 megapixels on, by
    a limit that is one global variable for everyone in the process.
    """
    with path.open("rb") as file, _open_with_pillow(file, opener) as image:
        (width, height), mode, exif = image.size, image.mode, image.info.get("exif", b"")
    check_size(width, height, path)
    if mode not in _PILLOW_MODES:
        raise CofuseError(
            f"{path} is a {mode} picture; expected grey or RGB: convert it to RGB first"
        )
    target, orientation = _PILLOW_MODES[mode], _orientation(exif)

    def load() -> Pixels:
        with path.open("rb") as file, _open_with_pillow(file, opener) as image:
            image.load()
            # Converting a mode to itself would copy the picture.
            pixels = np.array(image if mode == target else image.convert(target))
        return orient(without_alpha(pixels, path), orientation)

    shape = _oriented_shape(width, height, target != "L", orientation)
    return Picture(str(path), shape, np.dtype(np.uint8), load)


@contextmanager
def _open_with_pillow(
    file: BinaryIO, opener: type[ImageFile.ImageFile]
) -> Iterator[ImageFile.ImageFile]:
    """Open a file with a Pillow plugin, without its warnings about odd metadata."""
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = opener(file)
    with image:
        yield image
