"""The measurement that noise laws are held against, where the noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from cofuse import Stack
from cofuse.sensor.law import BANDS, NoiseModel
from experiments.noise_restoring import true_law
from experiments.noise_truth import band_energies, rms, true_levels
from experiments.real_noise_patches import Patch, patch_levels

SIDES = 384, 448


def off_by(levels, sigma, *, part=1.0):
    """How many of their standard errors measured levels are off; bands are octaves of the plane."""
    shares = np.array([0.75 / 4**band for band in range(BANDS)])
    degrees = part * shares * SIDES[0] * SIDES[1]
    return np.abs(levels / sigma - 1) * np.sqrt(2 * degrees)


def test_white_noise_has_its_level_in_every_band_and_plane():
    rng = np.random.default_rng(1)
    truth = np.full((*SIDES, 3), 128, np.float32)
    flat, everywhere = true_levels(truth + rng.normal(scale=7.0, size=truth.shape), truth)
    assert flat.shape == everywhere.shape == (3, BANDS)
    # All blocks of a plain picture are equally flat, so that all of them are measured.
    assert (off_by(everywhere, 7.0) < 4).all() and (off_by(flat, 7.0) < 4).all()


def test_texture_that_is_lost_counts_as_noise_only_where_there_is_texture():
    rng = np.random.default_rng(2)
    truth = np.full((*SIDES, 3), 128, np.float32)
    truth[:, 192:] += rng.normal(scale=20.0, size=(SIDES[0], SIDES[1] - 192, 1))
    noisy = np.where(np.arange(SIDES[1])[:, None] < 192, truth, 128.0)
    noisy = noisy + rng.normal(scale=5.0, size=truth.shape)
    flat, everywhere = true_levels(noisy, truth)
    assert (off_by(flat, 5.0, part=0.25) < 4).all()
    assert (everywhere[0] > 10).all()


def test_noise_that_white_cuts_off_is_left_out():
    rng = np.random.default_rng(3)
    truth = np.full((*SIDES, 3), 128, np.float32)
    truth[:, 256:] = 255.0
    noisy = np.clip(truth + rng.normal(scale=5.0, size=truth.shape), 0, 255)
    flat, everywhere = true_levels(noisy, truth)
    assert (off_by(flat, 5.0, part=0.25) < 4).all()
    assert (everywhere[:, :2] < 4.6).all()


def test_noise_that_grows_has_one_level_after_the_map():
    rng = np.random.default_rng(4)
    model = NoiseModel(2.0, 0.3)
    truth = np.broadcast_to(np.linspace(60, 180, SIDES[1], dtype=np.float32), SIDES)
    noisy = truth + rng.normal(size=SIDES) * model.sigma_at(truth)
    _, everywhere = true_levels(noisy, truth, model)
    assert everywhere.shape == (1, BANDS)
    assert (off_by(everywhere[0], model.stabilised_sigma) < 4).all()


def test_coarse_noise_is_found_in_its_band():
    rng = np.random.default_rng(5)
    coarse = rng.normal(scale=6.0, size=(SIDES[0] // 4, SIDES[1] // 4))
    noise = np.kron(coarse, np.ones((4, 4)))[..., None]
    levels = np.concatenate([rms(energy) for energy in band_energies(noise)])
    assert levels[2:] == pytest.approx(4 * 6.0, rel=0.25)
    assert levels[0] < levels[1] < levels[2] / 2


def test_patches_show_the_noise_and_not_the_slope_beneath_it():
    rng = np.random.default_rng(6)
    slope = np.linspace(60, 180, 256, dtype=np.float32)[:, None, None] + np.zeros((256, 256, 3))
    frames = [slope * gain + rng.normal(scale=5.0, size=slope.shape) for gain in (1.0, 1.02)]
    stack = Stack.from_arrays([frame.astype(np.float32) for frame in frames], white=255.0)
    shares = np.array([0.75 / 4**band for band in range(BANDS)])
    levels = patch_levels(stack, Patch(0, 1, 64, 64, 128))
    assert (np.abs(levels / 5.0 - 1) * np.sqrt(2 * 128**2 * shares) < 4).all()


def test_the_law_that_restoring_is_told_is_that_of_the_noise():
    rng = np.random.default_rng(7)
    truth = np.full((*SIDES, 3), 100, np.uint8)
    truth[:, 200:] = 160
    noisy = [truth + rng.normal(scale=sigma, size=truth.shape) for sigma in (4.0, 8.0)]
    law = true_law("white", noisy, [truth, truth])
    assert law.model.gain == 0 and law.overall == pytest.approx(40**0.5, rel=0.01)
    for levels, sigma in zip(law.levels, (4.0, 8.0), strict=True):
        assert (off_by(levels, sigma) < 4).all()


def test_the_law_of_a_sensor_grows_with_brightness():
    rng = np.random.default_rng(8)
    truth = np.tile(np.linspace(60, 180, SIDES[1]).astype(np.uint8)[:, None], (SIDES[0], 1, 3))
    spread = 10 * np.sqrt(0.3 + 0.7 * truth / 128)
    law = true_law("shot", [truth + spread * rng.normal(size=truth.shape)], [truth])
    assert law.model.sigma_at(128) == pytest.approx(10.0, rel=0.01)
    assert law.model.sigma_at(0) == pytest.approx(10 * 0.3**0.5, rel=0.01)
    assert (off_by(law.levels[0], law.model.stabilised_sigma) < 5).all()
