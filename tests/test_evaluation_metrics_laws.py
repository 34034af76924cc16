"""Laws the metrics without truth obey, whatever the pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.errors import CofuseError
from cofuse.evaluation import metrics

Picture = np.ndarray[Any, Any]
Score = Callable[..., float]

WITHOUT_TRUTH = metrics.WITHOUT_TRUTH

#: Closed ranges for two sources.
BOUNDS = {
    "q_mi": (0.0, 2.0),
    "q_ncie": (1.0 - math.log(3, 256), 1.0),
    "q_abf": (0.0, 0.9994 * 0.9879),
    "q_y": (-1.0, 1.0),
    "q_cb": (0.0, 1.0),
}

#: Scores of a fusion that equals every source.
PERFECT = {
    "q_mi": 2.0,
    "q_abf": 0.9994 / (1 + math.exp(-7.5)) * 0.9879 / (1 + math.exp(-4.4)),
    "q_y": 1.0,
    "q_cb": 1.0,
}

each_metric = pytest.mark.parametrize("name", WITHOUT_TRUTH)
some_examples = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**32 - 1)
any_triple = arrays(np.uint8, st.tuples(st.just(3), st.integers(8, 20), st.integers(8, 20)))


def scene(seed: int, shape: tuple[int, int] = (40, 44), frames: int = 2) -> list[Picture]:
    """Textured pictures of one scene, each sharp in another part, and their mean, as uint8."""
    rng = np.random.default_rng(seed)
    sharp = rng.uniform(0, 255, shape)
    soft = sum(np.roll(sharp, (i, j), (0, 1)) for i in range(3) for j in range(3)) / 9
    part = np.arange(shape[1]) * frames // shape[1]
    sources = [np.where(part == k, sharp, soft).astype(np.uint8) for k in range(frames)]
    return [*sources, np.mean(sources, axis=0).astype(np.uint8)]


@each_metric
@given(triple=any_triple)
@some_examples
def test_bounds_hold_for_any_picture(name: str, triple: Picture) -> None:
    low, high = BOUNDS[name]
    score = WITHOUT_TRUTH[name](triple[:2], triple[2])
    assert isinstance(score, float)
    assert low - 1e-9 <= score <= high + 1e-9


@each_metric
@given(seed=seeds)
@some_examples
def test_the_order_and_the_dtype_of_sources_are_irrelevant(name: str, seed: int) -> None:
    *sources, fused = scene(seed, frames=3)
    score = WITHOUT_TRUTH[name]
    expected = score(sources, fused)
    assert score(sources[::-1], fused) == pytest.approx(expected, rel=1e-9)
    for dtype in (np.float32, np.float64):
        floats = [picture.astype(dtype) for picture in (*sources, fused)]
        assert score(floats[:-1], floats[-1]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", PERFECT)
@given(picture=any_triple.map(lambda triple: triple[0]))
@some_examples
def test_the_fusion_that_equals_every_source_is_perfect(name: str, picture: Picture) -> None:
    score = WITHOUT_TRUTH[name]([picture, picture], picture)
    assert score == pytest.approx(PERFECT[name], rel=1e-6, abs=1e-9)


@each_metric
@given(seed=seeds)
@some_examples
def test_the_sharp_picture_beats_the_average_and_noise(name: str, seed: int) -> None:
    """Sources that each lost half of a truth: the truth keeps the most of both."""
    a, b, mean = scene(seed)
    truth = np.where(np.arange(a.shape[1]) < a.shape[1] // 2, a, b)
    noise = np.random.default_rng(seed + 1).integers(0, 256, a.shape, dtype=np.uint8)
    score = WITHOUT_TRUTH[name]
    at_truth = score([a, b], truth)
    assert at_truth > score([a, b], noise)
    # The others do not promise to rank the truth above a blend: statistics of levels see too few
    # pixels here, the rest also reward likeness to the blurred halves.
    if name in ("q_abf", "q_y", "q_cb"):
        assert at_truth > score([a, b], mean)


@each_metric
@given(seed=seeds)
@some_examples
def test_shared_flips_change_nothing(name: str, seed: int) -> None:
    a, b, fused = scene(seed, (24, 30))
    score = WITHOUT_TRUTH[name]
    # Q^AB/F: a vertical edge has the angle +π/2 whichever way it is mirrored.
    for flip in (np.flipud,) if name == "q_abf" else (np.flipud, np.fliplr, np.transpose):
        flipped = score([flip(a), flip(b)], flip(fused))
        assert flipped == pytest.approx(score([a, b], fused), rel=1e-7), flip.__name__


@pytest.mark.parametrize("name", [n for n in WITHOUT_TRUTH if n != "q_ncie"])
@given(seed=seeds)
@some_examples
def test_giving_every_source_twice_changes_nothing(name: str, seed: int) -> None:
    a, b, fused = scene(seed)
    score = WITHOUT_TRUTH[name]
    assert score([a, b, b, a], fused) == pytest.approx(score([a, b], fused), rel=1e-9)


@each_metric
def test_bands_equal_the_whole(name: str) -> None:
    """A tall picture is worked on in bands of rows, upside down in others; none is written to."""
    a, b, fused = (picture * 0.75 for picture in scene(5, (701, 90)))
    for picture in (a, b, fused):
        picture.setflags(write=False)
    score = WITHOUT_TRUTH[name]
    flipped = score([np.flipud(a), np.flipud(b)], np.flipud(fused))
    assert score([a, b], fused) == pytest.approx(flipped, rel=1e-9)


@given(triple=any_triple)
@some_examples
def test_copying_a_source_scores_one_plus_the_other(triple: Picture) -> None:
    a, b, _ = triple
    other = metrics.q_mi([b, b], a) / 2
    assert metrics.q_mi([a, b], a) == pytest.approx(1.0 + other, rel=1e-12)
    assert metrics.q_mi([a, b], a) >= 1.0


@given(seed=seeds)
@some_examples
def test_information_ignores_how_levels_are_named(seed: int) -> None:
    a, b, fused = scene(seed)
    names = np.random.default_rng(seed).permutation(256).astype(np.uint8)
    for score in (metrics.q_mi, metrics.q_ncie):
        assert score([names[a], b], fused) == pytest.approx(score([a, b], fused), rel=1e-12)


def test_q_ncie_of_equal_pictures_has_a_closed_form() -> None:
    """256 levels equally often: all correlations are 1, one eigenvalue is 3, the others are 0."""
    ramp = np.arange(1024, dtype=np.int64).astype(np.uint8).reshape(32, 32)
    assert metrics.q_ncie([ramp, ramp], ramp) == pytest.approx(1.0, abs=1e-12)


def test_q_abf_counts_the_frame_of_a_constant_picture_as_an_edge() -> None:
    bright, dark = np.full((9, 9), 200, np.uint8), np.full((9, 9), 2, np.uint8)
    assert metrics.q_abf([bright, bright], bright) == pytest.approx(PERFECT["q_abf"])
    assert metrics.q_abf([bright, bright], dark) < 0.01


@each_metric
@pytest.mark.parametrize("level", [0, 7])
def test_constant_pictures_have_a_score(name: str, level: int) -> None:
    flat = np.full((16, 18), level, np.uint8)
    low, high = BOUNDS[name]
    assert low - 1e-9 <= WITHOUT_TRUTH[name]([flat, flat], flat) <= high


@each_metric
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: ([a], a), "at least two"),
        (lambda a: ([], a), "at least two"),
        (lambda a: ([a, a[1:]], a), "source 2 has shape"),
        (lambda a: ([a, a], a[:, 1:]), "all pictures must agree"),
        (lambda a: ([a, np.stack([a] * 3, axis=-1)], a), "to_grey"),
        (lambda a: ([a, a.astype(np.uint16)], a), "uint16"),
        (lambda a: ([a, a], np.full(a.shape, np.nan)), "NaN"),
        (lambda a: ([a, np.where(a > 9, np.inf, a)], a), "NaN or infinite"),
        (lambda a: ([a[:0], a[:0]], a[:0]), "empty"),
    ],
)
def test_mistakes_are_explained(
    name: str, change: Callable[[Picture], tuple[list[Picture], Picture]], message: str
) -> None:
    sources, fused = change(scene(1)[0])
    with pytest.raises(CofuseError, match=message):
        WITHOUT_TRUTH[name](sources, fused)


def test_pictures_smaller_than_the_window_are_refused() -> None:
    tiny = np.zeros((6, 40), np.uint8)
    with pytest.raises(CofuseError, match="at least 7x7"):
        metrics.q_y([tiny, tiny], tiny)
