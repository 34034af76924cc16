"""The spectrum of a noise between its bands, and how much of the noise a filter sees.

The levels of a `NoiseLaw` are means over octaves of a spectrum that may fall steeply within each.
`spectrum` draws it through them: its logarithm is piecewise linear in that of the frequency, and
noise of it, measured as the levels are, has these levels again.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.images import LUMINANCE_WEIGHTS, to_opponent
from cofuse.sensor.law import BANDS

__all__ = ["luminance_levels", "noise_seen", "spectrum"]

Array = NDArray[np.float64]

#: Frequencies along an axis at which a spectrum is known.
_SIZE = 64
#: Corrections after which the levels of a spectrum that falls smoothly are met within 1 %.
_CORRECTIONS = 4
#: A spectrum stays within these factors of the lowest and the highest of its levels: no noise has
#: levels that jump up and down, but an estimate may.
_WITHIN = 0.1, 2.0
#: Side of the patches whose finest octave is measured.
_PATCH = 8


def spectrum(levels: ArrayLike) -> Array:
    """Power of a noise at the frequencies of `numpy.fft.fft2`; 1 everywhere of white noise of 1.

    Parameters
    ----------
    levels
        Level of every band, shape (`BANDS`,), as in a `NoiseLaw`.
    """
    given = np.asarray(levels, np.float64)
    highest = float(given.max())
    if highest == 0:
        return np.zeros((_SIZE, _SIZE))
    windows, position = _windows(), _log_frequency()
    # From the coarsest band to the finest, by frequency.
    centres = (windows * position).sum(axis=(1, 2))[::-1]
    wanted = 2.0 * np.log(np.maximum(given / highest, 1e-3))
    bounds = wanted.min() + 2.0 * np.log(_WITHIN[0]), wanted.max() + 2.0 * np.log(_WITHIN[1])
    knots = wanted.copy()
    for correction in range(_CORRECTIONS + 1):
        heights = knots[::-1]
        rise = (heights[-1] - heights[-2]) / (centres[-1] - centres[-2])
        beyond = np.maximum(position - centres[-1], 0.0)
        logs = np.interp(position, centres, heights) + rise * beyond
        power = np.exp(np.clip(logs, *bounds))
        if correction < _CORRECTIONS:
            knots += wanted - np.log((windows * power).sum(axis=(1, 2)))
    return np.asarray(highest**2 * power)


def noise_seen(filters: ArrayLike, levels: ArrayLike) -> Array:
    r"""Level of the white noise of which filters see as much as of a noise of given levels.

    With C the covariance of the noise in a window, f a filter and C₁ that of white noise:

    .. math:: \sqrt{f^T C f \,/\, f^T C_1 f}

    Parameters
    ----------
    filters
        Shape (filters, n, n).
    levels
        Level of every band, shape (`BANDS`,).
    """
    squares = np.asarray(filters, np.float64)
    side = squares.shape[-1]
    rows = squares.reshape(len(squares), side * side)
    power, white = spectrum(levels), np.ones((_SIZE, _SIZE))
    seen, of_white = (
        ((rows @ _covariance(part, side)) * rows).sum(axis=1) for part in (power, white)
    )
    # Of a filter that is nothing any level would do.
    ratio = np.divide(seen, of_white, out=np.ones_like(seen), where=of_white > 0)
    return np.asarray(np.sqrt(np.maximum(ratio, 0.0)))


def luminance_levels(levels: ArrayLike) -> Array:
    """Levels (`BANDS`,) of a picture's `luminance` from those of its planes, (planes, `BANDS`)."""
    given = np.asarray(levels, np.float64)
    if len(given) == 1:
        return np.asarray(given[0])
    parts = to_opponent(np.array([[LUMINANCE_WEIGHTS]]))[0, 0]
    return np.asarray(np.sqrt(parts**2 @ given**2))


@cache
def _log_frequency() -> Array:
    """Binary logarithm of every frequency; that of none at all is below all others."""
    axis = np.fft.fftfreq(_SIZE)
    squares = axis[:, None] ** 2 + axis**2
    return np.asarray(0.5 * np.log2(np.maximum(squares, (0.25 / _SIZE) ** 2)))


@cache
def _windows() -> Array:
    """Part that every frequency has in every band's level, shape (`BANDS`, size, size)."""
    axis, k = np.fft.fftfreq(_SIZE), np.arange(_PATCH)
    dct = np.cos(np.pi * (2 * k + 1) * k[:, None] / (2 * _PATCH))
    dct *= np.where(k == 0, 1.0, 2.0**0.5)[:, None]
    halving = np.ones(_SIZE)
    windows = []
    for band in range(BANDS):
        frequency = 2**band * axis
        waves = np.exp(-2j * np.pi * np.outer(k, frequency))
        power = np.abs(dct @ waves) ** 2
        every, low = power.sum(axis=0), power[: _PATCH // 2].sum(axis=0)
        octave = np.outer(every, every) - np.outer(low, low)
        window = octave * np.outer(halving, halving)
        windows.append(window / window.sum())
        halving = halving * np.cos(np.pi * frequency) ** 2
    return np.stack(windows)


def _covariance(power: Array, side: int) -> Array:
    """Covariances of the pixels in a window, shape (side², side²)."""
    by_distance = np.fft.ifft2(power).real
    apart = np.arange(side)[:, None] - np.arange(side)
    rows, columns = apart[:, None, :, None], apart[None, :, None, :]
    return np.asarray(by_distance[rows, columns].reshape(side**2, side**2))
