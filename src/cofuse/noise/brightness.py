"""How noise grows with brightness, and the map under which it does not.

A sensor counts photons, so the variance of its noise is affine in the signal: ``floor² + gain·I``.
`NoiseModel` is that law and the square-root map (Anscombe 1948; for Poisson and Gaussian noise
together Starck, Murtagh and Bijaoui 1998) under which the noise has one level everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images import Levels

__all__ = ["NoiseModel"]


@dataclass(frozen=True)
class NoiseModel:
    """Noise whose variance is ``floor² + gain·I`` at grey level I (``floor²`` below black).

    Attributes
    ----------
    floor
        Standard deviation at black, in grey levels.
    gain
        Variance that every grey level adds; 0 for white noise.
    """

    floor: float
    gain: float = 0.0

    def __post_init__(self) -> None:
        for name in ("floor", "gain"):
            if not 0 <= getattr(self, name) < np.inf:
                raise CofuseError(f"{name} is {getattr(self, name)}; expected a number, 0 or more")

    def sigma_at(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return the standard deviation of the noise at given grey levels."""
        signal = np.maximum(np.asarray(levels, np.float64), 0.0)
        return np.asarray(np.sqrt(self.floor**2 + self.gain * signal))

    @property
    def stabilised_sigma(self) -> float:
        """Standard deviation of the noise, at any brightness, after `stabilise`."""
        return 0.5 * self._reach * self._root

    def stabilise(self, levels: Levels) -> Levels:
        r"""Map grey levels so that the noise has one level; 0 stays 0 and 255 stays 255.

        With c = floor² + ⅜ gain² and κ = gain / c it is Anscombe's map, scaled:

        .. math:: 255 \, \frac{\sqrt{1 + \kappa x} - 1}{\sqrt{1 + 255 \kappa} - 1}
                  = x \, \frac{\sqrt{1 + 255 \kappa} + 1}{\sqrt{1 + \kappa x} + 1}.

        The second form has no differences of nearly equal numbers and tends to the identity,
        which it is for white noise. Below black, where no photon adds noise, it goes on along its
        tangent.
        """
        if self.gain == 0:
            return levels
        root = np.sqrt(1.0 + np.float32(self._bend) * np.maximum(levels, 0.0))
        return np.asarray(levels * (np.float32(self._reach) / (root + 1.0)), levels.dtype)

    def restore(self, stabilised: Levels) -> Levels:
        """Undo `stabilise`."""
        if self.gain == 0:
            return stabilised
        step = stabilised / np.float32(self._reach)
        bent = 2.0 + np.float32(self._bend) * np.maximum(step, 0.0)
        return np.asarray(step * bent, stabilised.dtype)

    def restore_mean(self, stabilised: Levels) -> Levels:
        """Undo `stabilise` for values with the noise taken out, which are means.

        The mean of square roots lies below the root of the mean. The closed form of Mäkitalo and
        Foi (2011, 2013) gives the mean back; it adds up to a quarter of the gain.
        """
        levels = self.restore(stabilised)
        if self.gain == 0:
            return levels
        # D of the papers: twice the root of counts plus ⅜ plus the floor's variance in counts.
        counts = np.maximum(levels, 0.0) / self.gain + (self._root / self.gain) ** 2
        inverse = 0.5 / np.sqrt(counts)
        lift = 0.25 + 0.25 * 1.5**0.5 * inverse - 1.375 * inverse**2 + 0.625 * 1.5**0.5 * inverse**3
        return np.asarray(levels + self.gain * lift, stabilised.dtype)

    @property
    def _root(self) -> float:
        """√c: the standard deviation at black, with Anscombe's ⅜."""
        return float(np.hypot(self.floor, 0.375**0.5 * self.gain))

    @property
    def _bend(self) -> float:
        """κ of `stabilise`."""
        return self.gain / self._root**2 if self.gain else 0.0

    @property
    def _reach(self) -> float:
        """√(1 + 255 κ) + 1 of `stabilise`: twice its slope at black."""
        return float(np.sqrt(1.0 + 255.0 * self._bend)) + 1.0
