"""Noise level: right on noise, on smooth and on textured pictures, and silent on clean ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse import estimate_noise
from cofuse.images import Stack
from cofuse.noise import patches as noise_module
from cofuse.noise.law import CLEAN_BELOW
from cofuse.noise.patches import (
    noise_by_brightness,
    noise_level,
    sample_patches,
    unclipped,
)

Array = np.ndarray[Any, Any]

SIDE = 160


def noise(sigma: float, seed: int = 0, side: int = SIDE) -> Array:
    return np.random.default_rng(seed).normal(0, sigma, (side, side))


def smooth_picture(side: int = SIDE) -> Array:
    """Waves of some forty pixels: far smoother than a patch of seven."""
    y, x = np.mgrid[:side, :side]
    return 128 + 30 * np.sin(x / 20 + y / 30) + 15 * np.cos(y / 15)


def natural_picture(seed: int, side: int = SIDE) -> Array:
    """Noise with the spectrum of photographs, amplitude ∝ 1/f^1.5, and texture everywhere."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.rfftfreq(side), indexing="ij"))
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(noise(1.0, seed, side)) / frequency**1.5
    picture = np.fft.irfft2(spectrum, s=(side, side))
    return 128 + 35 * (picture - picture.mean()) / picture.std()


def chequered_picture(side: int = SIDE) -> Array:
    """Hard edges every ten pixels or so, flat between them."""
    y, x = np.mgrid[:side, :side]
    return 128 + 40 * np.sign(np.sin(x / 3.1) * np.sin(y / 4.3))


def level_of(picture: Array) -> float:
    return noise_level(picture.astype(np.float32))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("sigma", [2.0, 5.0, 15.0, 40.0])
def test_pure_noise_is_measured_within_a_few_per_cent(sigma: float, seed: int) -> None:
    # 24,000 overlapping patches are about 500 independent ones with 49 pixels each: their σ is
    # known to 1/√(2·24,000) at best, the least of 49 eigenvalues to a few per cent.
    assert level_of(128 + noise(sigma, seed)) == pytest.approx(sigma, rel=0.04)


@pytest.mark.parametrize("sigma", [2.0, 5.0, 10.0, 20.0])
def test_noise_on_a_smooth_picture(sigma: float) -> None:
    for seed in range(3):
        # Slopes pass for texture at low noise and leave fewer patches: a larger spread.
        assert level_of(smooth_picture() + noise(sigma, seed)) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("sigma", [2.0, 5.0, 10.0, 20.0])
def test_noise_on_hard_edges(sigma: float) -> None:
    for seed in range(3):
        assert level_of(chequered_picture() + noise(sigma, seed)) == pytest.approx(sigma, rel=0.06)


@pytest.mark.parametrize("sigma", [10.0, 20.0, 40.0])
def test_noise_on_texture_everywhere(sigma: float) -> None:
    for seed in range(3):
        picture = np.clip(natural_picture(100 + seed), 1, 254) + noise(sigma, seed)
        assert level_of(picture) == pytest.approx(sigma, rel=0.06)


def test_the_estimate_grows_with_the_noise() -> None:
    levels = [level_of(natural_picture(1) + noise(s, 2)) for s in (0, 3, 6, 12, 24)]
    assert levels == sorted(levels)


@pytest.mark.parametrize("rounded", [False, True])
def test_a_clean_smooth_picture_counts_as_clean(rounded: bool) -> None:
    picture = np.rint(smooth_picture()) if rounded else smooth_picture()
    assert level_of(picture) < CLEAN_BELOW


@pytest.mark.parametrize("value", [0.0, 100.0, 255.0])
def test_a_constant_picture_has_no_noise(value: float) -> None:
    # Sums of 24,000 equal float32 numbers leave a mean that is off by some 1e-4.
    assert level_of(np.full((SIDE, SIDE), value)) < 0.05


@given(st.integers(-5, 5))
@settings(deadline=None, max_examples=8)
def test_the_estimate_scales_with_the_picture(power: int) -> None:
    # Within the 0-255 range: beyond it patches count as clipped.
    picture = (4 + noise(0.5, 3, 60)).astype(np.float32)
    scale = np.float32(2.0**power)
    assert noise_level(scale * picture) == pytest.approx(scale * noise_level(picture), rel=1e-6)


