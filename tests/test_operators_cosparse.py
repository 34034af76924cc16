"""Cosparse coding: minimisers certified by duality, closed forms, and the laws of the solver."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.operators import AnalysisOperator, load_operator
from cofuse.operators.cosparse import CosparseCode, cosparse_code, estimate_patches, soft_threshold

Array = np.ndarray[Any, Any]

Step = Literal["exact", "surrogate"]
STEPS: tuple[Step, ...] = ("exact", "surrogate")

SEEDS = st.integers(0, 2**32 - 1)

#: Residuals relative to the data at which double precision is nearly used up.
TIGHT: dict[str, Any] = {"tolerance": 1e-11, "max_iterations": 20_000}


def random_operator(n: int, h: int) -> AnalysisOperator:
    rows = np.random.default_rng(n).normal(size=(h, n * n))
    rows -= rows.mean(axis=1, keepdims=True)
    return AnalysisOperator(rows / np.linalg.norm(rows, axis=1, keepdims=True))


OPERATORS = {
    "overcomplete": load_operator("overcomplete-dct-3"),
    "differences": load_operator("differences-3"),
    "random": random_operator(4, 20),
}


def noisy_patches(n: int, count: int, seed: int) -> Array:
    """Ramps of about a hundred grey levels and noise of ten: never all zero under an operator."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:n, :n].reshape(2, -1, 1) / n
    slopes = rng.choice([-1.0, 1.0], (2, 1, count)) * rng.uniform(30, 100, (2, 1, count))
    return 128 + slopes[0] * y + slopes[1] * x + rng.normal(0, 10, (n * n, count))


def duality_gap(y: Array, code: CosparseCode, operator: AnalysisOperator, weight: float) -> Array:
    """Objective less dual value, a column: a bound of how far the objective is from its minimum.

    For any u with |u| ≤ λ the dual value ``½‖y‖² − ½‖y − Ωᵀu‖²`` bounds the minimum from below.
    """
    u = np.clip(code.dual, -weight, weight)
    dual = 0.5 * (y**2 - (y - operator.rows.T @ u) ** 2).sum(axis=0)
    fit = 0.5 * ((code.patches - y) ** 2).sum(axis=0)
    return fit + weight * np.abs(operator.rows @ code.patches).sum(axis=0) - dual


@given(st.sampled_from(sorted(OPERATORS)), st.floats(0.3, 3.0), st.floats(0.5, 4.0), SEEDS)
@settings(deadline=None, max_examples=15)
def test_both_x_steps_reach_the_minimiser_certified_by_the_duality_gap(
    name: str, weight: float, penalty: float, seed: int
) -> None:
    operator = OPERATORS[name]
    y = noisy_patches(operator.patch_size, 4, seed)
    codes = [
        cosparse_code(y, operator, weight=weight, x_step=x_step, penalty=penalty, **TIGHT)
        for x_step in STEPS
    ]
    for code in codes:
        assert code.trace.converged
        gap = duality_gap(y, code, operator, weight)
        # Values are of the order of ½‖y‖² ≈ 1e5, known to 1e-11 of themselves at best.
        scale = 0.5 * (y**2).sum(axis=0)
        assert (gap >= -1e-12 * scale).all()
        assert (gap <= 1e-9 * scale).all()
    # 1-strong convexity: two points within gap g of the minimum are within 2√(2g) of each other,
    # 0.03 for a gap of 1e-4; residuals of 1e-11 in fact leave far less.
    np.testing.assert_allclose(codes[0].patches, codes[1].patches, rtol=0, atol=1e-6)


@pytest.mark.parametrize("x_step", STEPS)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_optimality_conditions_hold(name: str, x_step: Step) -> None:
    operator, weight = OPERATORS[name], 2.0
    y = noisy_patches(operator.patch_size, 12, 1)
    code = cosparse_code(y, operator, weight=weight, x_step=x_step, **TIGHT)
    # y − x = Ωᵀu with |u| ≤ λ, and u = λ·sign(Ωx) where Ωx is not zero.
    residual = y - code.patches - operator.rows.T @ code.dual
    np.testing.assert_allclose(residual, 0.0, atol=1e-6)
    assert np.abs(code.dual).max() <= weight * (1 + 1e-12)
    coefficients = operator.rows @ code.patches
    np.testing.assert_allclose(coefficients, code.coefficients, rtol=0, atol=1e-6)
    active = np.abs(coefficients) > 1e-5
    assert active.any()
    assert (~active).any()
    np.testing.assert_allclose(code.dual[active], weight * np.sign(coefficients[active]), rtol=1e-9)
    # The coefficients handed out are exact zeros off the support: the co-support can be read off.
    np.testing.assert_array_equal(code.coefficients[~active], 0.0)


