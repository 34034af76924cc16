"""A noise law as inputs of the networks: its octaves in the bands that frames are mixed in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cofuse.images.planes import WINDOWS
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import BANDS


@dataclass(frozen=True)
class FrameTold:
    """Noise level of a frame's luminance in fine and in coarse bands, at mid-grey, white at 1.

    ``floor`` is the share of the variance that is left in black.
    """

    fine: float
    coarse: float
    floor: float


def frames_told(law: NoiseLaw) -> list[FrameTold]:
    """Noise levels of every frame of a law."""
    levels = law.levels[:, 0] * law.at_mid_grey / 255.0
    if law.levels.shape[1] == 3:
        # The luminance plane of a law is a sum over channels by the root of their number.
        levels = levels / 3**0.5
    bands = np.sqrt(levels**2 @ octaves_in_bands().T)
    variance = float(law.model.sigma_at(127.5)) ** 2
    floor = law.model.floor**2 / variance if variance > 0 else 1.0
    return [FrameTold(float(own[0]), float(own[2]), floor) for own in bands]


@cache
def octaves_in_bands() -> NDArray[np.float64]:
    """Part of a band's noise that comes from each octave of a `NoiseLaw`, if the noise is white.

    Shape (`MIXED_BANDS`, `BANDS`), rows that add up to 1.
    """
    power = _power()
    return np.asarray(power / power.sum(axis=1, keepdims=True))


@cache
def white_in_bands() -> NDArray[np.float64]:
    """Part of all that bands show of white noise that is in each, adding up to 1."""
    power = _power().sum(axis=1)
    return np.asarray(power / power.sum())


@cache
def _power() -> NDArray[np.float64]:
    """Power that bands pass of every octave, (`MIXED_BANDS`, `BANDS`)."""
    size = 512
    frequency = np.fft.fftfreq(size)
    below = np.ones((size, size))
    passed = []
    for side in WINDOWS:
        offset = np.arange(side) - side // 2
        box = np.cos(2 * np.pi * np.outer(offset, frequency)).mean(axis=0) ** 2
        smooth = below * np.outer(box, box)
        passed.append((below - smooth) ** 2)
        below = smooth
    passed.append(below**2)
    return _by_octave(np.array(passed))


def octaves_in_filters(filters: NDArray[np.float64]) -> NDArray[np.float64]:
    """Part of the noise in small filters (N, n, n) that comes from each octave, if it is white.

    Shape (N, `BANDS`), rows that add up to 1.
    """
    # Of an odd number no frequency lies just between two octaves.
    power = _by_octave(np.abs(np.fft.fft2(filters, s=(127, 127))) ** 2)
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def _by_octave(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum powers (N, size, size) at the frequencies of `numpy.fft.fft2` by octave, (N, `BANDS`)."""
    frequency = np.abs(np.fft.fftfreq(power.shape[-1]))
    highest = np.maximum(frequency[:, None], frequency)
    # 0.5 down to above 0.25 is the finest; the coarsest stands for all below it.
    octave = np.minimum(np.floor(-np.log2(np.maximum(2 * highest, 1e-9))).astype(int), BANDS - 1)
    return np.stack([power[:, octave == b].sum(axis=1) for b in range(BANDS)], axis=1)
