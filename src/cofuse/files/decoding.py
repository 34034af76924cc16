"""Decoding one file to pixels: what all formats share.

Each format has one ``inspect_*`` function that reads the header only and returns a `Picture`: what
it declares, and a way to decode the pixels later.
"""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import exif
from cofuse.images import Pixels
from cofuse.images.pixels import describe, white_of_type

#: How camera RAW is developed.
RawMode = Literal["display", "linear"]

#: What to do with a JPEG file whose packed pixels are damaged.
OnDamage = Literal["refuse", "warn"]

#: A header that declares more pixels is taken for a decompression bomb.
_MOST_PIXELS = 1_000_000_000

#: What to convert a Pillow mode into; modes that are not here are refused.
_PILLOW_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}

#: Taken to change Python's warning filters, which all threads share.
warnings_lock = threading.Lock()

#: The most bytes that deflate packs into one.
DEFLATE_RATIO = 1032

# Without a handler Python would print the codecs' log messages on stderr, beside the one line of
# our error. An application that sets up logging still gets them.
for _codec in ("PIL", "imagecodecs", "tifffile"):
    logging.getLogger(_codec).addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Picture:
    """One picture of a file, as its header declares it."""

    path: Path
    width: int  # of the stored pixels
    height: int
    colour: bool  # RGB, or else grey
    dtype: np.dtype[Any]
    load: Callable[[], Pixels]  # decodes the stored pixels, alpha as the last channel if any
    alpha: bool = False  # whether the header declares transparency
    left_out: str = ""  # what in the file is not read, in words that follow the label
    white: float | None = None  # the largest value in use, where the header says it
    orientation: int = 1  # how stored rows and columns are turned, 1-8 as EXIF counts
    page: int | None = None  # the number of its page where the file has several

    @property
    def label(self) -> str:
        """The file, and the page where it has several: for messages."""
        return str(self.path) if self.page is None else f"{self.path} page {self.page + 1}"

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


@contextmanager
def opened_with_pillow(file: Path | BinaryIO, kind: str) -> Iterator[Any]:
    """Open a file with the plugin of Pillow for its kind, whatever that warns of.

    The plugin is called directly: ``Image.open`` would warn or refuse from 89 megapixels on, by
    a limit that is one global variable for everyone in the process.
    """
    from PIL import BmpImagePlugin, JpegImagePlugin, WebPImagePlugin

    plugin: Callable[[Any], Any] = {
        "BMP": BmpImagePlugin.BmpImageFile,
        "JPEG": JpegImagePlugin.JpegImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile,
    }[kind]
    with warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = plugin(file)
    with image:
        yield image


def inspect_with_pillow(path: Path, kind: str) -> tuple[Picture, dict[str, Any]]:
    """Read a header through a plugin of Pillow; returns what else it found as well."""
    with opened_with_pillow(path, kind) as image:
        (width, height), mode, info = image.size, image.mode, image.info
        note = several_note(getattr(image, "n_frames", 1), "is an animation of")
    # A JPEG block of 64 pixels takes more than a bit, run-length codes of BMP two bytes for up to
    # 255 pixels. Of RGB the fewest bits are meant: JPEG may halve the colours.
    bits, ratio = 8, {"JPEG": 2048.0, "BMP": 1024.0}.get(kind, math.inf)
    if kind == "BMP" and mode in ("RGB", "RGBA"):
        bits, ratio = 16, 1.0
    check_size(path, width, height, bits=bits, packed=path.stat().st_size, ratio=ratio)
    if mode not in _PILLOW_MODES:
        raise CofuseError(f"{path} is a {mode} picture; convert it to RGB or grey first")
    target = _PILLOW_MODES[mode]

    def load() -> Pixels:
        with opened_with_pillow(path, kind) as image:
            return np.array(image.convert(target))

    picture = Picture(
        *(path, width, height, target != "L", np.dtype(np.uint8), load, target == "RGBA"),
        left_out=note,
        orientation=orientation_in(info.get("exif")),
    )
    return picture, info


def orientation_in(block: bytes | None) -> int:
    """Return the orientation of an EXIF block; 1, upright, where it holds no valid one."""
    try:
        value = exif.parse_block(block).number(exif.ORIENTATION) or 1
    except ValueError:  # damaged metadata is no reason to refuse whole pixels
        return 1
    return int(value) if value in range(1, 9) else 1
