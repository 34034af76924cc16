"""Decoding one file to pixels: what all formats share.

Each format has one ``inspect_*`` function that reads the header only and returns a `Picture`: the
declared shape and dtype, and a way to decode the pixels later.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import exif
from cofuse.images import Pixels

__all__ = [
    "DTYPES",
    "MAX_PIXELS",
    "Picture",
    "animation_note",
    "check_packing",
    "check_size",
    "describe",
    "explained",
    "orientation_of",
    "oriented_shape",
]

#: The types of value a picture may have.
DTYPES = tuple(np.dtype(kind) for kind in ("uint8", "uint16", "float32", "float64"))

#: A header that declares more pixels is taken for a decompression bomb.
MAX_PIXELS = 1_000_000_000

# Without a handler Python would print the codecs' log messages on stderr, beside the one line of
# our error. An application that sets up logging still gets them.
_NOWHERE = logging.NullHandler()
for _codec in ("PIL", "imagecodecs", "tifffile"):
    logging.getLogger(_codec).addHandler(_NOWHERE)


@dataclass(frozen=True)
class Picture:
    """One picture of a file, as its header declares it.

    Attributes
    ----------
    label
        The file, and the page where it has several: for messages.
    shape, dtype
        What `decode` will give: without alpha, upright.
    load
        Opens the file anew and decodes the stored pixels, alpha as the last channel if any.
    alpha
        Whether the header declares transparency.
    left_out
        What in the file is not read, in words that follow the label; may be empty.
    white
        The largest value in use, where the header says it.
    orientation
        How stored rows and columns are turned, 1-8 as EXIF counts.
    """

    label: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load: Callable[[], Pixels]
    alpha: bool = False
    left_out: str = ""
    white: float | None = None
    orientation: int = 1

    def decode(self) -> Pixels:
        """Decode the pixels without alpha."""
        pixels = self._decode()
        if len(self.shape) == 2:
            return np.ascontiguousarray(pixels[..., 0]) if pixels.ndim == 3 else pixels
        return np.ascontiguousarray(pixels[..., :3])

    def decode_alpha(self) -> Pixels | None:
        """Decode alpha, shape (H, W); None if all pixels are opaque."""
        if not self.alpha:
            return None
        pixels = self._decode()
        alpha = pixels[..., -1]
        opaque = np.iinfo(self.dtype).max if self.dtype.kind == "u" else 1.0
        if pixels.shape == self.shape or (alpha == opaque).all():
            return None
        return np.ascontiguousarray(alpha)

    def _decode(self) -> Pixels:
        """Decode all channels, upright, and compare with the header."""
        with explained(self.label):
            pixels = _upright(self.load(), self.orientation)
        shape = pixels.shape
        if self.alpha and pixels.ndim == 3 and shape[2] in (2, 4):
            shape = shape[:2] if shape[2] == 2 else (*shape[:2], 3)
        if shape != self.shape or pixels.dtype != self.dtype:
            raise CofuseError(
                f"{self.label} is {describe(shape, pixels.dtype)} but its header says "
                f"{describe(self.shape, self.dtype)}; the file is damaged, export it again"
            )
        return pixels


def describe(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Describe size, colour and dtype of a picture in words."""
    return f"{shape[1]}x{shape[0]} {'RGB' if len(shape) == 3 else 'grey'} {dtype}"


def animation_note(frames: int) -> str:
    """Say what is left out of an animation, for `Picture.left_out`."""
    return f"is an animation of {frames} pictures, of which the first is read" if frames > 1 else ""


@contextmanager
def explained(label: object) -> Iterator[None]:
    """Turn whatever a codec raises into one line that names the file."""
    try:
        yield
    except (CofuseError, Warning):
        raise
    except MemoryError as error:
        raise CofuseError(f"{label} does not fit into memory; make it smaller") from error
    except Exception as error:  # on damaged files codecs raise anything, even KeyError
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CofuseError(
            f"{label} cannot be decoded ({reason}); the file is damaged, copy or export it again"
        ) from error


def check_size(width: int, height: int, label: object) -> None:
    """Refuse pictures without pixels, and decompression bombs, before anything is allocated."""
    if width < 1 or height < 1:
        raise CofuseError(f"{label} declares {width}x{height} pixels; the file is damaged")
    if width * height > MAX_PIXELS:
        raise CofuseError(
            f"{label} declares {width}x{height} pixels, more than the {MAX_PIXELS // 10**6} "
            "megapixels cofuse reads; crop or split the picture"
        )


def check_packing(
    width: int, height: int, bits: float, stored: int, ratio: float, label: object
) -> None:
    """Refuse a header that declares more than its file can hold, before anything is allocated.

    Parameters
    ----------
    width, height, bits
        The declared size, and bits a pixel.
    stored
        Bytes the file has for them.
    ratio
        The most bytes that one stored byte can stand for.
    label
        The file, for the message.
    """
    if width * height * bits / 8 > stored * ratio + 2**16:
        raise CofuseError(
            f"{label} cannot be decoded ({width}x{height} pixels do not come out of {stored} "
            "bytes); the file is truncated or damaged, copy or export it again"
        )


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Turn and mirror stored rows and columns as EXIF orientation 1-8 asks for."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def oriented_shape(width: int, height: int, colour: bool, orientation: int) -> tuple[int, ...]:
    """Return the array shape of a picture once it is turned upright."""
    size = (width, height) if orientation in (5, 6, 7, 8) else (height, width)
    return (*size, 3) if colour else size


def orientation_of(block: bytes | None) -> int:
    """Return the orientation of an EXIF block; 1, upright, where it holds no valid one."""
    try:
        value = exif.parse_block(block).integer(exif.ORIENTATION)
    except (ValueError, struct.error):  # damaged metadata is no reason to refuse whole pixels
        return 1
    return value if value is not None and 1 <= value <= 8 else 1
