"""Mixing the joint model's frames by their scores, one after the other, and weighing them again.

A frame has (planes, H, W) and scores (1 + bands, H, W): the first is for the choice of one frame,
the others weigh the frames band by band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.kernels import cpu, joint_loops, joint_mixing_loops
from cofuse.kernels.joint_layers import pack_fours
from cofuse.kernels.joint_stages import Mixture

__all__ = ["Agreement", "Choice", "Mixer", "agreement_reach", "band_reach", "chosen", "lows"]

Floats = NDArray[np.float32]
Scales = Sequence[tuple[int, int]]

_EVERYTHING = slice(None), slice(None)

#: Noise power that is always left, so that its logarithm exists.
_LEAST_POWER = 1e-6

#: Below every score.
_LEAST_SCORE = -1e30

#: A picture's detail is what a mean over the first window lacks, measured over the second.
_DETAIL_WINDOWS = 5, 9
_LEAST_DETAIL = 0.3


def band_reach(windows: Sequence[int]) -> int:
    """How many pixels away the split into bands looks."""
    return sum(2 * (side // 2) for side in windows)


def agreement_reach(scales: Scales) -> int:
    """How many pixels away the second weighing looks."""
    return max(sum(side // 2 for side in sides) for sides in (*scales, _DETAIL_WINDOWS))


class Choice:
    """The frame with the best first score of every pixel, frames coming one after the other.

    Attributes
    ----------
    index
        Number of the best frame so far, the earlier of equals.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.index = np.zeros(shape, np.uint16)
        self._best, self._second = np.full((2, *shape), _LEAST_SCORE, np.float32)
        self._total = np.zeros(shape, np.float32)
        self._count = 0

    def add(self, scores: Floats) -> None:
        """Take in the next frame's first scores, (H, W)."""
        given = scores, np.uint16(self._count)
        state = self.index, self._best, self._second, self._total
        cpu._over_bands(
            lambda start, stop: joint_mixing_loops.rank_frame(*given, start, stop, *state),
            len(scores),
        )
        self._count += 1

    def confidence(self) -> Floats:
        """By how much the best frame's softmax probability leads that of the second best."""
        lead = 1 - np.exp(self._second - self._best)
        return np.asarray(lead / self._total, np.float32)


class Mixer:
    """The mixture of frames band by band, frames coming one after the other."""

    def __init__(self, planes: int, bands: int, shape: tuple[int, int]) -> None:
        self._peak = np.full((bands, *shape), _LEAST_SCORE, np.float32)
        self._total, self._power = np.zeros((2, bands, *shape), np.float32)
        self._sums = np.zeros((planes, bands, *shape), np.float32)

    def add(self, lows: Floats, scores: Floats, noise: float) -> None:
        """Take in a frame: its `lows`, the bands' scores, and its noise by the stack's."""
        given = lows, scores, np.float32(noise)
        state = self._peak, self._total, self._power, self._sums
        cpu._over_bands(
            lambda start, stop: joint_mixing_loops.add_frame(*given, start, stop, *state),
            scores.shape[1],
        )

    def mixture(self) -> Mixture:
        """Mix what came so far."""
        pictures = np.empty((len(self._sums), *self._peak.shape[1:]), np.float32)
        for sums, picture in zip(self._sums, pictures, strict=True):
            np.divide(sums[0], self._total[0], out=picture)
            for band, total in zip(sums[1:], self._total[1:], strict=True):
                picture += band / total
        left = [_log_noise(self._power[band] / self._total[band] ** 2) for band in (0, -1)]
        return Mixture(pictures, *left)


def chosen(
    frames: Sequence[Sequence[Floats]], index: NDArray[Any], relative: Sequence[float]
) -> Mixture:
    """Mix with the whole weight of every band on one frame a pixel: no more than copying it."""
    pictures = np.empty((len(frames[0]), *index.shape), np.float32)
    for number, frame in enumerate(frames):
        here = index == number
        for plane, picture in zip(frame, pictures, strict=True):
            np.copyto(picture, plane, where=here)
    left = _log_noise(np.square(np.array(relative, np.float32))[index])
    return Mixture(pictures, left, left)


