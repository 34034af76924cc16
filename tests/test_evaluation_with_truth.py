"""Scores against a truth: closed forms, invariances, and agreement with scikit-image."""

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

PERFECT = {"psnr": math.inf, "ssim": 1.0}

each_metric = pytest.mark.parametrize("score", metrics.WITH_TRUTH.values(), ids=PERFECT)
some_examples = settings(max_examples=20, deadline=None)
any_picture = arrays(np.uint8, st.tuples(st.integers(11, 20), st.integers(11, 20)))


def noisy_pair(seed: int, shape: tuple[int, ...] = (40, 44)) -> tuple[Picture, Picture]:
    rng = np.random.default_rng(seed)
    truth = np.cumsum(rng.normal(0, 9, shape), axis=1) + 128
    noisy = truth + rng.normal(0, 12, shape)
    return np.clip(noisy, 0, 255).astype(np.uint8), np.clip(truth, 0, 255).astype(np.uint8)


@each_metric
@given(picture=any_picture)
@some_examples
def test_the_truth_itself_is_perfect(score: Callable[..., float], picture: Picture) -> None:
    assert score(picture, picture) == pytest.approx(PERFECT[score.__name__], abs=1e-9)


@each_metric
@given(seed=st.integers(0, 2**32 - 1))
@some_examples
def test_picture_and_truth_may_change_places(score: Callable[..., float], seed: int) -> None:
    image, truth = noisy_pair(seed)
    assert score(truth, image) == pytest.approx(score(image, truth), rel=1e-12)
    for flip in (np.flipud, np.fliplr, np.transpose):
        assert score(flip(image), flip(truth)) == pytest.approx(score(image, truth), rel=1e-9)


@each_metric
def test_white_sets_the_scale(score: Callable[..., float]) -> None:
    image, truth = noisy_pair(3)
    deep = [picture.astype(np.uint16) * 257 for picture in (image, truth)]
    unit = [picture / 255.0 for picture in (image, truth)]
    expected = score(image, truth)
    assert score(*deep, white=65535) == pytest.approx(expected, rel=1e-9)
    assert score(*unit, white=1.0) == pytest.approx(expected, rel=1e-9)


@each_metric
def test_bands_equal_the_whole(score: Callable[..., float]) -> None:
    """A tall picture is worked on in bands of rows, upside down in others."""
    image, truth = noisy_pair(4, (701, 90, 3))
    flipped = score(np.flipud(image), np.flipud(truth))
    assert score(image, truth) == pytest.approx(flipped, rel=1e-9)


@given(offset=st.integers(1, 200))
@some_examples
def test_psnr_of_an_offset(offset: int) -> None:
    truth = np.arange(50, dtype=np.uint8).reshape(5, 10)
    expected = 20 * math.log10(255 / offset)
    assert metrics.psnr(truth + np.uint8(offset), truth) == pytest.approx(expected, rel=1e-12)


@given(a=st.floats(0, 255), b=st.floats(0, 255))
@some_examples
def test_ssim_of_two_constants(a: float, b: float) -> None:
    c1 = (0.01 * 255) ** 2
    expected = (2 * a * b + c1) / (a * a + b * b + c1)
    score = metrics.ssim(np.full((13, 12), a), np.full((13, 12), b))
    assert score == pytest.approx(expected, rel=1e-9)


def test_ssim_of_one_window_is_its_formula() -> None:
    image, truth = (picture.astype(float) for picture in noisy_pair(7, (11, 11)))
    distance = np.arange(-5, 6) ** 2
    weights = np.exp(-(distance[:, None] + distance) / (2 * 1.5**2))
    weights /= weights.sum()
    mu_i, mu_t = (weights * image).sum(), (weights * truth).sum()
    var_i, var_t = (weights * (image - mu_i) ** 2).sum(), (weights * (truth - mu_t) ** 2).sum()
    cov = (weights * (image - mu_i) * (truth - mu_t)).sum()
    c1, c2 = 2.55**2, 7.65**2
    expected = (2 * mu_i * mu_t + c1) * (2 * cov + c2)
    expected /= (mu_i**2 + mu_t**2 + c1) * (var_i + var_t + c2)
    assert metrics.ssim(image, truth) == pytest.approx(expected, rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
@some_examples
def test_ssim_agrees_with_scikit_image(seed: int) -> None:
    skimage_metrics = pytest.importorskip("skimage.metrics")
    image, truth = (picture.astype(float) for picture in noisy_pair(seed))
    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    _, local = skimage_metrics.structural_similarity(
        image, truth, data_range=255, full=True, **settings
    )
    # Further out its windows see reflected pixels.
    interior = local[5:-5, 5:-5].mean()
    assert metrics.ssim(image, truth) == pytest.approx(interior, rel=1e-9)


def test_colour_scores_are_means_over_channels() -> None:
    image, truth = noisy_pair(8, (30, 28, 3))
    by_channel = [metrics.ssim(image[..., c], truth[..., c]) for c in range(3)]
    assert metrics.ssim(image, truth) == pytest.approx(np.mean(by_channel), rel=1e-12)


@each_metric
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: ((a, a[1:]), {}), "same size"),
        (lambda a: ((a * np.nan, a), {}), "NaN"),
        (lambda a: ((a, a), {"white": 0.0}), "white"),
        (lambda a: ((a, a), {"white": math.nan}), "white"),
        (lambda a: ((a.astype(np.int32), a), {}), "int32"),
        (lambda a: ((a[0], a[0]), {}), "shape"),
        (lambda a: ((a[:0], a[:0]), {}), "empty"),
    ],
)
def test_mistakes_are_explained(
    score: Callable[..., float],
    change: Callable[[Picture], tuple[tuple[Picture, Picture], dict[str, float]]],
    message: str,
) -> None:
    pair, options = change(np.ones((20, 20)))
    with pytest.raises(CofuseError, match=message):
        score(*pair, **options)


def test_pictures_smaller_than_the_window_are_refused() -> None:
    with pytest.raises(CofuseError, match="at least"):
        metrics.ssim(np.ones((2, 40)), np.ones((2, 40)))


@given(rgb=arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(3))))
@some_examples
def test_to_grey_rounds_half_up(rgb: Picture) -> None:
    grey = metrics.to_grey(rgb)
    assert grey.dtype == np.uint8
    for (r, g, b), level in zip(rgb.reshape(-1, 3).tolist(), grey.ravel().tolist(), strict=True):
        exact = 0.298936021293776 * r + 0.587043074451121 * g + 0.114020904255103 * b
        assert level == math.floor(exact + 0.5)
    np.testing.assert_array_equal(metrics.to_grey(rgb.astype(np.float32)), grey)


def test_to_grey_leaves_grey_alone_and_refuses_the_rest() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert metrics.to_grey(grey) is grey
    np.testing.assert_array_equal(metrics.to_grey(np.full((1, 1, 3), 300.0)), [[255]])
    with pytest.raises(CofuseError, match="shape"):
        metrics.to_grey(np.zeros((4, 4, 4), np.uint8))
    with pytest.raises(CofuseError, match="uint16"):
        metrics.to_grey(np.zeros((4, 4, 3), np.uint16))
