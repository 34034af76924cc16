"""`retouch`: strokes into a picture, one after the other, in windows that stay small."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from cofuse.errors import CofuseError
from cofuse.images import PartReader, Pixels
from cofuse.web.retouching.blending import blend
from cofuse.web.retouching.strokes import Stroke, Way, Window, stroke_window

__all__ = ["Frames", "retouch"]

#: Least side of the windows that a long stroke is painted in.
_SIDE = 512
#: Windows begin at multiples of this, counted from the stroke's own corner, so that their coarse
#: bands lie on one grid: the coarsest step of the widest fade.
_GRID = 64


class Frames(Protocol):
    """Frames of which parts can be read; a `Stack` is one."""

    def __len__(self) -> int: ...

    def part_reader(self, index: int) -> PartReader:
        """Open one frame to read parts of it."""
        ...


def retouch(image: Pixels, frames: Frames, strokes: Sequence[Stroke]) -> Pixels:
    """Paint parts of frames into a picture, with soft brushes and without seams.

    Parameters
    ----------
    image
        The fused picture, shape (H, W) or (H, W, 3); it is not written to.
    frames
        The frames it was fused from, aligned with it and of its dtype: a `Stack`, or
        `restored_frames` of one that is noisy.
    strokes
        Painted in this order, later ones over earlier. What lies off the picture is left out.

    Returns
    -------
    ndarray
        A picture like ``image``, and ``image`` itself where there are no strokes. Pixels outside of
        all strokes keep their very value. Painting some strokes into the result of others is the
        same as painting all at once.
    """
    for stroke in strokes:
        if stroke.frame >= len(frames):
            raise CofuseError(
                f"a stroke paints from frame {stroke.frame}, but there are {len(frames)} frames, "
                "counted from 0"
            )
    if not strokes:
        return image
    result = np.array(image)
    readers: dict[int, PartReader] = {}
    for stroke in strokes:
        window = stroke_window(stroke, image.shape)
        if window is None:
            continue
        if stroke.frame not in readers:
            readers = {stroke.frame: frames.part_reader(stroke.frame)}  # frames may be large
        _paint(result, readers[stroke.frame], stroke, window)
    return result


def _paint(result: Pixels, read: PartReader, stroke: Stroke, window: Window) -> None:
    """Paint one stroke into ``result``."""
    parts = []
    way = Way(stroke, window)
    for inner, outer in _tiles(window, math.ceil(stroke.fade)):
        depth = way.depth(outer)
        top, left = (a.start - b.start for a, b in zip(inner, outer, strict=True))
        shape = tuple(side.stop - side.start for side in inner)
        cut = slice(top, top + shape[0]), slice(left, left + shape[1])
        if not (depth[cut] > 0).any():
            continue
        here = result[outer]
        patch = read(*outer)
        if patch.shape != here.shape or patch.dtype != here.dtype:
            raise CofuseError(
                f"a part of frame {stroke.frame} has shape {patch.shape} and type {patch.dtype}, "
                f"but the picture {here.shape} and {here.dtype}; expected them to be alike"
            )
        # Kept until all are done: neighbouring windows must see the picture as it was.
        parts.append((inner, blend(here, patch, depth, fade=stroke.fade)[cut]))
    for inner, pixels in parts:
        result[inner] = pixels


def _tiles(window: Window, reach: int) -> Iterator[tuple[Window, Window]]:
    """Cut a window into tiles, each with what around it within ``reach`` can matter to it."""
    margin = -(-reach // _GRID) * _GRID
    step = max(_SIDE, 2 * margin)
    rows, columns = window
    for top in range(rows.start, rows.stop, step):
        for left in range(columns.start, columns.stop, step):
            inner, outer = [], []
            for start, side in ((top, rows), (left, columns)):
                stop = min(start + step, side.stop)
                inner.append(slice(start, stop))
                outer.append(slice(max(start - margin, side.start), min(stop + margin, side.stop)))
            yield (inner[0], inner[1]), (outer[0], outer[1])
