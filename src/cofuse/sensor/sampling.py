"""Blocks that may show nothing but noise, and the variance of those with the least detail.

In one block and one band of frequency, all frames show the same detail, each weakened by its own
defocus. Detail lies along one direction, or few, in the space of the frames; noise has energy in
all directions. The combination of neighbouring frames with the least energy is therefore free of
detail: a frame that is out of focus, the difference of two equally sharp ones, or anything between.
It is found on one half of the coefficients and measured on the other, so that no value is chosen
for being small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from cofuse.images import Levels, Stack
from cofuse.progress import Progress, ProgressCallback
from cofuse.sensor import bands
from cofuse.sensor.bands import COEFFICIENTS, Blocks
from cofuse.sensor.law import BANDS, Array

#: Standard deviation at given grey levels.
Curve = Callable[[Levels], Array]

#: Most frames that are combined.
_GROUP = 3
#: Windows of all frames together, and of one frame at least and at most.
_WINDOWS, _FEWEST_WINDOWS, _MOST_WINDOWS = 640, 32, 72
#: Fewest blocks to average: their mean has an error of 6 %.
_FEWEST = 24
#: Share of a block's pixels that may be clipped, unless too few blocks have less.
_CLIPPED = 0.02
#: Share of all blocks that is averaged in any case.
FIRST = 0.01
#: More blocks are averaged as long as their mean exceeds that of the first by no more than this.
_TOLERANCE = 0.05
#: Relative spread of a block's mean energy, and its median over its mean: those of a χ² with a
#: degree of freedom for every coefficient of half a block.
_SPREAD = 2.0 / np.sqrt(COEFFICIENTS)
MEDIAN = 0.9724
#: Largest value of `Floor.detail`, and exponent of its logarithm in `Floor.doubt`.
_MOST_DETAIL, DOUBT = 50.0, 1.5
#: Least noise of a frame in grey levels: half of that of rounding to bytes.
_LEAST = 0.15


class Floor(NamedTuple):
    """The variance of noise: the mean energy of the blocks with the least detail."""

    variance: float
    #: Relative error of the variance by chance.
    error: float
    #: Energy of the median block over ``variance``, 1 or more: a measure of the detail that may be
    #: left in the blocks with the least.
    detail: float
    #: Logarithm of the level of the coarser half of the band against that of the finer.
    slope: float

    @property
    def doubt(self) -> float:
        """Error of the logarithm of the level by detail."""
        return float(np.log(self.detail) ** DOUBT)

    @classmethod
    def of(cls, energies: Levels, first: float = FIRST) -> Floor:
        """Average the energies of the blocks with the least scores, as many as look like noise.

        ``energies`` are score, energy of the coarser and energy of the finer coefficients of all
        blocks, shape (3, blocks); ``first`` is the share of blocks taken in any case.
        """
        total = energies.shape[1]
        if not total:
            return cls(0.0, np.inf, _MOST_DETAIL, 0.0)
        parts = np.maximum(energies[1:, np.argsort(energies[0])], 0.0).astype(np.float64)
        value = parts.mean(axis=0)
        count = min(total, max(_FEWEST, int(first * total)))
        least = value[:count].mean()
        slack = least * 2.0 * _SPREAD
        most = least * (1.0 + _TOLERANCE) + slack / np.sqrt(count)
        while count < total:
            more = value[count : 2 * count]
            if more.mean() > most + slack / np.sqrt(len(more)):
                break
            count += len(more)
        mean = float(value[:count].mean())
        detail = np.median(value) / MEDIAN / mean if mean > 0 else np.inf
        coarser, finer = np.maximum(parts[:, :count].mean(axis=1), 1e-9)
        slope = 0.5 * float(np.log(coarser / finer))
        detail = float(np.clip(detail, 1.0, _MOST_DETAIL))
        return cls(mean, float(_SPREAD / np.sqrt(count)), detail, slope)


class Candidates(NamedTuple):
    """Blocks of one band, of single frames or of combinations of frames."""

    #: Energies by half, block and plane, shape (3, 2, blocks, planes); see `residues`.
    energies: Levels
    #: Grey level of every block.
    brightness: Levels

    @classmethod
    def of(cls, frames: Sequence[Blocks], levels: Sequence[float]) -> Candidates:
        """Combine the blocks of frames; ``levels`` are the levels of their noise."""
        clipped = np.max([blocks.clipped for blocks in frames], axis=0)
        fewest = min(_FEWEST, len(clipped)) - 1
        usable = clipped <= max(_CLIPPED, float(np.partition(clipped, fewest)[fewest]))
        both = zip(frames, levels, strict=True)
        energies = residues([blocks.values[usable] / np.float32(level) for blocks, level in both])
        return cls(energies, np.mean([b.brightness[usable] for b in frames], axis=0))

    @classmethod
    def together(cls, parts: Sequence[Candidates]) -> Candidates:
        """Put the candidates of several combinations together."""
        energies, brightness = zip(*parts, strict=True)
        return cls(np.concatenate(energies, axis=2), np.concatenate(brightness))

    def floor(self, plane: int = 0, curve: Curve = np.ones_like, first: float = FIRST) -> Floor:
        """Find the noise of a plane, in units of a curve."""
        unit = np.square(curve(self.brightness)).astype(np.float32)
        return Floor.of((self.energies[..., plane] / unit).reshape(3, -1), first)

    def by_brightness(self, step: float) -> Array:
        """Find the noise of the first plane by steps of brightness in grey levels.

        Returns rows of grey level, variance, its relative error, and `Floor.detail`.
        """
        rows = []
        bins = np.floor(self.brightness / step)
        for number in np.unique(bins):
            here = bins == number
            if here.sum() >= _FEWEST:
                floor = Floor.of(self.energies[:, :, here, 0].reshape(3, -1))
                rows.append((self.brightness[here].mean(), *floor[:3]))
        return np.array(rows, np.float64).reshape(-1, 4)


class Sample(NamedTuple):
    """The candidates of a stack."""

    #: For every distinct frame the candidates of the two finest bands.
    alone: list[list[Candidates]]
    #: Noise level of every distinct frame in luminance, by the finest band alone.
    rough: list[float]
    #: For every band the candidates of neighbouring frames together, in units of their levels.
    combined: list[Candidates]
    #: For every frame the number of the distinct frame that it is or repeats.
    same: list[int]
    #: Largest `jpeg_grid` of all frames.
    blocks: float


def sample_stack(stack: Stack, progress: ProgressCallback) -> Sample:
    """Read windows of every frame, each frame once."""
    most = int(np.clip(_WINDOWS / len(stack), _FEWEST_WINDOWS, _MOST_WINDOWS))
    places = bands.window_places(stack.shape, most)
    alone: list[list[Candidates]] = []
    rough: list[float] = []
    combined: list[list[Candidates]] = [[] for _ in range(BANDS)]
    same, grid, seen = [], 0.0, dict[bytes, int]()
    recent: deque[list[Blocks]] = deque(maxlen=_GROUP)
    # The longer the stack the fewer combinations; every frame is in at least one.
    step = 1 if len(stack) <= 8 else 2 if len(stack) <= 16 else _GROUP

    def combine() -> None:
        for band, frames in enumerate(zip(*recent, strict=True)):
            combined[band].append(Candidates.of(frames, rough[-len(recent) :]))

    for index in range(len(stack)):
        read = stack.part_reader(index)
        windows = np.stack([read(*place) for place in places])
        number = seen.setdefault(sha256(windows.tobytes()).digest(), len(rough))
        same.append(number)
        # The difference of a frame and its copy has no noise.
        if number == len(rough):
            grid = max(grid, bands.jpeg_grid(stack, windows, places))
            recent.append(bands.cut_blocks(stack, windows))
            alone.append([Candidates.of([blocks], [1.0]) for blocks in recent[-1][:2]])
            level = alone[-1][0].floor().variance ** 0.5 if alone[-1] else 0.0
            rough.append(max(level, _LEAST))
            due = len(recent) == _GROUP and (len(rough) - _GROUP) % step == 0
            if due:
                combine()
        progress(Progress("noise", index + 1, len(stack)))
    if not due:
        combine()
    return Sample(alone, rough, [Candidates.together(p) for p in combined if p], same, grid)


def residues(frames: Sequence[Levels]) -> Levels:
    """Find the combination of frames with the least energy on half of the coefficients.

    Parameters
    ----------
    frames
        Coefficients of the same blocks in every frame, in units of the frame's noise, each of
        shape (..., coefficients): two halves, in each the coarser coefficients first.

    Returns
    -------
    ndarray
        Energies per coefficient, shape (3, 2, ...), by the half on which the combination was
        found: its energy there (the score), and its energies of the coarser and of the finer
        coefficients of the other half.
    """
    parts = np.split(np.stack(frames, axis=-2), 4, axis=-1)
    forms = [part @ np.swapaxes(part, -1, -2) / np.float32(part.shape[-1]) for part in parts]
    found = []
    for own, other in ((forms[:2], forms[2:]), (forms[2:], forms[:2])):
        both = np.asarray((own[0] + own[1]) / 2.0, np.float32)
        way = least_way(both)
        along = (
            np.einsum("...i,...ij,...j->...", way, form, way, optimize=True)
            for form in (both, *other)
        )
        found.append(np.stack(list(along)))
    return np.stack(found, axis=1)


def least_way(energy: Levels) -> Levels:
    """Return nearly the unit vector of least energy, of quadratic forms of up to three frames.

    It is the eigenvector with the largest eigenvalue of the adjugate, a multiple of the inverse.
    Squaring the adjugate a few times leaves little of the other eigenvectors.
    """
    size = energy.shape[-1]
    if size == 1:
        return np.ones(energy.shape[:-1], np.float32)
    form = energy.astype(np.float64)
    if size == 2:
        adjugate = form[..., ::-1, ::-1] * np.array([[1, -1], [-1, 1]])
    else:
        adjugate = np.cross(form[..., [1, 2, 0], :], form[..., [2, 0, 1], :])
    for _ in range(4):
        trace = np.trace(adjugate, axis1=-2, axis2=-1)[..., None, None]
        adjugate = adjugate / np.where(trace > 0, trace, 1.0)
        adjugate = adjugate @ adjugate
    # The column of the largest diagonal element is the longest.
    column = np.diagonal(adjugate, axis1=-2, axis2=-1).argmax(axis=-1)
    way = np.take_along_axis(adjugate, column[..., None, None], axis=-1)[..., 0]
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    way = np.where(length > 0, way / np.where(length > 0, length, 1.0), np.eye(size)[0])
    return np.asarray(way, np.float32)
