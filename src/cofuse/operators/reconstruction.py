"""From an estimate to the picture: the letter's global reconstruction, and plain shrinkage."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cofuse.errors import CofuseError
from cofuse.images import Levels
from cofuse.operators import AnalysisOperator
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent

__all__ = ["check_orthonormal", "reconstruct", "shrink", "shrink_twice"]

#: Hard threshold of `shrink` in units of σ. On eight training pictures at σ = 15, `shrink_twice`
#: reached 30.27, 30.31 and 30.25 dB with 2.3, 2.5 and 2.7.
_THRESHOLD = 2.5

#: The objective of float32 pictures wavers by this much without having risen.
_ROUNDING = 1e-6

#: Iterations between looks at the duality gap.
_LOOK_EVERY = 10


def reconstruct(
    estimate: Levels,
    operator: AnalysisOperator,
    *,
    weight: float,
    accuracy: float = 0.25,
    max_iterations: int = 1000,
    progress: ProgressCallback = silent,
) -> tuple[Levels, SolverTrace]:
    r"""Solve the global reconstruction: over pictures I, with Ω_F the operator on every patch,

    .. math:: \min_I \tfrac12 \|I - I_{F0}\|^2 + \lambda' \|\Omega_F I\|_1.

    Its dual, ``min ½‖I_F0 − Ω_Fᵀu‖²`` over ``|u| ≤ λ′``, is solved by accelerated projected
    gradient steps (Beck and Teboulle 2009), started anew whenever the objective rises
    (O'Donoghue and Candès 2015):

    .. math:: u \leftarrow \mathrm{clip}(u + \beta (u - u_{old}) + \Omega_F x / L,\ \pm\lambda'),
              \quad x = I_{F0} - \Omega_F^T (u + \beta (u - u_{old})).

    The picture ``I = I_F0 − Ω_Fᵀu`` exceeds the minimum by at most the duality gap
    ``λ′‖Ω_F I‖₁ − ⟨Ω_F I, u⟩``. The objective being 1-strongly convex, ``√(2 gap / pixels)``
    bounds the root mean square distance from the minimiser: the solver stops when this bound is
    below ``accuracy`` grey levels (the default is less than what rounding to 8 bits does).
    """
    # Imported here: pictures without noise are copied and never need the compiled kernels.
    from cofuse.operators.cpu import dual_step, pairing

    n = operator.patch_size
    patches = (estimate.shape[0] - n + 1, estimate.shape[1] - n + 1)
    dual = np.zeros((len(operator.rows), *patches), np.float32)
    previous = np.zeros_like(dual)
    step = 1.0 / operator.squared_norm()
    spread = last_spread = np.zeros_like(estimate)
    pace, momentum, value = 1.0, 0.0, np.inf
    errors: list[float] = []
    iteration, error = 0, np.inf
    while iteration < max_iterations and error > accuracy:
        iteration += 1
        ahead = estimate - (spread + np.float32(momentum) * (spread - last_spread))
        last_spread = spread
        dual, previous, spread = dual_step(
            dual, previous, ahead, operator, momentum=momentum, step=step, limit=weight
        )
        last_value, value = value, float(np.square(estimate - spread, dtype=np.float64).sum())
        if value > last_value * (1.0 + _ROUNDING):
            pace = 1.0
        next_pace = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * pace * pace))
        momentum, pace = (pace - 1.0) / next_pace, next_pace
        if iteration % _LOOK_EVERY == 0 or iteration == max_iterations:
            norm, inner = pairing(dual, estimate - spread, operator)
            gap = max(weight * norm - inner, 0.0)
            error = float(np.sqrt(2.0 * gap / estimate.size))
            errors.append(error)
            progress(Progress("reconstruction", iteration, max_iterations))
    converged = error <= accuracy
    reason = (
        f"the duality gap bounds the distance from the minimiser by {error:.3g} grey levels (RMS)"
        if converged
        else f"the iteration limit came first; the distance is at most {error:.3g} grey levels"
    )
    trace = SolverTrace(
        "accelerated dual ascent", iteration, converged, reason, {"error": tuple(errors)}
    )
    return estimate - spread, trace


def check_orthonormal(operator: AnalysisOperator) -> None:
    """Refuse an operator whose rows are no orthonormal basis of the mean-free patches."""
    h, m = operator.rows.shape
    if h != m - 1 or np.abs(operator.rows @ operator.rows.T - np.eye(h)).max() > 1e-5:
        raise CofuseError(
            f"operator {operator.name} cannot restore by shrinkage: its {h} rows are no "
            f"orthonormal basis of the mean-free patches; use dct-{operator.patch_size}"
        )


def shrink(picture: Levels, operator: AnalysisOperator, *, sigma: ArrayLike) -> Levels:
    """Denoise by the ℓ₀ penalty on every patch, overlapping results averaged.

    Needs an operator with orthonormal rows, such as the DCT: each patch is then solved in closed
    form by a hard threshold. ``sigma`` is the noise of all coefficients, or that of every row.
    """
    from cofuse.operators.cpu import hard_shrinkage

    return hard_shrinkage(picture, operator, threshold=_THRESHOLD * np.asarray(sigma))


def shrink_twice(picture: Levels, operator: AnalysisOperator, *, sigma: ArrayLike) -> Levels:
    """Denoise by `shrink`, then again as a Wiener filter with that result as the model."""
    from cofuse.operators.cpu import wiener_shrinkage

    guide = shrink(picture, operator, sigma=sigma)
    # A variance that float32 rounds to zero would divide nothing by nothing on flat patches.
    variance = np.maximum(np.square(sigma), 1e-12)
    return wiener_shrinkage(picture, guide, operator, variance=variance)
