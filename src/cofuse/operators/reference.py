"""The hot loops in plain NumPy: slow, short, and the oracle the compiled ones are tested by.

All act on one grey picture of shape (H, W) and on every patch of it (stride 1), so coefficient
planes have shape (h, H − n + 1, W − n + 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.operators import AnalysisOperator
from cofuse.operators.patches import add_patches, patch_positions

__all__ = [
    "activity",
    "dual_step",
    "hard_shrinkage",
    "pairing",
    "region_areas",
    "select_cosupport",
    "wiener_shrinkage",
]

Array = NDArray[Any]


def activity(image: Array, operator: AnalysisOperator) -> Array:
    """Sum of the magnitudes of the analysis coefficients of every patch, ``‖Ω W_ij I‖₁``."""
    return np.asarray(np.abs(operator.apply_image(image)).sum(axis=0))


def dual_step(
    dual: Array,
    previous: Array,
    image: Array,
    operator: AnalysisOperator,
    *,
    momentum: float,
    step: float,
    limit: float,
) -> tuple[Array, Array, Array]:
    """One accelerated projected ascent of the dual; returns the new dual, the old, and ``Ω_Fᵀu``.

    ``u ← clip(u + momentum·(u − u_previous) + step·Ω_F x, ±limit)``
    """
    ahead = dual + momentum * (dual - previous)
    new = np.clip(ahead + step * operator.apply_image(image), -limit, limit)
    return new, dual, operator.adjoint_image(new, _shape(image))


def pairing(dual: Array, image: Array, operator: AnalysisOperator) -> tuple[float, float]:
    """‖Ω_F x‖₁ and ⟨Ω_F x, u⟩: what the duality gap is made of."""
    coefficients = operator.apply_image(image).astype(np.float64)
    return float(np.abs(coefficients).sum()), float((coefficients * dual).sum())


def hard_shrinkage(image: Array, operator: AnalysisOperator, *, threshold: ArrayLike) -> Array:
    r"""Drop every patch's coefficients up to ``threshold``, one or a row's, and average.

    Ω must have orthonormal rows that span the mean-free patches: then ``y − Ωᵀ(Ωy)_small`` is the
    exact minimiser of ``½‖x − y‖² + (t²/2)‖Ωx‖₀``. Patches are weighted by 1 / (1 + non-zeros),
    for the sparser an estimate is, the less noise it kept.
    """
    u = operator.apply_image(image)
    small = np.abs(u) <= np.reshape(threshold, (-1, 1, 1))
    weights = 1.0 / (1.0 + np.count_nonzero(~small, axis=0))
    return _weighted_removal(image, np.where(small, u, 0.0), weights, operator)


def wiener_shrinkage(
    image: Array, guide: Array, operator: AnalysisOperator, *, variance: ArrayLike
) -> Array:
    r"""Scale every coefficient by v² / (v² + variance), v that of ``guide``, and average.

    The second step after `hard_shrinkage`, whose result is the guide; there is one variance, or one
    for every row. Patches are weighted by 1 / (1 + Σ factors²), the noise they keep.
    """
    u, v = operator.apply_image(image), operator.apply_image(guide)
    factors = v * v / (v * v + np.reshape(variance, (-1, 1, 1)))
    weights = 1.0 / (1.0 + (factors * factors).sum(axis=0))
    return _weighted_removal(image, u * (1.0 - factors), weights, operator)


def select_cosupport(coefficients: Array, gram: Array, rank: int) -> NDArray[np.bool_]:
    """Choose every column's co-support: its smallest coefficients whose rows have ``rank``.

    Rows are taken in the order of growing magnitude; one that depends linearly on those already
    taken is skipped (it brings no new zero of its own). ``gram`` is ΩΩᵀ.
    """
    chosen = np.zeros(coefficients.shape, dtype=np.bool_)
    for column, order in enumerate(np.argsort(np.abs(coefficients), axis=0).T):
        taken: list[int] = []
        for row in order:
            trial = [*taken, int(row)]
            # The last diagonal of the Cholesky factor is the row's distance from their span.
            if np.linalg.slogdet(gram[np.ix_(trial, trial)])[1] - (
                np.linalg.slogdet(gram[np.ix_(taken, taken)])[1] if taken else 0.0
            ) > np.log(1e-6):
                taken = trial
            if len(taken) == rank:
                break
        chosen[taken, column] = True
    return chosen


def region_areas(labels: Array) -> NDArray[np.int64]:
    """For every pixel the number of pixels in its region: same label, joined by edges."""
    from scipy.ndimage import label

    areas = np.zeros(labels.shape, np.int64)
    for value in np.unique(labels):
        regions, _ = label(labels == value)
        areas += np.where(regions > 0, np.bincount(regions.ravel())[regions], 0)
    return areas


def _weighted_removal(
    image: Array, removed: Array, weights: Array, operator: AnalysisOperator
) -> Array:
    """Picture less the weighted average of what the patches that cover a pixel take away."""
    n = operator.patch_size
    positions = patch_positions(image.shape, n, 1)
    total = operator.adjoint_image(removed * weights, _shape(image))
    covered = np.broadcast_to(weights.ravel(), (n * n, weights.size))
    return image - total / add_patches(covered, _shape(image), positions)


def _shape(image: Array) -> tuple[int, int]:
    """Shape of a grey picture, as a pair."""
    return image.shape[0], image.shape[1]
