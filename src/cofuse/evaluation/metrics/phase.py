"""Score from phase congruency: how well features survive, whatever their contrast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.evaluation.metrics.pictures import check_sources
from cofuse.evaluation.metrics.windows import gaussian_window, mean_zero_padded

__all__ = ["q_p"]

_SCALES = 4
_ORIENTATIONS = 6
_FIRST_WAVELENGTH = 3.0
_WAVELENGTH_RATIO = 2.1
#: Bandwidth of the log-Gabor filters: standard deviation over centre frequency.
_BANDWIDTH = 0.55
_ANGULAR_SIGMA = math.pi / _ORIENTATIONS / 1.2
#: Butterworth low-pass that keeps the corners of the spectrum out: cut-off and order.
_LOWPASS_CUTOFF, _LOWPASS_ORDER = 0.45, 15
#: Noise threshold: standard deviations above the mean, and Kovesi's empirical reduction.
_NOISE_DEVIATIONS, _NOISE_REDUCTION = 2.0, 1.7
#: Responses on too few scales are damped: centre and slope of that sigmoid.
_WIDTH_CENTRE, _WIDTH_SLOPE = 0.5, 10.0
_EPSILON = 1e-4

_FEATURE_THRESHOLD = 0.1
_WINDOW_RADIUS, _WINDOW_SIGMA = 5, 1.5
_CORRELATION_GUARD = 1e-4

Values = NDArray[np.float64]


class _Features(NamedTuple):
    """Phase congruency of a picture and its largest and smallest moment over orientation."""

    congruency: Values
    edge: Values
    corner: Values


def q_p(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Phase congruency metric of Zhao and others, :math:`Q_P` [1]_.

    .. math:: Q_P = P_p \, P_M \, P_m, \qquad
              P_f = \frac{1}{|\Phi|} \sum_n \max_{r}
              \frac{\sigma_{rF}(n) + C}{\sigma_r(n)\, \sigma_F(n) + C}

    for the three feature maps f: the phase congruency p and its largest and smallest moment M, m
    [2]_. The references r are the maps of each source and that of the source with most congruency
    at the pixel, each where its congruency passes 0.1; Φ is where the last one does. Correlations
    are taken under an 11×11 Gaussian window of σ = 1.5 pixels, C = 1e-4.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        At most 1; more is better. Zero if no source has a feature.

    Notes
    -----
    Four scales of log-Gabor filters from a wavelength of 3 pixels, each 2.1 times the last, in six
    orientations, by FFT: the picture counts as periodic. For odd sides the published code places
    its low-pass filter one frequency off; this one does not. The filter responses of a pair take
    about 400 bytes a pixel: score crops of very large pictures.

    References
    ----------
    .. [1] J. Zhao, R. Laganière, Z. Liu, "Performance assessment of combinative pixel-level image
       fusion based on an absolute feature measurement", Int. J. Innovative Computing, Information
       and Control 3 (6A), 2007.
    .. [2] P. Kovesi, "Image features from phase congruency", Videre 1 (3), 1999.
    """
    frames, picture = check_sources(sources, fused)
    features = _phase_congruency((*frames, picture))
    target, references = features[-1], features[:-1]
    strongest = references[0]
    for reference in references[1:]:
        stronger = reference.congruency >= strongest.congruency
        strongest = _Features(
            *(np.where(stronger, new, old) for new, old in zip(reference, strongest, strict=True))
        )
    references.append(strongest)
    masks = [reference.congruency > _FEATURE_THRESHOLD for reference in references]
    count = int(masks[-1].sum())
    if count == 0:
        return 0.0
    quality = 1.0
    for part in range(len(target)):
        maps = [reference[part] for reference in references]
        quality *= float(_best_correlation(maps, masks, target[part]).sum()) / count
    return quality


def _best_correlation(
    references: Sequence[Values], masks: Sequence[NDArray[np.bool_]], target: Values
) -> Values:
    """Largest local correlation of a feature map with its references, each inside its mask."""
    window = gaussian_window(_WINDOW_RADIUS, _WINDOW_SIGMA)
    mean = mean_zero_padded(target, window)
    variance = mean_zero_padded(target * target, window) - mean * mean
    best = np.full(target.shape, -np.inf)
    for reference, mask in zip(references, masks, strict=True):
        inside = np.where(mask, reference, 0.0)
        its_mean = mean_zero_padded(inside, window)
        its_variance = mean_zero_padded(inside * inside, window) - its_mean * its_mean
        covariance = mean_zero_padded(inside * target, window) - its_mean * mean
        # Rounding makes tiny variances negative; the modulus keeps the root real.
        scale = np.sqrt(np.abs(its_variance * variance))
        correlation = (covariance + _CORRELATION_GUARD) / (scale + _CORRELATION_GUARD)
        np.maximum(best, np.where(mask, correlation, 0.0), out=best)
    return best


