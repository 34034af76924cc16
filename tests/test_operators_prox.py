"""Proximal maps against the definition itself: a dense search for the minimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.operators.cosparse import project_l1_ball, soft_threshold

Array = np.ndarray[Any, Any]

#: Candidates for the minimiser: all of [-6, 6] in steps of 1/1000, with 0 among them exactly.
GRID = np.arange(-6000, 6001) / 1000.0

NUMBERS = st.floats(-5.0, 5.0)
WEIGHTS = st.floats(0.01, 4.0)
COLUMNS = arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=NUMBERS)


@given(NUMBERS, WEIGHTS)
def test_soft_threshold_minimises_its_objective(u: float, weight: float) -> None:
    result = soft_threshold(np.array([u]), weight)
    best, achieved = ((0.5 * (v - u) ** 2 + weight * np.abs(v)).min() for v in (GRID, result))
    # But for the rounding of sums of terms up to about 30.
    assert achieved <= best + 1e-12


def test_soft_threshold_in_closed_form() -> None:
    u = np.array([-3.0, -1.0, 0.0, 0.5, 4.0])
    np.testing.assert_array_equal(soft_threshold(u, 1.0), [-2.0, 0.0, 0.0, 0.0, 3.0])


def test_soft_threshold_takes_one_threshold_a_column() -> None:
    u = np.array([[3.0, 3.0], [-3.0, -3.0]])
    np.testing.assert_array_equal(soft_threshold(u, np.array([1.0, 2.0])), [[2, 1], [-2, -1]])


@given(COLUMNS, WEIGHTS, st.integers(0, 2**32 - 1))
def test_soft_threshold_is_firmly_non_expansive(u: Array, weight: float, seed: int) -> None:
    w = np.random.default_rng(seed).uniform(-5, 5, u.shape)
    p, q = soft_threshold(u, weight), soft_threshold(w, weight)
    # ‖p − q‖² ≤ ⟨p − q, u − w⟩; each of at most 40 terms of at most 100 rounds by 1e-14.
    assert ((p - q) ** 2).sum() <= ((p - q) * (u - w)).sum() + 1e-11


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_proximal_maps_keep_dtype_and_input(dtype: type) -> None:
    u = np.linspace(-4, 4, 9, dtype=dtype).reshape(3, 3)
    u.setflags(write=False)
    threshold = dtype(1.0)
    for result in (soft_threshold(u, threshold), project_l1_ball(u, threshold)):
        assert result.dtype == dtype
        assert result.shape == u.shape


@given(COLUMNS, st.floats(0.0, 20.0))
def test_projection_on_the_l1_ball_is_feasible(u: Array, radius: float) -> None:
    norms = np.abs(project_l1_ball(u, radius)).sum(axis=0)
    # The threshold is a quotient of sums of at most 8 numbers up to 5: rounded by some 1e-14.
    assert (norms <= radius + 1e-12).all()


@given(COLUMNS, st.floats(0.0, 20.0))
def test_projection_on_the_l1_ball_satisfies_the_variational_inequality(
    u: Array, radius: float
) -> None:
    p = project_l1_ball(u, radius)
    # p is the projection iff ⟨u − p, w − p⟩ ≤ 0 for all w of the ball; over the ball ⟨u − p, w⟩ is
    # largest at a corner, where it is radius · max|u − p|.
    worst = radius * np.abs(u - p).max(axis=0) - ((u - p) * p).sum(axis=0)
    assert (worst <= 1e-11).all()


@given(COLUMNS, st.integers(0, 2**32 - 1))
def test_projection_takes_one_radius_a_column(u: Array, seed: int) -> None:
    radii = np.random.default_rng(seed).uniform(0, 10, u.shape[1])
    together = project_l1_ball(u, radii)
    for k, radius in enumerate(radii):
        alone = project_l1_ball(u[:, k : k + 1], radius)
        np.testing.assert_array_equal(together[:, k : k + 1], alone)


def test_projections_in_closed_form() -> None:
    # The first column lies inside. The second has threshold 1: (3 − 1) + (1 − 1) + 0 = 2.
    u = np.array([[0.25, 3.0], [-0.5, -1.0], [0.0, 0.5]])
    np.testing.assert_array_equal(project_l1_ball(u, 2.0), [[0.25, 2], [-0.5, 0], [0, 0]])