@given(st.integers(2, 6), st.floats(0.0, 60.0), st.sampled_from(STEPS), SEEDS)
@settings(deadline=None, max_examples=30)
def test_an_orthonormal_operator_is_a_soft_threshold_of_coefficients(
    n: int, weight: float, x_step: Step, seed: int
) -> None:
    operator = load_operator(f"dct-{n}")
    y = noisy_patches(n, 3, seed)
    code = cosparse_code(
        y, operator, weight=weight, x_step=x_step, tolerance=1e-10, max_iterations=1000
    )
    expected = y.mean(axis=0) + operator.rows.T @ soft_threshold(operator.rows @ y, weight)
    np.testing.assert_allclose(code.patches, expected, rtol=0, atol=1e-5)


@given(st.sampled_from(sorted(OPERATORS)), st.floats(0.3, 3.0), SEEDS)
@settings(deadline=None, max_examples=15)
def test_radius_form_equals_the_penalised_one_at_the_matching_weight(
    name: str, weight: float, seed: int
) -> None:
    operator = OPERATORS[name]
    y = noisy_patches(operator.patch_size, 3, seed)
    penalised = cosparse_code(y, operator, weight=weight, **TIGHT).patches
    radius = np.abs(operator.rows @ penalised).sum(axis=0)
    code = cosparse_code(y, operator, radius=radius, **TIGHT)
    np.testing.assert_allclose(code.patches, penalised, rtol=0, atol=1e-5)
    assert (np.abs(operator.rows @ code.patches).sum(axis=0) <= radius * (1 + 1e-7)).all()


@pytest.mark.parametrize("x_step", STEPS)
def test_radius_form_is_feasible_and_leaves_patches_inside_alone(
    x_step: Step,
) -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_patches(3, 6, 3)
    norms = np.abs(operator.rows @ y).sum(axis=0)
    radius = norms * np.array([0.1, 0.3, 0.6, 0.9, 1.0, 2.0])
    code = cosparse_code(y, operator, radius=radius, x_step=x_step, **TIGHT)
    reached = np.abs(operator.rows @ code.patches).sum(axis=0)
    np.testing.assert_allclose(reached, np.minimum(radius, norms), rtol=1e-8)
    np.testing.assert_allclose(code.patches[:, 4:], y[:, 4:], rtol=0, atol=1e-7)


@pytest.mark.parametrize("x_step", STEPS)
def test_weight_zero_returns_the_patches(x_step: Step) -> None:
    y = noisy_patches(3, 4, 0)
    code = cosparse_code(y, OPERATORS["differences"], weight=0.0, x_step=x_step)
    np.testing.assert_allclose(code.patches, y, rtol=1e-12)


