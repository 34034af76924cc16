"""Score from edges: how much of the sources' gradients, in strength and direction, survives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.evaluation.metrics.pictures import check_sources, row_bands
from cofuse.evaluation.metrics.windows import slopes

__all__ = ["q_abf"]

#: Gain, slope and centre of the two sigmoids, from the figures of the paper.
_STRENGTH_GAIN, _STRENGTH_SLOPE, _STRENGTH_CENTRE = 0.9994, -15.0, 0.5
_ANGLE_GAIN, _ANGLE_SLOPE, _ANGLE_CENTRE = 0.9879, -22.0, 0.8

_SOBEL = (1.0, 2.0, 1.0)

#: Stands for a gradient of zero, in grey levels, so that every quotient exists.
_TINY = 1e-5

Values = NDArray[np.float64]


def q_abf(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Edge transfer of Xydeas and Petrović, :math:`Q^{AB/F}` [1]_.

    .. math:: Q^{AB/F} = \frac{\sum_k \sum_n w_k(n)\, Q_k(n)}{\sum_k \sum_n w_k(n)},
              \qquad Q_k = \frac{\Gamma_g}{1 + e^{\kappa_g (G_k - \sigma_g)}}
              \cdot \frac{\Gamma_\alpha}{1 + e^{\kappa_\alpha (A_k - \sigma_\alpha)}}

    over the sources k and the pixels n. :math:`G_k` is the smaller over the larger gradient
    magnitude of source and fused picture, :math:`A_k = 1 - \frac{2}{\pi}|\alpha_k - \alpha_F|`
    how well their directions agree, and the weight :math:`w_k` is the source's gradient magnitude.
    The sums run over any number of sources; for K = 2 they are the definition.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between 0 and 0.975; more is better.

    Notes
    -----
    Gradients come from 3×3 Sobel filters over a picture that is zero outside, so its frame counts
    as an edge. The direction is :math:`\arctan(s_y / s_x)`, in (-π/2, π/2) and not unwrapped: two
    nearly vertical edges on either side of the jump count as opposite. Zero gradients and zero
    :math:`s_x` are replaced by 1e-5. All of it as in the published evaluations.

    References
    ----------
    .. [1] C. S. Xydeas, V. Petrović, "Objective image fusion performance measure", Electronics
       Letters 36 (4), 2000.
    """
    frames, picture = check_sources(sources, fused)
    transferred: list[float] = []
    weights: list[float] = []
    for band in row_bands(picture.shape):
        fused_strength, fused_angle = _edges(picture, band)
        for frame in frames:
            strength, angle = _edges(frame, band)
            kept = _preservation(strength, angle, fused_strength, fused_angle)
            # Not a BLAS product: its threads cost more than they win on a band.
            transferred.append(float((strength * kept).sum()))
            weights.append(float(strength.sum()))
    return math.fsum(transferred) / math.fsum(weights)


def _edges(picture: NDArray[Any], band: slice) -> tuple[Values, Values]:
    """Gradient magnitude and direction of the rows of one band."""
    s_x, s_y = slopes(picture, band, _SOBEL)
    strength = np.sqrt(s_x * s_x + s_y * s_y)
    strength[strength == 0] = _TINY
    s_x[s_x == 0] = _TINY
    return strength, np.arctan(np.divide(s_y, s_x, out=s_y), out=s_y)


def _preservation(
    strength: Values, angle: Values, fused_strength: Values, fused_angle: Values
) -> Values:
    """How much of each source edge the fused picture keeps, 0 to about 0.975."""
    ratio = np.minimum(strength, fused_strength)
    ratio /= np.maximum(strength, fused_strength)
    agreement = np.abs(angle - fused_angle)
    agreement *= -2.0 / np.pi
    agreement += 1.0
    kept = _sigmoid_denominator(ratio, _STRENGTH_SLOPE, _STRENGTH_CENTRE)
    kept *= _sigmoid_denominator(agreement, _ANGLE_SLOPE, _ANGLE_CENTRE)
    return np.divide(_STRENGTH_GAIN * _ANGLE_GAIN, kept, out=kept)


def _sigmoid_denominator(values: Values, slope: float, centre: float) -> Values:
    """Turn values into 1 + exp(slope·(values - centre)), in place."""
    values -= centre
    values *= slope
    np.exp(values, out=values)
    values += 1.0
    return values
