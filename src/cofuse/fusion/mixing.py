"""The way of `auto` and `fast`: noise law, weights, mixture band by band, restoration.

    y(p) = Σ_b Σ_k w_kb(p) · (B_b I_k)(p),    Σ_k w_kb(p) = 1

with frames I_k, bands B_b of `images.pixels`, and weights w_kb of a `Weigher`, which is all that
the two presets differ in.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import Fusion, Levels, Pixels, Stack
from cofuse.images.pixels import MIXED_BANDS, REACH, smoothed
from cofuse.images.store import Shelf
from cofuse.images.tiles import Tile, box_of, map_ahead, relative, tiles_of
from cofuse.model.restoring import NoiseLeft, halved, restore
from cofuse.model.runtime import RESTORING, load_networks
from cofuse.model.tiling import RESTORED_HALO, RESTORED_SIDE
from cofuse.progress import Preview, Progress, ProgressCallback, SolverTrace
from cofuse.sensor import NoiseLaw, estimate_noise

Indices = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Choice:
    """For every place the chosen frame's index and how clear the choice was, 0 to 1."""

    index: Indices
    confidence: Levels


def choose(activities: Iterable[Levels]) -> Choice:
    """Choose the frame with the largest activity at every place; the earlier one on a tie.

    The confidence is ``1 − second / first``: 0 for a tie or where nothing is active at all.
    """
    offers = iter(activities)
    first = np.array(next(offers), np.float32)
    second = np.zeros_like(first)
    index = np.zeros(first.shape, np.uint16)
    count = 1
    for frame, activity in enumerate(offers, start=1):
        better = activity > first
        second = np.where(better, first, np.maximum(second, activity))
        first = np.where(better, activity, first)
        index[better] = frame
        count += 1
    confidence = 1.0 - second / np.where(first > 0, first, 1.0)
    confidence[first <= 0] = 1.0 if count == 1 else 0.0
    narrow = index.astype(np.uint8) if count <= 256 else index
    return Choice(narrow, confidence.astype(np.float32))