@pytest.mark.parametrize("form", ["weight", "radius"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_patches_that_become_flat_converge(form: str, dtype: type) -> None:
    # With a huge weight (or radius 0) the answer is the mean, Ωx = 0; that is the common case of
    # noise in a flat region and must be recognised as solved.
    operator = OPERATORS["overcomplete"]
    y = noisy_patches(3, 5, 0).astype(dtype)
    limit = {"weight": 1e4} if form == "weight" else {"radius": 0.0}
    code = cosparse_code(y, operator, **limit, tolerance=1e-3)  # type: ignore[arg-type]
    np.testing.assert_allclose(code.patches, np.broadcast_to(y.mean(axis=0), y.shape), rtol=1e-3)
    assert code.trace.converged


@pytest.mark.parametrize("x_step", STEPS)
def test_a_patch_does_not_depend_on_its_company(x_step: Step) -> None:
    operator = OPERATORS["random"]
    y = noisy_patches(4, 9, 5) * np.linspace(0.1, 3, 9)
    weights = np.linspace(0.5, 4, 9)
    together = cosparse_code(y, operator, weight=weights, x_step=x_step, tolerance=1e-6)
    for k in range(9):
        alone = cosparse_code(
            y[:, k : k + 1], operator, weight=weights[k], x_step=x_step, tolerance=1e-6
        )
        # Same iterations, sums perhaps in another order: 1e-13 of values up to a thousand.
        np.testing.assert_allclose(together.patches[:, k], alone.patches[:, 0], rtol=1e-10)
        np.testing.assert_allclose(together.dual[:, k], alone.dual[:, 0], rtol=0, atol=1e-9)


@given(st.integers(-6, 6), st.sampled_from(STEPS), SEEDS)
@settings(deadline=None, max_examples=20)
def test_scaling_patches_and_weight_scales_the_result(power: int, x_step: Step, seed: int) -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_patches(3, 3, seed)
    c = 2.0**power  # exact in binary: the very same iterations
    plain = cosparse_code(y, operator, weight=2.0, x_step=x_step, tolerance=1e-7)
    scaled = cosparse_code(c * y, operator, weight=c * 2.0, x_step=x_step, tolerance=1e-7)
    assert scaled.trace.iterations == plain.trace.iterations
    np.testing.assert_allclose(scaled.patches, c * plain.patches, rtol=1e-13)


@given(st.floats(-200, 200), SEEDS)
@settings(deadline=None, max_examples=20)
def test_a_constant_passes_through(constant: float, seed: int) -> None:
    operator = OPERATORS["differences"]
    y = noisy_patches(3, 3, seed)
    plain = cosparse_code(y, operator, weight=2.0, **TIGHT).patches
    lifted = cosparse_code(y + constant, operator, weight=2.0, **TIGHT).patches
    np.testing.assert_allclose(lifted, plain + constant, rtol=0, atol=1e-5)


@pytest.mark.parametrize("x_step", STEPS)
def test_a_warm_start_goes_on_where_the_last_run_stopped(
    x_step: Step,
) -> None:
    operator = OPERATORS["random"]
    y = noisy_patches(4, 5, 7)
    whole = cosparse_code(y, operator, weight=2.0, x_step=x_step, max_iterations=40, tolerance=0.0)
    half = cosparse_code(y, operator, weight=2.0, x_step=x_step, max_iterations=20, tolerance=0.0)
    rest = cosparse_code(
        y, operator, weight=2.0, x_step=x_step, max_iterations=20, tolerance=0.0, start=half
    )
    # The dual is stored as −μd, and divided by μ = 2 again: exact.
    np.testing.assert_allclose(rest.patches, whole.patches, rtol=1e-12)
    np.testing.assert_allclose(rest.dual, whole.dual, rtol=0, atol=1e-11)


def test_a_warm_start_from_the_solution_stops_at_the_first_look() -> None:
    operator = OPERATORS["random"]
    y = noisy_patches(4, 5, 7)
    cold = cosparse_code(y, operator, weight=2.0, tolerance=1e-8)
    warm = cosparse_code(y, operator, weight=2.0, tolerance=1e-7, start=cold)
    assert warm.trace.converged
    assert warm.trace.iterations <= 5 < cold.trace.iterations
    np.testing.assert_allclose(warm.patches, cold.patches, rtol=0, atol=1e-4)


def test_the_limit_of_iterations_is_reported() -> None:
    y = noisy_patches(3, 4, 0)
    trace = cosparse_code(
        y, OPERATORS["overcomplete"], weight=2.0, tolerance=0.0, max_iterations=7
    ).trace
    assert not trace.converged
    assert trace.iterations == 7
    assert "4 of 4" in trace.reason
    assert "limit" in trace.reason
    # Looked at after five iterations and at the end.
    assert len(trace.history["primal"]) == len(trace.history["dual"]) == 2


def test_convergence_is_reported_with_its_residuals() -> None:
    y = noisy_patches(3, 4, 0)
    trace = cosparse_code(y, OPERATORS["overcomplete"], weight=2.0, tolerance=1e-5).trace
    assert trace.converged
    assert "1e-05" in trace.reason
    assert trace.last("primal") <= 1e-5
    assert trace.last("dual") <= 1e-5
    assert "exact" in trace.solver


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("x_step", STEPS)
def test_inputs_are_not_written_to_and_dtype_is_kept(dtype: type, x_step: Step) -> None:
    y = noisy_patches(3, 4, 0).astype(dtype)
    y.setflags(write=False)
    code = cosparse_code(y, OPERATORS["overcomplete"], weight=2.0, x_step=x_step)
    for part in (code.patches, code.coefficients, code.dual):
        assert part.dtype == dtype
        part.setflags(write=False)
    cosparse_code(y, OPERATORS["overcomplete"], weight=2.0, x_step=x_step, start=code)


def test_single_precision_comes_near_the_double_one() -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_patches(3, 6, 0)
    exact = cosparse_code(y, operator, weight=2.0, **TIGHT).patches
    single = cosparse_code(y.astype(np.float32), operator, weight=2.0, tolerance=1e-5).patches
    # Residuals of 1e-5 of patches whose length is about 400.
    np.testing.assert_allclose(single, exact, rtol=0, atol=0.05)


# The local estimate.


@pytest.mark.parametrize("epsilon", [None, 0.1, 2.0])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_estimate_keeps_the_means(name: str, epsilon: float | None) -> None:
    operator = OPERATORS[name]
    y = noisy_patches(operator.patch_size, 20, 0)
    estimate, _ = estimate_patches(y, operator, weight=3.0, epsilon=epsilon)
    np.testing.assert_allclose(estimate.mean(axis=0), y.mean(axis=0), rtol=1e-12)
    assert not np.allclose(estimate, y, atol=1.0)


def test_the_estimate_of_an_orthonormal_operator_in_closed_form() -> None:
    operator = load_operator("dct-4")
    y = noisy_patches(4, 10, 0)
    estimate, trace = estimate_patches(y, operator, weight=12.0)
    expected = y.mean(axis=0) + operator.rows.T @ soft_threshold(operator.rows @ y, 12.0)
    assert trace.converged
    # Residuals are below a thousandth of patches whose length is about 200.
    np.testing.assert_allclose(estimate, expected, rtol=0, atol=0.4)


def test_the_estimate_obeys_the_letters_constraint_on_normalised_patches() -> None:
    operator = OPERATORS["overcomplete"]
    y = noisy_patches(3, 20, 0)
    estimate, _ = estimate_patches(y, operator, weight=0.0, epsilon=0.5)
    lengths = np.linalg.norm(y - y.mean(axis=0), axis=0)
    reached = np.abs(operator.rows @ estimate).sum(axis=0) / lengths
    # ‖Ωx − v‖ ≤ 1e-3·‖Ωx‖, and v is feasible; ‖·‖₁ is at most √15 times ‖·‖.
    np.testing.assert_allclose(reached, 0.5, rtol=5e-3)


def test_flat_patches_are_estimated_as_they_are() -> None:
    y = np.full((9, 4), 77.0, np.float32)
    for epsilon in (None, 0.1):
        estimate, trace = estimate_patches(
            y, OPERATORS["overcomplete"], weight=5.0, epsilon=epsilon
        )
        np.testing.assert_array_equal(estimate, y)
        assert trace.converged


def test_the_estimate_works_in_batches_and_the_slowest_one_speaks() -> None:
    operator = OPERATORS["random"]
    y = noisy_patches(4, 23, 0)  # more than a patch has pixels
    y[:, :5] = 50.0  # the first batch is done at once
    at_once, whole = estimate_patches(y, operator, weight=3.0)
    in_batches, trace = estimate_patches(y, operator, weight=3.0, batch=5)
    np.testing.assert_allclose(in_batches, at_once, rtol=1e-9)
    assert trace.iterations == whole.iterations > 5
    _, cut = estimate_patches(y, operator, weight=3.0, max_iterations=5, batch=5)
    assert not cut.converged


def test_by_default_it_stops_when_it_is_near_enough() -> None:
    operator = OPERATORS["overcomplete"]
    patches = noisy_patches(3, 40, seed=3)
    code = cosparse_code(patches, operator, weight=8.0)
    best = cosparse_code(patches, operator, weight=8.0, **TIGHT)
    assert code.trace.converged and code.trace.iterations < best.trace.iterations
    assert np.abs(code.patches - best.patches).max() < 0.05  # a twentieth of a grey level
