"""Tiles of large pictures at every size, numbered as Deep Zoom numbers them.

The highest level is the picture itself; every level below is half as large, rounded up, down to a
single pixel at level 0. A level has tiles of 256 pixels, each with one more pixel of its neighbours
on the sides where it has any.

Tiles of the picture itself are cut from its array, which may be a mapped file. Levels below are
means of 2 × 2 pixels of what is *shown*: colours that stand for frames are mixed as colours, where
a mean of their numbers would name a third frame.

What is shown has 8 bits a channel of sRGB, whatever the frames' profile is.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from cofuse.files import written_whole
from cofuse.images import Pixels

#: Side of a tile, and by how much it reaches into each of its neighbours.
TILE, OVERLAP = 256, 1
#: Quality of JPEG; its colours are not made coarser (4:4:4).
_QUALITY = 88
#: Levels that are made of one band of rows: 64 rows end as one row of the last of them.
_BAND_LEVELS = 6

Floats = NDArray[np.float32]
Shown = NDArray[np.uint8]

#: Held to make the smaller levels of a picture: once, and of one picture at a time.
_making = threading.Lock()


class Pyramid:
    """A picture and its smaller levels, in tiles; it holds nothing open.

    ``read`` opens the picture, of ``shape`` (H, W) or (H, W, 3), where it is needed. The smaller
    levels are kept in ``file``, a ``.npy``, and made if it is not there. ``white`` is the value
    shown as white, or as the last of ``colours``, shape (N, 3), if a picture of shape (H, W) is
    shown by them; 0 is black or the first. Colours of a ``profile`` (ICC) are shown as sRGB. Tiles
    are PNG if ``lossless``, else JPEG.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        read: Callable[[], Pixels],
        file: Path,
        *,
        white: float,
        profile: bytes | None = None,
        colours: Shown | None = None,
        lossless: bool = False,
    ) -> None:
        self.height, self.width, *self._channels = shape
        self.lossless = lossless
        self._read, self._file, self._white, self._colours = read, file, white, colours
        self._to_srgb = to_srgb(profile)

    @property
    def top(self) -> int:
        """Number of the level of full size."""
        return (max(self.width, self.height) - 1).bit_length()

    def size(self, level: int) -> tuple[int, int]:
        """Width and height of a level."""
        step = 1 << (self.top - level)
        return -(-self.width // step), -(-self.height // step)

    def tile(self, level: int, column: int, row: int) -> bytes:
        """Encode one tile."""
        return encoded(self.tile_pixels(level, column, row), lossless=self.lossless)

    def tile_pixels(self, level: int, column: int, row: int) -> Shown:
        """Cut one tile as it is shown, 8-bit grey or RGB."""
        width, height = self.size(level) if 0 <= level <= self.top else (0, 0)
        if not (0 <= column * TILE < width and 0 <= row * TILE < height):
            raise HTTPException(404, "there is no such tile")
        part = _span(row, height), _span(column, width)
        if level == self.top:
            return self._shown(self._read()[part])
        return np.ascontiguousarray(self._levels()[self.top - 1 - level][part])

    def _shown(self, part: NDArray[Any]) -> Shown:
        """Turn values into 8 bits a channel."""
        if self._colours is None:
            return self._to_srgb(eight_bits(part, self._white))
        last = len(self._colours) - 1
        numbers = np.rint(np.clip(part * np.float32(last / self._white), 0, last))
        return np.take(self._colours, numbers.astype(np.intp), axis=0)

    def _levels(self) -> list[Shown]:
        """All smaller levels, the largest first, made when they are first asked for."""
        channels = self._channels if self._colours is None else (3,)
        shapes = [(*self.size(level)[::-1], *channels) for level in reversed(range(self.top))]
        *ends, total = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        flat = _kept(self._file, total)
        if flat is None:
            with _making:
                flat = _kept(self._file, total)
                if flat is None:
                    self._make(shapes, [0, *ends])
                    flat = np.load(self._file, mmap_mode="r")
        parts = zip(np.split(flat, ends), shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]

    def _make(self, shapes: list[tuple[int, ...]], starts: list[int]) -> None:
        """Write the smaller levels band by band; means are not rounded on their way down.

        Not through a memory map: where the disk is full, the system ends a process that does so.
        """
        picture = self._read()
        near = min(_BAND_LEVELS, len(shapes))
        smallest = np.empty(shapes[near - 1], np.float32)
        step = 1 << near
        self._file.parent.mkdir(exist_ok=True)
        with written_whole(self._file, overwrite=True) as file:
            total = starts[-1] + math.prod(shapes[-1])
            facts = {"descr": "|u1", "fortran_order": False, "shape": (total,)}
            np.lib.format.write_array_header_1_0(file, facts)
            begin = file.tell()

            def write(level: int, row: int, rows: Floats) -> None:
                file.seek(begin + starts[level] + row * math.prod(shapes[level][1:]))
                file.write(np.rint(rows).astype(np.uint8).data)

            for number, top in enumerate(range(0, self.height, step)):
                small = self._shown(picture[top : top + step, :]).astype(np.float32)
                for level in range(near):
                    small = block_means(small, 2)
                    write(level, number * (step >> (level + 1)), small)
                smallest[number : number + 1] = small
            for level in range(near, len(shapes)):
                smallest = block_means(smallest, 2)
                write(level, 0, smallest)


def map_pyramid(
    name: str, shape: tuple[int, int], read: Callable[[], Pixels], frames: int, file: Path
) -> Pyramid:
    """Show the source map or the depth in colours, the first frame dark, confidence in grey."""
    from cofuse.depth.maps import colour_table  # loads OpenCV

    white, colours = 1.0, None
    if name == "source":
        colours = colour_table(max(frames, 2))
        white = len(colours) - 1.0
    elif name == "depth":
        colours, white = colour_table(), max(frames - 1.0, 1.0)
    return Pyramid(shape, read, file, white=white, colours=colours, lossless=True)


def _kept(file: Path, size: int) -> Shown | None:
    """Map a file with ``size`` bytes of levels; None if it is missing or not whole."""
    try:
        flat: Shown = np.load(file, mmap_mode="r")
    except (OSError, ValueError):
        return None
    return flat if flat.shape == (size,) and flat.dtype == np.uint8 else None


def _span(number: int, size: int) -> slice:
    """Pixels of the tile with this number along a side, with its overlap."""
    return slice(max(number * TILE - OVERLAP, 0), min((number + 1) * TILE + OVERLAP, size))


def block_means(picture: Floats, step: int) -> Floats:
    """Means of blocks of ``step`` pixels a side; at the ends the last pixels are repeated."""
    import cv2

    rows, columns = (-(-side // step) for side in picture.shape[:2])
    below, right = rows * step - picture.shape[0], columns * step - picture.shape[1]
    whole = cv2.copyMakeBorder(picture, 0, below, 0, right, cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(whole, (columns, rows), interpolation=cv2.INTER_AREA), np.float32)


def encoded(pixels: Shown, *, lossless: bool = False) -> bytes:
    """Write a small picture as PNG or JPEG."""
    import cv2

    if pixels.ndim == 3:
        pixels = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), np.uint8)
    if lossless:
        good, data = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 3])
    else:
        sampling = cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
        quality = cv2.IMWRITE_JPEG_QUALITY, _QUALITY
        good, data = cv2.imencode(".jpg", pixels, [*quality, *sampling])
    assert good, "small pictures of 8 bits can always be written"
    return data.tobytes()