def lows(
    frame: Sequence[Floats], windows: Sequence[int], inner: tuple[slice, slice] = _EVERYTHING
) -> Floats:
    """Return a frame's planes and their ever smoother versions, (planes, bands, h, w).

    Bands are their differences. Only ``inner`` of them is returned.
    """
    result = []
    for plane in frame:
        smoother = [plane]
        for side in windows:
            smoother.append(_blur(_blur(smoother[-1], side), side))
        result.append([low[inner] for low in smoother])
    return np.array(result, np.float32)


class Agreement:
    """Corrections of the bands' scores by how well each frame agrees with a picture so far.

    Parameters
    ----------
    frames
        Single planes, like the picture in units of noise.
    picture
        The picture so far.
    arrays
        The model's arrays, by their names less the prefix ``agreement.``.
    scales
        Windows to smooth residuals over, and their squares.
    """

    def __init__(
        self,
        frames: Sequence[Floats],
        picture: Floats,
        arrays: Mapping[str, Floats],
        scales: Scales,
    ) -> None:
        self.frames, self.picture, self.scales = frames, picture, scales
        self.detail = picture - _blur(picture, _DETAIL_WINDOWS[0])
        self.amount = _blur(self.detail**2, _DETAIL_WINDOWS[1]) + np.float32(_LEAST_DETAIL)
        self.hidden, self.correction = (
            pack_fours(arrays[name].reshape(len(arrays[name]), -1))
            for name in ("hidden.weight", "correction")
        )
        bias = arrays["hidden_bias"]
        self.bias = np.pad(bias, (0, -len(bias) % 4))
        # The measures are cheap: made twice, they need not be kept for every frame.
        self.mean = self._measure(frames[0])
        for number in range(1, len(frames)):
            self.mean += self._measure(frames[number])
        self.mean /= np.float32(len(frames))

    def scores(self, number: int, scores: Floats) -> Floats:
        """Return a frame's scores (1 + bands, H, W) of its bands, corrected."""
        absolute = self._measure(self.frames[number])
        given, count = len(scores), len(absolute)
        inputs = np.zeros((4 * self.hidden.shape[1], *scores.shape[1:]), np.float32)
        inputs[:given], inputs[given : given + count] = scores, absolute
        np.subtract(absolute, self.mean, out=inputs[given + count : given + 2 * count])
        inputs = inputs.reshape(len(inputs), -1)
        result = np.array(scores[1:])
        flat, (rows, width) = result.reshape(len(result), -1), scores.shape[1:]
        cpu._over_bands(
            lambda start, stop: joint_loops.correct(
                inputs, self.hidden, self.bias, self.correction, start * width, stop * width, flat
            ),
            rows,
        )
        return result

    def _measure(self, frame: Floats) -> Floats:
        residual = self.picture - frame
        measures = []
        for smooth, window in self.scales:
            low = _blur(residual, smooth) if smooth > 1 else residual
            measures.append(_compress(_blur(low * low, window) * np.float32(smooth**2)))
        # How much of the picture's detail a frame lacks: above 0 it is blurrier, below sharper.
        lack = _blur(residual * self.detail, _DETAIL_WINDOWS[1]) / self.amount
        return np.stack([*measures, lack])


def _log_noise(power: Floats) -> Floats:
    return np.asarray(0.5 * np.log(power + np.float32(_LEAST_POWER)), np.float32)


def _blur(plane: Floats, side: int) -> Floats:
    """Window means, borders mirrored."""
    return np.asarray(cv2.blur(plane, (side, side), borderType=cv2.BORDER_REFLECT_101), np.float32)


def _compress(squares: Floats) -> Floats:
    """Tame energies over many magnitudes, as a logarithm would: 2 (1 + q)^(1/8) − 2."""
    root = np.sqrt(squares + np.float32(1))
    return np.asarray(2 * np.sqrt(np.sqrt(root)) - 2, np.float32)
