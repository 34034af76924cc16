"""Restoring: what noise weights leave, in closed form and measured, and what is done about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse import restoring
from cofuse.images import from_opponent, to_opponent
from cofuse.kernels import cpu, reference
from cofuse.mixing import MIXED_BANDS, REACH, octaves_in_bands, split, white_in_bands
from cofuse.model.tiles import tiles_of
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import BANDS, CLEAN_BELOW, NoiseLaw
from cofuse.operators import dct_operator
from cofuse.reconstruction import shrink_twice
from cofuse.restoring import NoiseLeft, restore
from cofuse.simulation import sample_picture

Levels = NDArray[np.float32]

SEEDS = st.integers(0, 10**6)
SIGMAS = st.floats(0.1, 60)


def law_of(levels: Any, model: NoiseModel | None = None) -> NoiseLaw:
    """Make a law of grey frames from levels (frames, octaves)."""
    given_levels = np.array(levels, np.float64)[:, None]
    return NoiseLaw(model or NoiseModel(1.0), given_levels, np.zeros_like(given_levels))


def white_frames(*sigmas: float) -> NoiseLaw:
    return law_of([[sigma] * BANDS for sigma in sigmas])


def everywhere(weights: Any, shape: tuple[int, int] = (3, 5)) -> Levels:
    """Weights (frames, bands), or (frames,) in all bands, at all pixels."""
    given_weights = np.array(weights, np.float32)
    if given_weights.ndim == 1:
        given_weights = np.repeat(given_weights[:, None], MIXED_BANDS, axis=1)
    return np.broadcast_to(given_weights[..., None, None], (*given_weights.shape, *shape))


def grown(model: NoiseModel, frames: int = 1, colour: bool = False) -> NoiseLaw:
    """Noise of the model's own level in all frames."""
    levels = np.full((frames, 3 if colour else 1, BANDS), model.stabilised_sigma)
    return NoiseLaw(model, levels, np.zeros_like(levels))


def crop(height: int, width: int, *, colour: bool) -> Levels:
    picture = sample_picture("coffee")[100 : 100 + height, 150 : 150 + width].astype(np.float32)
    return picture if colour else picture.mean(axis=-1)


# --- what noise is left ---


@given(st.integers(1, 12), SIGMAS, st.booleans())
def test_equal_weights_leave_white_noise_over_the_root_of_their_number(
    count: int, sigma: float, colour: bool
) -> None:
    noise = NoiseLeft(NoiseLaw.white(sigma, frames=count, colour=colour))
    scale = noise.scale(everywhere([1 / count] * count))
    assert scale.shape == (3, 5) and scale.dtype == np.float32
    np.testing.assert_allclose(scale, 1 / math.sqrt(count), rtol=1e-5)
    np.testing.assert_allclose(noise.typical, np.full((3 if colour else 1, BANDS), sigma))


@given(st.lists(st.floats(0, 40), min_size=BANDS, max_size=BANDS))
def test_of_one_frame_all_its_noise_is_left(levels: list[float]) -> None:
    noise = NoiseLeft(law_of([levels]))
    np.testing.assert_allclose(noise.scale(everywhere([1.0])), 1.0, rtol=1e-5)
    np.testing.assert_allclose(noise.typical, [levels], rtol=1e-12, atol=1e-150)


@given(st.lists(st.tuples(SIGMAS, st.floats(0, 1)), min_size=1, max_size=6))
def test_frames_of_unequal_white_noise_in_closed_form(frames: list[tuple[float, float]]) -> None:
    sigmas, weights = np.array(frames).T
    left = np.sqrt(np.sum(weights**2 * sigmas**2) / np.mean(sigmas**2))
    scale = NoiseLeft(white_frames(*sigmas)).scale(everywhere(weights))
    np.testing.assert_allclose(scale, left, rtol=1e-4, atol=1e-7)


@given(SEEDS)
def test_bands_count_by_what_white_noise_has_in_them_and_frames_by_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.5, 20, (3, BANDS))
    weights = rng.dirichlet(np.ones(3), MIXED_BANDS).T
    # Variances that frames have in bands, by those of a frame of their mean variance.
    own = levels**2 @ octaves_in_bands().T
    power = (white_in_bands() * weights**2 * own / own.mean(axis=0)).sum()
    scale = NoiseLeft(law_of(levels)).scale(everywhere(weights))
    np.testing.assert_allclose(scale, math.sqrt(power), rtol=1e-4)


