"""Places that may show nothing but noise, and the variance that the best of them have.

In one block and one band of frequency, frames show the same detail, each weakened by its own
defocus: it lies along one direction, or few, in the space of the frames. Noise goes every way.
The combination of neighbouring frames with the least energy is therefore free of detail: a frame
that is out of focus there by itself, the difference of two that are equally sharp, or anything
between. It is found on one half of the coefficients and measured on the other, so that what is
measured was not chosen for being small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels, Stack
from cofuse.progress import Progress, ProgressCallback
from cofuse.sensor.bands import (
    COEFFICIENTS,
    Blocks,
    cut_blocks,
    jpeg_grid,
    read_windows,
    window_places,
)
from cofuse.sensor.law import BANDS, Array

#: Standard deviation at given grey levels.
Curve = Callable[[Levels], Array]

#: Most frames that are combined.
_GROUP = 3
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


class Floor(NamedTuple):
    """The variance of noise: the mean energy of the blocks with the least detail."""

    variance: float
    #: What it is off by, relatively, by chance.
    error: float
    #: How much more energy the median block has, as a factor from 1 on: the more there is, the more
    #: is left where there is least.
    detail: float
    #: Logarithm of the level of the coarser half of the band against that of the finer.
    slope: float

    @classmethod
    def of(cls, energies: NDArray[Any], first: float = FIRST) -> Floor:
        """Average the values with the least scores, as many as look like noise alone.

        ``energies`` are, of all blocks, the score and the values of coarser and of finer
        coefficients, shape (3, blocks); ``first`` is the part of them that is taken in any case.
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


class Candidates(NamedTuple):
    """Blocks of one band, each in one frame or in a combination of some."""

    #: By half, block and plane, shape (3, 2, blocks, planes); see `residues`.
    energies: Levels
    #: Grey level of every block.
    brightness: Levels

    @classmethod
    def of(cls, frames: Sequence[Blocks], levels: Sequence[float]) -> Candidates:
        """Combine the blocks of frames whose noise has these levels."""
        clipped = np.max([blocks.clipped for blocks in frames], axis=0)
        fewest = min(_FEWEST, len(clipped)) - 1
        usable = clipped <= max(_CLIPPED, float(np.partition(clipped, fewest)[fewest]))
        both = zip(frames, levels, strict=True)
        energies = residues([blocks.values[usable] / np.float32(level) for blocks, level in both])
        return cls(energies, np.mean([b.brightness[usable] for b in frames], axis=0))

    @classmethod
    def together(cls, parts: Sequence[Candidates]) -> Candidates:
        """Put those of several combinations together."""
        energies, brightness = zip(*parts, strict=True)
        return cls(np.concatenate(energies, axis=2), np.concatenate(brightness))

    def floor(self, plane: int, curve: Curve, first: float = FIRST) -> Floor:
        """Find the noise of a plane, in units of a curve's."""
        unit = np.square(curve(self.brightness)).astype(np.float32)
        return Floor.of((self.energies[..., plane] / unit).reshape(3, -1), first)

    def by_brightness(self, step: float) -> Array:
        """Find the noise of the first plane at one brightness after the other.

        Returns rows of grey level, variance, what it is off by, relatively, and `Floor.detail`.
        """
        rows = []
        bins = np.floor(self.brightness / step)
        for number in np.unique(bins):
            here = bins == number
            if here.sum() >= _FEWEST:
                floor = Floor.of(self.energies[:, :, here, 0].reshape(3, -1))
                level = self.brightness[here].mean()
                rows.append((level, floor.variance, floor.error, floor.detail))
        return np.array(rows, np.float64).reshape(-1, 4)


class Sample(NamedTuple):
    """What was seen of a stack."""

    #: For every distinct frame the candidates of the two finest bands.
    alone: list[list[Candidates]]
    #: Noise level of every distinct frame in luminance, by the finest band alone.
    rough: list[float]
    #: For every band the candidates of neighbouring frames together, in units of their levels.
    combined: list[Candidates]
    #: For every frame the number of the distinct frame that it is or repeats.
    same: list[int]
    #: See `jpeg_grid`; of the frame where it is clearest.
    blocks: float


