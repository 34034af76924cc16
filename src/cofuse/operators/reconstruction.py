"""The letter's global reconstruction: from an estimate to the picture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Levels
from cofuse.operators import AnalysisOperator
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent

Duals = NDArray[np.float32]


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
    height, width = (length - operator.patch_size + 1 for length in estimate.shape)
    dual = np.zeros((height, len(operator.rows), width), np.float32)
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
        spread = _ascend(dual, previous, ahead, operator, momentum, step, weight)
        last_value, value = value, float(np.square(estimate - spread, dtype=np.float64).sum())
        if value > last_value * (1.0 + 1e-6):  # by more than float32 rounds
            pace = 1.0
        next_pace = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * pace * pace))
        momentum, pace = (pace - 1.0) / next_pace, next_pace
        if iteration % 10 == 0 or iteration == max_iterations:
            norm, inner = _pairing(dual, estimate - spread, operator)
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
        solver="accelerated dual ascent",
        iterations=iteration,
        converged=converged,
        reason=reason,
        history={"error": tuple(errors)},
    )
    return estimate - spread, trace


def _ascend(
    dual: Duals,
    previous: Duals,
    image: Levels,
    operator: AnalysisOperator,
    momentum: float,
    step: float,
    limit: float,
) -> Levels:
    """Step ``u ← clip(u + momentum·(u − u_previous) + step·Ω_F x, ±limit)``; returns ``Ω_Fᵀu``.

    Both duals are updated in place: they are by far the largest arrays at hand.
    """
    spread = np.zeros_like(image)
    for patches, rows in _bands(dual, operator.patch_size):
        now, before = dual[patches], previous[patches]
        new = np.float32(step) * operator.apply_image(image[rows])
        new += now
        new += np.float32(momentum) * (now - before)
        before[:] = now
        np.clip(new, -limit, limit, out=now)
        spread[rows] += operator.adjoint_image(now)
    return spread


def _pairing(dual: Duals, image: Levels, operator: AnalysisOperator) -> tuple[float, float]:
    """‖Ω_F x‖₁ and ⟨Ω_F x, u⟩, of which the duality gap is made."""
    norm = inner = 0.0
    for patches, rows in _bands(dual, operator.patch_size):
        coefficients = operator.apply_image(image[rows]).astype(np.float64)
        norm += float(np.abs(coefficients).sum())
        inner += float((coefficients * dual[patches]).sum())
    return norm, inner


def _bands(dual: Duals, patch_size: int) -> Iterator[tuple[slice, slice]]:
    """Bands of patch rows, each with the rows of the picture that they lie in."""
    height, filters, width = dual.shape
    band = max(1, 300_000 // (filters * width))  # as many coefficients as fit the cache
    for start in range(0, height, band):
        stop = min(start + band, height)
        yield slice(start, stop), slice(start, stop + patch_size - 1)