def test_every_pixel_has_the_scale_of_its_own_weights() -> None:
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(2), (MIXED_BANDS, 6, 7)).transpose(3, 0, 1, 2)
    weights = weights.astype(np.float32)
    noise = NoiseLeft(white_frames(3.0, 8.0))
    whole = noise.scale(weights)
    for row in range(6):
        for column in range(7):
            part = weights[:, :, row : row + 1, column : column + 1]
            assert noise.scale(part)[0, 0] == pytest.approx(whole[row, column], rel=1e-6)


def test_noise_left_is_that_of_a_mixture() -> None:
    """White noise of two levels, mixed by the real bands and measured."""
    rng = np.random.default_rng(5)
    sigmas, shares, size = (4.0, 9.0), (0.7, 0.3), 512
    frames = [rng.normal(0, sigma, (size, size)).astype(np.float32) for sigma in sigmas]
    mixture = sum(
        share * band for share, frame in zip(shares, frames, strict=True) for band in split(frame)
    )
    noise = NoiseLeft(white_frames(*sigmas))
    inner = slice(REACH, -REACH)
    left = float(noise.scale(everywhere(shares))[0, 0]) * float(noise.typical[0, 0])
    assert np.std(mixture[inner, inner]) == pytest.approx(left, rel=0.01)


# --- restoring ---


@pytest.mark.parametrize("colour", [True, False])
def test_with_a_scale_of_one_planes_are_shrunk_twice(colour: bool) -> None:
    picture = crop(40, 52, colour=colour)
    picture += np.random.default_rng(1).normal(0, 9, picture.shape).astype(np.float32)
    restored = restore(
        picture, np.ones((40, 52), np.float32), NoiseLeft(NoiseLaw.white(9.0, colour=colour))
    )
    planes = to_opponent(picture)
    # White noise is seen alike by all filters of length 1, and the planes keep its level.
    expected = from_opponent(
        np.stack(
            [
                shrink_twice(np.ascontiguousarray(plane), dct_operator(7), sigma=9.0)
                for plane in np.moveaxis(planes, -1, 0)
            ],
            axis=-1,
        )
    )
    assert restored.dtype == np.float32 and restored.shape == picture.shape
    np.testing.assert_allclose(restored, expected, rtol=0, atol=2e-3)
    assert np.abs(restored - picture).max() > 5


@pytest.mark.parametrize("factor", [0.25, 0.5])
def test_a_scale_is_so_much_less_noise(factor: float) -> None:
    picture = crop(40, 52, colour=False)
    picture += np.random.default_rng(2).normal(0, 9, picture.shape).astype(np.float32)
    scaled, plain = (
        restore(picture, np.full((40, 52), scale, np.float32), NoiseLeft(NoiseLaw.white(sigma)))
        for scale, sigma in ((factor, 12.0), (1.0, 12.0 * factor))
    )
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-3)


@pytest.mark.parametrize("black", [True, False])
@pytest.mark.parametrize("gain", [0.0, 0.3])
@pytest.mark.parametrize("colour", [True, False])
def test_nothing_is_changed_where_no_noise_is_left(colour: bool, gain: float, black: bool) -> None:
    """A scale of 0 is that of a frame without noise among others, which has all the weight."""
    picture = crop(30, 41, colour=colour)
    if black:
        picture[:20] = 0.0  # flat to the last bit: all coefficients are 0
    noise = NoiseLeft(grown(NoiseModel(6.0, gain), colour=colour))
    restored = restore(picture, np.zeros((30, 41), np.float32), noise)
    np.testing.assert_allclose(restored, picture, rtol=0, atol=1e-3)


def test_where_some_is_left_only_there_is_the_picture_changed() -> None:
    picture = crop(60, 90, colour=False)
    picture[:, 45:] += np.random.default_rng(4).normal(0, 9, (60, 45)).astype(np.float32)
    scale = np.zeros((60, 90), np.float32)
    scale[:, 45:] = 1
    restored = restore(picture, scale, NoiseLeft(NoiseLaw.white(9.0)))
    far = 45 - restoring.HALO
    np.testing.assert_allclose(restored[:, :far], picture[:, :far], rtol=0, atol=1e-3)
    assert np.abs(restored - picture)[:, 45:].mean() > 1