@dataclass(kw_only=True)
class Run:
    """One fusion under way: what every stage needs, and what the stages leave behind."""

    stack: Stack
    progress: ProgressCallback
    #: The noise that was found or given, and its level as far as it is taken out.
    noise: NoiseLaw | None = None
    sigma: float = 0.0
    trace: dict[str, SolverTrace] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    #: Where the trained model works, as `resolve_device` says.
    device: str = "cpu"

    def result(self, image: Pixels, choice: Choice, *, estimated: bool) -> Fusion:
        """Put together what came out."""
        return Fusion(
            image=image,
            source_map=choice.index,
            confidence=choice.confidence,
            sigma=self.sigma,
            sigma_estimated=estimated,
            trace=self.trace,
            seconds=self.seconds,
            device=self.device,
            noise=self.noise,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


#: Where the largest weight is less than this part of the way from an even share to 1, the choice
#: of a frame is a lottery.
_LOTTERY = 0.25


class View(Protocol):
    """What a weigher has seen around a tile."""

    def parts(self) -> Iterable[tuple[Tile, list[int]]]:
        """Parts of the tile, with the numbers of the frames that may have a weight there."""

    def weigh(self, part: Tile, frames: dict[int, Levels]) -> Levels:
        """Weights (frames, bands, h, w) of frames, given in grey levels with the part's halo."""

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        """How clear the choice of a frame is, from 0 to 1: (h, w)."""


class Weigher(Protocol):
    """Weighs the frames of a stack, tile by tile; sides and halos are in pixels."""

    side: int
    halo: int

    def look(self, stack: Stack, tile: Tile) -> View:
        """Look at all frames around a tile."""


@dataclass(kw_only=True)
class MixingRun(Run):
    """Every stack goes one way, clean or noisy: weigh, mix, restore what noise is left."""

    #: Makes the weigher for a noise law.
    weigher: Callable[[NoiseLaw], Weigher]
    #: Numbers of the frames that take part.
    taken: Sequence[int]
    #: Name or folder of the model that restores.
    model: str
    #: Called with every part of the picture as soon as it is there, and again when it is restored.
    preview: Preview | None = None
    #: Side in pixels of the tiles that are restored one after the other.
    restored_side: int = RESTORED_SIDE

    def fuse(self, noise: NoiseLaw | None, denoise: float) -> Fusion:
        """Fuse; ``denoise`` blends the mixture with the restored one."""
        numbers, every = self.taken, self.stack
        self.stack = every.only(numbers)
        if noise is not None:
            self.noise = noise.only(numbers)
        else:
            with self.stage("noise"):
                self.noise = estimate_noise(self.stack, progress=self.progress)
        removed = self.noise.beyond_texture() if self.noise.estimated else self.noise
        self.sigma = self.noise.sigma if removed.overall > 0 else 0.0
        image, choice = self.mix_and_restore(removed, denoise)
        fusion = self.result(image, choice, estimated=noise is None)
        index: NDArray[np.unsignedinteger[Any]] = np.array(
            numbers, np.uint8 if len(every) <= 256 else np.uint16
        )
        return replace(fusion, source_map=index[choice.index])

    def mix_and_restore(self, law: NoiseLaw, denoise: float) -> tuple[Pixels, Choice]:
        """Mix tile by tile, restore where there is noise, and return native pixels."""
        stack = self.stack
        shape = stack.height, stack.width
        restores = denoise > 0 and bool(law.levels.any())
        image = np.empty(stack.shape, stack.dtype)
        index = np.zeros(shape, np.uint8 if len(stack) <= 256 else np.uint16)
        confidence = np.ones(shape, np.float32)
        if restores:
            noise = NoiseLeft(law)
            networks = load_networks(self.model, self.device, names=RESTORING)
            mixtures = Shelf(1, stack.shape, np.float32)
            half = tuple(-(-length // 2) for length in shape)
            scales = Shelf(1, (*half, MIXED_BANDS), np.float32)
        with self.stage("fusion"):
            done = lottery = 0
            for made in self.mixtures(self.weigher(law)):
                here = made.part.here
                index[here], confidence[here] = made.best, made.confidence
                lottery += made.lottery
                if restores:
                    mixtures.write(0, made.mixture, *here)
                    scales.write(0, noise.scales(made.numbers, made.weights), *halved(here))
                if not restores or self.preview is not None:
                    self.take(image, made.part, made.mixture)
                done += made.best.size
                self.progress(Progress("fusion", done, math.prod(shape)))
        if 2 * lottery > math.prod(shape):
            warnings.warn(
                "the frames hardly differ in focus: most of the picture is a mean of all, and "
                "the source map, like depth made from it, says little",
                stacklevel=3,
            )
        if restores:
            tiles = list(tiles_of(shape, self.restored_side, RESTORED_HALO))
            with self.stage("restoration"):
                for done, tile in enumerate(tiles, start=1):
                    around = mixtures.read(0, *tile.around)
                    told = scales.read(0, *halved(tile.around))
                    restored = restore(networks, around, told, noise)
                    mixture, restored = around[tile.within], restored[tile.within]
                    if denoise < 1:
                        restored = mixture + np.float32(denoise) * (restored - mixture)
                    self.take(image, tile, restored)
                    self.progress(Progress("restoration", done, len(tiles)))
        return image, Choice(index, confidence)

    def mixtures(self, weigher: Weigher) -> Iterator[Mixture]:
        """Mix the frames, part by part."""
        stack = self.stack
        for tile in tiles_of((stack.height, stack.width), weigher.side, weigher.halo):
            view = weigher.look(stack, tile) if len(stack) > 1 else _OneFrame(tile)
            yield from map_ahead(partial(self.mix, view), view.parts(), pixels=tile.pixels)

    def mix(self, view: View, where: tuple[Tile, list[int]]) -> Mixture:
        """Weigh and mix the frames in a part."""
        part, numbers = where
        frames = {number: self.stack.part_levels(number, part.around) for number in numbers}
        weights = view.weigh(part, frames)
        detail = weights[:, :2].mean(axis=1)
        even = 1 / len(self.stack)
        return Mixture(
            part,
            numbers,
            weights,
            mixed(frames.values(), weights, part),
            np.array(numbers)[detail.argmax(axis=0)],
            view.confidence(part, weights),
            int((detail.max(axis=0) < even + _LOTTERY * (1 - even)).sum()),
        )

    def take(self, image: Pixels, tile: Tile, levels: Levels) -> None:
        """Write a tile into the picture in native values, and show it to the preview."""
        image[tile.here] = self.stack.from_levels(levels)
        if self.preview is not None:
            self.preview(*tile.here, image[tile.here])


@dataclass(frozen=True)
class Mixture:
    """A part of the picture: of which frames, with which weights, and the choice they amount to.

    ``best`` is the frame with the largest weight in the two finest bands, ``lottery`` the number
    of pixels where that says little.
    """

    part: Tile
    numbers: list[int]
    weights: Levels
    mixture: Levels
    best: NDArray[np.intp]
    confidence: Levels
    lottery: int


@dataclass(frozen=True)
class _OneFrame:
    """The only frame of a stack has all the weight."""

    tile: Tile

    def parts(self) -> Iterable[tuple[Tile, list[int]]]:
        return [(self.tile, [0])]

    def weigh(self, part: Tile, frames: dict[int, Levels]) -> Levels:
        rows, columns = (here.stop - here.start for here in part.here)
        return np.ones((len(frames), MIXED_BANDS, rows, columns), np.float32)

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        return np.asarray(weights[0, 0])


def mixed(frames: Iterable[Levels], weights: Levels, part: Tile) -> Levels:
    """Mix frames, given with the halo of a part, by weights (frames, bands, h, w)."""
    # In double precision the order of frames makes no difference.
    mixture: list[NDArray[np.float64]] = []
    for frame, own in zip(frames, weights, strict=True):
        if not mixture:
            channels = 1 if frame.ndim == 2 else frame.shape[2]
            mixture = [np.zeros(weights.shape[2:], np.float64) for _ in range(channels)]
        box = box_of(part, own.any(axis=0), REACH)
        if box is None:
            continue
        here = relative(box.here, part.here)
        own = own[:, *here]
        # The same as to weigh bands, which are differences of neighbouring smoothed pictures.
        steps = [own[0], *(coarser - finer for finer, coarser in pairwise(own))]
        pictures = smoothed(frame[relative(box.around, part.around)])
        for picture, step in zip(pictures, steps, strict=True):
            for target, plane in zip(mixture, cv2.split(picture[box.within]), strict=True):
                cv2.accumulateProduct(plane, step, target[here])
    return np.asarray(mixture[0] if len(mixture) == 1 else cv2.merge(mixture), np.float32)
