r"""Removing the noise left in a mixture, by a network that is given noise maps.

Weights :math:`w_{kb}` of frames leave in band b, of the noise of a typical frame in that band,

.. math:: s_b^2(p) = \sum_k w_{kb}^2(p) \, \rho_{kb}^2,

where :math:`\rho_{kb}` is the noise of frame k in the band over that of a typical frame. The
network sees the mixture after a variance-stabilising map, beside :math:`s_b` times the noise of a
typical frame, in luminance and in chrominance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cofuse.images import Levels
from cofuse.images.tiles import padded
from cofuse.model.runtime import Networks
from cofuse.sensor import NoiseLaw
from cofuse.sensor.bands import octaves_in_bands, white_in_bands

#: Side in pixels of the window whose range of values bounds a change: noise varies within it by far
#: more than itself.
_AROUND = 31
#: Sides of what the network sees are multiples of this.
_MULTIPLE = 8


class NoiseLeft:
    """How much noise weights leave of that of single frames.

    Attributes
    ----------
    typical
        Noise of a typical frame in luminance and in chrominance, by band, white at 1: (2, bands).
    law
        The noise law of the frames.
    """

    def __init__(self, law: NoiseLaw) -> None:
        self.law = law
        power = (law.levels / 255.0) ** 2 @ octaves_in_bands().T
        planes = power.mean(axis=0)
        if len(planes) == 3:
            # The luminance plane of a law is a sum over channels by the root of their number.
            planes = np.stack([planes[0] / 3, planes[1:].mean(axis=0)])
        else:
            planes = np.stack([planes[0], 0 * planes[0]])
        self.typical = np.sqrt(planes).astype(np.float32)
        own, usual = power[:, 0], power[:, 0].mean(axis=0)
        self._relative = np.divide(own, usual, out=np.ones_like(own), where=usual > 0)

    def scales(self, numbers: Sequence[int], weights: Levels) -> Levels:
        """Noise of a mixture over that of a typical frame, at half the size: (h, w, bands).

        ``weights`` (frames, bands, h, w) are those of the frames in ``numbers``; others have none.
        """
        power = np.zeros(weights.shape[1:], np.float64)
        for number, own in zip(numbers, weights, strict=True):
            power += self._relative[number][:, None, None] * np.square(own)
        scale = padded(np.sqrt(power).astype(np.float32), 2)[0]
        bands, rows, columns = scale.shape
        blocks = scale.reshape(bands, rows // 2, 2, columns // 2, 2).mean(axis=(2, 4))
        return np.ascontiguousarray(np.moveaxis(blocks, 0, -1))


def halved(where: tuple[slice, slice]) -> tuple[slice, slice]:
    """Rows and columns, which begin at even ones, at half the size."""
    rows, columns = (slice(part.start // 2, -(-part.stop // 2)) for part in where)
    return rows, columns


def restore(networks: Networks, mixture: Levels, scales: Levels, noise: NoiseLeft) -> Levels:
    """Restore grey levels, (h, w) or (h, w, 3), with ``scales`` of `NoiseLeft`."""
    model = noise.law.model
    rows, columns = mixture.shape[:2]
    stabilised = np.asarray(model.stabilise(mixture), np.float32)
    planes = np.atleast_3d(stabilised / np.float32(255))
    colours = np.moveaxis(np.broadcast_to(planes, (rows, columns, 3)), -1, 0)
    told = np.concatenate([np.moveaxis(scales * own, -1, 0) for own in noise.typical])
    picture = padded(colours, _MULTIPLE)
    (made,) = networks("restore", picture, padded(told, _MULTIPLE // 2))
    change = (made - picture)[0, :, :rows, :columns]
    change = change.mean(axis=0) if mixture.ndim == 2 else np.moveaxis(change, 0, -1)
    most = _varies(stabilised)
    levels = stabilised + np.clip(np.float32(255) * change, -most, most)
    if not model.gain:
        return np.asarray(levels, np.float32)
    import cv2  # takes a while to load

    plain = model.restore(levels)
    # The bias of inverting a root on a mean grows with the variance, of which this share is left.
    share = np.square(scales) @ white_in_bands().astype(np.float32)
    share = cv2.resize(share, (2 * share.shape[1], 2 * share.shape[0]))[:rows, :columns]
    share = share if plain.ndim == 2 else share[..., None]
    return np.asarray(plain + share * (model.restore_mean(levels) - plain), np.float32)


def _varies(levels: Levels) -> Levels:
    """Range of the values around a pixel: where nothing varies there is no noise."""
    import cv2  # takes a while to load

    around = np.ones((_AROUND, _AROUND), np.uint8)
    return np.asarray(cv2.dilate(levels, around) - cv2.erode(levels, around), np.float32)
