"""Global reconstruction certified by a plain double precision solver; shrinkage in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cofuse.operators import AnalysisOperator, load_operator
from cofuse.operators.reconstruction import reconstruct
from cofuse.progress import Progress

Array = np.ndarray[Any, Any]

OPERATORS = {
    "dct": load_operator("dct-3"),
    "overcomplete": load_operator("overcomplete-dct-4"),
    "differences": load_operator("differences-2"),
}


def smooth_picture(height: int, width: int) -> Array:
    y, x = np.mgrid[:height, :width]
    return (128 + 60 * np.sin(x / 9 + y / 13) + 30 * np.cos(y / 7)).astype(np.float32)


def noisy_picture(height: int, width: int, *, sigma: float = 15.0, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).normal(0, sigma, (height, width))
    return (smooth_picture(height, width) + noise).astype(np.float32)


def mean_square(difference: Array) -> float:
    return float(np.mean(np.square(difference, dtype=np.float64)))


def primal_value(x: Array, y: Array, operator: AnalysisOperator, weight: float) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    coefficients = operator.apply_image(x)
    return float(0.5 * ((x - y) ** 2).sum() + weight * np.abs(coefficients).sum())


def dual_value(u: Array, y: Array, operator: AnalysisOperator) -> float:
    y = y.astype(np.float64)
    rest = y - operator.adjoint_image(u)
    return float(0.5 * (y**2).sum() - 0.5 * (rest**2).sum())


def solve_plainly(
    y: Array, operator: AnalysisOperator, weight: float, rounds: int = 1000
) -> tuple[Array, Array]:
    """Minimise the same objective by textbook FISTA on the dual, in double precision."""
    y = y.astype(np.float64)
    u = ahead = np.zeros_like(operator.apply_image(y))
    pace, step = 1.0, 1.0 / operator.squared_norm()
    for _ in range(rounds):
        x = y - operator.adjoint_image(ahead)
        new = np.clip(ahead + step * operator.apply_image(x), -weight, weight)
        next_pace = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = new + (pace - 1) / next_pace * (new - u)
        u, pace = new, next_pace
    return y - operator.adjoint_image(u), u


@pytest.mark.parametrize("accuracy", [2.0, 0.1])
@pytest.mark.parametrize("weight", [0.3, 1.5])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_reported_error_bounds_the_distance_from_the_minimiser(
    name: str, weight: float, accuracy: float
) -> None:
    operator = OPERATORS[name]
    y = noisy_picture(17, 19)
    image, trace = reconstruct(y, operator, weight=weight, accuracy=accuracy)
    best, u = solve_plainly(y, operator, weight)
    lower = dual_value(u, y, operator)
    # How far the plain solution itself can be from the minimiser, by its own duality gap.
    slack = np.sqrt(2 * max(primal_value(best, y, operator, weight) - lower, 0) / y.size)
    assert slack < 0.05
    error = trace.last("error")
    assert trace.converged
    assert error <= accuracy
    # The picture itself is float32: 1e-5 of a grey level.
    assert np.sqrt(mean_square(image - best)) <= error + slack + 1e-4
    gap = primal_value(image, y, operator, weight) - lower
    assert gap >= -1e-6 * lower
    assert gap <= y.size * (error**2 + slack**2) / 2 + 1e-6 * lower


def test_restarts_do_not_slow_the_solver_down() -> None:
    # Near the solution the objective rises by float32 rounding alone; taking that for a reason to
    # start anew throws the momentum away.
    operator = OPERATORS["overcomplete"]
    y = noisy_picture(20, 20)
    best, u = solve_plainly(y, operator, 1.0)
    gap = primal_value(best, y, operator, 1.0) - dual_value(u, y, operator)
    plain = np.sqrt(2 * gap / y.size)
    _, trace = reconstruct(y, operator, weight=1.0, accuracy=0.0, max_iterations=1000)
    # As good as textbook FISTA without restarts, give or take what float32 coefficients leave.
    assert trace.last("error") <= 2 * plain + 0.01


def test_a_picture_of_two_pixels_a_side_in_closed_form() -> None:
    # One patch and an orthonormal operator: a soft threshold of the coefficients.
    operator = load_operator("dct-2")
    y = np.array([[10.0, 60.0], [90.0, 240.0]], np.float32)
    coefficients = operator.rows @ y.astype(np.float64).ravel()
    shrunk = np.sign(coefficients) * np.maximum(np.abs(coefficients) - 30.0, 0)
    expected = y.mean() + (operator.rows.T @ shrunk).reshape(2, 2)
    image, _ = reconstruct(y, operator, weight=30.0, accuracy=1e-3)
    np.testing.assert_allclose(image, expected, rtol=0, atol=4e-3)


def test_weight_zero_returns_the_picture() -> None:
    y = noisy_picture(20, 24)
    image, trace = reconstruct(y, OPERATORS["overcomplete"], weight=0.0)
    np.testing.assert_array_equal(image, y)
    assert trace.converged
    assert trace.last("error") == 0.0


@pytest.mark.parametrize("level", [0.0, 1.0, 128.0, 255.0])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_constant_picture_is_unchanged(name: str, level: float) -> None:
    y = np.full((14, 15), level, np.float32)
    image, trace = reconstruct(y, OPERATORS[name], weight=5.0)
    assert trace.converged
    # Float32 filters sum to 1e-7 or so, not to zero: coefficients of some 1e-5.
    np.testing.assert_allclose(image, y, rtol=0, atol=1e-3)


def test_adding_a_constant_commutes() -> None:
    y = noisy_picture(21, 18)
    plain, _ = reconstruct(y, OPERATORS["overcomplete"], weight=2.0, accuracy=0.02)
    lifted, _ = reconstruct(y + 40, OPERATORS["overcomplete"], weight=2.0, accuracy=0.02)
    # Each is within the accuracy of minimisers that differ by exactly the constant.
    assert np.sqrt(mean_square(lifted - 40 - plain)) <= 0.04


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_scaling_picture_weight_and_accuracy_scales_the_result(scale: float) -> None:
    y = noisy_picture(21, 18)
    operator = OPERATORS["differences"]
    plain, trace = reconstruct(y, operator, weight=2.0, accuracy=0.1)
    factor = np.float32(scale)
    scaled, other = reconstruct(factor * y, operator, weight=2 * scale, accuracy=0.1 * scale)
    # A power of two is exact in binary.
    np.testing.assert_array_equal(scaled, factor * plain)
    assert trace.iterations == other.iterations


def test_the_reconstruction_flattens_with_growing_weight() -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_picture(24, 24)
    sums = []
    for weight in (0.0, 0.5, 2.0, 8.0):
        image, _ = reconstruct(y, operator, weight=weight, accuracy=0.05)
        sums.append(np.abs(operator.apply_image(image.astype(np.float64))).sum())
        # Ω_F is blind to constants, so the mean is kept.
        assert image.mean() == pytest.approx(y.mean(), abs=0.01)
    assert sums == sorted(sums, reverse=True)


def test_the_limit_of_iterations_is_reported_with_a_true_bound() -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_picture(20, 20)
    image, trace = reconstruct(y, operator, weight=1.0, accuracy=1e-6, max_iterations=13)
    assert not trace.converged
    assert trace.iterations == 13
    assert "limit" in trace.reason
    # Looked at after ten iterations and at the end.
    assert len(trace.history["error"]) == 2
    best, _ = solve_plainly(y, operator, 1.0)
    assert np.sqrt(mean_square(image - best)) <= trace.last("error") + 0.01


def test_the_trace_of_a_converged_run() -> None:
    seen: list[Progress] = []
    _, trace = reconstruct(
        noisy_picture(20, 20),
        OPERATORS["overcomplete"],
        weight=1.0,
        accuracy=0.1,
        progress=seen.append,
    )
    assert trace.converged
    assert trace.last("error") <= 0.1
    assert all(error > 0.1 for error in trace.history["error"][:-1])
    assert f"{trace.last('error'):.3g}" in trace.reason
    assert len(trace.history["error"]) == trace.iterations // 10 == len(seen)
    assert {progress.stage for progress in seen} == {"reconstruction"}


def test_the_estimate_is_not_written_to() -> None:
    y = noisy_picture(12, 14)
    y.setflags(write=False)
    image, _ = reconstruct(y, OPERATORS["dct"], weight=2.0)
    assert image.dtype == np.float32
    assert image.shape == y.shape
