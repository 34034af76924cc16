r"""Taking out of a mixture what noise is left in it, by shrinkage under an orthonormal operator.

Weights :math:`w_{kb}` of frames in bands leave of noise of one level in all frames

.. math:: s^2(p) = \sum_b a_b \sum_k w_{kb}^2(p) \, \rho_{kb}^2,

with :math:`a_b` the share of white noise in a band and :math:`\rho_{kb}` the noise of a frame in it
by that of a typical one. Coefficients of patches are held against the noise that their filter sees
of a typical frame, times :math:`s` at the patch.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cofuse.images import from_opponent, to_opponent
from cofuse.mixing import octaves_in_bands, white_in_bands
from cofuse.noise import NoiseLaw
from cofuse.noise.spectrum import noise_seen
from cofuse.operators import load_operator
from cofuse.reconstruction import shrink_twice

__all__ = ["HALO", "SIDE", "NoiseLeft", "restore", "working_bytes"]

Levels = NDArray[np.float32]

#: The operator whose coefficients are shrunk.
_OPERATOR = "dct-7"
#: Pixels around a tile that the restored one depends on: two passes over patches of 7 pixels.
HALO = 16
#: Side of tiles in pixels.
SIDE = 1024
#: Bytes a pixel that restoring takes.
_BYTES = 100


class NoiseLeft:
    """How much of a law's noise weights leave.

    Attributes
    ----------
    typical
        Levels of a typical frame, (planes, octaves), after the law's map.
    law
        The law.
    """

    def __init__(self, law: NoiseLaw) -> None:
        self.law = law
        levels = law.levels
        self.typical = np.sqrt((levels**2).mean(axis=0))
        own, usual = (part**2 @ octaves_in_bands().T for part in (levels[:, 0], self.typical[0]))
        relative = np.divide(own, usual, out=np.ones_like(own), where=usual > 0)
        self._shares = (white_in_bands() * relative).astype(np.float32)

    def scale(self, weights: Levels) -> Levels:
        """Noise of a mixture by that of a typical frame, from weights (frames, bands, h, w)."""
        power = np.zeros(weights.shape[2:], np.float32)
        for own, shares in zip(weights, self._shares, strict=True):
            for weight, share in zip(own, shares, strict=True):
                power += share * np.square(weight)
        return np.sqrt(power, out=power)


def restore(mixture: Levels, scale: Levels, noise: NoiseLeft) -> Levels:
    """Restore grey levels, (h, w) or (h, w, 3), with ``scale`` (h, w) of the noise left."""
    operator = load_operator(_OPERATOR)
    shape = mixture.shape[:2]
    # Pictures of fewer pixels than a patch are lengthened by their borders.
    more = [(0, max(0, operator.patch_size - length)) for length in shape]
    scale = np.pad(scale, more, mode="edge")
    picture = np.pad(mixture, more + [(0, 0)] * (mixture.ndim - 2), mode="edge")
    model = noise.law.model
    planes = to_opponent(model.stabilise(picture))
    restored = np.stack(
        [
            shrink_twice(
                np.ascontiguousarray(planes[..., index]),
                operator,
                sigma=noise_seen(operator.filters, levels),
                scale=scale,
            )
            for index, levels in enumerate(noise.typical)
        ],
        axis=-1,
    )
    levels = from_opponent(restored)
    plain = model.restore(levels)
    # What the mean of a root lacks grows with the variance, of which so much is left.
    share = np.square(scale if plain.ndim == 2 else scale[..., None])
    made = plain + share * (model.restore_mean(levels) - plain)
    return np.asarray(made[: shape[0], : shape[1]], np.float32)


def working_bytes(shape: tuple[int, int]) -> int:
    """Memory that restoring a tile takes."""
    return _BYTES * math.prod(min(SIDE + 2 * HALO, length) for length in shape)