def sample_stack(stack: Stack, progress: ProgressCallback) -> Sample:
    """Read every frame once, and of it some windows."""
    most = int(np.clip(_WINDOWS / len(stack), _FEWEST_WINDOWS, _MOST_WINDOWS))
    places = window_places(stack.shape, most)
    alone: list[list[Candidates]] = []
    rough: list[float] = []
    combined: list[list[Candidates]] = [[] for _ in range(BANDS)]
    same, grid, seen = [], 0.0, dict[bytes, int]()
    recent: deque[list[Blocks]] = deque(maxlen=_GROUP)
    # The longer the stack the fewer combinations; all frames are in one.
    step = 1 if len(stack) <= 8 else 2 if len(stack) <= 16 else _GROUP
    combined_up_to = 0

    def combine() -> None:
        for band, frames in enumerate(zip(*recent, strict=True)):
            combined[band].append(Candidates.of(frames, rough[-len(recent) :]))

    for index in range(len(stack)):
        windows = read_windows(stack, index, places)
        number = seen.setdefault(windows.tobytes(), len(rough))
        same.append(number)
        # A copy has the same noise: compared with it, there would seem to be none.
        if number == len(rough):
            grid = max(grid, jpeg_grid(stack, windows, places))
            recent.append(cut_blocks(stack, windows))
            alone.append([Candidates.of([blocks], [1.0]) for blocks in recent[-1][:2]])
            level = alone[-1][0].floor(0, np.ones_like).variance ** 0.5 if alone[-1] else 0.0
            rough.append(max(level, _LEAST))
            if len(recent) == _GROUP and (number + 1 - _GROUP) % step == 0:
                combine()
                combined_up_to = number + 1
        progress(Progress("noise", index + 1, len(stack)))
    if combined_up_to < len(rough):
        combine()
    return Sample(alone, rough, [Candidates.together(p) for p in combined if p], same, grid)


def residues(frames: Sequence[Levels]) -> Levels:
    """Return least energies per coefficient, and energies of the other half along the same way.

    Parameters
    ----------
    frames
        Coefficients of the same blocks in every frame, in units of the frame's noise, each of
        shape (..., coefficients): two halves, of each the coarser ones first.

    Returns
    -------
    ndarray
        Shape (3, 2, ...): score, coarse, fine, by which half the combination was found. The last
        two are those of the coarser and of the finer coefficients of the other half.
    """
    values = np.stack(frames, axis=-2)
    parts = np.split(values, 4, axis=-1)
    forms = [part @ np.swapaxes(part, -1, -2) / np.float32(part.shape[-1]) for part in parts]
    found = []
    for own, other in ((forms[:2], forms[2:]), (forms[2:], forms[:2])):
        both = np.asarray((own[0] + own[1]) / 2.0, np.float32)
        way = _least_way(both)
        found.append(np.stack([_along(energy, way) for energy in (both, *other)]))
    return np.stack(found, axis=1)


def _along(energy: Levels, way: Levels) -> Levels:
    return np.asarray(np.einsum("...i,...ij,...j->...", way, energy, way, optimize=True))


def _least_way(energy: Levels) -> Levels:
    """Return (nearly) the direction of least energy, of unit length.

    The adjugate, the inverse but for its size, is a positive form whose largest direction it is;
    squaring it a few times leaves little of the others.
    """
    size = energy.shape[-1]
    if size == 1:
        return np.ones(energy.shape[:-1], np.float32)
    form = energy.astype(np.float64)
    if size == 2:
        adjugate = np.empty_like(form)
        adjugate[..., 0, 0], adjugate[..., 1, 1] = form[..., 1, 1], form[..., 0, 0]
        adjugate[..., 0, 1] = adjugate[..., 1, 0] = -form[..., 0, 1]
    else:
        rows = form[..., 0, :], form[..., 1, :], form[..., 2, :]
        adjugate = np.stack(
            [np.cross(rows[1], rows[2]), np.cross(rows[2], rows[0]), np.cross(rows[0], rows[1])],
            axis=-1,
        )
    for _ in range(4):
        trace = np.trace(adjugate, axis1=-2, axis2=-1)[..., None, None]
        adjugate = adjugate / np.where(trace > 0, trace, 1.0)
        adjugate = adjugate @ adjugate
    # The column of the largest diagonal element is the longest.
    column = np.diagonal(adjugate, axis1=-2, axis2=-1).argmax(axis=-1)
    way = np.take_along_axis(adjugate, column[..., None, None], axis=-1)[..., 0]
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    first = np.eye(size)[0]
    way = np.where(length > 0, way / np.where(length > 0, length, 1.0), first)
    return np.asarray(way, np.float32)
