"""Running the joint model: frames and their noise in, choice of frame and restored picture out.

Pictures of any size are worked through in tiles that overlap by as much as the model looks
around, so that the tiles do not show: every pixel is what it would be in one piece.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.joint import (
    AGREEMENT_SCALES,
    BAND_WINDOWS,
    BANDS,
    GUIDES,
    LEVEL_CHANNELS,
    REWEIGH_BEFORE,
    JointModel,
)
from cofuse.progress import Progress, ProgressCallback, silent

if TYPE_CHECKING:
    from cofuse.kernels.joint_stages import Mixture
    from cofuse.kernels.joint_weigher import Guides

__all__ = ["BLOCK", "JointResult", "PlaneReader", "fuse_planes"]

Levels = NDArray[np.float32]
Span = tuple[int, int]
Spans = tuple[Span, Span]
#: Reads rows and columns of one frame as planes in grey levels, shape (h, w, planes).
PlaneReader = Callable[[slice, slice], Levels]

#: Noise below this many grey levels is taken for this many: the model was trained down to it.
_LEAST_NOISE = 1.0
#: The noise, in grey levels, at which a stage's parameters hold as they stand.
_COMMON_NOISE = 20.0

#: Working memory that tiles are made for: some, and a little more for every frame, as many frames
#: would else be cut into tiles that mostly overlap.
_WORKING_BYTES = 448 << 20
_WORKING_BYTES_A_FRAME = 4 << 20
_SMALLEST_TILE = 256

#: Side in pixels of the blocks in which frames are found unfit.
BLOCK = 8
#: What a frame that must not be used loses in its scores.
_NEVER = np.float32(1e4)


@dataclass(frozen=True)
class JointResult:
    """What the model makes of a stack.

    Attributes
    ----------
    index
        For every pixel the frame with the best score, shape (H, W).
    confidence
        By how much that frame's probability exceeds the second best's, 0 to 1.
    mixed
        The frames' mixture, in grey levels, shape (H, W, planes).
    restored
        The mixture restored, or None when that was not asked for.
    """

    index: NDArray[np.unsignedinteger[Any]]
    confidence: Levels
    mixed: Levels
    restored: Levels | None


def fuse_planes(
    model: JointModel,
    frames: Sequence[PlaneReader],
    shape: tuple[int, int],
    noise: ArrayLike,
    *,
    restore: bool = True,
    weights: Literal["all", "chosen"] = "all",
    unfit: NDArray[np.bool_] | None = None,
    tile: int | None = None,
    progress: ProgressCallback = silent,
) -> JointResult:
    """Fuse frames given by planes: grey, or luminance and two chrominances (`to_opponent`).

    The frames are weighed by their first plane, and all planes mixed with its weights. Each plane
    is restored by itself, guided by what the first one showed.

    Parameters
    ----------
    model
        The model to fuse with.
    frames
        One reader a frame; called once for every tile.
    shape
        Rows and columns of the frames.
    noise
        Noise level of every plane of every frame in grey levels, shape (frames, planes).
    restore
        Whether to restore the mixture; without it only choice and mixture are made.
    weights
        "chosen" takes every pixel from the one frame with the best score instead of mixing all,
        and weighs the frames only once.
    unfit
        Where each frame must not be used, in blocks of `BLOCK` pixels, shape (frames, rows,
        columns).
    tile
        Side of the tiles in pixels. Default: as large as some hundred megabytes allow.
    progress
        Called after every tile.
    """
    levels = np.array(noise, np.float64)
    if levels.ndim != 2 or len(levels) != len(frames) or levels.shape[1] not in (1, 3):
        raise CofuseError(
            f"noise has shape {levels.shape}; expected one row for each of {len(frames)} frames "
            "and a column for each plane, 1 or 3"
        )
    if not (np.isfinite(levels) & (levels >= 0)).all() or min(shape) < 1:
        raise CofuseError("noise levels must be numbers from 0 on, and pictures not empty")
    if tile is not None and tile < 1:
        raise CofuseError(f"tile is {tile}; expected a number of pixels")
    if weights not in ("all", "chosen"):
        raise CofuseError(f"weights are {weights!r}; expected 'all' or 'chosen'")
    work = _Work(model, frames, shape, levels, restore, weights == "all", unfit)
    planes = levels.shape[1]
    side = tile or work.tile_side()
    tiles = list(itertools.product(*(_pieces(length, side) for length in shape)))
    index = np.empty(shape, np.uint8 if len(frames) <= 256 else np.uint16)
    confidence = np.empty(shape, np.float32)
    mixed = np.empty((*shape, planes), np.float32)
    restored = np.empty_like(mixed) if restore else None
    for done, (rows, columns) in enumerate(tiles):
        here = slice(*rows), slice(*columns)
        part = work.piece(rows, columns)
        index[here], confidence[here], mixed[here] = part.index, part.confidence, part.mixed
        if restored is not None:
            restored[here] = part.restored
        progress(Progress("fusion", done + 1, len(tiles)))
    return JointResult(index, confidence, mixed, restored)


class _Work:
    """One stack and all that is the same for its tiles."""

    def __init__(
        self,
        model: JointModel,
        frames: Sequence[PlaneReader],
        shape: tuple[int, int],
        noise: NDArray[np.float64],
        restore: bool,
        weigh_all: bool,
        unfit: NDArray[np.bool_] | None,
    ) -> None:
        from cofuse.kernels.joint_layers import Scratch
        from cofuse.kernels.joint_mixing import agreement_reach, band_reach
        from cofuse.kernels.joint_stages import stage_reach

        self.frames, self.shape, self.weigh_all, self.unfit = frames, shape, weigh_all, unfit
        self.weigher, self.agreement = model.part("weigher"), model.part("agreement")
        self.stages = [model.part(f"stages.{i}") for i in range(model.stages if restore else 0)]
        self.weigh_again = weigh_all and len(frames) > 1 and len(self.stages) > REWEIGH_BEFORE
        # White is √3·255 in the luminance plane of colours; the model knows noise by grey levels.
        self.scale = np.array([math.sqrt(3.0), 1.0, 1.0] if noise.shape[1] == 3 else [1.0])
        floor = np.maximum(noise / self.scale, _LEAST_NOISE)
        self.units = np.sqrt((floor**2).mean(axis=0))
        self.log_units = [math.log(unit / _COMMON_NOISE) for unit in self.units]
        self.relative: list[float] = list(floor[:, 0] / self.units[0])
        # Pixels around a tile that the picture must have before every stage, and after the last.
        # All are even: coarse filters halve the picture, and a tile must halve as the whole does.
        reaches = [stage_reach(arrays) for arrays in self.stages]
        again = _even(agreement_reach(AGREEMENT_SCALES)) if self.weigh_again else 0
        self.margins = [
            sum(reaches[number:]) + (again if number <= REWEIGH_BEFORE else 0)
            for number in range(len(reaches) + 1)
        ]
        self.band_margin = _even(band_reach(BAND_WINDOWS))
        self.scratch = Scratch()

    def piece(self, rows: Span, columns: Span) -> JointResult:
        """Make some rows and columns of the result; they start at even ones."""
        from cofuse.kernels.joint_mixing import Choice, Mixer, chosen, lows
        from cofuse.kernels.joint_reach import Reach
        from cofuse.kernels.joint_weigher import Guides, Weigher

        tile = rows, columns
        spans = self._around(tile, self.margins[0])
        wider = self._around(tile, self.margins[0] + self.band_margin)
        reach = [
            Reach.of(span, length, len(LEVEL_CHANNELS))
            for span, length in zip(spans, self.shape, strict=True)
        ]
        looks, frames = self._read((reach[0].picture, reach[1].picture), wider)
        inner = _within(wider, spans)
        shape = spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]
        kept = len(frames) if self.weigh_again else 1
        scores = np.empty((kept, 1 + BANDS, *shape), np.float32)
        weigher = Weigher(self.weigher, reach[0], reach[1], self.units[0], self.scratch)
        choice, guides = Choice(shape), Guides(self.weigher["guide"])
        mixer = Mixer(len(self.units), BANDS, shape) if self.weigh_all else None
        weighed = weigher.scores(
            looks, self.relative, scores, guides=guides if self.stages else None
        )
        for number, (frame, own, noise) in enumerate(
            zip(frames, weighed, self.relative, strict=True)
        ):
            own = self._fit(number, own, spans)
            choice.add(own[0])
            if mixer is not None:
                mixer.add(lows(frame, BAND_WINDOWS, inner), own[1:], noise)
        if mixer is not None:
            mixture = mixer.mixture()
        else:
            cut = [[plane[inner] for plane in frame] for frame in frames]
            mixture = chosen(cut, choice.index, self.relative)
        del weigher, weighed, mixer, looks
        if self.stages:
            self.scratch.clear()  # they can have the memory
        here = _within(spans, tile)
        back = (self.scale * self.units).astype(np.float32)[:, None, None]
        mixed = mixture.pictures[:, *here] * back
        restored = None
        if self.stages:
            restored = self._restored(tile, mixture, guides, frames, scores) * back
            restored = restored.transpose(1, 2, 0)
        return JointResult(
            choice.index[here], choice.confidence()[here], mixed.transpose(1, 2, 0), restored
        )

    def _restored(
        self,
        tile: Spans,
        mixture: Mixture,
        guides: Guides,
        frames: list[list[Levels]],
        scores: Levels,
    ) -> Levels:
        """Take all stages, each on no more than the next ones need."""
        from cofuse.kernels.joint_stages import Mixture, stage

        first = have = self._around(tile, self.margins[0])
        pictures = mixture.pictures
        for number, arrays in enumerate(self.stages):
            if number == REWEIGH_BEFORE and self.weigh_again:
                mixture = self._mixed_again(tile, pictures[0], frames, scores)
            half = (
                slice((a - start) // 2, -((start - b) // 2))
                for (a, b), (start, _) in zip(have, first, strict=True)
            )
            channels = slice(4 * GUIDES * number, 4 * GUIDES * (number + 1))
            guide = guides.planes(channels, *half)
            pictures = stage(pictures, mixture, self.log_units, guide, arrays)
            want = self._around(tile, self.margins[number + 1])
            inner = (..., *_within(have, want))
            planes = (pictures, mixture.pictures, mixture.fine, mixture.coarse)
            pictures, *left = (np.ascontiguousarray(some[inner]) for some in planes)
            mixture, have = Mixture(*left), want
        return pictures

    def _mixed_again(
        self, tile: Spans, picture: Levels, frames: list[list[Levels]], scores: Levels
    ) -> Mixture:
        """Mix with weights that also tell how well the frames agree with the picture so far."""
        from cofuse.kernels.joint_mixing import Agreement, Mixer, lows

        margin = self.margins[REWEIGH_BEFORE]
        have, given = self._around(tile, margin), self._around(tile, self.margins[0])
        wider = self._around(tile, margin + self.band_margin)
        around = _within(self._around(tile, self.margins[0] + self.band_margin), wider)
        inner, own = _within(wider, have), _within(given, have)
        cut = [[plane[around] for plane in frame] for frame in frames]
        agreement = Agreement(
            [frame[0][inner] for frame in cut], picture, self.agreement, AGREEMENT_SCALES
        )
        mixer = Mixer(len(self.units), BANDS, picture.shape)
        for number, (frame, noise) in enumerate(zip(cut, self.relative, strict=True)):
            corrected = agreement.scores(number, scores[number][:, *own])
            corrected = self._fit(number, corrected, have)
            mixer.add(lows(frame, BAND_WINDOWS, inner), corrected, noise)
        return mixer.mixture()

    def _read(self, looked: Spans, mixed: Spans) -> tuple[list[Levels], list[list[Levels]]]:
        """Frames in units of noise: first planes for the weigher, all planes for mixing."""
        inner = _within(looked, mixed)
        factors = (1.0 / (self.scale * self.units)).astype(np.float32)
        looks, frames = [], []
        for frame in self.frames:
            planes = np.asarray(frame(slice(*looked[0]), slice(*looked[1])), np.float32)
            looks.append(planes[..., 0] * factors[0])
            others = (planes[*inner, i] * factors[i] for i in range(1, len(factors)))
            frames.append([looks[-1][inner], *others])
        return looks, frames

    def _fit(self, number: int, scores: Levels, spans: Spans) -> Levels:
        """Lower the scores of a frame where it must not be used; what is given stays as it is."""
        if self.unfit is None:
            return scores
        return np.where(_enlarged(self.unfit[number], spans), scores - _NEVER, scores)

    def _around(self, tile: Spans, margin: int) -> Spans:
        """Pixels up to an even margin around a tile."""
        rows, columns = (
            (max(a - margin, 0), min(b + margin, length))
            for (a, b), length in zip(tile, self.shape, strict=True)
        )
        return rows, columns

    def tile_side(self) -> int:
        """Largest side of tiles whose working memory stays within the limit."""
        from cofuse.kernels.joint_reach import Reach

        far = 1 << 20
        reach = Reach.of((far, far + 2), 2 * far, len(LEVEL_CHANNELS))
        around = max(far - reach.picture[0], reach.picture[1] - far)
        frames, planes = len(self.frames), len(self.units)
        limit = _WORKING_BYTES + frames * _WORKING_BYTES_A_FRAME
        # Bytes a pixel that the weigher looks at, and a pixel that is mixed and restored.
        kept = frames if self.weigh_again else 1
        looked = 4 * frames + 62
        made = 4 * (planes - 1) * frames + 4 * (1 + BANDS) * kept + 40 * planes + 240
        side = 4096
        while side > _SMALLEST_TILE:
            inner = side + 2 * self.margins[0]
            if looked * (inner + 2 * around) ** 2 + made * inner**2 <= limit:
                break
            side -= 32
        return side


def _pieces(length: int, side: int) -> Iterator[Span]:
    """Spans of nearly equal length, about ``side`` at most, that cover an axis; starts are even."""
    pairs = -(-length // 2)
    count = -(-pairs // -(-side // 2))
    edges = (min(2 * (pairs * i // count), length) for i in range(count + 1))
    return itertools.pairwise(edges)


def _within(have: Spans, want: Spans) -> tuple[slice, slice]:
    """Where spans lie in others."""
    rows, columns = (slice(w[0] - h[0], w[1] - h[0]) for h, w in zip(have, want, strict=True))
    return rows, columns


def _enlarged(blocks: NDArray[np.bool_], spans: Spans) -> NDArray[np.bool_]:
    """Say for pixels what is given for blocks."""
    rows, columns = (np.arange(a, b) // BLOCK for a, b in spans)
    return np.asarray(blocks[np.ix_(rows, columns)])


def _even(reach: int) -> int:
    return reach + reach % 2
