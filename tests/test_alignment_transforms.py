"""Transforms form groups, the common area is the largest one, and saved alignments come back."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cofuse.alignment import (
    Alignment,
    Transform,
    alignment_from_json,
    alignment_to_json,
)
from cofuse.alignment.transforms import MODELS, corners, tangents, to_reduced
from cofuse.alignment.warping import common_area
from cofuse.errors import CofuseError

few = settings(max_examples=40, deadline=None)
small = st.floats(-1, 1, allow_subnormal=False)


@st.composite
def transforms(draw, model=None):
    """A transform near the identity, of any model."""
    model = model or draw(st.sampled_from(MODELS))
    reach = np.array([[0.1, 0.1, 9.0], [0.1, 0.1, 9.0], [2e-4, 2e-4, 0.0]])
    matrix = np.eye(3)
    for direction in tangents(model):
        matrix = matrix + draw(small) * direction * reach
    return Transform(matrix)


@few
@given(first=transforms(), second=transforms())
def test_a_product_of_matrices_applies_them_in_turn(first, second):
    points = corners((40, 60))
    both = Transform(second.matrix @ first.matrix)
    np.testing.assert_allclose(both(points), second(first(points)), atol=1e-9)
    back = Transform(np.linalg.inv(first.matrix))
    np.testing.assert_allclose(back(first(points)), points, atol=1e-8)


def test_corner_displacement_in_closed_form():
    assert Transform(np.array([[1, 0, 3], [0, 1, -4], [0, 0, 1.0]])).corner_displacement(
        (7, 9)
    ) == pytest.approx(5)
    zoom = Transform(np.diag([1.1, 1.1, 1.0]))  # about the first pixel's centre
    assert zoom.corner_displacement((31, 41)) == pytest.approx(0.1 * 50)
    assert Transform(np.eye(3)).corner_displacement((5, 5)) == 0


def test_whole_shifts_are_recognised():
    assert Transform(np.array([[1, 0, 3], [0, 1, -4], [0, 0, 1.0]])).whole_shift == (3, -4)
    assert Transform(np.array([[1, 0, 3.5], [0, 1, -4], [0, 0, 1.0]])).whole_shift is None
    assert Transform(np.diag([1.0, 1.01, 1.0])).whole_shift is None


def test_a_matrix_counts_up_to_its_scale():
    shift = np.array([[1, 0, 3], [0, 1, -4], [0, 0, 1.0]])
    assert Transform(-2 * shift) == Transform(shift)
    assert Transform(shift) != Transform(np.eye(3))


def test_corners_are_those_of_the_pixels_centres():
    np.testing.assert_array_equal(corners((5, 9)), [[0, 0], [8, 0], [8, 4], [0, 4]])


@pytest.mark.parametrize(("size", "reduced"), [((40, 60), (10, 20)), ((41, 67), (13, 9))])
def test_a_reduced_picture_has_the_same_borders(size, reduced):
    """Pixels are squares: the outer borders lie half a pixel beyond the outermost centres."""
    matrix = Transform(to_reduced(size, reduced))
    np.testing.assert_allclose(matrix((-0.5, -0.5)), (-0.5, -0.5), atol=1e-12)
    far, there = ((shape[1] - 0.5, shape[0] - 0.5) for shape in (size, reduced))
    np.testing.assert_allclose(matrix(far), there, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "free"),
    [
        ("translation", [[0, 0, 1], [0, 0, 1], [0, 0, 0]]),
        ("similarity", [[1, 1, 1], [1, 1, 1], [0, 0, 0]]),
        ("affine", [[1, 1, 1], [1, 1, 1], [0, 0, 0]]),
        ("homography", [[1, 1, 1], [1, 1, 1], [1, 1, 0]]),
    ],
)
def test_tangents_span_what_a_model_may_do(model, free):
    directions = tangents(model)
    degrees = {"translation": 2, "similarity": 4, "affine": 6, "homography": 8}[model]
    assert np.linalg.matrix_rank(directions.reshape(len(directions), 9)) == degrees
    np.testing.assert_array_equal(np.abs(directions).sum(axis=0) > 0, np.array(free, bool))
    if model == "similarity":
        for direction in directions:  # what is added to the identity is a scaled rotation
            linear = np.eye(2) + 0.1 * direction[:2, :2]
            gram = linear @ linear.T
            np.testing.assert_allclose(gram, gram[0, 0] * np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    "matrix",
    [np.eye(2), np.full((3, 3), np.nan), np.diag([1.0, 1.0, 0.0]), np.diag([1.0, 0.0, 1.0])],
    ids=["two rows", "not a number", "last entry", "flattens"],
)
def test_bad_transforms_are_refused(matrix):
    with pytest.raises(CofuseError, match="3x3 matrix"):
        Transform(matrix)


def covered(transform, size):
    """Pixels of the reference that a frame covers, the slow way."""
    y, x = np.indices(size)
    places = transform(np.stack([x, y], axis=-1))
    inside = (places > -1e-7) & (places < np.array(size[::-1]) - 1 + 1e-7)
    return inside.all(axis=-1)


def largest_rectangle(mask):
    """Pixels of the largest full rectangle, trying all of them."""
    sums = np.pad(mask.astype(int), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    best = 0
    for top in range(mask.shape[0]):
        for bottom in range(top + 1, mask.shape[0] + 1):
            row = sums[bottom] - sums[top]
            span = row[None, :] - row[:, None]
            width = np.arange(len(row))[None, :] - np.arange(len(row))[:, None]
            full = (span == width * (bottom - top)) & (width > 0)
            best = max(best, int((full * width).max()) * (bottom - top))
    return best


@settings(max_examples=30, deadline=None)
@given(found=st.lists(transforms(), min_size=1, max_size=3))
def test_the_common_area_is_covered_and_the_largest(found):
    size = (22, 27)
    y, x = np.indices(size)
    edges = np.array([0.0, 0.0]), np.array(size[::-1]) - 1.0
    for transform in found:  # whether a place all but on the border is covered is for rounding
        for edge in edges:
            off = np.abs(transform(np.stack([x, y], axis=-1)) - edge)
            assume(not ((off < 1e-4) & (off > 1e-9)).any())
    mask = np.logical_and.reduce([covered(t, size) for t in found])
    best = largest_rectangle(mask)
    if best == 0:
        with pytest.raises(CofuseError, match="no area in common"):
            common_area(found, size)
        return
    top, bottom, left, right = common_area(found, size)
    assert mask[top:bottom, left:right].all()
    assert (bottom - top) * (right - left) == best


def test_the_common_area_of_shifts_in_closed_form():
    shifts = [np.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]]) for x, y in ((3, 0), (-2, 5), (0, -1))]
    assert common_area([Transform(m) for m in shifts], (50, 80)) == (1, 45, 2, 77)
    assert common_area([Transform(np.eye(3))], (50, 80)) == (0, 50, 0, 80)


def test_a_frame_that_shows_more_covers_the_reference_and_no_more():
    half = np.array([[0.5, 0, 20], [0, 0.5, 12], [0, 0, 1.0]])
    assert common_area([Transform(half)], (50, 80)) == (0, 50, 0, 80)


@few
@given(
    found=st.lists(transforms("similarity"), min_size=2, max_size=4),
    gains=st.lists(st.floats(0.5, 2), min_size=3, max_size=3),
)
def test_a_saved_alignment_comes_back_to_the_last_bit(found, gains):
    still = Transform(np.eye(3))
    one, other = (1.0, 1.0, 1.0), tuple(gains)
    alignment = Alignment(
        names=("a", "ü", *(f"frame {k}" for k in range(len(found)))),
        size=(30, 40),
        model="similarity",
        reference=0,
        transforms=(still, None, *found),
        gains=(one, one, *[other] * len(found)),
        left_out={1: "it shows no detail"},
    )
    assert alignment_from_json(alignment_to_json(alignment)) == alignment


@pytest.mark.parametrize(
    ("changed", "nothing"),
    [
        ({}, True),
        ({"gains": ((1.0,), (0.9,))}, False),
        ({"gains": ((0.9,), (0.9,))}, False),
        ({"transforms": (Transform(np.eye(3)), None), "left_out": {1: "flat"}}, False),
        ({"transforms": (Transform(np.eye(3)), Transform(np.diag([1, 1.01, 1])))}, False),
        ({"parallax": True}, False),
    ],
)
def test_an_alignment_changes_nothing_only_if_all_frames_stay_as_they_are(changed, nothing):
    still = Transform(np.eye(3))
    facts = {
        "names": ("a", "b"),
        "size": (30, 40),
        "model": "similarity",
        "reference": 0,
        "transforms": (still, still),
        "gains": ((1.0,), (1.0,)),
    }
    assert Alignment(**facts | changed).changes_nothing is nothing


def saved(**changes):
    """Text of a valid alignment of two frames with some entries changed."""
    still = Transform(np.eye(3))
    alignment = Alignment(
        names=("a", "b"),
        size=(30, 40),
        model="similarity",
        reference=0,
        transforms=(still, still),
        gains=((1.0,), (1.0,)),
    )
    given_ = json.loads(alignment_to_json(alignment))
    frame = changes.pop("frame", {})
    given_["frames"][1].update(frame)
    return json.dumps({**given_, **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("[]", "format"),
        ('{"format": "cofuse alignment", "version": 1}', "missing"),
        (saved(version=2), "version 2"),
        (saved(model="spline"), "spline"),
        (saved(reference=2), "reference"),
        (saved(reference=True), "reference"),
        (saved(height="tall"), "tall"),
        (saved(width=40.5), "40.5"),
        (saved(parallax="no"), "'no'"),
        (saved(frames=[]), "of 0 frames"),
        (saved(frames=[1, 2]), "cannot be used"),
        (saved(frame={"gains": [1.0, -1.0, 1.0]}), "gains"),
        (saved(frame={"gains": "no"}), "cannot be used"),
        (saved(frame={"matrix": [[1, 0], [0, 1]]}), "3x3"),
        (saved(frame={"matrix": [[1, 0, 0], [0, 0, 0], [0, 0, 1]]}), "flatten"),
        (saved(reference=1, frame={"matrix": None}), "left out"),
    ],
)
def test_broken_text_is_refused_in_words(text, words):
    alignment_from_json(saved())  # unchanged it is read
    with pytest.raises(CofuseError, match=words):
        alignment_from_json(text)