@pytest.mark.parametrize("colour", [True, False])
def test_a_law_of_no_noise_changes_nothing(colour: bool) -> None:
    picture = crop(30, 41, colour=colour)
    noise = NoiseLeft(NoiseLaw.white(0.0, frames=3, colour=colour))
    scale = noise.scale(everywhere([0.5, 0.3, 0.2], (30, 41)))
    assert np.isfinite(scale).all() and not noise.typical.any()
    np.testing.assert_allclose(restore(picture, scale, noise), picture, rtol=0, atol=1e-3)


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), SEEDS)
def test_pictures_smaller_than_a_patch_are_restored(
    height: int, width: int, colour: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (height, width, 3) if colour else (height, width)
    picture = rng.uniform(0, 255, shape).astype(np.float32)
    noise = NoiseLeft(NoiseLaw.white(8.0, colour=colour))
    restored = restore(picture, np.ones((height, width), np.float32), noise)
    assert restored.shape == shape and np.isfinite(restored).all()
    flat = np.full(shape, 77.0, np.float32)
    same = restore(flat, np.ones((height, width), np.float32), noise)
    np.testing.assert_allclose(same, flat, rtol=0, atol=1e-3)


def test_small_pictures_lose_noise_too() -> None:
    rng, noise = np.random.default_rng(6), NoiseLeft(NoiseLaw.white(8.0))
    errors = []
    for _ in range(20):
        noisy = (100 + rng.normal(0, 8, (5, 6))).astype(np.float32)
        restored = restore(noisy, np.ones((5, 6), np.float32), noise)
        errors.append([np.mean((picture - 100) ** 2) for picture in (noisy, restored)])
    before, after = np.mean(errors, axis=0)
    assert after < 0.5 * before


@pytest.mark.parametrize("colour", [True, False])
def test_tiles_make_the_picture_that_the_whole_makes(colour: bool) -> None:
    rng = np.random.default_rng(7)
    picture = crop(100, 130, colour=colour)
    picture += rng.normal(0, 9, picture.shape).astype(np.float32)
    scale = rng.uniform(0.3, 1, (100, 130)).astype(np.float32)
    noise = NoiseLeft(NoiseLaw.white(9.0, colour=colour))
    whole, tiled = restore(picture, scale, noise), np.empty_like(picture)
    for tile in tiles_of((100, 130), 48, restoring.HALO):
        part = np.ascontiguousarray(picture[tile.around])
        tiled[tile.here] = restore(part, scale[tile.around], noise)[tile.within]
    np.testing.assert_allclose(tiled, whole, rtol=0, atol=1e-3)


# --- noise that grows with brightness ---


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("model", [NoiseModel(2.0, 0.5), NoiseModel(4.0, 6.0)])
def test_flat_ramps_keep_their_mean(model: NoiseModel, count: int) -> None:
    """A root taken of noise has a mean that is too low; what is left of the noise counts."""
    rng = np.random.default_rng(8)
    steps = np.repeat(np.arange(40.0, 240.0, 40.0), 160)
    truth = np.broadcast_to(steps, (320, len(steps)))
    sigma = model.sigma_at(truth)
    frames = [truth + sigma * rng.standard_normal(truth.shape) for _ in range(count)]
    mixture = np.mean(frames, axis=0).astype(np.float32)
    noise = NoiseLeft(grown(model, count))
    scale = noise.scale(everywhere([1 / count] * count, truth.shape))
    restored = restore(mixture, scale, noise)
    for start in range(0, len(steps), 160):
        inner = np.s_[:, start + 20 : start + 140]
        # The noise itself has a mean, which no restoring takes out: what counts is the difference.
        assert abs(np.mean(restored[inner]) - np.mean(mixture[inner])) < 0.5
        left = np.std(restored[inner]) / np.std(mixture[inner])
        assert left < 0.35, "bright and dark parts alike lose their noise"


# --- the kernels with a scale ---


def scales(shape: tuple[int, int], seed: int) -> Levels:
    return np.random.default_rng(seed).uniform(0.1, 3, shape).astype(np.float32)


@given(st.sampled_from([3, 4, 7]), st.integers(0, 40), st.integers(0, 9), SEEDS)
@settings(max_examples=40)
def test_wiener_with_a_scale_equals_the_reference(n: int, down: int, right: int, seed: int) -> None:
    operator, rng = dct_operator(n), np.random.default_rng(seed)
    image, guide = rng.uniform(0, 255, (2, n + down, n + right)).astype(np.float32)
    variance = rng.uniform(1, 400, len(operator.rows))
    scale = scales(image.shape, seed)
    result = cpu.wiener_shrinkage(image, guide, operator, variance=variance, scale=scale)
    wide = [array.astype(np.float64) for array in (image, guide)]
    expected = reference.wiener_shrinkage(*wide, operator, variance=variance, scale=scale)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-3)


