"""Tiles of large pictures: they fit together, levels halve, and making them takes little memory."""

from __future__ import annotations

import io
import tempfile
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException

from cofuse.depth.maps import colour_table
from cofuse.web.pyramid import OVERLAP, TILE, Pyramid, map_pyramid

_FOLDERS = tempfile.TemporaryDirectory(prefix="cofuse-pyramids-")


def new_file() -> Path:
    return Path(tempfile.mkdtemp(dir=_FOLDERS.name)) / "levels.npy"


def pyramid_of(pixels: Any, file: Path | None = None, **options: Any) -> Pyramid:
    return Pyramid(pixels.shape, lambda: pixels, file or new_file(), **options)


def picture(height: int, width: int, *channels: int, dtype: str = "uint8") -> np.ndarray:
    values = np.random.default_rng(height * width).random((height, width, *channels))
    if dtype.startswith("float"):
        return values.astype(dtype)
    return np.rint(values * np.iinfo(dtype).max).astype(dtype)


def put_together(pyramid: Pyramid, level: int) -> np.ndarray:
    """Lay the tiles of a level side by side; where they overlap they must agree."""
    width, height = pyramid.size(level)
    whole: np.ndarray | None = None
    for row in range(-(-height // TILE)):
        for column in range(-(-width // TILE)):
            tile = pyramid.tile_pixels(level, column, row)
            if whole is None:
                whole = np.zeros((height, width, *tile.shape[2:]), np.int64) - 1
            top, left = max(row * TILE - OVERLAP, 0), max(column * TILE - OVERLAP, 0)
            here = whole[top : top + tile.shape[0], left : left + tile.shape[1]]
            assert here.shape == tile.shape
            assert ((here == -1) | (here == tile)).all()
            here[...] = tile
    assert whole is not None and (whole >= 0).all()
    return whole


def halved(values: np.ndarray) -> np.ndarray:
    """Means of the pixels there are in every square of two by two."""
    rows, columns = values.shape[:2]
    pad = [(0, rows % 2), (0, columns % 2)] + [(0, 0)] * (values.ndim - 2)
    wide = np.pad(values, pad, mode="edge")
    return (wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]) / 4


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (300, 513, 3), (257, 256), (600, 130, 3)])
def test_tiles_make_every_level(shape):
    pixels = picture(*shape)
    pyramid = pyramid_of(pixels, white=255)
    expected = pixels.astype(float)
    assert (put_together(pyramid, pyramid.top) == pixels).all()
    for level in reversed(range(pyramid.top)):
        expected = halved(expected)
        assert pyramid.size(level) == expected.shape[1::-1]
        # Exact means; only their halves may be rounded either way by float32.
        assert np.abs(put_together(pyramid, level) - expected).max() <= 0.5 + 1e-3
    assert pyramid.size(0) == (1, 1)


@given(st.integers(1, 70_000), st.integers(1, 70_000))
def test_levels_halve_rounding_up(width, height):
    pixels = np.broadcast_to(np.uint8(0), (height, width))
    pyramid = pyramid_of(pixels, white=255)
    assert (pyramid.width, pyramid.height) == pyramid.size(pyramid.top) == (width, height)
    for level in range(1, pyramid.top + 1):
        assert pyramid.size(level - 1) == tuple(-(-side // 2) for side in pyramid.size(level))
    assert pyramid.size(0) == (1, 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from([0, 1, 77, 254, 255]))
def test_flat_pictures_stay_flat(width, height, value):
    pyramid = pyramid_of(np.full((height, width), value, np.uint8), white=255)
    for level in range(pyramid.top + 1):
        assert (put_together(pyramid, level) == value).all()


def test_values_are_shown_by_white():
    twelve_bits = np.array([[0, 2048, 4095, 65535]], np.uint16)
    assert pyramid_of(twelve_bits, white=4095).tile_pixels(2, 0, 0).tolist() == [[0, 128, 255, 255]]
    floats = np.array([[-0.5, 0.0, 0.5, 1.0, 3.0]], np.float32)
    assert pyramid_of(floats, white=1).tile_pixels(3, 0, 0).tolist() == [[0, 0, 128, 255, 255]]


def test_tiles_decode_as_what_they_say():
    pixels = np.tile(np.linspace(0, 255, 200, dtype=np.uint8)[:, None, None], (1, 300, 3))
    pixels[..., 1] //= 2
    pyramid = pyramid_of(pixels, white=255)
    tile = Image.open(io.BytesIO(pyramid.tile(pyramid.top, 0, 0)))
    assert tile.format == "JPEG" and tile.size == (257, 200)
    assert np.abs(np.asarray(tile).astype(int) - pixels[:, :257]).max() <= 8
    assert [layer[1:3] for layer in tile.layer] == [(1, 1)] * 3  # colours at full size
    lossless = pyramid_of(pixels, white=255, lossless=True)
    tile = Image.open(io.BytesIO(lossless.tile(lossless.top, 0, 0)))
    assert tile.format == "PNG"
    assert (np.asarray(tile) == pixels[:, :257]).all()


def test_maps_are_shown_in_colours():
    def shown(name: str, values: Any, frames: int, level: int) -> np.ndarray:
        pixels = np.array(values)
        pyramid = map_pyramid(name, pixels.shape, lambda: pixels, frames, new_file())
        return pyramid.tile_pixels(level, 0, 0)

    index = [[0, 1], [2, 4]]
    assert (shown("source", index, 5, 1) == colour_table(5)[index]).all()
    mean = colour_table(5)[index].reshape(-1, 3).mean(axis=0)
    small = shown("source", index, 5, 0)
    assert np.abs(small[0, 0] - mean).max() <= 0.5  # mixed as colours, not as numbers
    assert (shown("source", [[0, 999]], 1000, 1) == colour_table(1000)[[[0, 999]]]).all()
    assert shown("source", [[0, 0], [0, 0]], 1, 1).shape == (2, 2, 3)
    depth = shown("depth", [[0.0, 4.0, 2.0]], 5, 2)
    assert (depth == colour_table()[[0, 255, 128]]).all()
    assert shown("confidence", [[0.0, 1.0]], 5, 1).tolist() == [[0, 255]]


@pytest.mark.parametrize("place", [(10, 0, 0), (-1, 0, 0), (9, 2, 0), (9, 0, 1), (9, -1, 0)])
def test_tiles_that_are_not_there(place):
    pyramid = pyramid_of(picture(200, 400), white=255)
    with pytest.raises(HTTPException, match="there is no"):
        pyramid.tile(*place)


def test_levels_are_kept_in_a_file(tmp_path):
    pixels, file = picture(300, 400, 3), tmp_path / "new" / "kept.npy"
    first = pyramid_of(pixels, file, white=255)
    expected = [put_together(first, level) for level in range(first.top)]
    assert list(file.parent.iterdir()) == [file]
    # A second one reads them, and never looks at the picture.
    blind = pyramid_of(np.zeros_like(pixels), file, white=255)
    assert all((put_together(blind, n) == expected[n]).all() for n in range(first.top))
    # Damaged ones are made again.
    for damage in (b"nonsense", file.read_bytes()[:-100]):
        file.write_bytes(damage)
        again = pyramid_of(pixels, file, white=255)
        assert all((put_together(again, n) == expected[n]).all() for n in range(first.top))


def test_threads_make_the_levels_once(tmp_path):
    class Counted:
        def __init__(self, pixels: np.ndarray) -> None:
            self.pixels, self.shape, self.rows = pixels, pixels.shape, 0

        def __getitem__(self, part: tuple[slice, slice]) -> np.ndarray:
            cut = self.pixels[part]
            self.rows += len(cut)
            return cut

    counted = Counted(picture(500, 300))
    pyramid = pyramid_of(counted, tmp_path / "levels.npy", white=255)
    tiles: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: tiles.append(pyramid.tile(5, 0, 0))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tiles) == 8 and len(set(tiles)) == 1 and counted.rows == 500


def test_24_megapixels_take_little_memory(tmp_path):
    shape = 4000, 6000, 3
    pixels = np.lib.format.open_memmap(tmp_path / "p.npy", mode="w+", dtype="uint16", shape=shape)
    pixels[::7] = 30_000
    pyramid = pyramid_of(pixels, tmp_path / "levels.npy", white=65535)
    tracemalloc.start()
    try:
        pyramid.tile_pixels(0, 0, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6  # the picture takes 144 MB