def test_turning_the_picture_does_not_change_the_estimate() -> None:
    picture = (natural_picture(3) + noise(10, 3)).astype(np.float32)
    # The same patches in another order, but for rounding of float32 sums.
    for turned in (picture.T, picture[::-1], picture[:, ::-1]):
        assert noise_level(turned) == pytest.approx(noise_level(picture), rel=1e-3)


@pytest.mark.parametrize("sigma", [5.0, 15.0])
def test_a_black_background_does_not_fool_it(sigma: float) -> None:
    # Noise on black is cut in half: a flat, nearly noise-free region in three quarters.
    picture = np.zeros((SIDE, SIDE))
    picture[40:120, 40:120] = smooth_picture(80)
    picture = np.clip(picture + noise(sigma), 0, 255)
    assert level_of(picture) == pytest.approx(sigma, rel=0.1)


def blown_out_sky() -> Array:
    picture = smooth_picture()
    picture[:80] = 262  # most of the noise there is clipped, but not all
    return np.clip(picture + noise(10.0), 0, 255)


def test_a_blown_out_sky_does_not_fool_it() -> None:
    assert level_of(blown_out_sky()) == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("shape", [(1, 1), (6, 200), (7, 7), (19, 19)])
def test_tiny_pictures_count_as_clean(shape: tuple[int, int]) -> None:
    picture = 128 + np.random.default_rng(0).normal(0, 20, shape)
    assert level_of(picture) == 0.0


def test_the_picture_is_not_written_to() -> None:
    picture = (128 + noise(5.0)).astype(np.float32)
    picture.setflags(write=False)
    noise_level(picture)


# Patches, and noise by their brightness.


def test_patches_are_taken_evenly_and_channels_stay_apart() -> None:
    frame = np.arange(40 * 50, dtype=np.uint16).reshape(40, 50)
    patches = sample_patches(frame)
    assert patches.shape == (34 * 44, 49) and patches.dtype == frame.dtype
    np.testing.assert_array_equal(patches[45].reshape(7, 7), frame[1:8, 1:8])
    colour = np.stack([frame, frame + 1, frame + 2], axis=-1)
    for channel, plane in enumerate(np.moveaxis(sample_patches(colour), -1, 0)):
        np.testing.assert_array_equal(plane, patches + channel)
    assert 50 < len(sample_patches(frame, 100)) <= 100


def test_patches_with_black_or_white_are_left_out_unless_hardly_any_is_without() -> None:
    patches = np.full((400, 49, 3), 100, np.float32)
    patches[:150, 7, 1] = 255
    patches[150:180, 0, 2] = 0
    np.testing.assert_array_equal(unclipped(patches), np.arange(400) >= 180)
    patches[:300, 0, 0] = 0
    assert unclipped(patches).all()


@pytest.mark.parametrize("picture", [smooth_picture, lambda: natural_picture(5)])
def test_noise_is_measured_at_every_brightness(picture: Any) -> None:
    levels = picture()
    sigma = 4 + levels.clip(0) / 16
    patches = sample_patches((levels + sigma * noise(1.0)).astype(np.float32))
    brightness, variance, count = noise_by_brightness(patches).T
    assert len(brightness) >= 5 and np.ptp(brightness) > 60 and (np.diff(brightness) > 0).all()
    assert count.min() >= 100
    # A hundred overlapping patches are few, more so where there is texture as well.
    np.testing.assert_allclose(np.sqrt(variance), 4 + brightness / 16, rtol=0.25)
    spread = np.sqrt(variance) / (4 + brightness / 16)
    assert np.average(spread, weights=count) == pytest.approx(1.0, abs=0.05)


def test_too_few_patches_measure_nothing() -> None:
    assert noise_by_brightness(np.zeros((100, 49), np.float32)).shape == (0, 3)
    scattered = np.random.default_rng(0).uniform(0, 255, (300, 49)).astype(np.float32)
    assert noise_by_brightness(scattered).shape[1] == 3


# Stacks.


def noisy_levels(sigma: float, seed: int) -> Array:
    return np.clip(smooth_picture(96) + noise(sigma, seed, 96), 0, 255)


