"""Operators: adjointness, the separable form, the norm bound, and the file format."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.operators import (
    SHIPPED_OPERATORS,
    AnalysisOperator,
    coherence,
    load_operator,
    operator_bytes,
    read_operator,
)

Array = np.ndarray[Any, Any]

BUILT_IN = ("dct", "overcomplete-dct", "differences")

PROVENANCE = {"seed": 3, "set": "ä pictures", "settings": {"rounds": [1, 2], "rate": 0.1}}

SHIPPED_ROWS = {
    "full-5": (64, 25),
    "full-6": (64, 36),
    "full-7": (64, 49),
    "full-8": (64, 64),
    "full-9": (104, 81),
    "separable-7": (63, 49),
}


def unit_mean_free(rows: Array) -> Array:
    """Rows with their means taken off, brought to unit length."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def random_full(n: int, h: int, seed: int = 0) -> AnalysisOperator:
    rows = unit_mean_free(np.random.default_rng(seed).normal(size=(h, n * n)))
    return AnalysisOperator(rows, name="random", provenance=PROVENANCE)


def random_factor(n: int, h: int, seed: int) -> Array:
    rest = unit_mean_free(np.random.default_rng(seed).normal(size=(h - 1, n)))
    return np.concatenate([np.full((1, n), n**-0.5), rest])


def random_separable(n: int, h: int, seed: int = 0) -> AnalysisOperator:
    left, right = random_factor(n, h, seed), random_factor(n, h + 1, seed + 1)
    return AnalysisOperator.from_factors(left, right, name="product", provenance=PROVENANCE)


def make_operator(kind: str, n: int, seed: int = 0) -> AnalysisOperator:
    if kind == "full":
        return random_full(n, n * n + 3, seed)
    if kind == "separable":
        return random_separable(n, n + 1, seed)
    return load_operator(f"{kind}-{n}")


KINDS = ("full", "separable", *BUILT_IN)


# The operator itself.


