r"""Taking out of a mixture what noise is left in it, by a network that is told where and how much.

Weights :math:`w_{kb}` of frames leave in band b, of the noise of a typical frame in that band,

.. math:: s_b^2(p) = \sum_k w_{kb}^2(p) \, \rho_{kb}^2,

with :math:`\rho_{kb}` the noise of a frame in the band by that of a typical one. The network sees
the mixture, mapped so that its noise does not grow with brightness, beside :math:`s_b` times the
noise of a typical frame, in luminance and in colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cofuse.images.tiles import padded
from cofuse.model.runtime import Networks
from cofuse.model.telling import octaves_in_bands, white_in_bands
from cofuse.sensor import NoiseLaw

__all__ = ["HALO", "SIDE", "NoiseLeft", "halved", "restore", "working_bytes"]

Levels = NDArray[np.float32]

#: Pixels around a tile that the restored one depends on. It could depend on 96, but beyond these no
#: change has been seen to reach it.
HALO = 80
#: Side of tiles in pixels.
SIDE = 1088
#: Side in pixels of what is around a pixel; noise that is there varies by far more than itself.
_AROUND = 31
#: Bytes a pixel that restoring takes.
_BYTES = 250
#: Sides of what the network sees are multiples of this.
_MULTIPLE = 8


class NoiseLeft:
    """How much of a law's noise weights leave.

    Attributes
    ----------
    typical
        Noise of a typical frame in luminance and in colours, by band, 0 to 1: (2, bands).
    law
        The law.
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
        """Noise of a mixture by that of a typical frame, at half the size: (h, w, bands).

        ``weights`` (frames, bands, h, w) are those of some frames; others have none.
        """
        power = np.zeros(weights.shape[1:], np.float32)
        for number, own in zip(numbers, weights, strict=True):
            relative = self._relative[number].astype(np.float32)
            power += relative[:, None, None] * np.square(own)
        scale = padded(np.sqrt(power, out=power), 2)[0]
        bands, rows, columns = scale.shape
        blocks = scale.reshape(bands, rows // 2, 2, columns // 2, 2).mean(axis=(2, 4))
        return np.ascontiguousarray(np.moveaxis(blocks, 0, -1))


def halved(where: tuple[slice, slice]) -> tuple[slice, slice]:
    """Rows and columns at half the size; they begin at even ones."""
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
    change = 0.5 * (_change(networks, colours, told, 0) + _change(networks, colours, told, 1))
    change = change.mean(axis=0) if mixture.ndim == 2 else np.moveaxis(change, 0, -1)
    most = _varies(stabilised)
    levels = stabilised + np.clip(np.float32(255) * change, -most, most)
    if not model.gain:
        return np.asarray(levels, np.float32)
    import cv2  # takes a while to load

    plain = model.restore(levels)
    # What the mean of a root lacks grows with the variance, of which so much is left.
    share = np.square(scales) @ white_in_bands().astype(np.float32)
    share = cv2.resize(share, (2 * share.shape[1], 2 * share.shape[0]))[:rows, :columns]
    share = share if plain.ndim == 2 else share[..., None]
    return np.asarray(plain + share * (model.restore_mean(levels) - plain), np.float32)


def _change(networks: Networks, colours: Levels, told: Levels, shift: int) -> Levels:
    """What the network changes; it sees squares of two pixels, which begin ``shift`` pixels before.

    The mean over two of their places is nearer to the truth than one, and hardly depends on them.
    What is changed, and not what is made: where nothing is, every bit stays as it is.
    """
    rows, columns = colours.shape[1:]
    picture = np.pad(colours, ((0, 0), (shift, 0), (shift, 0)), mode="edge")
    # A square that lies on others has the least of their noise: where none is told none is taken.
    noise = np.pad(told, ((0, 0), (shift, shift), (shift, shift)), mode="edge")
    for axis in (1, 2) if shift else ():
        noise = np.minimum(*(np.delete(noise, end, axis) for end in (0, -1)))
    picture = padded(picture, _MULTIPLE)
    half = tuple(length // 2 for length in picture.shape[2:])
    noise = padded(noise[:, : half[0], : half[1]], _MULTIPLE // 2)
    (made,) = networks("restore", picture, noise)
    return np.asarray((made - picture)[0, :, shift : shift + rows, shift : shift + columns])


def _varies(levels: Levels) -> Levels:
    """How far apart the values around a pixel are: what does not vary has no noise."""
    import cv2  # takes a while to load

    around = np.ones((_AROUND, _AROUND), np.uint8)
    return np.asarray(cv2.dilate(levels, around) - cv2.erode(levels, around), np.float32)


def working_bytes(shape: tuple[int, int]) -> int:
    """Memory that restoring a tile takes."""
    return _BYTES * math.prod(min(SIDE + 2 * HALO, length) for length in shape)