@given(st.sampled_from([3, 4, 7]), st.integers(0, 40), st.integers(0, 9), SEEDS)
@settings(max_examples=40)
def test_hard_shrinkage_with_a_scale_equals_the_reference(
    n: int, down: int, right: int, seed: int
) -> None:
    operator, rng = dct_operator(n), np.random.default_rng(seed)
    image = rng.uniform(0, 255, (n + down, n + right)).astype(np.float32)
    scale = scales(image.shape, seed)
    threshold = rng.uniform(10, 60, len(operator.rows))
    wide = image.astype(np.float64)
    first = n // 2
    middle = scale[first : first + down + 1, first : first + right + 1].astype(np.float64)
    nearest = np.abs(np.abs(operator.apply_image(wide)) - threshold[:, None, None] * middle)
    # Coefficients at their threshold may fall on either side by rounding.
    assume(nearest.min() > 1e-3)
    result = cpu.hard_shrinkage(image, operator, threshold=threshold, scale=scale)
    expected = reference.hard_shrinkage(wide, operator, threshold=threshold, scale=scale)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-3)


def hard(kernels: Any, image: Levels, scale: Levels | None, level: float) -> Levels:
    result: Levels = kernels.hard_shrinkage(image, dct_operator(7), threshold=level, scale=scale)
    return result


def wiener(kernels: Any, image: Levels, scale: Levels | None, level: float) -> Levels:
    result: Levels = kernels.wiener_shrinkage(
        image, image, dct_operator(7), variance=level**2, scale=scale
    )
    return result


@pytest.mark.parametrize("shrinking", [hard, wiener])
@pytest.mark.parametrize("kernels", [cpu, reference])
def test_no_scale_is_one_of_one_and_two_is_twice_the_level(
    kernels: Any, shrinking: Callable[..., Levels]
) -> None:
    image = crop(40, 30, colour=False)
    ones = np.ones_like(image)
    plain = shrinking(kernels, image, None, 10.0)
    np.testing.assert_array_equal(shrinking(kernels, image, ones, 10.0), plain)
    np.testing.assert_array_equal(
        shrinking(kernels, image, 2 * ones, 10.0), shrinking(kernels, image, None, 20.0)
    )


@pytest.mark.parametrize("shrinking", [hard, wiener])
@pytest.mark.parametrize("kernels", [cpu, reference])
@pytest.mark.parametrize("flat", [True, False])
def test_a_scale_of_nothing_takes_nothing(
    kernels: Any, shrinking: Callable[..., Levels], flat: bool
) -> None:
    image = np.full((30, 30), 100.0, np.float32) if flat else crop(30, 30, colour=False)
    if flat:
        image[:15] = 0.0  # of black all coefficients are 0 to the last bit
    result = shrinking(kernels, image, np.zeros_like(image), 10.0)
    np.testing.assert_allclose(result, image, rtol=0, atol=1e-4)


# --- estimates less what texture may pass for ---


@given(st.floats(0, CLEAN_BELOW))
def test_nothing_is_beyond_texture_of_little_noise(sigma: float) -> None:
    law = NoiseLaw.white(sigma, frames=2, colour=True).beyond_texture()
    assert law.overall == 0 and not law.levels.any()


@given(st.floats(CLEAN_BELOW, 200), st.integers(1, 3), st.booleans())
def test_variances_are_less_by_that_of_texture(sigma: float, frames: int, colour: bool) -> None:
    law = NoiseLaw.white(sigma, frames=frames, colour=colour)
    found = law.beyond_texture()
    assert found.overall**2 == pytest.approx(sigma**2 - CLEAN_BELOW**2, rel=1e-6, abs=1e-6)
    assert found.model == law.model and found.levels.shape == law.levels.shape


@given(st.floats(0, 50), st.floats(1e-9, 1e-6))
def test_what_is_beyond_texture_is_continuous_and_grows(sigma: float, step: float) -> None:
    less, more = (NoiseLaw.white(s).beyond_texture().overall for s in (sigma, sigma + step))
    assert less <= more
    # Of a root the largest step is that from 0, of √(2·1.5·step) and a little.
    assert more - less <= math.sqrt(2 * CLEAN_BELOW * step + step**2) + 1e-7


@given(SEEDS, st.floats(20, 1000))
def test_of_much_noise_nearly_all_is_beyond_texture(seed: int, sigma: float) -> None:
    levels = np.random.default_rng(seed).uniform(0.5, 2, (2, BANDS))
    law = law_of(levels * sigma)
    share = law.beyond_texture().levels / law.levels
    # The same part of all: no band, frame or plane is changed by the others.
    np.testing.assert_allclose(share, share.flat[0])
    assert 1 - (CLEAN_BELOW / law.overall) ** 2 < share.flat[0] <= 1
