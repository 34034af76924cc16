"""Places that may show nothing but noise, and the variance that the best of them have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Stack
from cofuse.progress import Progress, ProgressCallback
from cofuse.sensor.bands import (
    COEFFICIENTS,
    Blocks,
    cut_blocks,
    jpeg_grid,
    read_windows,
    window_places,
)
from cofuse.sensor.law import BANDS
from cofuse.sensor.residues import GROUP, residues

__all__ = ["FIRST", "Candidates", "Curve", "Floor", "Sample", "sample_stack"]

Levels = NDArray[np.float32]
#: Standard deviation at given grey levels.
Curve = Callable[[Levels], NDArray[np.float64]]

#: Windows of all frames together, and of one frame at least and at most.
_WINDOWS, _FEWEST_WINDOWS, _MOST_WINDOWS = 640, 32, 72
#: Blocks that suffice: the mean of as many is known to 6 %.
_FEWEST = 24
#: Part of a block's pixels that may be clipped, unless hardly any block has fewer: black and white
#: cut noise off.
_CLIPPED = 0.02
#: Part of all blocks that is taken in any case, where nothing else is said.
FIRST = 0.01
#: By how much more of them may exceed the first for all to count as noise alone.
_TOLERANCE = 0.05
#: Relative spread of a block's mean energy, and its median against its mean: a χ² of as many
#: degrees of freedom as a block's half has coefficients.
_SPREAD = 2.0 / np.sqrt(COEFFICIENTS)
_MEDIAN = 0.9724
#: Least noise in grey levels that frames are measured by: half of what rounding to bytes makes.
_LEAST = 0.15


@dataclass(frozen=True)
class Floor:
    """The variance of noise.

    Attributes
    ----------
    variance
        Mean energy of the blocks with the least detail.
    error
        What it is off by, relatively, by chance.
    detail
        How much more energy the median block has, as a factor from 1 on: the more there is, the
        more is left where there is least.
    slope
        Logarithm of the level of the coarser half of the band against that of the finer.
    """

    variance: float
    error: float
    detail: float
    slope: float

    @classmethod
    def of(cls, energies: Sequence[NDArray[Any]], first: float = FIRST) -> Floor:
        """Average the values with the least scores, as many as look like noise alone.

        ``energies`` are the score, and the values of coarser and finer coefficients, of all blocks;
        ``first`` is the part of them that is taken in any case.
        """
        score, coarse, fine = energies
        total = len(score)
        if not total:
            return cls(0.0, np.inf, np.inf, 0.0)
        order = np.argsort(score)
        parts = [np.maximum(e[order], 0.0).astype(np.float64) for e in (coarse, fine)]
        value = (parts[0] + parts[1]) / 2.0
        count = min(total, max(_FEWEST, int(first * total)))
        least = value[:count].mean()
        slack = least * 2.0 * _SPREAD
        most = least * (1.0 + _TOLERANCE) + slack / np.sqrt(count)
        while count < total:
            more = min(2 * count, total)
            if value[count:more].mean() > most + slack / np.sqrt(more - count):
                break
            count = more
        mean = float(value[:count].mean())
        detail = np.median(value) / _MEDIAN / mean if mean > 0 else np.inf
        coarser, finer = (max(float(part[:count].mean()), 1e-9) for part in parts)
        slope = 0.5 * float(np.log(coarser / finer))
        return cls(mean, float(_SPREAD / np.sqrt(count)), max(float(detail), 1.0), slope)


@dataclass(frozen=True)
class Candidates:
    """Blocks of one band, each in one frame or in a combination of some.

    Attributes
    ----------
    score, coarse, fine
        Energies by half, block and plane, shape (2, blocks, planes); see `residues`.
    brightness
        Grey level of every block.
    """

    score: Levels
    coarse: Levels
    fine: Levels
    brightness: Levels

    @classmethod
    def of(cls, frames: Sequence[Blocks], levels: Sequence[float]) -> Candidates:
        """Combine the blocks of frames whose noise has these levels."""
        clipped = np.max([blocks.clipped for blocks in frames], axis=0)
        fewest = min(_FEWEST, len(clipped)) - 1
        usable = clipped <= max(_CLIPPED, float(np.partition(clipped, fewest)[fewest]))
        energies = residues(
            [
                blocks.values[usable] / np.float32(level)
                for blocks, level in zip(frames, levels, strict=True)
            ]
        )
        return cls(*energies, np.mean([b.brightness[usable] for b in frames], axis=0))

    @classmethod
    def together(cls, parts: Sequence[Candidates]) -> Candidates:
        """Put those of several combinations together."""
        return cls(
            np.concatenate([part.score for part in parts], axis=1),
            np.concatenate([part.coarse for part in parts], axis=1),
            np.concatenate([part.fine for part in parts], axis=1),
            np.concatenate([part.brightness for part in parts]),
        )

    def floor(self, plane: int, curve: Curve, first: float = FIRST) -> Floor:
        """Find the noise of a plane, in units of a curve's."""
        unit = np.square(curve(self.brightness)).astype(np.float32)
        energies = (e[..., plane] / unit for e in (self.score, self.coarse, self.fine))
        return Floor.of([energy.ravel() for energy in energies], first)

    def by_brightness(self, step: float) -> NDArray[np.float64]:
        """Find the noise of the first plane at one brightness after the other.

        Returns rows of grey level, variance, what it is off by, relatively, and `Floor.detail`.
        """
        rows = []
        bins = np.floor(self.brightness / step)
        for number in np.unique(bins):
            here = bins == number
            if here.sum() >= _FEWEST:
                energies = [e[:, here, 0].ravel() for e in (self.score, self.coarse, self.fine)]
                floor = Floor.of(energies)
                level = self.brightness[here].mean()
                rows.append((level, floor.variance, floor.error, floor.detail))
        return np.array(rows, np.float64).reshape(-1, 4)


