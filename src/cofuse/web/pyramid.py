"""Tiles of large pictures at every size, numbered as Deep Zoom numbers them.

The highest level is the picture itself; every level below is half as large, rounded up, down to a
single pixel at level 0. A level has tiles of 256 pixels, each with one more pixel of its neighbours
on the sides where it has any.

Tiles of the picture itself are cut from its array, which may be a mapped file. Levels below are
means of 2 × 2 pixels of what is *shown*, 8 bits a channel: colours that stand for frames are mixed
as colours, where a mean of their numbers would name a third frame.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cofuse.depth.colours import colour_table
from cofuse.errors import CofuseError

__all__ = [
    "OVERLAP",
    "TILE",
    "Pyramid",
    "Sliceable",
    "confidence_pyramid",
    "depth_pyramid",
    "source_pyramid",
]

#: Side of a tile, and by how much it reaches into each of its neighbours.
TILE, OVERLAP = 256, 1
#: Quality of JPEG tiles; their colours are not made coarser (4:4:4).
_QUALITY = 88
#: Rows that are made smaller at a time: so many that they end as one row of a level.
_BAND_LEVELS = 6

Shown = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Sliceable(Protocol):
    """Pixels of which rows and columns can be had; arrays are, and mapped files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, columns, and channels where there are any."""
        ...

    def __getitem__(self, part: tuple[slice, slice], /) -> NDArray[Any]: ...


class Pyramid:
    """A picture and its smaller levels, in tiles; may be asked by several threads.

    Parameters
    ----------
    pixels
        The picture, shape (H, W) or (H, W, 3), of any integer or float type.
    white
        Value shown as white, or as the last of ``colours``; 0 is black, or the first.
    folder
        Where the smaller levels are kept, as ``.npy``; found there, they are not made again, so a
        folder is for one picture only. Without it they are kept in memory.
    colours
        Colours to show values by, shape (N, 3); only for pixels of shape (H, W).
    lossless
        Whether tiles are PNG rather than JPEG.
    """

    def __init__(
        self,
        pixels: Sliceable,
        *,
        white: float,
        folder: Path | None = None,
        colours: Shown | None = None,
        lossless: bool = False,
    ) -> None:
        shape = pixels.shape
        if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[2] != 3):
            raise CofuseError(f"a picture of shape {shape} cannot be shown in tiles")
        if colours is not None and len(shape) == 3:
            raise CofuseError("a picture in colour cannot be shown in other colours")
        if not (np.isfinite(white) and white > 0):
            raise CofuseError(f"white is {white}; expected a positive number")
        self.height, self.width = shape[:2]
        self.white, self.lossless = float(white), lossless
        self._pixels, self._colours, self._folder = pixels, colours, folder
        self._channels = (3,) if len(shape) == 3 or colours is not None else ()
        self._smaller: list[Shown] = []
        self._making = threading.Lock()

    @property
    def top(self) -> int:
        """Number of the level of full size."""
        return (max(self.width, self.height) - 1).bit_length()

    @property
    def media_type(self) -> str:
        """What tiles are, in the words of the web."""
        return "image/png" if self.lossless else "image/jpeg"

    def info(self) -> dict[str, int | str]:
        """Tell what a viewer needs; the level of full size is ``levels − 1``."""
        return {
            "width": self.width,
            "height": self.height,
            "tile": TILE,
            "overlap": OVERLAP,
            "levels": self.top + 1,
            "format": "png" if self.lossless else "jpeg",
        }

    def size(self, level: int) -> tuple[int, int]:
        """Width and height of a level."""
        if not 0 <= level <= self.top:
            raise CofuseError(f"there is no level {level}; expected 0 to {self.top}")
        step = 1 << (self.top - level)
        return -(-self.width // step), -(-self.height // step)

    def tile(self, level: int, column: int, row: int) -> bytes:
        """Encode one tile."""
        return _encoded(self.tile_pixels(level, column, row), lossless=self.lossless)

    def tile_pixels(self, level: int, column: int, row: int) -> Shown:
        """Cut one tile as it is shown, 8-bit grey or RGB."""
        width, height = self.size(level)
        columns, rows = -(-width // TILE), -(-height // TILE)
        if not (0 <= column < columns and 0 <= row < rows):
            raise CofuseError(
                f"there is no tile {column}_{row} at level {level}, which has {columns}x{rows}"
            )
        part = _reach(row, height), _reach(column, width)
        if level == self.top:
            return self._shown(self._pixels[part])
        return np.ascontiguousarray(self._levels()[self.top - 1 - level][part])

    def prepare(self) -> None:
        """Make the smaller levels now; otherwise the first tile that needs them does."""
        if self.top:
            self._levels()

    def _shown(self, part: NDArray[Any]) -> Shown:
        """Turn values into 8 bits a channel; brightness is not bent."""
        steps = 255 if self._colours is None else len(self._colours) - 1
        if self._colours is None and part.dtype == np.uint8 and self.white == 255.0:
            return np.array(part)
        values = part * np.float32(steps / self.white)
        numbers = np.rint(np.clip(values, 0, steps, out=values))
        if self._colours is None:
            return numbers.astype(np.uint8)
        return np.take(self._colours, numbers.astype(np.intp), axis=0)

    def _levels(self) -> list[Shown]:
        """All smaller levels, the largest first, made when they are first asked for."""
        if not self._smaller:
            with self._making:
                if not self._smaller:
                    self._smaller = self._found() or self._made()
        return self._smaller

    def _shape(self, level: int) -> tuple[int, ...]:
        """Shape of the pixels of a level."""
        return (*self.size(level)[::-1], *self._channels)

    def _file(self, level: int) -> Path:
        """File that holds a level."""
        assert self._folder is not None
        return self._folder / f"level-{level:02d}.npy"

    def _found(self) -> list[Shown]:
        """Levels that lie in the folder, mapped; none unless they are all there."""
        if self._folder is None:
            return []
        levels = []
        for level in reversed(range(self.top)):
            try:
                pixels = np.load(self._file(level), mmap_mode="r")
            except (OSError, ValueError):  # missing, or not whole
                return []
            if pixels.shape != self._shape(level) or pixels.dtype != np.uint8:
                return []
            levels.append(pixels)
        return levels

    def _made(self) -> list[Shown]:
        """Make all smaller levels in one pass over the picture."""
        numbers = list(reversed(range(self.top)))
        if self._folder is None:
            levels = [np.empty(self._shape(level), np.uint8) for level in numbers]
            self._fill(levels)
            return levels
        self._folder.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: levels are filled in a folder beside, and then take their names.
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self._folder) as new:
            files = [Path(new) / self._file(level).name for level in numbers]
            self._fill(
                [
                    np.lib.format.open_memmap(
                        file, mode="w+", dtype=np.uint8, shape=self._shape(level)
                    )
                    for file, level in zip(files, numbers, strict=True)
                ]
            )
            for file in files:
                file.replace(self._folder / file.name)
        return self._found()

    def _fill(self, levels: list[Shown]) -> None:
        """Fill the smaller levels band by band; means are not rounded on their way down."""
        near, far = levels[:_BAND_LEVELS], levels[_BAND_LEVELS:]
        smallest = np.empty(near[-1].shape, np.float32)
        step = 1 << len(near)
        for number, band in enumerate(self._bands(step)):
            small = band.astype(np.float32)
            for depth, level in enumerate(near, start=1):
                small = _halved(small)
                start = number * (step >> depth)
                level[start : start + len(small)] = np.rint(small)
            smallest[number : number + 1] = small
        for level in far:
            smallest = _halved(smallest)
            level[:] = np.rint(smallest)

    def _bands(self, step: int) -> Iterator[Shown]:
        """Rows of the picture as they are shown, ``step`` at a time."""
        for start in range(0, self.height, step):
            yield self._shown(self._pixels[start : start + step, :])


def source_pyramid(index: Sliceable, frames: int, *, folder: Path | None = None) -> Pyramid:
    """Show which frame every pixel came from, in the colours of depth, the first frame dark."""
    colours = colour_table(max(frames, 2))
    white = float(len(colours) - 1)
    return Pyramid(index, white=white, folder=folder, colours=colours, lossless=True)


def depth_pyramid(position: Sliceable, white: float, *, folder: Path | None = None) -> Pyramid:
    """Show depth in colours; ``white`` is the last frame's value (K − 1, or 65535 of 16 bits)."""
    return Pyramid(position, white=white, folder=folder, colours=colour_table(), lossless=True)