def eight_bits(values: NDArray[Any], white: float) -> Shown:
    """Scale values from 0 to ``white`` to 8 bits; those beyond are clipped."""
    if values.dtype == np.uint8 and white == 255:
        return np.array(values)
    return np.rint(np.clip(values * np.float32(255 / white), 0, 255)).astype(np.uint8)


@lru_cache(maxsize=16)
def to_srgb(profile: bytes | None) -> Callable[[Shown], Shown]:
    """Return what turns 8-bit pictures, grey or RGB, from a colour profile into sRGB.

    Without a profile, or with one that cannot be used, they stay as they are.
    """
    from PIL import Image, ImageCms

    if profile is None:
        return _unchanged
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = {"RGB": "RGB", "GRAY": "L"}[given.profile.xcolor_space.strip()]
        change = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, KeyError, OSError):
        return _unchanged

    def converted(pixels: Shown) -> Shown:
        if (pixels.ndim == 3) != (mode == "RGB"):
            return pixels
        shown = ImageCms.applyTransform(Image.fromarray(np.ascontiguousarray(pixels)), change)
        colours: Shown = np.asarray(shown)
        return colours if pixels.ndim == 3 else np.ascontiguousarray(colours[..., 0])

    steps = np.arange(0, 256, 15).astype(np.uint8)
    lattice = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, steps.size, 3)
    sample = lattice if mode == "RGB" else steps[None]
    moved = np.abs(converted(sample).astype(int) - sample).max()
    return converted if moved > 1 else _unchanged  # most profiles are sRGB under another name


def _unchanged(pixels: Shown) -> Shown:
    return pixels
