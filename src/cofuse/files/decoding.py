"""Decoding one file to pixels: what all formats share.

Each format has one ``inspect_*`` function that reads the header only and returns a `Picture`: what
it declares, and a way to decode the pixels later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cofuse.errors import CofuseError
from cofuse.images import Pixels
from cofuse.images.pixels import describe, white_of_type

#: How camera RAW is developed.
RawMode = Literal["display", "linear"]

#: What to do with a JPEG file whose packed pixels are damaged.
OnDamage = Literal["refuse", "warn"]

#: A header that declares more pixels is taken for a decompression bomb.
_MOST_PIXELS = 1_000_000_000

#: The most bytes that deflate packs into one.
DEFLATE_RATIO = 1032

# Without a handler Python would print the codecs' log messages on stderr, beside the one line of
# our error. An application that sets up logging still gets them.
for _codec in ("PIL", "imagecodecs", "tifffile"):
    logging.getLogger(_codec).addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Picture:
    """One picture of a file, as its header declares it."""

    label: str  # the file, and the page where it has several: for messages
    width: int  # of the stored pixels
    height: int
    colour: bool  # RGB, or else grey
    dtype: np.dtype[Any]
    load: Callable[[], Pixels]  # decodes the stored pixels, alpha as the last channel if any
    alpha: bool = False  # whether the header declares transparency
    left_out: str = ""  # what in the file is not read, in words that follow the label
    white: float | None = None  # the largest value in use, where the header says it
    orientation: int = 1  # how stored rows and columns are turned, 1-8 as EXIF counts

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what `decode` will give: without alpha, upright."""
        size = (self.height, self.width)
        size = size[::-1] if self.orientation > 4 else size
        return (*size, 3) if self.colour else size

    def decode(self) -> Pixels:
        """Decode the pixels without alpha."""
        return np.ascontiguousarray(self._decode()[0])

    def decode_alpha(self) -> Pixels | None:
        """Decode alpha, shape (H, W); None if all pixels are opaque."""
        alpha = self._decode()[1] if self.alpha else None
        if alpha is None or (alpha == white_of_type(self.dtype)).all():
            return None
        return np.ascontiguousarray(alpha)

    def _decode(self) -> tuple[Pixels, Pixels | None]:
        """Decode pixels and alpha, turn them upright, and compare them with the header."""
        with explained(self.label):
            pixels, alpha = self.load(), None
        if self.orientation > 4:
            pixels = pixels.swapaxes(0, 1)
        if self.orientation in (2, 3, 6, 7):
            pixels = pixels[:, ::-1]
        if self.orientation in (3, 4, 7, 8):
            pixels = pixels[::-1]
        if self.alpha and pixels.shape[2:] in ((2,), (4,)):
            pixels, alpha = pixels[..., :-1], pixels[..., -1]
            pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
        if pixels.shape != self.shape or pixels.dtype != self.dtype:
            found, declared = describe(pixels.shape, pixels.dtype), describe(self.shape, self.dtype)
            raise damaged(self.label, f"is {found} but its header says {declared}")
        return pixels, alpha


def several_note(count: int, words: str = "holds", which: str = "first") -> str:
    """Say that a file has more pictures than the one that is read, for `Picture.left_out`."""
    return f"{words} {count} pictures, of which the {which} is read" if count > 1 else ""


def damaged(label: object, what: str) -> CofuseError:
    """Return the error that a file cannot be read as it is."""
    return CofuseError(f"{label} {what}; the file is damaged or truncated, copy or export it again")


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
        raise damaged(label, f"cannot be decoded ({reason})") from error


def check_size(
    label: object, width: int, height: int, *, bits: int = 0, packed: int = 0, ratio: float = 1
) -> None:
    """Refuse what a header declares, before anything is allocated: no pixels, or too many.

    Too many are more than any picture has, and, at ``bits`` a pixel, more than ``packed`` bytes
    hold if each stands for ``ratio`` bytes at most.
    """
    size = f"{width}x{height} pixels"
    if width < 1 or height < 1:
        raise damaged(label, f"declares {size}")
    if width * height > _MOST_PIXELS:
        most = f"{_MOST_PIXELS // 10**6} megapixels"
        raise CofuseError(f"{label} declares {size}, more than {most}; crop or split the picture")
    if width * height * bits / 8 > packed * ratio + 2**16:
        raise damaged(label, f"cannot be decoded ({size} do not come out of {packed} bytes)")
