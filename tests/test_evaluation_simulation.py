"""Simulated stacks obey the laws of the lens they imitate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import (
    SAMPLE_NAMES,
    demo_simulation,
    disc_kernel,
    sample_picture,
    simulate_stack,
)

few = settings(max_examples=20, deadline=None)


def texture(shape=(48, 64), dtype=np.uint8, seed=0):
    """A picture with detail at every pixel."""
    values = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return (values * 255).astype(dtype) if dtype == np.uint8 else values.astype(dtype)


def far_from_other_layers(depth, reach):
    """Pixels with one depth only within `reach` pixels of them."""
    padded = np.pad(depth, reach, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * reach + 1,) * 2)
    return (windows == depth[..., None, None]).all(axis=(2, 3))


@few
@given(frames=st.integers(1, 20), seed=st.integers(0, 2**40), colour=st.booleans())
def test_the_seed_decides_everything(frames, seed, colour):
    picture = texture((16, 21, 3) if colour else (16, 21))
    options = {"frames": frames, "sigma": 4.0, "max_radius": 3.0}
    one = simulate_stack(picture, seed=seed, **options)
    two = simulate_stack(picture, seed=seed, **options)
    other = simulate_stack(picture, seed=seed + 1, **options)
    assert all(np.array_equal(a, b) for a, b in zip(one.frames, two.frames, strict=True))
    assert np.array_equal(one.truth, two.truth)
    assert not np.array_equal(one.frames[0], other.frames[0])


def test_noise_does_not_change_the_scene():
    clean = simulate_stack(texture(), seed=3)
    noisy = simulate_stack(texture(), seed=3, sigma=20)
    assert np.array_equal(clean.truth, noisy.truth)
    assert np.array_equal(clean.depth, noisy.depth)
    noise = [f.astype(int) - c for f, c in zip(noisy.frames, clean.frames, strict=True)]
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.1


@few
@given(
    frames=st.integers(1, 6),
    snap=st.booleans(),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([np.uint8, np.uint16, np.float32, np.float64]),
)
def test_without_blur_and_noise_every_frame_is_the_truth(frames, snap, seed, dtype):
    scene = simulate_stack(
        texture(), frames=frames, max_radius=0, snap=snap, seed=seed, dtype=dtype
    )
    assert len(scene.frames) == frames
    assert scene.truth.dtype == dtype
    assert all(np.array_equal(frame, scene.truth) for frame in scene.frames)


@few
@given(
    value=st.integers(1, 255),
    radius=st.floats(0, 15),
    frames=st.integers(1, 6),
    snap=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_constant_scene_stays_constant(value, radius, frames, snap, seed):
    """Nothing dark shows where layers end, in front or behind."""
    picture = np.full((32, 40), value, np.uint8)
    scene = simulate_stack(
        picture, frames=frames, max_radius=radius, snap=snap, seed=seed, objects=3
    )
    assert all((frame == value).all() for frame in scene.frames)
    exact = simulate_stack(
        picture, frames=frames, max_radius=radius, snap=snap, seed=seed, dtype=np.float64
    )
    for frame in exact.frames:
        np.testing.assert_allclose(frame, value / 255, rtol=1e-6)


@few
@given(radius=st.floats(0, 40))
def test_the_disc_is_an_even_symmetric_average(radius):
    kernel = disc_kernel(radius)
    assert kernel.sum() == pytest.approx(1.0, abs=1e-12)
    assert (kernel >= 0).all()
    assert np.array_equal(kernel, kernel.T)
    assert np.array_equal(kernel, kernel[::-1])
    assert kernel.shape[0] % 2 == 1
    if radius <= 0.5:
        assert kernel.shape == (1, 1)


@pytest.mark.parametrize("radius", [3.0, 4.5, 6.0, 9.0, 14.0])
def test_a_point_spreads_to_a_disc(radius):
    """The mean squared distance from the centre of an even disc is r²/2."""
    point = np.zeros((65, 65))
    point[32, 32] = 1.0
    scene = simulate_stack(point, frames=2, layers=1, objects=0, max_radius=radius)
    near, far = scene.frames
    assert np.array_equal(far, scene.truth)
    y, x = np.mgrid[-32:33, -32:33]
    distance = np.hypot(y, x)
    assert near.sum() == pytest.approx(1.0, rel=1e-5)
    assert (near * distance**2).sum() == pytest.approx(radius**2 / 2, rel=0.06)
    assert np.abs(near[distance >= radius + 0.5]).max() < 1e-12
    np.testing.assert_allclose(near[distance <= radius - 0.5], near.max(), rtol=1e-5)


def test_blur_grows_linearly_with_the_distance_from_focus():
    point = np.zeros((65, 65))
    point[32, 32] = 1.0
    scene = simulate_stack(point, frames=5, layers=1, objects=0, max_radius=16)
    for frame, focus in zip(scene.frames, scene.focus, strict=True):
        reach = np.flatnonzero((frame > 1e-9).any(axis=0)).size // 2
        assert reach == round(16 * (1 - focus))


def check_source_map(scene, max_radius):
    """Deep inside a layer its own frame is the truth to the last bit, and others are not."""
    inside = far_from_other_layers(scene.depth, reach=6)
    assert inside.any()
    for k, frame in enumerate(scene.frames):
        here = inside & (scene.source_map == k)
        assert np.array_equal(frame[here], scene.truth[here])
        elsewhere = inside & (np.abs(scene.depth - scene.focus[k]) * max_radius > 0.7)
        if elsewhere.any():
            assert np.mean(frame[elsewhere] != scene.truth[elsewhere]) > 0.99


@few
@given(frames=st.integers(2, 4), seed=st.integers(0, 1000))
def test_the_source_map_names_the_sharp_frame(frames, seed):
    scene = simulate_stack(
        texture((64, 64)), frames=frames, objects=0, max_radius=4, seed=seed, dtype=np.float64
    )
    check_source_map(scene, max_radius=4)


@pytest.mark.parametrize("seed", range(6))
def test_the_source_map_names_the_sharp_frame_of_objects(seed):
    """One object only: pixels between two touching soft rims belong to no layer alone."""
    scene = simulate_stack(
        texture((64, 64, 3)), frames=3, layers=1, objects=1, max_radius=4, seed=seed
    )
    assert set(np.unique(scene.source_map)) == {0, 2}
    check_source_map(scene, max_radius=4)


@few
@given(frames=st.integers(1, 20), seed=st.integers(0, 1000))
def test_layers_snap_to_focus_planes(frames, seed):
    snapped = simulate_stack(texture(), frames=frames, seed=seed)
    assert set(np.unique(snapped.depth)) <= set(snapped.focus)
    free = simulate_stack(texture(), frames=frames, seed=seed, snap=False)
    step = np.abs(free.depth[..., None] - np.array(free.focus))
    assert np.array_equal(step.argmin(axis=-1), free.source_map)
    if frames > 2:
        assert not set(np.unique(free.depth)) <= set(free.focus)


def test_a_defocused_object_spreads_over_the_sharp_background():
    """White object before black ground: outside its outline the far frame brightens."""
    scene = simulate_stack(
        np.zeros((64, 64)), frames=2, layers=1, objects=1, foreground=np.ones((64, 64)), seed=1
    )
    near, far = scene.frames
    assert np.array_equal(near, scene.truth)
    assert scene.truth.max() == 1
    assert ((far > 0) & (scene.truth == 0)).any()
    assert ((far < 1) & (scene.truth == 1)).any()
    assert set(np.unique(scene.source_map)) == {0, 1}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("sigma", [2.0, 15.0])
def test_noise_has_the_standard_deviation_asked_for(dtype, sigma):
    grey = np.full((200, 200), 0.5 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max // 2)
    grey = grey.astype(dtype)
    white = 1.0 if grey.dtype.kind == "f" else np.iinfo(dtype).max
    scene = simulate_stack(grey, frames=2, sigma=sigma, seed=5)
    for noisy in scene.frames:
        assert noisy.dtype == dtype
        noise = (noisy.astype(float) - grey) * (255 / white)
        # Rounding to 8 bits adds 1/12; the sample deviation of n values strays by sigma/√(2n).
        expected = np.sqrt(sigma**2 + (dtype == np.uint8) / 12)
        bound = 5 * sigma / np.sqrt(2 * noise.size)
        assert abs(noise.std() - expected) < bound
        assert abs(noise.mean()) < 5 * sigma / np.sqrt(noise.size)


def test_noise_clips_integers_and_not_floats():
    floats, integers = (
        simulate_stack(np.zeros((32, 32), dtype), frames=1, sigma=10).frames[0]
        for dtype in (np.float64, np.uint8)
    )
    assert floats.min() < 0 and 0 < integers.max() < 128


@few
@given(
    height=st.integers(16, 40),
    width=st.integers(16, 40),
    colour=st.booleans(),
    foreground_colour=st.booleans(),
    frames=st.integers(1, 4),
)
def test_shape_and_dtype_are_kept(height, width, colour, foreground_colour, frames):
    picture = texture((height, width, 3) if colour else (height, width), np.float32)
    foreground = texture((20, 30, 3) if foreground_colour else (20, 30))
    scene = simulate_stack(picture, frames=frames, foreground=foreground)
    stack = scene.stack()
    assert len(stack) == len(scene.focus) == frames
    assert stack.shape == scene.truth.shape == picture.shape
    assert stack.dtype == scene.truth.dtype == np.float32
    assert scene.source_map.shape == scene.depth.shape == (height, width)
    assert scene.source_map.max() < frames


def test_the_scene_is_cut_out_of_the_picture():
    picture = texture((60, 80))
    scene = simulate_stack(picture, shape=(20, 30), objects=0, layers=1, frames=1)
    windows = np.lib.stride_tricks.sliding_window_view(picture, (20, 30))
    assert (windows == scene.truth).all(axis=(2, 3)).sum() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frames": 0}, "`frames` is 0"),
        ({"frames": 2.5}, "`frames` is 2.5"),
        ({"layers": 0}, "`layers` is 0"),
        ({"objects": -1}, "`objects` is -1"),
        ({"sigma": -1.0}, "`sigma` is -1"),
        ({"sigma": float("nan")}, "`sigma` is nan"),
        ({"max_radius": -0.1}, "`max_radius` is -0.1"),
        ({"seed": -1}, "`seed` is -1"),
        ({"shape": (15, 20)}, "20x15"),
        ({"shape": (20, 100)}, "100x20"),
        ({"dtype": np.int32}, "int32"),
        ({"foreground": np.full((20, 20), np.nan)}, "the foreground"),
    ],
)
def test_nonsense_is_refused_in_words(options, words):
    with pytest.raises(CofuseError, match=words):
        simulate_stack(texture(), **options)


@pytest.mark.parametrize(
    "picture",
    [np.zeros((15, 40)), np.full((20, 20), np.nan), np.zeros(30), np.full((20, 20), 200.0)],
)
def test_bad_pictures_are_refused(picture):
    with pytest.raises(CofuseError):
        simulate_stack(picture)


def test_sample_pictures_are_rgb():
    for name in SAMPLE_NAMES:
        picture = sample_picture(name)
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.std() > 20
    coffee = sample_picture("coffee").mean(axis=(0, 1))
    assert coffee[0] > coffee[2]  # red table: the channels are in the order R, G, B
    with pytest.raises(CofuseError, match=r"'lena'.*coffee"):
        sample_picture("lena")


def test_the_demo_is_sharp_elsewhere_in_every_frame():
    demo = demo_simulation(sigma=0)
    assert demo.truth.dtype == np.uint8
    assert demo.truth.shape == (384, 576, 3)
    errors = np.array([np.abs(f.astype(int) - demo.truth).mean(axis=2) for f in demo.frames])
    for k in range(len(demo.frames)):
        here = demo.source_map == k
        assert here.mean() > 0.05
        assert errors[:, here].mean(axis=1).argmin() == k
    assert all((f != demo.truth).any() for f in demo.frames)
