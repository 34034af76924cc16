"""The spectrum of a noise between its bands, and what filters see of it."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.images import from_opponent, luminance
from cofuse.operators import dct_operator
from cofuse.sensor.law import BANDS, NoiseLaw
from cofuse.sensor.spectrum import luminance_levels, noise_seen, spectrum

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)
SIGMAS = st.floats(0.01, 200.0)


def measured_levels(noise: Array) -> Array:
    """Level of every band of a picture of nothing but noise."""
    k = np.arange(8)
    dct = np.cos(np.pi * (2 * k[:, None] + 1) * k / 16) / 2
    dct[:, 0] /= 2**0.5
    finest = np.maximum(*np.indices((8, 8))) >= 4
    levels = []
    for band in range(BANDS):
        patches = np.lib.stride_tricks.sliding_window_view(noise, (8, 8))[::3, ::3]
        levels.append(2**band * np.sqrt(((dct.T @ patches @ dct)[..., finest] ** 2).mean()))
        noise = noise.reshape(len(noise) // 2, 2, -1, 2).mean(axis=(1, 3))
    return np.array(levels)


def coloured_noise(seed: int, blur: float, side: int = 1024, sigma: float = 10.0) -> Array:
    noise = np.random.default_rng(seed).standard_normal((side, side))
    if blur:
        noise = cv2.GaussianBlur(noise, (0, 0), blur)
    return np.asarray(noise * (sigma / noise.std()))


@given(SIGMAS, st.integers(2, 9), SEEDS)
@settings(deadline=None, max_examples=40)
def test_all_filters_see_the_same_white_noise(sigma: float, side: int, seed: int) -> None:
    filters = np.random.default_rng(seed).normal(size=(3, side, side))
    seen = noise_seen(filters, np.full(BANDS, sigma))
    np.testing.assert_allclose(seen, sigma, rtol=1e-12)


@given(st.lists(SIGMAS, min_size=BANDS, max_size=BANDS), st.floats(0.01, 100), SEEDS)
@settings(deadline=None, max_examples=40)
def test_more_noise_is_seen_as_more(levels: list[float], factor: float, seed: int) -> None:
    filters = np.random.default_rng(seed).normal(size=(3, 7, 7))
    seen = noise_seen(filters, levels)
    assert (seen > 0).all() and np.isfinite(seen).all()
    louder = noise_seen(filters, factor * np.array(levels))
    np.testing.assert_allclose(louder, factor * seen, rtol=1e-9)


@pytest.mark.parametrize("blur", [0.0, 0.4, 0.7, 1.0])
def test_filters_see_what_they_see_of_a_picture(blur: float) -> None:
    noise = coloured_noise(1, blur)
    levels = measured_levels(noise)
    one_pixel = np.ones((1, 1, 1))
    assert noise_seen(one_pixel, levels)[0] == pytest.approx(noise.std(), rel=0.05)
    law = NoiseLaw.white(1.0)
    law = NoiseLaw(law.model, levels[None, None], law.errors)
    assert noise_seen(one_pixel, levels)[0] == pytest.approx(law.by_frame[0, 0], rel=0.15)
    filters = dct_operator(7).filters
    true = np.array([cv2.filter2D(noise, -1, f.astype(np.float64)).std() for f in filters])
    # What falls off within the finest octave is known the least.
    np.testing.assert_allclose(noise_seen(filters, levels), true, rtol=0.1, atol=0.15 * noise.std())


def test_no_noise_is_seen_as_none() -> None:
    assert not spectrum(np.zeros(BANDS)).any()
    assert not noise_seen(np.ones((1, 3, 3)), np.zeros(BANDS)).any()
    some = noise_seen(np.ones((1, 1, 1)), [5.0, 0, 0, 0, 0])
    assert np.isfinite(some).all() and 1 < some[0] < 10


def test_luminance_has_its_part_of_every_plane() -> None:
    grey = np.arange(1.0, 1 + BANDS)
    np.testing.assert_array_equal(luminance_levels(grey[None]), grey)
    planes = np.random.default_rng(0).normal(0, [3.0, 9.0, 20.0], (300, 300, 3))
    of_planes = np.repeat([[3.0], [9.0], [20.0]], BANDS, axis=1)
    picture = from_opponent(planes.astype(np.float32))
    np.testing.assert_allclose(luminance_levels(of_planes), luminance(picture).std(), rtol=0.02)