def _phase_congruency(pictures: Sequence[NDArray[Any]]) -> list[_Features]:
    """Phase congruency of several pictures of one shape, which share every filter."""
    from scipy import fft

    shape = pictures[0].shape
    radial, angle = _radial_filters(shape), _polar_angle(shape)
    spectra = [fft.fft2(picture.astype(np.float64)) for picture in pictures]
    # By picture: weighted energy, amplitude, and the second moments xx, yy, xy of congruency.
    sums = np.zeros((len(pictures), 5, *shape))
    for orientation in range(_ORIENTATIONS):
        theta = orientation * math.pi / _ORIENTATIONS
        distance = np.abs(angle - theta)
        distance = np.minimum(distance, 2.0 * math.pi - distance)
        angular = np.exp(-(distance**2) / (2.0 * _ANGULAR_SIGMA**2))
        filters = [band * angular for band in radial]
        for spectrum, total in zip(spectra, sums, strict=True):
            energy, amplitude = _oriented_energy(spectrum, filters)
            congruency = np.divide(energy, amplitude, out=np.zeros(shape), where=amplitude > 0)
            along_x, along_y = congruency * math.cos(theta), congruency * math.sin(theta)
            products = (along_x * along_x, along_y * along_y, along_x * along_y)
            for plane, term in zip(total, (energy, amplitude, *products), strict=True):
                plane += term
    return [_summarise(*total) for total in sums]


def _oriented_energy(spectrum: NDArray[Any], filters: Sequence[Values]) -> tuple[Values, Values]:
    """Local energy above the noise, damped where few scales respond, and total amplitude."""
    from scipy import fft

    responses = [fft.ifft2(spectrum * transfer) for transfer in filters]
    amplitudes = [np.abs(response) for response in responses]
    vector = sum(responses)
    length = np.abs(vector)
    direction = np.conj(vector) / (length + _EPSILON)
    # Energy along the mean phase, less what every scale deviates from it.
    energy = length * length / (length + _EPSILON)
    for response in responses:
        energy -= np.abs((response * direction).imag)
    energy -= _noise_threshold(amplitudes[0], filters)
    np.maximum(energy, 0.0, out=energy)
    total = sum(amplitudes)
    width = total / (np.maximum.reduce(amplitudes) + _EPSILON) / _SCALES
    energy /= 1.0 + np.exp((_WIDTH_CENTRE - width) * _WIDTH_SLOPE)
    return energy, np.asarray(total)


def _noise_threshold(finest: Values, filters: Sequence[Values]) -> float:
    """Energy that noise reaches: Rayleigh statistics from the median of the finest scale."""
    power = float(np.median(finest * finest)) / math.log(2.0) / float((filters[0] ** 2).sum())
    # By Parseval's theorem the impulse responses need no transform: the energy of their real part
    # is that of the filters' even part.
    together = np.asarray(sum(filters))
    mirrored = np.roll(together[::-1, ::-1], 1, axis=(0, 1))
    rayleigh = math.sqrt(power * float((((together + mirrored) / 2.0) ** 2).sum()))
    mean, deviation = math.sqrt(math.pi / 2.0), math.sqrt(2.0 - math.pi / 2.0)
    return rayleigh * (mean + _NOISE_DEVIATIONS * deviation) / _NOISE_REDUCTION


def _radial_filters(shape: tuple[int, ...]) -> list[Values]:
    """Log-Gabor profiles of all scales, zero frequency first."""
    y, x = (_frequencies(side) for side in shape)
    radius = np.hypot(y[:, None], x)
    radius[0, 0] = 1.0
    fy, fx = (np.fft.fftfreq(side) for side in shape)
    lowpass = 1.0 / (1.0 + (np.hypot(fy[:, None], fx) / _LOWPASS_CUTOFF) ** (2 * _LOWPASS_ORDER))
    profiles = []
    for scale in range(_SCALES):
        centre = 1.0 / (_FIRST_WAVELENGTH * _WAVELENGTH_RATIO**scale)
        profile = lowpass * np.exp(
            -(np.log(radius / centre) ** 2) / (2 * math.log(_BANDWIDTH) ** 2)
        )
        profile[0, 0] = 0.0
        profiles.append(profile)
    return profiles


def _polar_angle(shape: tuple[int, ...]) -> Values:
    """Direction of every frequency, anticlockwise as the eye sees the picture."""
    y, x = (_frequencies(side) for side in shape)
    return np.asarray(np.arctan2(-y[:, None], x), dtype=np.float64)


def _frequencies(side: int) -> Values:
    """Frequencies of one axis in cycles a pixel, stretched to reach 1/2 when the side is odd."""
    frequencies = np.fft.fftfreq(side)
    if side % 2 and side > 1:
        frequencies = frequencies * side / (side - 1)
    return np.asarray(frequencies, dtype=np.float64)


def _summarise(energy: Values, amplitude: Values, xx: Values, yy: Values, xy: Values) -> _Features:
    """Phase congruency over all orientations and the principal moments of its covariance."""
    xx, yy, xy = 2.0 * xx / _ORIENTATIONS, 2.0 * yy / _ORIENTATIONS, xy / _ORIENTATIONS
    difference = np.hypot(xy, xx - yy) + _EPSILON
    return _Features(
        congruency=energy / (amplitude + _EPSILON),
        edge=(xx + yy + difference) / 2.0,
        corner=(xx + yy - difference) / 2.0,
    )
