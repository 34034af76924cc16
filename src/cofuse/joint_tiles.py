"""One tile of the joint model's work: frames weighed, mixed, restored.

Every pixel is what it would be in one piece: a tile is made from as much around it as the model
looks at. What frames have in a tile is kept in memory, or read and written again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cofuse.joint import (
    AGREEMENT_SCALES,
    BAND_WINDOWS,
    BANDS,
    GUIDES,
    LEVEL_CHANNELS,
    REWEIGH_BEFORE,
    JointModel,
)
from cofuse.memory import Shelf

if TYPE_CHECKING:
    from cofuse.kernels.joint_stages import Mixture
    from cofuse.kernels.joint_weigher import Guides

__all__ = ["BLOCK", "JointResult", "PlaneReader", "Span", "TileWork"]

Levels = NDArray[np.float32]
Span = tuple[int, int]
Spans = tuple[Span, Span]
#: Reads rows and columns of one frame as planes in grey levels, shape (h, w, planes).
PlaneReader = Callable[[slice, slice], Levels]

#: Noise below this many grey levels is taken for this many: the model was trained down to it.
_LEAST_NOISE = 1.0
#: The noise, in grey levels, at which a stage's parameters hold as they stand.
_COMMON_NOISE = 20.0

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


class TileWork:
    """One stack and all that is the same for its tiles."""

    def __init__(
        self,
        model: JointModel,
        frames: Sequence[PlaneReader],
        shape: tuple[int, int],
        noise: NDArray[np.float64],
        *,
        restore: bool,
        weigh_all: bool,
        unfit: NDArray[np.bool_] | None,
        keep_planes: bool,
        keep_scores: bool,
    ) -> None:
        from cofuse.kernels.joint_layers import Scratch
        from cofuse.kernels.joint_mixing import agreement_reach, band_reach
        from cofuse.kernels.joint_stages import stage_reach

        self.frames, self.shape, self.weigh_all, self.unfit = frames, shape, weigh_all, unfit
        self.keep_planes, self.keep_scores = keep_planes, keep_scores
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
        tile = rows, columns
        spans = self._around(tile, self.margins[0])
        kept = len(self.frames) if self.weigh_again else 0
        shape = 1 + BANDS, (spans[0][1] - spans[0][0]) * (spans[1][1] - spans[1][0])
        in_memory = self.keep_scores or not kept
        with Shelf(kept, shape, np.float32, in_memory=in_memory) as scores:
            return self._piece(tile, spans, scores)

    def _piece(self, tile: Spans, spans: Spans, scores: Shelf) -> JointResult:
        from cofuse.kernels.joint_mixing import Choice, Mixer, chosen, lows
        from cofuse.kernels.joint_reach import Reach
        from cofuse.kernels.joint_weigher import Guides, Weigher

        wider = self._around(tile, self.margins[0] + self.band_margin)
        reach = [
            Reach.of(span, length, len(LEVEL_CHANNELS))
            for span, length in zip(spans, self.shape, strict=True)
        ]
        factors = (1.0 / (self.scale * self.units)).astype(np.float32)
        looked = reach[0].picture, reach[1].picture
        frames = _TileFrames(self.frames, looked, wider, factors, self.keep_planes)
        count, inner = len(self.frames), _within(wider, spans)
        shape = spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]
        weigher = Weigher(self.weigher, reach[0], reach[1], self.units[0], self.scratch)
        choice, guides = Choice(shape), Guides(self.weigher["guide"])
        mixer = Mixer(len(self.units), BANDS, shape) if self.weigh_all else None
        weighed = weigher.scores(
            _Lazy(count, frames.look),
            self.relative,
            np.empty((1, 1 + BANDS, *shape), np.float32),
            guides=guides if self.stages else None,
        )
        for number, (own, noise) in enumerate(zip(weighed, self.relative, strict=True)):
            if scores.count:
                scores.write(number, own.reshape(len(own), -1))
            own = self._fit(number, own, spans)
            choice.add(own[0])
            if mixer is not None:
                mixer.add(lows(frames.planes(number), BAND_WINDOWS, inner), own[1:], noise)
        if mixer is not None:
            mixture = mixer.mixture()
        else:
            cut = _Lazy(count, lambda k: [plane[inner] for plane in frames.planes(k)])
            mixture = chosen(cut, choice.index, self.relative)
        del weigher, weighed, mixer
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
        frames: _TileFrames,
        scores: Shelf,
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
        self, tile: Spans, picture: Levels, frames: _TileFrames, scores: Shelf
    ) -> Mixture:
        """Mix with weights that also tell how well the frames agree with the picture so far."""
        from cofuse.kernels.joint_mixing import Agreement, Mixer, lows

        margin = self.margins[REWEIGH_BEFORE]
        have, given = self._around(tile, margin), self._around(tile, self.margins[0])
        wider = self._around(tile, margin + self.band_margin)
        around = _within(self._around(tile, self.margins[0] + self.band_margin), wider)
        inner, own = _within(wider, have), _within(given, have)
        size = tuple(b - a for a, b in given)
        agreement = Agreement(
            _Lazy(len(self.frames), lambda k: frames.planes(k)[0][around][inner]),
            picture,
            self.agreement,
            AGREEMENT_SCALES,
        )
        mixer = Mixer(len(self.units), BANDS, picture.shape)
        for number, noise in enumerate(self.relative):
            before = scores.read(number).reshape(1 + BANDS, *size)[:, *own]
            corrected = agreement.scores(number, before)
            corrected = self._fit(number, corrected, have)
            cut = [plane[around] for plane in frames.planes(number)]
            mixer.add(lows(cut, BAND_WINDOWS, inner), corrected, noise)
        return mixer.mixture()

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


class _TileFrames:
    """A tile's frames in units of noise, all kept or each read when asked for."""

    def __init__(
        self,
        readers: Sequence[PlaneReader],
        looked: Spans,
        mixed: Spans,
        factors: Levels,
        keep: bool,
    ) -> None:
        self.readers, self.looked, self.factors = readers, looked, factors
        self.inner = _within(looked, mixed)
        self.most = len(readers) if keep else 1
        self.read: dict[int, tuple[Levels, list[Levels]]] = {}

    def look(self, number: int) -> Levels:
        """First plane, as far as the weigher looks."""
        return self._frame(number)[0]

    def planes(self, number: int) -> list[Levels]:
        """All planes, as far as they are mixed."""
        return self._frame(number)[1]

    def _frame(self, number: int) -> tuple[Levels, list[Levels]]:
        if number not in self.read:
            if len(self.read) == self.most:
                self.read.clear()
            planes = np.asarray(self.readers[number](*(slice(*s) for s in self.looked)), np.float32)
            look = planes[..., 0] * self.factors[0]
            others = (planes[*self.inner, i] * self.factors[i] for i in range(1, len(self.factors)))
            self.read[number] = look, [look[self.inner], *others]
        return self.read[number]


class _Lazy(Sequence[Any]):
    """So many things, each made when it is asked for."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._make(index)


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
