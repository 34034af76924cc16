"""The compiled kernels against the plain ones, and what both promise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cofuse.operators import (
    AnalysisOperator,
    cpu,
    dct_operator,
    finite_difference_operator,
    overcomplete_dct_operator,
    reference,
)

Array = np.ndarray[Any, Any]

KINDS = ("full", "dct", "overcomplete-dct", "differences")

#: Patch sizes, sides beyond the patch, seeds. Heights of up to 9 + 60 make several bands.
SIZES = st.integers(3, 9)
HEIGHTS = st.one_of(st.integers(0, 6), st.integers(33, 60))
WIDTHS = st.integers(0, 8)
SEEDS = st.integers(0, 2**32 - 1)


def make_operator(kind: str, n: int) -> AnalysisOperator:
    if kind == "full":
        # 4k + 1 rows: the kernels take filters in groups of four.
        rows = np.random.default_rng(n).normal(size=(4 * (n * n // 4) + 1, n * n))
        rows -= rows.mean(axis=1, keepdims=True)
        return AnalysisOperator(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    builders = {
        "dct": dct_operator,
        "overcomplete-dct": overcomplete_dct_operator,
        "differences": finite_difference_operator,
    }
    return builders[kind](n)


def picture(height: int, width: int, seed: int) -> Array:
    """Random grey levels, read-only: no kernel may write to its picture."""
    levels = np.random.default_rng(seed).uniform(0, 255, (height, width)).astype(np.float32)
    levels.setflags(write=False)
    return levels


def coefficient_error(operator: AnalysisOperator) -> float:
    """Bound of a float32 coefficient's rounding: m additions of terms that sum to ‖ω‖₁·255.

    The filters themselves are rounded to float32, which counts as one more addition.
    """
    m = operator.rows.shape[1]
    largest = 255.0 * float(np.abs(operator.rows).sum(axis=1).max())
    return (m + 1) * largest * float(np.finfo(np.float32).eps) / 2


def filters_at_a_pixel(operator: AnalysisOperator) -> float:
    """Largest Σ|ω| over the filters at one pixel: how errors of coefficients add up there."""
    return float(np.abs(operator.rows).sum(axis=0).max())


def random_duals(shape: tuple[int, ...], limit: float, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    dual, previous = rng.uniform(-limit, limit, (2, *shape)).astype(np.float32)
    return dual, previous


def clear_threshold(coefficients: Array, share: float) -> tuple[float, float]:
    """A threshold in the widest gap between magnitudes near a quantile, and half that gap."""
    magnitudes = np.sort(np.abs(coefficients).ravel())
    middle = int(share * (len(magnitudes) - 1))
    reach = max(len(magnitudes) // 10, 1)
    near = magnitudes[max(middle - reach, 0) : middle + reach + 2]
    widest = int(np.diff(near).argmax())
    return float(near[widest : widest + 2].mean()), float(np.diff(near)[widest] / 2)


def gram_of(operator: AnalysisOperator) -> Array:
    return operator.rows @ operator.rows.T


# Compiled against plain.


@given(st.sampled_from(KINDS), SIZES, HEIGHTS, WIDTHS, SEEDS)
@settings(deadline=None, max_examples=60)
def test_activity_equals_the_reference(
    kind: str, n: int, more_rows: int, more_columns: int, seed: int
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    result = cpu.activity(image, operator)
    expected = reference.activity(image.astype(np.float64), operator)
    assert result.dtype == np.float32
    assert result.shape == (more_rows + 1, more_columns + 1)
    # One coefficient's rounding for each row, and that of adding h magnitudes in float32.
    h = len(operator.rows)
    atol = h * coefficient_error(operator) + h * 6e-8 * expected.max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)


@given(st.sampled_from(KINDS), SIZES, HEIGHTS, WIDTHS, st.floats(0.0, 1.0), SEEDS)
@settings(deadline=None, max_examples=40)
def test_dual_step_equals_the_reference(
    kind: str, n: int, more_rows: int, more_columns: int, momentum: float, seed: int
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    limit, step = 2.0, 1.0 / operator.squared_norm()
    dual, previous = random_duals(
        (len(operator.rows), more_rows + 1, more_columns + 1), limit, seed
    )
    arguments = {"momentum": momentum, "step": step, "limit": limit}
    expected = reference.dual_step(
        *(a.astype(np.float64) for a in (dual, previous, image)), operator, **arguments
    )
    before = dual.copy()
    new, old, spread = cpu.dual_step(dual, previous, image, operator, **arguments)
    assert new is dual
    assert old is previous
    np.testing.assert_array_equal(old, before)
    # Arithmetic on numbers up to 3·limit besides the coefficient's own rounding.
    dual_error = step * coefficient_error(operator) + 10 * limit * 6e-8
    np.testing.assert_allclose(new, expected[0], rtol=0, atol=dual_error)
    # A pixel adds up to h·n² products; Σ|ω| over a filter is at most n.
    h, m = operator.rows.shape
    spread_error = h * n * (dual_error + m * limit * 6e-8)
    np.testing.assert_allclose(spread, expected[2], rtol=0, atol=spread_error)


@given(st.sampled_from(KINDS), SIZES, HEIGHTS, WIDTHS, SEEDS)
@settings(deadline=None, max_examples=40)
def test_pairing_equals_the_reference(
    kind: str, n: int, more_rows: int, more_columns: int, seed: int
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    dual, _ = random_duals((len(operator.rows), more_rows + 1, more_columns + 1), 2.0, seed)
    dual.setflags(write=False)
    result = cpu.pairing(dual, image, operator)
    expected = reference.pairing(dual.astype(np.float64), image.astype(np.float64), operator)
    # The sums are in double: what remains is every coefficient's rounding, and |u| ≤ 2.
    atol = dual.size * coefficient_error(operator)
    assert result[0] == pytest.approx(expected[0], rel=0, abs=atol)
    assert result[1] == pytest.approx(expected[1], rel=0, abs=2 * atol)


@given(st.sampled_from(("full", "dct")), SIZES, HEIGHTS, WIDTHS, st.floats(0.1, 0.9), SEEDS)
@settings(deadline=None, max_examples=50)
def test_hard_shrinkage_equals_the_reference(
    kind: str, n: int, more_rows: int, more_columns: int, share: float, seed: int
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    coefficients = operator.apply_image(image.astype(np.float64))
    threshold, gap = clear_threshold(coefficients, share)
    # A coefficient this near the threshold may rightly fall on either side of it.
    assume(gap > coefficient_error(operator))
    result = cpu.hard_shrinkage(image, operator, threshold=threshold)
    expected = reference.hard_shrinkage(image.astype(np.float64), operator, threshold=threshold)
    assert result.dtype == np.float32
    # A patch's removal at a pixel sums h coefficients of up to the threshold in float32; the
    # average over patches errs no more than one of them.
    h = len(operator.rows)
    error = coefficient_error(operator) + h * threshold * 6e-8
    atol = filters_at_a_pixel(operator) * error + 255 * 6e-8
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("row", [0, 17, 47])
def test_every_row_has_its_own_threshold(row: int) -> None:
    operator, image = make_operator("dct", 7), picture(30, 26, 3)
    thresholds = np.zeros(48)
    thresholds[row] = 1e6
    expected = reference.hard_shrinkage(image.astype(np.float64), operator, threshold=thresholds)
    assert np.abs(expected - image).max() > 1
    result = cpu.hard_shrinkage(image, operator, threshold=thresholds)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)


@given(st.sampled_from(("full", "dct")), SIZES, HEIGHTS, WIDTHS, st.floats(5.0, 40.0), SEEDS)
@settings(deadline=None, max_examples=40)
def test_wiener_shrinkage_equals_the_reference(
    kind: str, n: int, more_rows: int, more_columns: int, sigma: float, seed: int
) -> None:
    operator = make_operator(kind, n)
    image = picture(n + more_rows, n + more_columns, seed)
    guide = picture(n + more_rows, n + more_columns, seed + 1)
    h = len(operator.rows)
    # The first row has the least noise, on which the tolerance goes by.
    variances = (sigma * np.linspace(1, 3, h)) ** 2
    result = cpu.wiener_shrinkage(image, guide, operator, variance=variances)
    expected = reference.wiener_shrinkage(
        image.astype(np.float64), guide.astype(np.float64), operator, variance=variances
    )
    # The factor changes by at most 0.65/σ per unit of the guide's coefficient, so by its rounding
    # times that; it multiplies coefficients of at most `largest`.
    error = coefficient_error(operator)
    largest = float(np.abs(operator.apply_image(image.astype(np.float64))).max())
    error = error * (1 + 0.65 * largest / sigma) + h * largest * 6e-8
    atol = filters_at_a_pixel(operator) * error + 255 * 6e-8
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)


@given(
    st.sampled_from(KINDS), st.integers(3, 5), st.integers(1, 4), st.data(), st.booleans(), SEEDS
)
@settings(deadline=None, max_examples=40)
def test_select_cosupport_equals_the_reference(
    kind: str, n: int, count: int, data: st.DataObject, tied: bool, seed: int
) -> None:
    operator = make_operator(kind, n)
    rank = data.draw(st.integers(1, n * n - 1))
    coefficients = np.random.default_rng(seed).normal(size=(len(operator.rows), count))
    if tied:
        coefficients = np.round(coefficients)
    np.testing.assert_array_equal(
        cpu.select_cosupport(coefficients, gram_of(operator), rank),
        reference.select_cosupport(coefficients, gram_of(operator), rank),
    )


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), SEEDS)
@settings(deadline=None, max_examples=60)
def test_region_areas_equal_the_reference(height: int, width: int, values: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, values, (height, width)).astype(np.uint8)
    np.testing.assert_array_equal(cpu.region_areas(labels), reference.region_areas(labels))


# More than one band, whatever the machine.


@pytest.mark.parametrize("kind", ["full", "dct"])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_results_do_not_depend_on_the_number_of_bands(
    kind: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = make_operator(kind, 5)
    image = picture(97, 23, 0)
    guide = picture(97, 23, 1)
    duals = random_duals((len(operator.rows), 93, 19), 2.0, 0)
    step = {"momentum": 0.5, "step": 1 / operator.squared_norm(), "limit": 2.0}

    def everything() -> tuple[Any, ...]:
        return (
            cpu.activity(image, operator),
            *cpu.dual_step(duals[0].copy(), duals[1].copy(), image, operator, **step),
            np.array(cpu.pairing(duals[0], image, operator)),
            cpu.hard_shrinkage(image, operator, threshold=80.0),
            cpu.wiener_shrinkage(image, guide, operator, variance=400.0),
        )

    monkeypatch.setattr(cpu, "_threads", lambda: 1)
    one = everything()
    monkeypatch.setattr(cpu, "_threads", lambda: threads)
    many = everything()
    # Activity and duals are made row by row: not one bit may change.
    for index in (0, 1, 2):
        np.testing.assert_array_equal(many[index], one[index])
    # The others add the bands' shares in another order: float32 sums of numbers up to 255.
    for index in (3, 4, 5, 6):
        np.testing.assert_allclose(many[index], one[index], rtol=1e-5, atol=1e-3)


def test_bands_cover_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_threads", lambda: 4)
    for rows in (1, 15, 16, 31, 32, 33, 63, 64, 65, 1000):
        bands = cpu._over_bands(lambda start, stop: list(range(start, stop)), rows)
        assert [row for _, band in bands for row in band] == list(range(rows))
        assert all(band[0] == start for start, band in bands)


# What the kernels promise by themselves.


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_call_gives_the_same_bits(kind: str) -> None:
    operator = make_operator(kind, 5)
    image = picture(80, 30, 0)
    for first, second in itertools.pairwise(
        (
            cpu.activity(image, operator),
            cpu.hard_shrinkage(image, operator, threshold=50.0),
            cpu.wiener_shrinkage(image, image, operator, variance=100.0),
        )
        for _ in range(3)
    ):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


def test_pictures_of_any_layout_and_float_type_are_taken() -> None:
    operator = dct_operator(4)
    image = np.random.default_rng(0).integers(0, 256, (20, 22)).astype(np.uint8)
    expected = cpu.activity(image.astype(np.float32), operator)
    wide = np.zeros((20, 44), np.float64)
    wide[:, ::2] = image
    for same in (image, image.astype(np.float64), np.asfortranarray(image), wide[:, ::2]):
        np.testing.assert_array_equal(cpu.activity(same, operator), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_activity_of_a_single_patch_is_the_sum_of_its_magnitudes(kind: str) -> None:
    operator = make_operator(kind, 6)
    image = picture(6, 6, 3)
    coefficients = operator.filters.reshape(-1, 36) @ image.astype(np.float64).ravel()
    result = cpu.activity(image, operator)
    assert result.shape == (1, 1)
    # Sixty coefficients of about a hundred in float32.
    assert result[0, 0] == pytest.approx(np.abs(coefficients).sum(), rel=1e-5)


def test_zero_threshold_removes_nothing_and_a_huge_one_all_but_the_means() -> None:
    operator = dct_operator(5)
    image = picture(5, 5, 0)
    np.testing.assert_array_equal(cpu.hard_shrinkage(image, operator, threshold=0.0), image)
    flat = cpu.hard_shrinkage(image, operator, threshold=1e6)
    np.testing.assert_allclose(flat, np.full((5, 5), image.mean()), rtol=1e-5)


@given(st.integers(2, 5), st.integers(1, 5), st.data(), SEEDS)
@settings(deadline=None, max_examples=40)
def test_cosupport_is_the_cheapest_independent_set_of_its_rank(
    n: int, count: int, data: st.DataObject, seed: int
) -> None:
    rank = data.draw(st.integers(1, n * n - 1))
    operator = overcomplete_dct_operator(n)
    costs = np.abs(np.random.default_rng(seed).normal(size=(len(operator.rows), count)))
    chosen = cpu.select_cosupport(costs, gram_of(operator), rank)
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


@given(st.integers(2, 6), SEEDS)
@settings(deadline=None, max_examples=30)
def test_cosupport_of_differences_is_a_minimum_spanning_tree(n: int, seed: int) -> None:
    # Differences of neighbours are the edges of a grid; independent rows are its forests.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    operator = finite_difference_operator(n)
    edges = np.array([np.flatnonzero(np.abs(row) > 0.1) for row in operator.rows])
    costs = np.random.default_rng(seed).uniform(1, 2, len(edges))
    chosen = cpu.select_cosupport(costs[:, None], gram_of(operator), n * n - 1)[:, 0]
    graph = coo_array((costs, edges.T), shape=(n * n, n * n))
    tree = minimum_spanning_tree(graph.tocsr())
    np.testing.assert_allclose(np.sort(costs[chosen]), np.sort(tree.data), rtol=1e-12)


def test_cosupport_leaves_its_inputs_alone() -> None:
    operator = overcomplete_dct_operator(3)
    coefficients = np.random.default_rng(0).normal(size=(15, 4))
    gram = gram_of(operator)
    kept = coefficients.copy(), gram.copy()
    coefficients.setflags(write=False)
    gram.setflags(write=False)
    cpu.select_cosupport(coefficients, gram, 5)
    np.testing.assert_array_equal(coefficients, kept[0])
    np.testing.assert_array_equal(gram, kept[1])


def test_region_areas_join_by_edges_and_not_by_corners() -> None:
    labels = np.array([[1, 1, 0, 2], [0, 1, 2, 2], [1, 0, 0, 0]], np.uint8)
    expected = [[3, 3, 1, 3], [1, 3, 3, 3], [1, 3, 3, 3]]
    for areas in (cpu.region_areas(labels), reference.region_areas(labels)):
        np.testing.assert_array_equal(areas, expected)


def test_region_areas_follow_a_winding_region() -> None:
    labels = np.zeros((9, 9), np.uint8)
    labels[::2] = 1
    labels[1::4, -1] = 1
    labels[3::4, 0] = 1
    areas = cpu.region_areas(labels)
    assert (areas[labels == 1] == 5 * 9 + 4).all()
    assert (areas[labels == 0] == 8).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_region_areas_take_any_label_type_and_layout(dtype: type) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (7, 12)).astype(dtype)
    labels.setflags(write=False)
    expected = reference.region_areas(labels[:, ::2])
    np.testing.assert_array_equal(cpu.region_areas(labels[:, ::2]), expected)
    np.testing.assert_array_equal(cpu.region_areas(labels), reference.region_areas(labels))
