"""One tile of the joint model's work: frames weighed, mixed, restored.

Every pixel is what it would be in one piece: a tile is made from as much around it as the model
looks at. What frames have in a tile is kept in memory, or read and written again and again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
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
from cofuse.joint_frames import Lazy, PlaneReader, Span, Spans, TileFrames, within
from cofuse.joint_noise import ModelNoise
from cofuse.memory import Shelf

if TYPE_CHECKING:
    from cofuse.kernels.joint_layers import Scratch
    from cofuse.kernels.joint_reach import Reach
    from cofuse.kernels.joint_stages import Mixture
    from cofuse.kernels.joint_weigher import Guides

__all__ = [
    "JointResult",
    "PlaneReader",
    "Span",
    "TileWork",
    "spans_of",
]

Levels = NDArray[np.float32]


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


def spans_of(length: int, side: int, step: int = 2) -> list[Span]:
    """Spans of nearly equal length, about ``side`` at most, that cover an axis.

    All start at whole steps.
    """
    steps = -(-length // step)
    count = -(-steps // max(1, -(-side // step)))
    edges = (min(step * (steps * i // count), length) for i in range(count + 1))
    return list(itertools.pairwise(edges))


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
        keep_planes: bool,
        keep_scores: bool,
        looks: Sequence[PlaneReader] | None = None,
    ) -> None:
        from cofuse.kernels.joint_mixing import agreement_reach, band_reach
        from cofuse.kernels.joint_stages import stage_reach

        self.frames, self.shape, self.weigh_all = frames, shape, weigh_all
        self.keep_planes, self.keep_scores = keep_planes, keep_scores
        self.looks = frames if looks is None else looks
        self.weigher, self.agreement = model.part("weigher"), model.part("agreement")
        self.noise = ModelNoise.of(noise)
        self.stages = [
            self.noise.widened(model.part(f"stages.{i}"))
            for i in range(model.stages if restore else 0)
        ]
        self.weigh_again = weigh_all and len(frames) > 1 and len(self.stages) > REWEIGH_BEFORE
        # Pixels around a tile that the picture must have before every stage, and after the last.
        # All are even: coarse filters halve the picture, and a tile must halve as the whole does.
        reaches = [stage_reach(arrays) for arrays in self.stages]
        again = _even(agreement_reach(AGREEMENT_SCALES)) if self.weigh_again else 0
        self.margins = [
            sum(reaches[number:]) + (again if number <= REWEIGH_BEFORE else 0)
            for number in range(len(reaches) + 1)
        ]
        self.band_margin = _even(band_reach(BAND_WINDOWS))
        self._memory = threading.local()

    @property
    def scratch(self) -> Scratch:
        """Memory to work in, each thread's own."""
        from cofuse.kernels.joint_layers import Scratch

        if not hasattr(self._memory, "scratch"):
            self._memory.scratch = Scratch()
        scratch: Scratch = self._memory.scratch
        return scratch

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
        from cofuse.kernels.joint_weigher import Guides, Weigher

        wider = self._around(tile, self.margins[0] + self.band_margin)
        reach = self._reach(spans)
        frames = self._tile_frames(wider, reach)
        count, inner = len(self.frames), within(wider, spans)
        shape = spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]
        weigher = Weigher(self.weigher, reach[0], reach[1], self.noise.units[0], self.scratch)
        choice, guides = Choice(shape), Guides(self.weigher["guide"])
        mixer = Mixer(len(self.noise.units), BANDS, shape) if self.weigh_all else None
        weighed = weigher.scores(
            Lazy(count, frames.look),
            self.noise.relative,
            _score_planes(spans),
            guides=guides if self.stages else None,
        )
        for number, (own, noise) in enumerate(zip(weighed, self.noise.relative, strict=True)):
            if scores.count:
                scores.write(number, own.reshape(len(own), -1))
            choice.add(own[0])
            if mixer is not None:
                mixer.add(lows(frames.planes(number), BAND_WINDOWS, inner), own[1:], noise)
        if mixer is not None:
            mixture = mixer.mixture()
        else:
            cut = Lazy(count, lambda k: [plane[inner] for plane in frames.planes(k)])
            mixture = chosen(cut, choice.index, self.noise.relative)
        del weigher, weighed, mixer
        if self.stages:
            self.scratch.clear()  # they can have the memory
        here = within(spans, tile)
        back = (self.noise.scale * self.noise.units).astype(np.float32)[:, None, None]
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
        frames: TileFrames,
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
            pictures = stage(pictures, mixture, self.noise.log_units, guide, arrays)
            want = self._around(tile, self.margins[number + 1])
            inner = (..., *within(have, want))
            planes = (pictures, mixture.pictures, mixture.fine, mixture.coarse)
            pictures, *left = (np.ascontiguousarray(some[inner]) for some in planes)
            mixture, have = Mixture(*left), want
        return pictures

    def _mixed_again(
        self, tile: Spans, picture: Levels, frames: TileFrames, scores: Shelf
    ) -> Mixture:
        """Mix with weights that also tell how well the frames agree with the picture so far."""
        from cofuse.kernels.joint_mixing import Agreement, Mixer, lows

        margin = self.margins[REWEIGH_BEFORE]
        have, given = self._around(tile, margin), self._around(tile, self.margins[0])
        wider = self._around(tile, margin + self.band_margin)
        around = within(self._around(tile, self.margins[0] + self.band_margin), wider)
        inner, own = within(wider, have), within(given, have)
        size = tuple(b - a for a, b in given)
        agreement = Agreement(
            Lazy(len(self.frames), lambda k: frames.planes(k)[0][around][inner]),
            picture,
            self.agreement,
            AGREEMENT_SCALES,
        )
        mixer = Mixer(len(self.noise.units), BANDS, picture.shape)
        for number, noise in enumerate(self.noise.relative):
            before = scores.read(number).reshape(1 + BANDS, *size)[:, *own]
            corrected = agreement.scores(number, before)
            cut = [plane[around] for plane in frames.planes(number)]
            mixer.add(lows(cut, BAND_WINDOWS, inner), corrected, noise)
        return mixer.mixture()

    def _reach(self, spans: Spans) -> list[Reach]:
        from cofuse.kernels.joint_reach import Reach

        return [
            Reach.of(span, length, len(LEVEL_CHANNELS))
            for span, length in zip(spans, self.shape, strict=True)
        ]

    def _tile_frames(self, mixed: Spans, reach: list[Reach]) -> TileFrames:
        factors = (1.0 / (self.noise.scale * self.noise.units)).astype(np.float32)
        looked = reach[0].picture, reach[1].picture
        return TileFrames(self.looks, self.frames, looked, mixed, factors, self.keep_planes)

    def _around(self, tile: Spans, margin: int) -> Spans:
        """Pixels up to an even margin around a tile."""
        rows, columns = (
            (max(a - margin, 0), min(b + margin, length))
            for (a, b), length in zip(tile, self.shape, strict=True)
        )
        return rows, columns


def _score_planes(spans: Spans) -> Levels:
    """Room for one frame's scores."""
    return np.empty((1, 1 + BANDS, *(b - a for a, b in spans)), np.float32)


def _even(reach: int) -> int:
    return reach + reach % 2
