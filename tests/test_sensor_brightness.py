"""Camera noise: the laws of its model, and what is found of it in stacks with known noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack
from cofuse.images import Stack, luminance
from cofuse.progress import Progress
from cofuse.sensor import estimate_noise
from cofuse.sensor.estimation import least_squares
from cofuse.sensor.law import BANDS, NoiseModel

Array = np.ndarray[Any, Any]

BRIGHTNESS = np.arange(30, 221, 10)

models = st.builds(NoiseModel, st.floats(0.0, 20.0), st.floats(1e-3, 10.0))
pictures = arrays(np.float32, (4, 5), elements=st.floats(-100, 400, width=32))


def expose(
    picture: Array, model: NoiseModel, rng: np.random.Generator, *, clip: bool = True
) -> Array:
    """Count photons of a picture in grey levels and read them out with noise."""
    levels = np.asarray(picture, np.float64)
    if model.gain > 0:
        levels = rng.poisson(levels / model.gain) * model.gain
    levels = levels + rng.normal(0.0, model.floor, levels.shape)
    return np.rint(levels.clip(0, 255)).astype(np.uint8) if clip else levels / 255


def grey_sample(name: str) -> Array:
    return luminance(sample_picture(name).astype(np.float32))


def noisy_stack(
    model: NoiseModel, frames: int = 1, name: str = "coffee", *, seed: int = 0, clip: bool = True
) -> Stack:
    rng = np.random.default_rng(seed)
    picture = grey_sample(name)
    sharp = [picture / 255]
    if frames > 1:
        sharp = list(simulate_stack(picture / 255, frames=frames, seed=seed).frames)
    clean = (np.clip(frame, 0, 1) * 255 for frame in sharp)
    return Stack.from_arrays([expose(frame, model, rng, clip=clip) for frame in clean])


def error_of(found: NoiseModel, true: NoiseModel) -> float:
    """Mean relative error of the noise level over the middle of the brightness range."""
    return float(np.abs(found.sigma_at(BRIGHTNESS) / true.sigma_at(BRIGHTNESS) - 1.0).mean())


# The model.


@given(models, pictures)
@settings(deadline=None)
def test_restoring_undoes_stabilising(model: NoiseModel, levels: Array) -> None:
    stabilised = model.stabilise(levels)
    assert stabilised.dtype == np.float32
    np.testing.assert_allclose(model.restore(stabilised), levels, rtol=3e-6, atol=1e-30)
    np.testing.assert_allclose(
        model.stabilise(model.restore(levels)), levels, rtol=3e-6, atol=1e-30
    )


@given(models, pictures)
@settings(deadline=None)
def test_stabilising_keeps_the_order_and_both_ends(model: NoiseModel, levels: Array) -> None:
    ordered = np.sort(levels, axis=None)
    assert (np.diff(model.stabilise(ordered)) >= 0).all()
    assert (np.diff(model.restore(ordered)) >= 0).all()
    distinct = np.unique(np.round(ordered))
    assert (np.diff(model.stabilise(distinct)) > 0).all()
    ends = model.stabilise(np.array([0, 255], np.float32))
    assert ends[0] == 0 and ends[1] == pytest.approx(255, rel=1e-6)


@given(st.floats(0, 50), arrays(np.float32, (3, 3), elements=st.floats(width=32)))
def test_white_noise_needs_no_map(sigma: float, levels: Array) -> None:
    model = NoiseModel(sigma)
    assert model.stabilised_sigma == sigma
    for mapped in (model.stabilise, model.restore, model.restore_mean):
        assert mapped(levels).tobytes() == levels.tobytes()


def test_a_vanishing_gain_tends_to_the_identity() -> None:
    levels = np.linspace(-50, 300, 200, dtype=np.float32)
    for gain in (1e-3, 1e-5, 1e-8):
        model = NoiseModel(5.0, gain)
        # The largest departure, half-way, is an eighth of 255² κ.
        assert np.abs(model.stabilise(levels) - levels).max() < gain * 255**2 / 25 / 4 + 1e-4
        assert model.stabilised_sigma == pytest.approx(5.0, rel=gain * 255 / 25)


def test_the_map_is_smooth_at_black() -> None:
    model = NoiseModel(3.0, 2.0)
    steps = np.array([-1e-2, 0, 1e-2], np.float64)
    below, above = np.diff(model.stabilise(steps))
    assert below == pytest.approx(above, rel=1e-2)


@pytest.mark.parametrize(("floor", "gain"), [(2.0, 0.5), (5.0, 1.0), (8.0, 4.0), (0.0, 2.0)])
@pytest.mark.parametrize("level", [20.0, 60.0, 120.0, 240.0])
def test_stabilised_noise_has_one_level(floor: float, gain: float, level: float) -> None:
    model = NoiseModel(floor, gain)
    rng = np.random.default_rng(0)
    noisy = expose(np.full(200_000, level), model, rng, clip=False).astype(np.float32) * 255
    assert noisy.std() == pytest.approx(float(model.sigma_at(level)), rel=0.01)
    assert model.stabilise(noisy).std() == pytest.approx(model.stabilised_sigma, rel=0.03)


@pytest.mark.parametrize("level", [2.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize(("floor", "gain"), [(0.0, 2.0), (1.0, 2.0), (4.0, 4.0)])
def test_a_mean_of_stabilised_values_restores_to_the_mean(
    floor: float, gain: float, level: float
) -> None:
    model = NoiseModel(floor, gain)
    rng = np.random.default_rng(1)
    noisy = expose(np.full(400_000, level), model, rng, clip=False) * 255
    mean = np.array([model.stabilise(noisy).mean()])
    plain, unbiased = (abs(float(f(mean)[0]) - level) for f in (model.restore, model.restore_mean))
    # Near black noise reaches below it, where the map is straight and leaves no bias to undo.
    assert unbiased < (0.03 if level >= 20 else 0.1) * gain
    # From some counts on the plain inverse is a quarter of the gain too dark.
    assert level < 20 or plain == pytest.approx(gain / 4, rel=0.25)


def test_sigma_grows_from_the_floor() -> None:
    model = NoiseModel(3.0, 2.0)
    np.testing.assert_allclose(model.sigma_at([-10, 0, 8, 100]), [3, 3, 5, 209**0.5])


@pytest.mark.parametrize("given_values", [(-1.0, 0.0), (1.0, -0.1), (np.nan, 1.0), (1.0, np.inf)])
def test_impossible_noise_is_refused(given_values: tuple[float, float]) -> None:
    with pytest.raises(CofuseError, match="expected a number, 0 or more"):
        NoiseModel(*given_values)


# Noise of a stack that is given.


# Estimates.


@pytest.mark.parametrize(("frames", "clip"), [(1, True), (1, False), (2, True), (5, True)])
@pytest.mark.parametrize(("floor", "gain"), [(1.0, 0.5), (4.0, 2.0), (8.0, 4.0)])
def test_camera_noise_is_found(floor: float, gain: float, frames: int, clip: bool) -> None:
    true = NoiseModel(floor, gain)
    noise = estimate_noise(noisy_stack(true, frames, clip=clip))
    assert noise.estimated and not noise.is_clean and noise.model.gain > 0
    assert error_of(noise.model, true) < 0.1
    assert noise.by_frame[:, 0] == pytest.approx([true.stabilised_sigma] * frames, rel=0.12)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
@pytest.mark.parametrize("sigma", [5.0, 15.0, 25.0])
def test_white_noise_is_found_white(name: str, sigma: float) -> None:
    stack = noisy_stack(NoiseModel(sigma), name=name)
    noise = estimate_noise(stack)
    # Texture that fills one frame at some brightnesses passes for noise that grows a little.
    assert error_of(noise.model, NoiseModel(sigma)) < 0.2
    assert noise.sigma == pytest.approx(sigma, rel=max(0.1, 2 * noise.errors[0, 0, 0]))


@pytest.mark.parametrize("name", SAMPLE_NAMES)
@pytest.mark.parametrize("sigma", [5.0, 15.0, 25.0])
def test_white_noise_of_a_stack_is_found_white(name: str, sigma: float) -> None:
    noise = estimate_noise(noisy_stack(NoiseModel(sigma), 3, name))
    assert noise.sigma == pytest.approx(sigma, rel=0.1)
    assert noise.by_band[0] == pytest.approx(np.full(BANDS, sigma), rel=0.25)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
@pytest.mark.parametrize("colour", [False, True])
def test_clean_pictures_are_clean(name: str, colour: bool) -> None:
    picture = sample_picture(name)
    frame = picture if colour else np.rint(luminance(picture.astype(np.float32))).astype(np.uint8)
    noise = estimate_noise(Stack.from_arrays([frame, frame[:, ::-1]]))
    assert noise.is_clean and noise.model.gain == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_clean_gradient_is_clean(dtype: type) -> None:
    ramp = np.linspace(0, 1, 200)[:, None] * np.linspace(0.5, 1, 150)
    white = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1.0
    frame = (ramp * white).astype(dtype)
    noise = estimate_noise(Stack.from_arrays([frame]))
    assert noise.is_clean and noise.sigma < 0.7


@pytest.mark.parametrize("gain", [0.0, 1.0])
def test_a_frame_with_other_noise_shows(gain: float) -> None:
    rng = np.random.default_rng(2)
    usual = NoiseModel(5.0, gain)
    other = NoiseModel(10.0, 4 * gain)
    frames = simulate_stack(grey_sample("coffee") / 255, frames=4, seed=1).frames
    picked = [
        expose(f.clip(0, 1) * 255, other if k == 2 else usual, rng) for k, f in enumerate(frames)
    ]
    noise = estimate_noise(Stack.from_arrays(picked))
    level = usual.stabilised_sigma
    assert error_of(noise.model, usual) < 0.1
    assert noise.by_frame[:, 0] == pytest.approx([level, level, 2 * level, level], rel=0.12)


def test_camera_noise_in_colour() -> None:
    true = NoiseModel(3.0, 1.0)
    picture = sample_picture("coffee").astype(np.float64)
    rng = np.random.default_rng(4)
    noise = estimate_noise(Stack.from_arrays([expose(picture, true, rng) for _ in range(2)]))
    assert error_of(noise.model, true) < 0.1
    assert noise.by_frame == pytest.approx(np.full((2, 3), true.stabilised_sigma), rel=0.1)


def test_every_frame_is_read_once_and_reported() -> None:
    reads: list[int] = []
    frames = [
        expose(grey_sample("rocket"), NoiseModel(5.0, 1.0), np.random.default_rng(k))
        for k in (0, 1)
    ]

    def reader(index: int) -> Array:
        reads.append(index)
        return frames[index]

    stack = Stack([lambda: reader(0), lambda: reader(1)])
    reads.clear()
    seen: list[Progress] = []
    first = estimate_noise(stack, progress=seen.append)
    assert reads == [0, 1]
    assert seen == [Progress("noise", 1, 2), Progress("noise", 2, 2)]
    np.testing.assert_array_equal(estimate_noise(stack).levels, first.levels)


@given(st.integers(2, 16), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_fit_is_the_best_of_those_not_negative(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    level = np.sort(rng.uniform(5, 250, count))
    variance = np.maximum(rng.normal(0, 30) + rng.normal(0, 0.5) * level, 1.0)
    variance *= rng.uniform(0.8, 1.2, count)
    error = rng.uniform(0.05, 0.3, count)
    model = least_squares(level, variance, error)
    design = np.stack([np.ones_like(level), level], axis=1) / (variance * error)[:, None]
    found = np.array([model.floor**2, model.gain])
    # Kuhn and Tucker: no step that is allowed makes the squares less.
    slope = design.T @ (design @ found - 1.0 / error) / np.linalg.norm(design, axis=0)
    scale = np.linalg.norm(1.0 / error)
    assert (found >= 0).all()
    assert slope[found > 0] == pytest.approx(0.0, abs=1e-7 * scale)
    assert (slope[found == 0] >= -1e-7 * scale).all()
