"""Painting strokes into a picture, one after the other, tile by tile."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cofuse.errors import CofuseError
from cofuse.fusion import fuse
from cofuse.images import PartReader, Pixels, Stack
from cofuse.images.tiles import tiles_of
from cofuse.sensor import NoiseLaw
from cofuse.web.retouching.blending import blend
from cofuse.web.retouching.strokes import Stroke, Way, Window, stroke_window

__all__ = ["RestoredFrames", "retouch"]

#: Side of the tiles that a long stroke is painted in.
_SIDE = 512
#: Tiles and halos are multiples of this, the coarsest step of the widest fade, so that the coarse
#: bands of all tiles lie on one grid.
_STEP = 64
#: Pixels around a part of a frame that are restored with it and then cut off.
_HALO = 64
#: Parts to restore begin at multiples of this, the coarsest step of the trained model.
_MODEL_STEP = 32


@dataclass(frozen=True)
class RestoredFrames:
    """The frames of a noisy stack; every part that is read is restored on its own.

    ``noise`` is that of the stack, as `Fusion.noise` tells it; ``preset`` restores as in `fuse`.
    """

    stack: Stack
    noise: NoiseLaw
    preset: str = "auto"

    def __len__(self) -> int:
        return len(self.stack)

    def part_reader(self, index: int) -> PartReader:
        """Open one frame to read restored parts of it."""
        stack, read = self.stack, self.stack.part_reader(index)
        noise = self.noise.for_stack(len(stack), colour=stack.is_colour).only([index])

        def restored(rows: slice, columns: slice) -> Pixels:
            tall, wide = _widened(rows, stack.height), _widened(columns, stack.width)
            part = np.ascontiguousarray(read(tall, wide))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="one frame only")
                fused = fuse([part], noise=noise, preset=self.preset, white=stack.white)
            top, left = rows.start - tall.start, columns.start - wide.start
            height, width = rows.stop - rows.start, columns.stop - columns.start
            return np.asarray(fused.image)[top : top + height, left : left + width]

        return restored


#: What can be painted from.
Frames = Stack | RestoredFrames


def _widened(side: slice, size: int) -> slice:
    """Rows or columns with a halo, as far as the picture goes."""
    start = max(side.start - _HALO, 0) // _MODEL_STEP * _MODEL_STEP
    return slice(start, min(side.stop + _HALO, size))


def retouch(
    image: Pixels, frames: Frames, strokes: Iterable[Stroke], *, side: int = _SIDE
) -> Pixels:
    """Paint parts of frames into a picture, with soft brushes and without seams.

    Parameters
    ----------
    image
        The fused picture, shape (H, W) or (H, W, 3); it is not written to.
    frames
        The frames it was fused from, aligned with it and of its dtype.
    strokes
        Painted in this order, later ones over earlier. What lies off the picture is left out.
    side
        Side of the tiles to work in, pixels; a multiple of 64.

    Returns
    -------
    ndarray
        A new picture like ``image``. Pixels outside of all strokes keep their exact values.
        Painting some strokes into the result of others is the same as painting all at once.
    """
    result = np.array(image)
    for stroke in strokes:
        if stroke.frame >= len(frames):
            raise CofuseError(
                f"a stroke paints from frame {stroke.frame}, but there are {len(frames)} frames, "
                "counted from 0"
            )
        window = stroke_window(stroke, image.shape)
        if window is not None:
            _paint(result, frames.part_reader(stroke.frame), stroke, window, side)
    return result


def _paint(result: Pixels, read: PartReader, stroke: Stroke, window: Window, side: int) -> None:
    """Paint one stroke into its window of ``result``."""
    picture, way, parts = result[window], Way(stroke, window), []
    halo = math.ceil(stroke.fade / _STEP) * _STEP
    for tile in tiles_of(picture.shape[:2], max(side, 2 * halo), halo):
        depth = way.depth(*tile.around)
        if not (depth[tile.within] > 0).any():
            continue
        here = picture[tile.around]
        rows, columns = (
            slice(part.start + whole.start, part.stop + whole.start)
            for part, whole in zip(tile.around, window, strict=True)
        )
        patch = read(rows, columns)
        if patch.shape != here.shape or patch.dtype != here.dtype:
            raise CofuseError(
                f"a part of frame {stroke.frame} has shape {patch.shape} and type {patch.dtype}, "
                f"but the picture {here.shape} and {here.dtype}; expected them to be alike"
            )
        # Kept until all are done: neighbouring tiles must see the picture as it was.
        parts.append((tile.here, blend(here, patch, depth, fade=stroke.fade)[tile.within]))
    for place, pixels in parts:
        picture[place] = pixels