@dataclass
class Sample:
    """What was seen of a stack.

    Attributes
    ----------
    alone
        For every distinct frame the candidates of the two finest bands.
    rough
        Noise level of every distinct frame in luminance, by the finest band alone.
    combined
        For every band the candidates of neighbouring frames together, in units of their levels.
    same
        For every frame the number of the distinct frame that it is or repeats.
    blocks
        See `jpeg_grid`; of the frame where it is clearest.
    """

    alone: list[list[Candidates]] = field(default_factory=list)
    rough: list[float] = field(default_factory=list)
    combined: list[list[Candidates]] = field(default_factory=lambda: [[] for _ in range(BANDS)])
    same: list[int] = field(default_factory=list)
    blocks: float = 0.0


def sample_stack(stack: Stack, progress: ProgressCallback) -> Sample:
    """Read every frame once, and of it some windows."""
    most = int(np.clip(_WINDOWS / len(stack), _FEWEST_WINDOWS, _MOST_WINDOWS))
    places = window_places(stack.shape, most)
    sample, seen = Sample(), dict[bytes, int]()
    recent: deque[tuple[list[Blocks], float]] = deque(maxlen=GROUP)
    # The longer the stack the fewer combinations; all frames are in one.
    step = 1 if len(stack) <= 8 else 2 if len(stack) <= 16 else GROUP
    combined_up_to = 0

    def combine() -> None:
        levels = [level for _, level in recent]
        for band, frames in enumerate(zip(*(bands for bands, _ in recent), strict=True)):
            sample.combined[band].append(Candidates.of(frames, levels))

    for index in range(len(stack)):
        windows = read_windows(stack, index, places)
        content = windows.tobytes()
        number = seen.setdefault(content, len(sample.rough))
        sample.same.append(number)
        # A copy has the same noise: compared with it, there would seem to be none.
        if number == len(sample.rough):
            sample.blocks = max(sample.blocks, jpeg_grid(stack, windows, places))
            bands = cut_blocks(stack, windows)
            alone = [Candidates.of([blocks], [1.0]) for blocks in bands[:2]]
            rough = alone[0].floor(0, np.ones_like).variance ** 0.5 if alone else 0.0
            sample.alone.append(alone)
            sample.rough.append(max(rough, _LEAST))
            recent.append((bands, sample.rough[-1]))
            if len(recent) == GROUP and (number + 1 - GROUP) % step == 0:
                combine()
                combined_up_to = number + 1
        progress(Progress("noise", index + 1, len(stack)))
    if combined_up_to < len(sample.rough):
        combine()
    return sample
