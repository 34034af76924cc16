"""What operators do on every patch of a picture, held against products in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.operators.cosparse import select_cosupport

Array = np.ndarray[Any, Any]

KINDS = ("full", "dct", "overcomplete-dct", "differences")
SEEDS = st.integers(0, 2**32 - 1)


def make_operator(kind: str, n: int) -> AnalysisOperator:
    if kind == "full":
        rows = np.random.default_rng(n).normal(size=(n * n + 1, n * n))
        rows -= rows.mean(axis=1, keepdims=True)
        return AnalysisOperator(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return load_operator(f"{kind}-{n}")


def picture(height: int, width: int, seed: int) -> Array:
    """Random grey levels, read-only: nothing may write to its picture."""
    levels = np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)
    levels.setflags(write=False)
    return levels


def coefficient_error(operator: AnalysisOperator) -> float:
    """Bound of a float32 coefficient's rounding: m additions of terms that sum to ‖ω‖₁·255.

    Filtering along both axes one after the other rounds twice, and so are the filters rounded.
    """
    m = operator.rows.shape[1]
    factors = operator.factors or (operator.rows, np.ones((1, 1)))
    largest = 255.0 * float(np.prod([np.abs(factor).sum(axis=1).max() for factor in factors]))
    return 2 * (m + 1) * largest * float(np.finfo(np.float32).eps) / 2


@given(
    st.sampled_from(KINDS),
    st.integers(3, 9),
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(1, 4),
    st.sampled_from([None, 20.0]),
    SEEDS,
)
@settings(deadline=None, max_examples=80)
def test_activity_is_the_sum_of_magnitudes(
    kind: str,
    n: int,
    more_rows: int,
    more_columns: int,
    step: int,
    most: float | None,
    seed: int,
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    h = len(operator.rows)
    thresholds = None if most is None else np.linspace(0, most, h)
    result = operator.activity(image, step=step, thresholds=thresholds)
    magnitudes = np.abs(operator.apply_image(image.astype(np.float64)))[::step, :, ::step]
    if thresholds is not None:
        magnitudes = np.maximum(magnitudes - thresholds[:, None], 0)
    expected = magnitudes.sum(axis=1)
    assert result.dtype == np.float32
    # One coefficient's rounding for each row, and that of adding h magnitudes in float32.
    atol = h * coefficient_error(operator) + h * 6e-8 * expected.max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("kind", ["full", "dct"])
def test_activity_of_wide_pictures_is_made_of_blocks_that_fit_together(kind: str) -> None:
    operator, image = make_operator(kind, 4), picture(23, 1500, 0)
    parts = [operator.activity(image[:, start : start + 303]) for start in range(0, 1500, 300)]
    whole = operator.activity(image)
    # Products of matrices round differently in blocks of other sizes.
    np.testing.assert_allclose(whole, np.concatenate(parts, axis=1), rtol=1e-5)


def test_pictures_of_any_layout_and_type_are_taken() -> None:
    operator = load_operator("dct-4")
    image = np.random.default_rng(0).integers(0, 256, (20, 22)).astype(np.uint8)
    expected = operator.activity(image.astype(np.float32))
    wide = np.zeros((20, 44), np.float64)
    wide[:, ::2] = image
    for same in (image, image.astype(np.float64), np.asfortranarray(image), wide[:, ::2]):
        np.testing.assert_array_equal(operator.activity(same), expected)


def test_pictures_below_patch_size_are_refused() -> None:
    with pytest.raises(CofuseError, match="smaller than a patch of 7x7"):
        load_operator("dct-7").activity(np.zeros((6, 20)))


@given(st.integers(2, 5), st.integers(1, 5), st.data(), SEEDS)
@settings(deadline=None, max_examples=40)
def test_cosupport_is_the_cheapest_independent_set_of_its_rank(
    n: int, count: int, data: st.DataObject, seed: int
) -> None:
    rank = data.draw(st.integers(1, n * n - 1))
    operator = load_operator(f"overcomplete-dct-{n}")
    costs = np.abs(np.random.default_rng(seed).normal(size=(len(operator.rows), count)))
    costs.setflags(write=False)
    chosen = select_cosupport(costs, operator.rows, rank)
    assert (chosen.sum(axis=0) == rank).all()
    for column, cost in zip(chosen.T, costs.T, strict=True):
        basis = operator.rows[column]
        assert np.linalg.matrix_rank(basis, tol=1e-4) == rank
        # In a matroid a set is cheapest iff no exchange of one member for another row is cheaper.
        outside = np.flatnonzero(~column)
        inside = np.flatnonzero(column)
        weights = np.linalg.lstsq(basis.T, operator.rows[outside].T, rcond=None)[0]
        rest = operator.rows[outside].T - basis.T @ weights
        for j, row in enumerate(outside):
            if np.linalg.norm(rest[:, j]) > 1e-4:
                replaceable = inside  # the row lies outside the span: it may take any place
            else:
                replaceable = inside[np.abs(weights[:, j]) > 1e-4]
            assert (cost[replaceable] <= cost[row]).all()


@given(st.integers(2, 6), st.integers(1, 3), SEEDS)
@settings(deadline=None, max_examples=30)
def test_cosupport_of_differences_is_a_minimum_spanning_tree(n: int, count: int, seed: int) -> None:
    # Differences of neighbours are the edges of a grid; independent rows are its forests.
    operator = load_operator(f"differences-{n}")
    edges = [np.flatnonzero(np.abs(row) > 0.1) for row in operator.rows]
    costs = np.random.default_rng(seed).uniform(1, 2, (len(edges), count))
    chosen = select_cosupport(costs, operator.rows, n * n - 1)
    for column, cost in zip(chosen.T, costs.T, strict=True):
        # Kruskal: the cheapest edge that joins two trees.
        tree, joined = set(), np.arange(n * n)
        for edge in np.argsort(cost):
            a, b = joined[edges[edge]]
            if a != b:
                tree.add(int(edge))
                joined[joined == b] = a
        assert set(np.flatnonzero(column).tolist()) == tree