def test_eight_and_sixteen_bits_and_floats_give_the_same_grey_levels() -> None:
    levels = noisy_levels(8.0, 0)
    stacks = {
        "uint8": Stack.from_arrays([np.rint(levels).astype(np.uint8)]),
        "uint16": Stack.from_arrays([np.rint(levels * 257).astype(np.uint16)]),
        "12 bits": Stack.from_arrays([np.rint(levels * 4095 / 255).astype(np.uint16)], white=4095),
        "float": Stack.from_arrays([levels / 255]),
    }
    exact = noise_level(levels.astype(np.float32))
    for name, stack in stacks.items():
        # Rounding to 8 bits adds a variance of 1/12: 0.07 % of 64.
        assert estimate_noise(stack).sigma == pytest.approx(exact, rel=0.01), name


@pytest.mark.parametrize("white", [65535, 16383, 4095, 15600, 60001])
def test_white_is_recognised_as_clipped_at_any_depth(white: int) -> None:
    # White times the float32 nearest to 255/white is not always 255 itself.
    frame = np.rint(blown_out_sky() * (white / 255)).astype(np.uint16)
    estimate = estimate_noise(Stack.from_arrays([frame], white=white)).sigma
    assert estimate == pytest.approx(level_of(blown_out_sky()), rel=0.03)


def test_colour_stacks_have_the_level_of_their_channels() -> None:
    planes = [noisy_levels(sigma, seed) for seed, sigma in enumerate((6.0, 8.0, 10.0))]
    colour = np.stack(planes, axis=-1).astype(np.float32) / 255
    expected = np.sqrt(np.mean(np.square([6.0, 8.0, 10.0])))
    assert estimate_noise(Stack.from_arrays([colour])).sigma == pytest.approx(expected, rel=0.01)
    # Equal planes have the level of each: colour is no reason for another estimate.
    grey = planes[1].astype(np.float32) / 255
    same = np.stack([grey] * 3, axis=-1)
    assert estimate_noise(Stack.from_arrays([same])).sigma == pytest.approx(
        estimate_noise(Stack.from_arrays([grey])).sigma, rel=1e-6
    )


def test_a_stack_has_the_level_of_all_its_frames_in_any_order() -> None:
    frames = [noisy_levels(s, seed).astype(np.float32) / 255 for seed, s in enumerate((3, 8, 20))]
    each = [estimate_noise(Stack.from_arrays([frame])).sigma for frame in frames]
    assert each == sorted(each)
    for order in ([0, 1, 2], [2, 0, 1]):
        found = estimate_noise(Stack.from_arrays([frames[k] for k in order])).sigma
        assert found == pytest.approx(np.sqrt(np.mean(np.square(each))), rel=1e-9)


def test_constants_are_the_quantiles_they_stand_for() -> None:
    from scipy.special import gammainccinv, gammaincinv

    form = noise_module._gradient_energy().astype(np.float64)
    mean, variance = np.trace(form), 2.0 * np.trace(form @ form)
    energy = variance / mean * gammainccinv(mean**2 / variance, 0.01)
    assert pytest.approx(energy, rel=1e-9) == noise_module._NOISE_ENERGY
    unit = 2.0 * gammaincinv(noise_module._EMPTY / 2, noise_module._QUANTILE)
    assert pytest.approx(unit, rel=1e-12) == noise_module._UNIT_ENERGY


@pytest.mark.parametrize("shape", [(7, 7), (40, 61), (40, 61, 3), (6, 50), (50, 6, 3), (8, 300)])
@pytest.mark.parametrize("most", [1, 50, 60_000])
def test_patches_are_windows_of_the_frame_on_an_even_grid(shape, most) -> None:
    frame = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    read = []

    def part(rows, columns):
        read.append(rows)
        return frame[rows, columns]

    patches = noise_module.read_patches(part, shape, most)
    down, along = shape[0] - 6, shape[1] - 6
    if min(down, along) < 1:
        assert patches.shape == (0, 49, *shape[2:])
        return
    stride = int(np.ceil(np.sqrt(down * along / most)))
    windows = [
        frame[y : y + 7, x : x + 7].reshape(49, *shape[2:])
        for y in range(0, down, stride)
        for x in range(0, along, stride)
    ]
    np.testing.assert_array_equal(patches, np.stack(windows))
    assert all(rows.stop - rows.start == 7 for rows in read)
