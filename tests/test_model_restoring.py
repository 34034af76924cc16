"""Restoring: what noise weights leave, in closed form and measured, and what is done about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse.evaluation.simulation import sample_picture
from cofuse.images import from_opponent
from cofuse.images.pixels import MIXED_BANDS, REACH
from cofuse.images.tiles import tiles_of
from cofuse.model import restoring
from cofuse.model.restoring import NoiseLeft, halved, restore
from cofuse.model.runtime import load_networks
from cofuse.model.tiling import RESTORED_HALO
from cofuse.sensor.bands import octaves_in_bands
from cofuse.sensor.law import BANDS, CLEAN_BELOW, NoiseLaw, NoiseModel
from tests.test_images_bands import split

Levels = NDArray[np.float32]

NETWORKS = load_networks("auto")
SEEDS = st.integers(0, 10**6)
SIGMAS = st.floats(0.1, 60)


def law_of(levels: Any, model: NoiseModel | None = None) -> NoiseLaw:
    """Make a law of grey frames from levels (frames, octaves)."""
    given_levels = np.array(levels, np.float64)[:, None]
    return NoiseLaw(
        model=model or NoiseModel(1.0), levels=given_levels, errors=np.zeros_like(given_levels)
    )


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
    return NoiseLaw(model=model, levels=levels, errors=np.zeros_like(levels))


def crop(height: int, width: int, *, colour: bool) -> Levels:
    picture = sample_picture("coffee")[100 : 100 + height, 150 : 150 + width].astype(np.float32)
    return picture if colour else picture.mean(axis=-1)


# --- what noise is left ---


@given(st.integers(1, 12), SIGMAS, st.booleans())
def test_equal_weights_leave_white_noise_over_the_root_of_their_number(
    count: int, sigma: float, colour: bool
) -> None:
    noise = NoiseLeft(NoiseLaw.white(sigma, frames=count, colour=colour))
    scales = noise.scales(range(count), everywhere([1 / count] * count))
    assert scales.shape == (2, 3, MIXED_BANDS) and scales.dtype == np.float32
    np.testing.assert_allclose(scales, 1 / math.sqrt(count), rtol=1e-5)
    # Of the mean of three channels, and of what channels have beside it.
    luminance, colours = (1 / math.sqrt(3), 1.0) if colour else (1.0, 0.0)
    expected = np.repeat([[luminance], [colours]], MIXED_BANDS, axis=1) * sigma / 255
    np.testing.assert_allclose(noise.typical, expected, rtol=1e-5)


def test_noise_of_planes_is_told_as_that_of_luminance_and_of_colours() -> None:
    """Noise of a picture, split into its mean of channels and the rest, and measured."""
    rng = np.random.default_rng(0)
    own = np.array([3.0, 5.0, 9.0])  # of luminance and two planes of colour, each white
    planes = own * rng.standard_normal((400, 400, 3))
    levels = np.repeat(own[None, :, None], BANDS, axis=2)
    noise = NoiseLeft(NoiseLaw(model=NoiseModel(5.0), levels=levels, errors=np.zeros_like(levels)))
    picture = from_opponent(planes.astype(np.float32))
    grey = picture.mean(axis=-1, keepdims=True)
    luminance, colours = 255 * noise.typical
    np.testing.assert_allclose(luminance, np.std(grey), rtol=0.01)
    # The rest has two parts of three of the power that colours have.
    np.testing.assert_allclose(colours * math.sqrt(2 / 3), np.std(picture - grey), rtol=0.01)


@given(st.lists(st.floats(0, 40), min_size=BANDS, max_size=BANDS))
def test_of_one_frame_all_its_noise_is_left(levels: list[float]) -> None:
    noise = NoiseLeft(law_of([levels]))
    np.testing.assert_allclose(noise.scales([0], everywhere([1.0])), 1.0, rtol=1e-5)
    power = octaves_in_bands() @ np.square(levels)
    np.testing.assert_allclose(noise.typical[0], np.sqrt(power) / 255, rtol=1e-5, atol=1e-30)
    assert not noise.typical[1].any(), "grey frames have no noise in colours"


@given(st.lists(st.tuples(SIGMAS, st.floats(0, 1)), min_size=1, max_size=6))
def test_frames_of_unequal_white_noise_in_closed_form(frames: list[tuple[float, float]]) -> None:
    sigmas, weights = np.array(frames).T
    left = np.sqrt(np.sum(weights**2 * sigmas**2) / np.mean(sigmas**2))
    scales = NoiseLeft(white_frames(*sigmas)).scales(range(len(frames)), everywhere(weights))
    np.testing.assert_allclose(scales, left, rtol=1e-4, atol=1e-7)


@given(SEEDS)
def test_every_band_has_what_its_own_weights_leave_of_frames_noise_in_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.5, 20, (3, BANDS))
    weights = rng.dirichlet(np.ones(3), MIXED_BANDS).T
    # Variances that frames have in bands, by those of a frame of their mean variance.
    own = levels**2 @ octaves_in_bands().T
    left = np.sqrt((weights**2 * own / own.mean(axis=0)).sum(axis=0))
    scales = NoiseLeft(law_of(levels)).scales(range(3), everywhere(weights))
    np.testing.assert_allclose(scales, np.broadcast_to(left, scales.shape), rtol=1e-4)


@given(st.permutations(range(4)), st.integers(1, 4), SEEDS)
def test_frames_are_known_by_their_numbers_and_others_have_no_weight(
    order: list[int], count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    noise = NoiseLeft(law_of(rng.uniform(0.5, 20, (4, BANDS))))
    numbers, every = order[:count], np.zeros((4, MIXED_BANDS, 4, 6), np.float32)
    every[numbers] = rng.random((count, MIXED_BANDS, 4, 6))
    some = noise.scales(numbers, every[numbers])
    np.testing.assert_allclose(some, noise.scales(range(4), every), rtol=1e-5)


@pytest.mark.parametrize("shape", [(6, 8), (7, 9), (1, 1), (1, 6), (5, 2)])
def test_two_by_two_pixels_have_the_mean_scale_of_their_own_weights(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    weights = rng.random((2, MIXED_BANDS, *shape), np.float32)
    noise = NoiseLeft(white_frames(3.0, 8.0))
    found = noise.scales([0, 1], weights)
    rows, columns = halved((slice(0, shape[0]), slice(0, shape[1])))
    assert found.shape == (rows.stop, columns.stop, MIXED_BANDS)
    for row in range(rows.stop):
        for column in range(columns.stop):
            block = weights[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            power = np.tensordot([9.0, 64.0], block.astype(np.float64) ** 2, 1) / (73 / 2)
            expected = np.sqrt(power).mean(axis=(1, 2))
            np.testing.assert_allclose(found[row, column], expected, rtol=1e-5)


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 90))
def test_scales_of_parts_are_those_of_the_whole(start: int, length: int, beyond: int) -> None:
    """Parts begin at even rows and columns, and end there or with the picture."""
    height = 2 * start + 2 * length + beyond % 2
    row = np.random.default_rng(length).random((1, MIXED_BANDS, height, 3), np.float32)
    noise = NoiseLeft(white_frames(2.0))
    where = slice(2 * start, height), slice(0, 3)
    part = noise.scales([0], row[(..., *where)])
    assert np.array_equal(part, noise.scales([0], row)[halved(where)])


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
    left = 255 * noise.scales([0, 1], everywhere(shares))[0, 0] * noise.typical[0]
    np.testing.assert_allclose(left, np.std(mixture[inner, inner]), rtol=0.01)


# --- restoring ---


def scales_of(picture: Levels, scale: float = 1.0) -> Levels:
    """The same scale in all bands of a picture."""
    rows, columns = (-(-length // 2) for length in picture.shape[:2])
    return np.full((rows, columns, MIXED_BANDS), scale, np.float32)


def with_noise(picture: Levels, sigma: float, seed: int) -> Levels:
    noise = np.random.default_rng(seed).normal(0, sigma, picture.shape)
    return (picture + noise).astype(np.float32)


def error(picture: Levels, truth: Levels) -> float:
    return float(np.mean(np.square(picture - truth, dtype=np.float64)))


@pytest.mark.parametrize("name", ["coffee", "astronaut"])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("sigma", [5.0, 15.0, 25.0])
def test_white_noise_is_taken_out_of_photographs(name: str, colour: bool, sigma: float) -> None:
    truth = sample_picture(name)[60:220, 80:250].astype(np.float32)
    truth = truth if colour else truth.mean(axis=-1)
    noisy = with_noise(truth, sigma, 1)
    noise = NoiseLeft(NoiseLaw.white(sigma, colour=colour))
    restored = restore(NETWORKS, noisy, scales_of(noisy), noise)
    assert restored.shape == truth.shape and restored.dtype == np.float32
    # 3 dB, of little noise as of much.
    assert error(restored, truth) < 0.5 * error(noisy, truth)


def test_the_noise_that_is_told_is_taken_out_and_not_what_there_is() -> None:
    """Told a fifth of the noise, most is left; told of all it is gone."""
    truth = crop(120, 160, colour=True)
    noisy = with_noise(truth, 15.0, 2)
    noise = NoiseLeft(NoiseLaw.white(15.0, colour=True))
    little, all_of_it = (
        error(restore(NETWORKS, noisy, scales_of(noisy, scale), noise), truth)
        for scale in (0.2, 1.0)
    )
    assert all_of_it < 0.5 * little < error(noisy, truth)


@pytest.mark.parametrize("factor", [0.25, 0.5])
def test_a_scale_is_so_much_less_noise(factor: float) -> None:
    picture = with_noise(crop(40, 52, colour=False), 9.0, 2)
    scaled, plain = (
        restore(NETWORKS, picture, scales_of(picture, scale), NoiseLeft(NoiseLaw.white(sigma)))
        for scale, sigma in ((factor, 12.0), (1.0, 12.0 * factor))
    )
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-3)


@pytest.mark.parametrize("gain", [0.0, 0.3])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("shape", [(30, 41), (1, 1), (5, 5)])
def test_nothing_is_changed_where_no_noise_is_left(
    colour: bool, gain: float, shape: tuple[int, int]
) -> None:
    """Scales of 0 are those of a frame without noise among others, which has all the weight."""
    picture = crop(*shape, colour=colour)
    noise = NoiseLeft(grown(NoiseModel(6.0, gain), colour=colour))
    restored = restore(NETWORKS, picture, scales_of(picture, 0.0), noise)
    # A root is taken of noise that grows, and its square: that is rounded.
    np.testing.assert_allclose(restored, picture, rtol=0, atol=1e-3 if gain else 0)


def test_where_some_is_left_only_there_is_the_picture_changed() -> None:
    picture = crop(60, 90, colour=False)
    picture[:, 46:] = with_noise(picture[:, 46:], 9.0, 4)
    scales = scales_of(picture)
    scales[:, :23] = 0
    restored = restore(NETWORKS, picture, scales, NoiseLeft(NoiseLaw.white(9.0)))
    assert np.array_equal(restored[:, :46], picture[:, :46])
    assert np.abs(restored - picture)[:, 46:].mean() > 1


@pytest.mark.parametrize("colour", [True, False])
def test_a_law_of_no_noise_changes_nothing(colour: bool) -> None:
    picture = crop(30, 41, colour=colour)
    noise = NoiseLeft(NoiseLaw.white(0.0, frames=3, colour=colour))
    scales = noise.scales(range(3), everywhere([0.5, 0.3, 0.2], (30, 41)))
    assert np.isfinite(scales).all() and not noise.typical.any()
    assert np.array_equal(restore(NETWORKS, picture, scales, noise), picture)


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.sampled_from([0.0, 0.5]), SEEDS)
def test_tiny_pictures_are_restored(
    height: int, width: int, colour: bool, gain: float, seed: int
) -> None:
    shape = (height, width, 3) if colour else (height, width)
    picture = np.random.default_rng(seed).uniform(0, 255, shape).astype(np.float32)
    noise = NoiseLeft(grown(NoiseModel(8.0, gain), colour=colour))
    restored = restore(NETWORKS, picture, scales_of(picture), noise)
    assert restored.shape == shape and restored.dtype == np.float32
    assert np.isfinite(restored).all()
    # Of one pixel nothing varies.
    assert height * width == 1 or not np.array_equal(restored, picture)


@pytest.mark.parametrize("colour", [True, False])
def test_what_does_not_vary_is_left_alone_whatever_is_told(colour: bool) -> None:
    picture = crop(90, 120, colour=colour)
    picture[:, 60:] = 77
    restored = restore(
        NETWORKS, picture, scales_of(picture), NoiseLeft(NoiseLaw.white(15.0, colour=colour))
    )
    far = 60 + restoring._AROUND // 2 + 1
    assert np.array_equal(restored[:, far:], picture[:, far:])
    assert not np.array_equal(restored[:, :60], picture[:, :60])


def test_tiny_pictures_lose_noise_too() -> None:
    noise, errors = NoiseLeft(NoiseLaw.white(8.0)), []
    flat = np.full((5, 7), 100.0, np.float32)
    for seed in range(20):
        noisy = with_noise(flat, 8.0, seed)
        restored = restore(NETWORKS, noisy, scales_of(noisy), noise)
        errors.append([error(picture, flat) for picture in (noisy, restored)])
    before, after = np.mean(errors, axis=0)
    assert after < 0.5 * before


def test_grey_is_restored_as_three_equal_channels() -> None:
    grey = with_noise(crop(33, 46, colour=False), 9.0, 3)
    colours = np.repeat(grey[..., None], 3, axis=-1)
    noise = NoiseLeft(NoiseLaw.white(9.0))
    one, three = (restore(NETWORKS, each, scales_of(grey), noise) for each in (grey, colours))
    np.testing.assert_allclose(one, three.mean(axis=-1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("gain", [0.0, 0.5])
@pytest.mark.parametrize("colour", [True, False])
def test_tiles_make_the_picture_that_the_whole_makes_and_a_small_halo_does_not(
    colour: bool, gain: float
) -> None:
    picture = with_noise(crop(150, 329, colour=colour), 9.0, 7)
    scales = np.random.default_rng(7).uniform(0.3, 1, scales_of(picture).shape).astype(np.float32)
    noise = NoiseLeft(grown(NoiseModel(9.0, gain), colour=colour))
    whole, apart = restore(NETWORKS, picture, scales, noise), {}
    for halo in (RESTORED_HALO, 16):
        tiled = np.empty_like(picture)
        for tile in tiles_of((150, 329), 48, halo):
            told = scales[halved(tile.around)]
            tiled[tile.here] = restore(NETWORKS, picture[tile.around], told, noise)[tile.within]
        apart[halo] = np.abs(tiled - whole).max()
    assert apart[RESTORED_HALO] == 0
    assert apart[16] > 1e-3


# --- noise that grows with brightness ---


def smoothing(name: str, picture: Levels, noise: Levels) -> list[Levels]:
    """Stand in for a network that knows of flat pictures: it returns their mean."""
    assert name == "restore"
    mean = picture.mean(axis=(2, 3), keepdims=True)
    return [np.broadcast_to(mean, picture.shape)]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("level", [40.0, 120.0, 200.0])
@pytest.mark.parametrize("model", [NoiseModel(2.0, 0.5), NoiseModel(4.0, 6.0)])
def test_flat_pictures_keep_their_mean(model: NoiseModel, level: float, count: int) -> None:
    """A root taken of noise has a mean that is too low; what is left of the noise counts."""
    rng = np.random.default_rng(8)
    truth = np.full((320, 320), level)
    frames = [
        truth + model.sigma_at(truth) * rng.standard_normal(truth.shape) for _ in range(count)
    ]
    mixture = np.mean(frames, axis=0).astype(np.float32)
    noise = NoiseLeft(grown(model, count))
    scales = noise.scales(range(count), everywhere([1 / count] * count, truth.shape))
    restored = restore(smoothing, mixture, scales, noise)
    # The noise itself has a mean, which no restoring takes out: what counts is the difference.
    assert np.ptp(restored) < 1e-3
    assert float(restored[0, 0]) == pytest.approx(float(np.mean(mixture)), abs=0.1)


def test_what_the_network_sees_has_one_level_of_noise_and_is_told_it() -> None:
    model, rng = NoiseModel(2.0, 0.5), np.random.default_rng(9)
    truth = np.repeat(np.linspace(30.0, 220.0, 5), 200) * np.ones((200, 1))
    noisy = (truth + model.sigma_at(truth) * rng.standard_normal(truth.shape)).astype(np.float32)
    heard: list[tuple[Levels, Levels]] = []

    def listening(name: str, picture: Levels, noise: Levels) -> list[Levels]:
        heard.append((picture, noise))
        return [picture]

    restore(listening, noisy, scales_of(noisy), NoiseLeft(grown(model)))
    ((picture, told),) = heard
    assert picture.shape == (1, 3, 200, 1000) and told.shape == (1, 2 * MIXED_BANDS, 100, 500)
    found = [np.std(picture[0, 0, :, k : k + 200]) for k in range(0, 1000, 200)]
    np.testing.assert_allclose(found, told[0, 0, 0, 0], rtol=0.03)
    assert (told[:, :MIXED_BANDS] > 0).all() and not told[:, MIXED_BANDS:].any()


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