@given(
    st.sampled_from(KINDS),
    st.integers(2, 7),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_adjoint_on_pictures(
    kind: str, n: int, more_rows: int, more_columns: int, seed: int
) -> None:
    operator = make_operator(kind, n, seed)
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(n + more_rows, n + more_columns))
    coefficients = operator.apply_image(image)
    u = rng.normal(size=coefficients.shape)
    spread = operator.adjoint_image(u)
    assert (coefficients * u).sum() == pytest.approx((image * spread).sum(), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_of_a_picture_are_those_of_its_patches(kind: str) -> None:
    operator = make_operator(kind, 4)
    image = np.random.default_rng(1).normal(size=(6, 9))
    coefficients = operator.apply_image(image)
    assert coefficients.shape == (3, len(operator.rows), 6)
    for y, x in np.ndindex(3, 6):
        patch = image[y : y + 4, x : x + 4]
        expected = np.einsum("hyx,yx->h", operator.filters, patch)
        np.testing.assert_allclose(coefficients[y, :, x], expected, atol=1e-13)


@given(st.integers(2, 8), st.integers(2, 9), st.integers(2, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_separable_rows_act_as_a_product_of_factors(n: int, a: int, b: int, seed: int) -> None:
    left, right = random_factor(n, a, seed), random_factor(n, b, seed + 1)
    operator = AnalysisOperator.from_factors(left, right, name="product")
    patch = np.random.default_rng(seed).normal(size=(n, n))
    expected = (left @ patch @ right.T).ravel()[1:]
    np.testing.assert_allclose(operator.apply(patch.reshape(-1, 1))[:, 0], expected, atol=1e-13)


@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_of_unit_length_and_mean_free(kind: str, n: int) -> None:
    operator = make_operator(kind, n)
    assert operator.patch_size == n
    assert operator.rows.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(operator.rows, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(operator.rows.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 7, 32])
def test_built_in_operators_have_the_rows_and_the_name_they_promise(n: int) -> None:
    counts = (n * n - 1, (n + 1) ** 2 - 1, 2 * n * (n - 1))
    for kind, count in zip(BUILT_IN, counts, strict=True):
        operator = load_operator(f"{kind}-{n}")
        assert operator.name == f"{kind}-{n}"
        assert operator.rows.shape == (count, n * n)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9])
def test_dct_rows_are_orthonormal(n: int) -> None:
    rows = load_operator(f"dct-{n}").rows
    np.testing.assert_allclose(rows @ rows.T, np.eye(n * n - 1), atol=1e-13)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_operators_vanish_on_constants_only(kind: str) -> None:
    assert np.linalg.matrix_rank(load_operator(f"{kind}-6").rows) == 35


def test_finite_differences_are_differences_of_neighbours() -> None:
    patch = np.arange(9.0).reshape(3, 3) ** 2
    coefficients = load_operator("differences-3").apply(patch.reshape(-1, 1))[:, 0]
    differences = np.concatenate([np.diff(patch, axis=1).ravel(), np.diff(patch, axis=0).ravel()])
    np.testing.assert_allclose(coefficients, differences / np.sqrt(2), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coefficients_keep_the_dtype_of_the_picture(dtype: type) -> None:
    operator = load_operator("dct-3")
    image = np.ones((8, 9), dtype)
    coefficients = operator.apply_image(image)
    assert coefficients.dtype == dtype
    assert operator.adjoint_image(coefficients).dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_squared_norm_bounds_the_operator_and_is_nearly_reached(kind: str, n: int) -> None:
    operator = make_operator(kind, n)
    bound = operator.squared_norm()
    x = np.random.default_rng(0).normal(size=(36, 40))
    for _ in range(60):
        x /= np.linalg.norm(x)
        x = operator.adjoint_image(operator.apply_image(x))
    reached = np.linalg.norm(x)  # a lower bound of the norm, whatever the number of rounds
    assert reached <= bound * (1 + 1e-12)
    # The bound adds 1/cos² of at most π/32 (1 %); the picture's border takes a few more away.
    assert reached >= 0.95 * bound


def test_squared_norm_of_differences_in_closed_form() -> None:
    # n(n − 1) copies of (1 − cos a) + (1 − cos b) in the picture, largest at a = b = π.
    n = 4
    exact = 4.0 * n * (n - 1)
    bound = load_operator(f"differences-{n}").squared_norm()
    assert exact <= bound <= 1.01 * exact


def test_rows_are_a_read_only_copy() -> None:
    rows = unit_mean_free(np.random.default_rng(0).normal(size=(5, 9)))
    operator = AnalysisOperator(rows)
    kept = rows.copy()
    rows[...] = 0.0
    np.testing.assert_array_equal(operator.rows, kept)
    with pytest.raises(ValueError, match="read-only"):
        operator.rows[0, 0] = 1.0


def test_factors_are_a_copy_too() -> None:
    # Activity is computed from the factors, everything else from the rows.
    left, right = random_factor(3, 4, 0), random_factor(3, 4, 1)
    operator = AnalysisOperator.from_factors(left, right, name="product")
    left[...] = 0.0
    assert operator.factors is not None
    np.testing.assert_array_equal(np.kron(*operator.factors)[1:], operator.rows)


def test_from_factors_refuses_patches_of_unequal_sides() -> None:
    with pytest.raises(CofuseError, match="unequal"):
        AnalysisOperator.from_factors(random_factor(3, 4, 0), random_factor(4, 4, 1), name="odd")


def test_patches_that_are_too_large_are_refused() -> None:
    with pytest.raises(CofuseError, match="41"):
        AnalysisOperator(unit_mean_free(np.random.default_rng(0).normal(size=(1, 41 * 41))))


# Names.


@pytest.mark.parametrize("name", ["full-77", "dct-1", "dct-33", "dct", "nowhere/operator.npz"])
def test_an_unknown_name_lists_the_known_ones_in_one_line(name: str) -> None:
    with pytest.raises(CofuseError) as caught:
        load_operator(name)
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    for known in (*SHIPPED_OPERATORS, *BUILT_IN):
        assert known in message


def test_an_operator_loads_from_a_file_given_as_text_or_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    operator = random_full(3, 10)
    path.write_bytes(operator_bytes(operator))
    for name in (path, str(path)):
        np.testing.assert_array_equal(load_operator(name).rows, operator.rows)


@pytest.mark.parametrize("name", SHIPPED_OPERATORS)
def test_shipped_operators_are_not_degenerate(name: str) -> None:
    operator = load_operator(name)
    rows = operator.rows
    assert operator.name == name
    assert rows.shape == SHIPPED_ROWS[name]
    assert operator.is_separable == name.startswith("separable")
    assert np.linalg.matrix_rank(rows) == rows.shape[1] - 1
    assert coherence(rows) == pytest.approx(np.abs(rows @ rows.T - np.eye(len(rows))).max())
    assert coherence(rows) < 0.97
    assert operator.provenance


# Files.


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_operator_reads_back_exactly(kind: str, tmp_path: Path) -> None:
    operator = make_operator(kind, 4)
    (tmp_path / "operator.npz").write_bytes(operator_bytes(operator))
    again = read_operator(tmp_path / "operator.npz")
    np.testing.assert_array_equal(again.rows, operator.rows)
    assert again.name == operator.name
    assert again.provenance == operator.provenance
    assert again.is_separable == operator.is_separable
    for mine, theirs in zip(operator.factors or (), again.factors or (), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_operator_file_is_read_without_pickle() -> None:
    with np.load(io.BytesIO(operator_bytes(random_full(3, 9))), allow_pickle=False) as archive:
        assert sorted(archive.files) == ["header", "rows"]
        header = json.loads(str(archive["header"]))
    assert header["format"] == "cofuse-operator"
    assert header["version"] == 1


def header(**changes: Any) -> Array:
    """The header of a good operator file, with changes."""
    entries = {"format": "cofuse-operator", "version": 1, "name": "given", "provenance": {}}
    return np.array(json.dumps(entries | changes))


def saved(save: Callable[..., None], *array: Array, **arrays: Any) -> bytes:
    """The bytes of a NumPy file."""
    file = io.BytesIO()
    save(file, *array, **arrays)
    return file.getvalue()


def archive(**arrays: Any) -> bytes:
    """The bytes of an npz of these arrays, with a good header unless one is given."""
    return saved(np.savez, **({"header": header()} | arrays))


def good_rows() -> Array:
    return np.array(load_operator("dct-3").rows)


def spoilt_rows(value: float) -> Array:
    rows = good_rows()
    rows[2, 3] = value
    return rows


def rows_with_a_mean() -> Array:
    rows = good_rows() + 0.1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def garbled_compression() -> bytes:
    """A compressed npz whose data were overwritten: zlib stumbles before the checksum is seen."""
    rows = np.random.default_rng(0).normal(size=(8, 9))
    data = bytearray(saved(np.savez_compressed, header=header(), rows=rows))
    start = data.find(b"rows.npy") + 28
    data[start : start + 20] = bytes(byte ^ 0xFF for byte in data[start : start + 20])
    return bytes(data)


def unknown_compression() -> bytes:
    """A zip that says its members are packed in a way that does not exist."""
    data = bytearray(archive(rows=good_rows()))
    directory = data.find(b"PK\x01\x02")
    data[directory + 10] = 0xEE
    return bytes(data)


def zip_with_text_for_rows() -> bytes:
    """A zip where the member called rows is no array."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("header.npy", saved(np.save, header()))
        members.writestr("rows", "no array")
    return file.getvalue()


FACTOR = random_factor(3, 4, 0)

WRONG_FILES = {
    "empty": b"",
    "text": b"not an operator\n",
    "pickle": pickle.dumps({"rows": [1, 2]}),
    "bare array": saved(np.save, good_rows()),
    "truncated": archive(rows=good_rows())[:-40],
    "cut in half": archive(rows=good_rows())[:600],
    "garbled": archive(rows=good_rows()).replace(b"\x3f", b"\x40"),
    "garbled compression": garbled_compression(),
    "unknown compression": unknown_compression(),
    "text for rows": zip_with_text_for_rows(),
    "pickled header": archive(header=np.array([{}], object), rows=good_rows()),
    "pickled rows": archive(rows=np.array([[None]], object)),
    "no header": saved(np.savez, rows=good_rows()),
    "header no JSON": archive(header=np.array("{"), rows=good_rows()),
    "header a list": archive(header=np.array("[1]"), rows=good_rows()),
    "no format": archive(header=np.array("{}"), rows=good_rows()),
    "other format": archive(header=header(format="dictionary"), rows=good_rows()),
    "other version": archive(header=header(version=2), rows=good_rows()),
    "no version": archive(header=np.array('{"format": "cofuse-operator"}'), rows=good_rows()),
    "no arrays": archive(),
    "half the factors": archive(left=FACTOR),
    "too many arrays": archive(rows=good_rows(), left=FACTOR),
    "NaN": archive(rows=spoilt_rows(np.nan)),
    "infinite": archive(rows=spoilt_rows(np.inf)),
    "rows too long": archive(rows=2 * good_rows()),
    "a zero row": archive(rows=np.zeros((2, 9))),
    "rows with a mean": archive(rows=rows_with_a_mean()),
    "no square patch": archive(
        header=header(), rows=unit_mean_free(np.arange(20.0).reshape(2, 10) ** 2)
    ),
    "no rows": archive(rows=np.zeros((0, 9))),
    "a single row": archive(rows=good_rows()[0]),
    "whole numbers": archive(rows=np.eye(9, dtype=np.int64)),
    "text rows": archive(rows=np.array([["a", "b"]])),
    "NaN factor": archive(left=FACTOR * np.nan, right=FACTOR),
    "text factor": archive(left=np.array([["a"] * 3] * 4), right=FACTOR),
    "flat factor": archive(left=FACTOR[0], right=FACTOR),
    "factor without constant": archive(left=FACTOR[1:], right=FACTOR),
    "factor too long": archive(
        header=header(), left=FACTOR * np.array([[1], [2], [1], [1]]), right=FACTOR
    ),
    "provenance no mapping": archive(header=header(provenance="abc"), left=FACTOR, right=FACTOR),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    path.write_bytes(WRONG_FILES[wrong])
    with pytest.raises(CofuseError) as caught:
        read_operator(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message or "operator given" in message


@pytest.mark.parametrize("name", ["missing.npz", "."])
def test_a_missing_file_and_a_folder_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(CofuseError) as caught:
        read_operator(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = archive(rows=good_rows())
    path = tmp_path / "cut.npz"
    for length in range(0, len(whole), 13):
        path.write_bytes(whole[:length])
        with pytest.raises(CofuseError):
            read_operator(path)
