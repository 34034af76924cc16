"""How noise grows with brightness, and the map under which it does not.

A sensor counts photons, so the variance of its noise is affine in the signal: ``floor² + gain·I``.
`NoiseModel` is that law and the square-root map (Anscombe 1948; for Poisson and Gaussian noise
together Starck, Murtagh and Bijaoui 1998) under which the noise has one level everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images import Levels

__all__ = ["NoiseModel", "fit_model"]

#: What the variance at one brightness is off by, relatively, by texture that no test finds.
_TEXTURE_ERROR = 0.06
#: Errors above the law beyond which a brightness counts as textured rather than as evidence.
_OUTLIER = 3.0
#: A law that grows needs this many brightnesses near it that span this many grey levels, has to
#: better a constant by this much (χ²), and to divide its misfit by this.
_FEWEST_BINS, _SPAN, _EVIDENCE, _BETTER = 4, 48.0, 9.0, 2.0


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


def fit_model(rows: NDArray[np.float64]) -> NoiseModel:
    """Fit a law that grows to variances by brightness; unless it is clear the gain is 0.

    Texture only adds to the variance: brightnesses far above a law weigh little against it.
    """
    unclear = NoiseModel(1.0)
    level, variance, error = rows[rows[:, 1] > 0].T
    error = np.hypot(_TEXTURE_ERROR, error)

    def residuals(law: tuple[float, float]) -> NDArray[np.float64]:
        return np.asarray(np.log(variance / (law[0] + law[1] * level)) / error)

    def misfit(law: tuple[float, float]) -> float:
        distance = residuals(law)
        squares = distance**2
        bounded = squares / (1.0 + squares / _OUTLIER**2)
        return float(np.where(distance > 0, bounded, squares).sum())

    # There are few enough to try every line through two of them, and every constant.
    lines = []
    for i, j in combinations(range(len(level)), 2):
        gain = (variance[j] - variance[i]) / (level[j] - level[i])
        offset = variance[i] - gain * level[i]
        if gain > 0:
            lines.append((offset, gain) if offset > 0 else (0.0, variance[j] / level[j]))
    if not lines:
        return unclear
    constant = min(misfit((value, 0.0)) for value in variance)
    best = min(lines, key=misfit)
    near = np.abs(residuals(best)) < _OUTLIER
    if near.sum() < _FEWEST_BINS or np.ptp(level[near]) < _SPAN:
        return unclear
    if constant < max(misfit(best) + _EVIDENCE, _BETTER * misfit(best)):
        return unclear
    return _least_squares(level[near], variance[near], error[near])


def _least_squares(
    level: NDArray[np.float64], variance: NDArray[np.float64], error: NDArray[np.float64]
) -> NoiseModel:
    """Fit ``floor² + gain·I``, neither of them negative, to variances with relative errors."""
    design = np.stack([np.ones_like(level), level], axis=1) / (variance * error)[:, None]
    goal = 1.0 / error
    both = np.linalg.lstsq(design, goal, rcond=None)[0]
    if (both >= 0).all():
        return NoiseModel(float(np.sqrt(both[0])), float(both[1]))
    # One of them is 0, and the other what fits best alone.
    alone = np.maximum(design.T @ goal, 0.0) / np.square(design).sum(axis=0)
    floor, gain = (
        float(np.linalg.norm(column * a - goal)) for column, a in zip(design.T, alone, strict=True)
    )
    return (
        NoiseModel(float(np.sqrt(alone[0]))) if floor < gain else NoiseModel(0.0, float(alone[1]))
    )
