"""A look at frames made smaller: which of them can be the sharp one where.

In a deep stack every place is sharp in a few frames only, and the model costs the same for all of
them. What is sharp shows in a small version of the frames as well, at a small part of the cost:
frames that are improbable there all over a tile are not weighed in it at full size.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.joint import JointModel
from cofuse.joint_tiles import PlaneReader, Span, TileWork, spans_of
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["LOOK_BLOCK", "LOOK_SCALE", "LikelyFrames", "likely_frames"]

#: By how much frames are made smaller for the look.
LOOK_SCALE = 8
#: A frame is likely where its probability passes this: where it would be chosen in small.
_LIKELY = 0.5
#: Side in pixels of the blocks that are told.
LOOK_BLOCK = 32
#: Side in small pixels of the tiles of the look, and bytes that all at work may take, each some
#: hundred thousand pixels around with so many bytes each and as many more for every frame.
_TILE = 384
_MOST_BYTES, _LOOKED, _BYTES, _BYTES_A_FRAME = 400 << 20, 640_000, 62, 5


@dataclass(frozen=True)
class LikelyFrames:
    """Where each frame can be the sharp one, in blocks of pixels (frames, rows, columns)."""

    blocks: NDArray[np.bool_]

    def within(self, rows: Span, columns: Span) -> NDArray[np.intp]:
        """Numbers of the frames that are likely somewhere in rows and columns of whole blocks."""
        there = (slice(a // LOOK_BLOCK, -(-b // LOOK_BLOCK)) for a, b in (rows, columns))
        return np.flatnonzero(self.blocks[:, *there].any(axis=(1, 2)))


def likely_frames(
    model: JointModel,
    frames: Sequence[PlaneReader],
    shape: tuple[int, int],
    noise: NDArray[np.float64],
    *,
    unfit: NDArray[np.bool_] | None = None,
    progress: ProgressCallback = silent,
) -> LikelyFrames:
    """Weigh frames made smaller by `LOOK_SCALE`.

    ``frames``, ``shape`` and ``noise`` (of the only plane, a row a frame) are those of the small
    ones; ``unfit`` is that of the large ones, as in `fuse_tiles`.
    """
    from cofuse.kernels.cpu import over_tiles

    work = TileWork(
        model,
        frames,
        shape,
        noise,
        restore=False,
        weigh_all=False,
        unfit=None if unfit is None else _coarser(unfit),
        keep_planes=_BYTES_A_FRAME * _LOOKED * len(frames) <= _MOST_BYTES,
        keep_scores=True,
    )
    at_once = max(1, _MOST_BYTES // (_LOOKED * (_BYTES + _BYTES_A_FRAME * len(frames))))
    step = LOOK_BLOCK // LOOK_SCALE
    blocks = np.zeros((len(frames), *(-(-n // step) for n in shape)), np.bool_)
    tiles = [
        (rows, columns)
        for rows, columns in itertools.product(*(spans_of(n, _TILE, step) for n in shape))
    ]

    def look(tile: tuple[Span, Span]) -> NDArray[np.bool_]:
        scores = np.stack([own.copy() for own in work.scores(*tile)])
        scores -= scores.max(axis=0)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=0)
        rows, columns = (np.arange(0, b - a, step) for a, b in tile)
        most = np.maximum.reduceat(np.maximum.reduceat(scores, rows, axis=1), columns, axis=2)
        whole = np.add.reduceat(np.add.reduceat(scores, rows, axis=1), columns, axis=2)
        # Where none is, as where nothing is in focus, the one that is likeliest in all is.
        first = whole.argmax(axis=0) == np.arange(len(frames))[:, None, None]
        return np.asarray((most > _LIKELY) | first)

    for done, ((rows, columns), told) in enumerate(
        zip(tiles, over_tiles(look, tiles, at_once=at_once), strict=True), start=1
    ):
        top, left = rows[0] // step, columns[0] // step
        blocks[:, top : top + told.shape[1], left : left + told.shape[2]] = told
        progress(Progress("look", done, len(tiles)))
    return LikelyFrames(blocks)


def _coarser(unfit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Blocks of as many small pixels: unfit where all are that they consist of."""
    count, rows, columns = unfit.shape
    rest = ((0, 0), (0, -rows % LOOK_SCALE), (0, -columns % LOOK_SCALE))
    padded = np.pad(unfit, rest, mode="edge")
    apart = padded.reshape(count, -(-rows // LOOK_SCALE), LOOK_SCALE, -1, LOOK_SCALE)
    return np.asarray(apart.all(axis=(2, 4)))
