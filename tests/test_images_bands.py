"""Bands of pictures: they add up, are what boxes leave, and hold as much noise as is said."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cofuse.images.pixels import MIXED_BANDS, REACH, WINDOWS, blurred, smoothed
from cofuse.operators import load_operator
from cofuse.sensor.bands import octaves_in_bands, octaves_in_filters, white_in_bands
from cofuse.sensor.law import BANDS, SHARES

Array = NDArray[np.float64]

shapes = st.tuples(st.integers(1, 40), st.integers(1, 40)).flatmap(
    lambda sides: st.sampled_from([sides, (*sides, 3)])
)
pictures = shapes.flatmap(
    lambda shape: hnp.arrays(np.float32, shape, elements=st.floats(0, 1, width=32))
)


def split(picture: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The bands of a picture, which frames are mixed by: each what the next box takes away."""
    steps = smoothed(picture)
    return [*(finer - coarser for finer, coarser in pairwise(steps)), steps[-1]]


def box_mean(picture: Array, side: int) -> Array:
    """The mean of every window, picked pixel by pixel; the border is repeated."""
    reach = side // 2
    rows, columns = (
        np.clip(np.arange(length)[:, None] + np.arange(-reach, reach + 1), 0, length - 1)
        for length in picture.shape[:2]
    )
    return picture[rows[:, :, None, None], columns[None, None]].mean(axis=(1, 3))


@given(pictures, st.sampled_from(WINDOWS))
def test_a_box_is_the_mean_of_a_window(picture: NDArray[np.float32], side: int) -> None:
    result = blurred(picture, side)
    assert result.dtype == np.float32 and result.shape == picture.shape
    np.testing.assert_allclose(result, box_mean(picture.astype(float), side), rtol=0, atol=1e-5)


@given(pictures)
def test_bands_add_up_to_the_picture(picture: NDArray[np.float32]) -> None:
    bands = split(picture)
    assert len(bands) == MIXED_BANDS
    assert all(band.shape == picture.shape and band.dtype == np.float32 for band in bands)
    np.testing.assert_allclose(np.sum(bands, axis=0), picture, rtol=0, atol=1e-6)


@given(pictures)
def test_bands_are_what_each_pair_of_boxes_takes_away(picture: NDArray[np.float32]) -> None:
    left = picture.astype(float)
    for side, band in zip(WINDOWS, split(picture), strict=False):
        smooth = box_mean(box_mean(left, side), side)
        np.testing.assert_allclose(band, left - smooth, rtol=0, atol=1e-5)
        left = smooth


@given(st.integers(2, 4), st.integers(0, 10**6))
def test_one_frame_with_all_the_weight_is_left_as_it_is(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = rng.random((count, 23, 30, 3), np.float32)
    weights = np.zeros((count, MIXED_BANDS), np.float32)
    weights[seed % count] = 1
    mixture = sum(
        weight * band
        for frame, own in zip(frames, weights, strict=True)
        for weight, band in zip(own, split(frame), strict=True)
    )
    np.testing.assert_allclose(mixture, frames[seed % count], rtol=0, atol=1e-6)


def test_bands_depend_on_nothing_beyond_their_reach() -> None:
    picture = np.zeros((2 * REACH + 41, 2 * REACH + 41), np.float32)
    middle = REACH + 20
    before = split(picture)
    picture[middle, middle] = 1
    changed = np.any([a != b for a, b in zip(split(picture), before, strict=True)], axis=0)
    rows, columns = np.nonzero(changed)
    assert np.abs([rows - middle, columns - middle]).max() == REACH


def test_octaves_are_shares_of_each_band() -> None:
    shares = octaves_in_bands()
    assert shares.shape == (MIXED_BANDS, BANDS)
    assert (shares >= 0).all()
    assert shares.sum(axis=1) == pytest.approx(np.ones(MIXED_BANDS))


def test_octaves_are_those_that_noise_put_into_one_leaves_in_each_band() -> None:
    """White noise, one octave of its frequencies kept at a time, and split by the real boxes."""
    rng = np.random.default_rng(3)
    size, inner = 1024, slice(REACH, -REACH)
    spectrum = np.fft.fft2(rng.standard_normal((size, size)))
    frequency = np.abs(np.fft.fftfreq(size))
    highest = np.maximum.outer(frequency, frequency)
    edges = [*(0.5 / 2**octave for octave in range(BANDS)), 0.0]
    kept = [(highest > low) & (highest <= high) for high, low in pairwise(edges)]
    kept[-1] |= highest == 0
    assert np.sum(kept, axis=0).min() == 1
    np.testing.assert_allclose([part.mean() for part in kept], SHARES, rtol=0.05)
    power = np.empty((MIXED_BANDS, BANDS))
    for octave, part in enumerate(kept):
        noise = np.fft.ifft2(spectrum * part).real.astype(np.float32)
        for number, band in enumerate(split(noise)):
            power[number, octave] = np.mean(band[inner, inner].astype(float) ** 2)
    shares = power / power.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(octaves_in_bands(), shares, rtol=0, atol=0.02)


def test_white_noise_has_in_each_band_the_part_that_is_said() -> None:
    noise = np.random.default_rng(4).standard_normal((1024, 1024)).astype(np.float32)
    inner = slice(REACH, -REACH)
    power = np.array([np.mean(band[inner, inner].astype(float) ** 2) for band in split(noise)])
    parts = white_in_bands()
    assert parts.shape == (MIXED_BANDS,) and (parts > 0).all()
    assert parts.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(parts, power / power.sum(), rtol=0.05)


def test_filters_see_the_octaves_that_they_let_through() -> None:
    filters = load_operator("dct-7").filters
    shares = octaves_in_filters(filters)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    # The power that filters let through, by Parseval, at frequencies four times as dense.
    size = 509
    frequency = np.abs(np.fft.fftfreq(size))
    highest = np.maximum(frequency[:, None], frequency)
    for own, share in zip(filters[::9], shares[::9], strict=True):
        power = np.abs(np.fft.fft2(own, s=(size, size))) ** 2 / size**2
        for octave in range(3):
            within = (highest <= 0.5 / 2**octave) & (highest > 0.25 / 2**octave)
            # A filter of 7 pixels changes little from one of 127 frequencies to the next.
            assert power[within].sum() == pytest.approx(share[octave], abs=0.02)
