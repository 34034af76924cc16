"""Pictures to look at: filters in a grid, results side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

_MAGNIFY, _ZOOM = 8, 3


def filter_grid(filters: NDArray[np.float64]) -> Picture:
    """Show filters (h, n, n) in a square grid, magnified 8 times; zero is mid-grey."""
    count = len(filters)
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    peaks = np.abs(filters).max(axis=(1, 2), keepdims=True)
    tones = np.rint(127.5 + 127.5 * filters / peaks).astype(np.uint8)
    cells = np.kron(tones, np.ones((1, _MAGNIFY, _MAGNIFY), np.uint8))
    missing = rows * columns - count
    cells = np.pad(cells, ((0, missing), (4, 0), (4, 0)), constant_values=255)
    side = cells.shape[1]
    grid = cells.reshape(rows, columns, side, side).swapaxes(1, 2).reshape(rows * side, -1)
    return np.pad(grid, ((0, 4), (0, 4)), constant_values=255)


def side_by_side(pictures: Mapping[str, Picture]) -> Picture:
    """Put titled 8-bit RGB pictures in a row, a magnified detail of each beneath it.

    The detail is the window with the most contrast in the last picture, the reference.
    """
    from PIL import Image, ImageDraw, ImageFont

    last = list(pictures.values())[-1]
    height, width, _ = last.shape
    side_x, side_y = width // _ZOOM, height // _ZOOM
    top, left = _busiest_window(last, side_y, side_x)
    gap, title = 8, 28
    size = len(pictures) * (width + gap) + gap, title + 2 * (height + gap)
    canvas = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=18)
    for place, (name, picture) in enumerate(pictures.items()):
        x = gap + place * (width + gap)
        draw.text((x, 4), name, fill="black", font=font)
        canvas.paste(Image.fromarray(picture), (x, title))
        frame = (x + left, title + top, x + left + side_x, title + top + side_y)
        draw.rectangle(frame, outline="yellow", width=2)
        detail = Image.fromarray(picture[top : top + side_y, left : left + side_x])
        detail = detail.resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(detail, (x, title + height + gap))
    return np.asarray(canvas)


def _busiest_window(picture: Picture, height: int, width: int) -> tuple[int, int]:
    """Corner of the window in which neighbouring pixels differ most."""
    grey = picture.mean(axis=2)
    change = np.abs(np.diff(grey, axis=0))[:, :-1] + np.abs(np.diff(grey, axis=1))[:-1]
    totals = np.pad(change.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    sums = totals[height:, width:] - totals[:-height, width:]
    sums = sums - totals[height:, :-width] + totals[:-height, :-width]
    top, left = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(top), int(left)