def confidence_pyramid(
    confidence: Sliceable, *, white: float = 1.0, folder: Path | None = None
) -> Pyramid:
    """Show confidence in grey, white where the choice was sure."""
    return Pyramid(confidence, white=white, folder=folder, lossless=True)


def _reach(number: int, size: int) -> slice:
    """Pixels of the tile with this number along a side, with its overlap."""
    return slice(max(number * TILE - OVERLAP, 0), min((number + 1) * TILE + OVERLAP, size))


def _halved(picture: Floats) -> Floats:
    """Means of 2 × 2 pixels; at an odd end, of those that are there."""
    import cv2

    rows, columns = picture.shape[:2]
    if rows % 2 or columns % 2:
        picture = cv2.copyMakeBorder(  # type: ignore[assignment]
            picture, 0, rows % 2, 0, columns % 2, cv2.BORDER_REPLICATE
        )
    size = -(-columns // 2), -(-rows // 2)
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.float32)


def _encoded(pixels: Shown, *, lossless: bool) -> bytes:
    """Write a small picture as PNG or JPEG."""
    import cv2

    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)  # type: ignore[assignment]
    if lossless:
        good, data = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 3])
    else:
        sampling = cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
        quality = cv2.IMWRITE_JPEG_QUALITY, _QUALITY
        good, data = cv2.imencode(".jpg", pixels, [*quality, *sampling])
    assert good, "small pictures of 8 bits can always be written"
    return data.tobytes()
