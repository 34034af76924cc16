"""Depth from focus: what is known is found, what is not stays modest, and laws of symmetry."""

from __future__ import annotations

from functools import cache
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.depth import Depth, depth_picture, depth_preview, estimate_depth
from cofuse.depth.curves import NOISE_ENERGIES, FocusCurve, band_energies
from cofuse.depth.estimation import small_luminance
from cofuse.depth.filling import diffuse, enlarge, enlarge_along, spread
from cofuse.depth.maps import colour_table
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import disc_kernel, sample_picture
from cofuse.images import Stack

Array = np.ndarray[Any, Any]

SEEDS = st.integers(0, 2**32 - 1)


def texture(height: int, width: int, seed: int) -> Array:
    """Detail of all sizes, as pictures have it, in grey levels."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width))
    for sigma in (0.6, 1.5, 4.0):
        part = cv2.GaussianBlur(rng.normal(size=(height, width)), (0, 0), sigma)
        picture += 25.0 * part / part.std()
    return picture + 128.0


def photograph(picture: Array, depth: Array, frames: int, rate: float) -> list[Array]:
    """Defocus a picture by a disc of ``rate`` pixels for every frame away from ``depth``."""
    radii = np.arange(0.0, rate * (frames - 1) + 1.5, 0.5)
    blurred = np.stack([cv2.filter2D(picture, -1, disc_kernel(r)) for r in radii])
    rows, columns = np.indices(picture.shape)
    taken = []
    for frame in range(frames):
        steps = rate * np.abs(depth - frame) / 0.5
        first = steps.astype(int)
        share = steps - first
        near, far = blurred[first, rows, columns], blurred[first + 1, rows, columns]
        taken.append((1.0 - share) * near + share * far)
    return taken


def ramp(height: int, width: int, frames: int) -> Array:
    return np.broadcast_to(np.linspace(0.0, frames - 1.0, width), (height, width))


def as_stack(frames: list[Array], sigma: float = 0.0, seed: int = 0) -> Stack:
    rng = np.random.default_rng(seed)
    noisy = [frame + rng.normal(0.0, sigma, frame.shape) for frame in frames]
    return Stack.from_arrays([np.clip(np.rint(f), 0, 255).astype(np.uint8) for f in noisy])


def as_floats(frames: list[Array], factor: float = 1.0) -> Stack:
    return Stack.from_arrays([(factor * f / 255.0).astype(np.float32) for f in frames])


@cache
def small_scene(frames: int, seed: int) -> tuple[Array, ...]:
    return tuple(photograph(texture(64, 80, seed), ramp(64, 80, frames), frames, 1.5))


# What is known is found.


@pytest.mark.parametrize(
    ("frames", "sigma", "limit"),
    [(2, 0, 0.2), (3, 0, 0.15), (8, 0, 0.1), (8, 15, 0.35), (30, 0, 0.5), (30, 15, 1.0)],
)
def test_ramp_is_recovered_between_the_frames(frames: int, sigma: float, limit: float) -> None:
    picture = sample_picture("yard")[:256, :320].mean(axis=2)
    truth = ramp(256, 320, frames)
    stack = as_stack(photograph(picture, truth, frames, 10.0 / frames), sigma)
    found = estimate_depth(stack)
    error = np.abs(found.position - truth)
    assert np.sqrt(np.mean(error**2)) < 2.0 * limit
    assert np.median(error[found.confidence > 0.5]) < limit
    assert (found.confidence > 0.5).mean() > (0.2 if sigma else 0.5)


def test_many_frames_in_each_others_depth_of_field() -> None:
    picture = sample_picture("chelsea")[60:188, 100:228].mean(axis=2)
    truth = ramp(128, 128, 120)
    found = estimate_depth(as_stack(photograph(picture, truth, 120, 0.08), 5.0))
    assert np.median(np.abs(found.position - truth)) < 0.02 * 120


def test_step_between_two_surfaces_stays_sharp() -> None:
    truth = np.where(np.arange(160) < 80, 1.0, 6.0) * np.ones((120, 1))
    found = estimate_depth(as_stack(photograph(texture(120, 160, 3), truth, 8, 1.0)))
    assert np.abs(found.position[:, :70] - 1.0).max() < 0.5
    assert np.abs(found.position[:, 90:] - 6.0).max() < 0.5


def test_hole_without_detail_is_filled_from_the_surface_around_it() -> None:
    picture = texture(120, 160, 4)
    hole = np.s_[40:80, 60:100]
    picture[hole] = 128.0
    truth = ramp(120, 160, 6)
    found = estimate_depth(as_stack(photograph(picture, truth, 6, 1.5), 3.0))
    inner = np.s_[52:68, 72:88]
    assert found.confidence[inner].mean() < 0.2 < 0.8 < found.confidence[:, :40].mean()
    assert np.abs(found.position[hole] - truth[hole]).max() < 1.5


def test_traces_of_a_defocused_outline_are_not_taken_for_depth() -> None:
    # One white line on a dark board: out of focus it spreads to where there is nothing else.
    picture = np.full((240, 480), 40.0)
    picture[116:124] = 250.0
    stack = as_stack(photograph(picture, np.full(picture.shape, 2.0), 8, 2.0), 0.5)
    assert np.abs(estimate_depth(stack).position - 2.0).max() < 0.75


# What is not known stays modest.


@given(st.integers(1, 6), st.integers(0, 255), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_constant_stack_has_no_confidence(count: int, level: int, height: int, width: int) -> None:
    found = estimate_depth(Stack.from_arrays([np.full((height, width), level, np.uint8)] * count))
    assert found.position.shape == (height, width)
    assert found.position.dtype == np.float32
    np.testing.assert_allclose(found.position, (count - 1) / 2.0, atol=1e-5)
    assert not found.confidence.any()


@pytest.mark.parametrize("frames", [1, 2, 3, 10, 30])
def test_noise_alone_has_no_confidence(frames: int) -> None:
    stack = as_stack([np.full((120, 160), 128.0)] * frames, 15.0)
    found = estimate_depth(stack)
    assert (found.confidence > 0.2).mean() < 0.002


def test_detail_that_no_frame_loses_says_nothing() -> None:
    found = estimate_depth(as_stack([texture(80, 80, 1)] * 4))
    assert found.confidence.max() < 0.05


@given(st.integers(1, 5), SEEDS)
@settings(max_examples=15, deadline=None)
def test_maps_are_finite_and_in_range(frames: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
    stack = Stack.from_arrays(list(rng.integers(0, 256, (frames, *shape), np.uint8)))
    found = estimate_depth(stack)
    assert found.frames == frames
    assert ((found.position >= 0) & (found.position <= frames - 1)).all()
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all()


# Laws.


@given(st.integers(2, 7), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_reversed_frames_have_reversed_depth(frames: int, seed: int) -> None:
    scene = list(small_scene(frames, seed))
    there, back = estimate_depth(as_floats(scene)), estimate_depth(as_floats(scene[::-1]))
    np.testing.assert_allclose(back.position, frames - 1 - there.position, atol=1e-2)
    np.testing.assert_allclose(back.confidence, there.confidence, atol=1e-2)


@given(st.floats(0.05, 1.0), st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_brightness_does_not_change_depth(factor: float, seed: int) -> None:
    scene = list(small_scene(4, seed))
    plain, dim = estimate_depth(as_floats(scene)), estimate_depth(as_floats(scene, factor))
    np.testing.assert_allclose(dim.position, plain.position, atol=5e-3)


def test_mirrored_frames_have_mirrored_depth() -> None:
    scene = list(small_scene(4, 1))
    plain = estimate_depth(as_floats(scene))
    mirrored = estimate_depth(as_floats([f[::-1, ::-1] for f in scene]))
    error = np.abs(mirrored.position[::-1, ::-1] - plain.position)
    assert np.median(error) < 0.02
    assert error.max() < 0.5


def test_every_frame_is_read_once_and_reported() -> None:
    scene = small_scene(4, 0)
    reads: list[int] = []

    def reader(number: int) -> Array:
        reads.append(number)
        return (scene[number] / 255.0).astype(np.float32)

    stack = Stack([lambda n=n: reader(n) for n in range(4)])
    reads.clear()
    told: list[tuple[int, int]] = []
    estimate_depth(stack, progress=lambda p: told.append((p.done, p.total)))
    assert reads == [0, 1, 2, 3]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


# The choice of a fusion, and large pictures.


def test_peak_is_looked_for_near_the_frame_chosen() -> None:
    truth = np.full((96, 96), 2.0)
    near, far = texture(96, 96, 5), texture(96, 96, 6)
    # Two surfaces, one shining through the other: both frames 2 and 7 have a peak.
    scene = zip(photograph(near, truth, 9, 1.5), photograph(far, truth + 5, 9, 1.5), strict=True)
    stack = as_stack([0.6 * a + 0.4 * b for a, b in scene])
    assert np.abs(estimate_depth(stack).position - 2.0).mean() < 0.5
    chosen = np.full((96, 96), 7, np.uint8)
    told = estimate_depth(stack, source_map=chosen)
    assert np.abs(told.position - 7.0).mean() < 0.5
    unsure = np.zeros((96, 96), np.float32)
    free = estimate_depth(stack, source_map=chosen, source_confidence=unsure)
    np.testing.assert_array_equal(free.position, estimate_depth(stack).position)


def test_choice_also_holds_for_many_frames() -> None:
    truth = ramp(64, 96, 40)
    stack = as_stack(photograph(texture(64, 96, 8), truth, 40, 0.4))
    found = estimate_depth(stack, source_map=np.rint(truth).astype(np.uint8))
    assert np.abs(found.position - truth).mean() < 1.0


@pytest.mark.parametrize("shape", [(128, 160), (131, 163)])
def test_large_pictures_are_looked_at_smaller(shape: tuple[int, int]) -> None:
    truth = ramp(*shape, 5)
    picture = texture(*shape, 7)
    stack = as_stack(photograph(picture, truth, 5, 2.5))
    sharp = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
    chosen = np.rint(truth).astype(np.uint8)
    found = estimate_depth(stack, picture=sharp, source_map=chosen, most_pixels=8_000)
    plain = estimate_depth(stack, source_map=chosen, most_pixels=8_000)
    assert not np.array_equal(found.position, plain.position)
    assert found.position.shape == found.confidence.shape == shape
    assert np.abs(found.position - truth).mean() < 0.2


def test_enlarging_follows_the_outlines_of_the_guide() -> None:
    edge = 37
    guide = np.where(np.arange(80) < edge, 20.0, 200.0).astype(np.float32) * np.ones((60, 1))
    guide = np.asarray(guide, np.float32)
    small = np.where(np.arange(20) < 9.25, 1.0, 5.0).astype(np.float32) * np.ones((15, 1))
    along = enlarge_along(np.asarray(small, np.float32), guide)
    plain = enlarge(np.asarray(small, np.float32), (60, 80))
    truth = np.where(guide < 100, 1.0, 5.0)
    assert np.abs(along - truth).mean() < 0.7 * np.abs(plain - truth).mean()


# Parts.


@given(
    st.integers(1, 300),
    st.integers(1, 40),
    st.sampled_from((np.uint8, np.uint16, np.float32)),
    st.booleans(),
    st.sampled_from((1, 2, 3, 4, 8)),
)
@settings(max_examples=40, deadline=None)
def test_small_luminance_is_the_mean_of_the_pixels_that_are_there(
    height: int, width: int, dtype: Any, colour: bool, scale: int
) -> None:
    shape = (height, width, 3) if colour else (height, width)
    frame = (np.random.default_rng(height).random(shape) * 200).astype(dtype)
    stack = Stack.from_arrays([frame], white=200.0)
    plane = (frame @ np.array([0.298936, 0.587043, 0.114021]) if colour else frame) * 1.275
    small = small_luminance(stack, frame, scale)
    assert small.shape == (-(-height // scale), -(-width // scale)) and small.dtype == np.float32
    for y, x in np.ndindex(small.shape):
        block = plane[y * scale : (y + 1) * scale, x * scale : (x + 1) * scale]
        assert small[y, x] == pytest.approx(block.mean(), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("points", [10, 5])
def test_curve_is_that_of_the_averages_of_frames(points: int) -> None:
    energies = np.random.default_rng(0).uniform(1, 2, (10, 6, 7)).astype(np.float32)
    curve = FocusCurve((6, 7), 10, points)
    for number, energy in enumerate(energies):
        curve.offer(number, energy.copy())
    means = energies.reshape(points, 10 // points, 6, 7).mean(axis=1)
    best = means.argmax(axis=0)
    np.testing.assert_array_equal(curve.index, best)
    np.testing.assert_allclose(curve.centres, (np.arange(points) + 0.5) * 10 / points - 0.5)
    change = np.abs(np.diff(means, axis=0)).sum(axis=0)
    for found, truth in (
        (curve.best, means.max(axis=0)),
        (curve.least, means.min(axis=0)),
        (curve.total, means.sum(axis=0)),
        (curve.change, change),
    ):
        np.testing.assert_allclose(found, truth, rtol=1e-5)
    inside = (best > 0) & (best < points - 1)
    for found, offset in ((curve.before, -1), (curve.after, 1)):
        beside = np.take_along_axis(means, (best + offset)[None] % points, axis=0)[0]
        np.testing.assert_allclose(found[inside], beside[inside], rtol=1e-6)


def test_noise_has_the_energy_that_is_taken_away() -> None:
    noise = np.random.default_rng(5).normal(0, 7.0, (400, 400)).astype(np.float32)
    for energy, (gain, spread_of_it) in zip(band_energies(noise), NOISE_ENERGIES, strict=True):
        assert energy.mean() == pytest.approx(49.0 * gain, rel=0.05)
        assert energy.std() / energy.mean() == pytest.approx(spread_of_it, rel=0.2)


@given(st.integers(1, 50), st.integers(1, 50), SEEDS)
@settings(max_examples=20, deadline=None)
def test_filling_keeps_within_the_values_it_knows(height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(2, 3, (height, width)).astype(np.float32)
    weights = (rng.uniform(size=(height, width)) < 0.2).astype(np.float32)
    weights[0, 0] = 1.0
    values[weights == 0] = -50.0
    filled = spread(values, weights)
    assert ((filled > 1.99) & (filled < 3.01)).all()
    np.testing.assert_allclose(filled[weights == 1], values[weights == 1], rtol=1e-6)
    guide = rng.uniform(0, 100, (height, width)).astype(np.float32)
    smooth = diffuse(filled, weights + 0.01, guide, reach=5, contrast=10, noise=0)
    assert ((smooth > 1.98) & (smooth < 3.02)).all()


# Looking at it.


def a_depth(
    frames: int = 5, z_step: float | None = None, shape: tuple[int, int] = (60, 90)
) -> Depth:
    position = np.array(ramp(*shape, frames), np.float32)
    sure = np.ones(shape, np.float32)
    return Depth(position=position, confidence=sure, frames=frames, z_step=z_step)


def test_picture_spans_the_frames() -> None:
    picture = depth_picture(a_depth())
    assert picture.dtype == np.uint16
    assert picture[0, 0] == 0
    assert picture[0, -1] == 65535
    np.testing.assert_allclose(picture / 65535.0 * 4.0, a_depth().position, atol=1e-4)
    assert not depth_picture(a_depth(frames=1)).any()


def test_physical_depth_needs_the_step() -> None:
    np.testing.assert_allclose(a_depth(z_step=2.5).z, 2.5 * a_depth().position)
    with pytest.raises(CofuseError, match="z_step"):
        _ = a_depth().z


def test_colours_grow_evenly_lighter() -> None:
    table = colour_table() / 255.0
    linear = np.where(table <= 0.04045, table / 12.92, ((table + 0.055) / 1.055) ** 2.4)
    y = linear @ [0.2126729, 0.7151522, 0.0721750]
    lightness = np.where(y > (6 / 29) ** 3, 116 * np.cbrt(y) - 16, y * (29 / 3) ** 3)
    steps = np.diff(lightness)
    assert (steps > -0.35).all()
    assert np.ptp(np.convolve(steps, np.ones(16) / 16, "valid")) < 0.06
    assert lightness[0] < 20
    assert lightness[-1] > 90
    # Neighbouring colours differ by little: no bands.
    assert np.abs(np.diff(table, axis=0)).max() < 0.03


@pytest.mark.parametrize(("frames", "z_step"), [(1, None), (2, 0.1), (5, None), (137, 12.5)])
def test_previews_are_pictures(frames: int, z_step: float | None) -> None:
    preview = depth_preview(ramp(1200, 2400, frames), frames, z_step)
    assert preview.dtype == np.uint8
    assert preview.shape[0] == 800
    assert preview.shape[1] > 1600


# What makes no sense is refused.


def test_wrong_arguments_are_refused() -> None:
    stack = as_floats(list(small_scene(2, 0)))
    with pytest.raises(CofuseError, match="z_step"):
        estimate_depth(stack, z_step=0.0)
    with pytest.raises(CofuseError, match="source_map"):
        estimate_depth(stack, source_map=np.zeros((3, 3), np.uint8))
