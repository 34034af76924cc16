"""Noise laws from frames: right on noise of any colour, on smooth and on textured scenes."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse import estimate_noise
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.images import Stack, to_opponent
from cofuse.sensor import noise_level
from cofuse.sensor.bands import COEFFICIENTS, cut_blocks, jpeg_grid, window_places
from cofuse.sensor.law import BANDS
from cofuse.sensor.sampling import MEDIAN, Floor, least_way, residues

Array = np.ndarray[Any, Any]

SIDE = 200


def noise(sigma: float, seed: int = 0, side: int = SIDE) -> Array:
    return np.random.default_rng(seed).normal(0, sigma, (side, side))


def coarse_noise(sigma: float, seed: int = 0, side: int = SIDE) -> Array:
    """Noise as a mosaic or a resampling leaves it: little of the finest, all of the coarse."""
    blurred = cv2.GaussianBlur(noise(1.0, seed, side + 32), (0, 0), 0.8)[16:-16, 16:-16]
    return np.asarray(blurred * (sigma / blurred.std()))


def smooth_picture(side: int = SIDE) -> Array:
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


def true_levels(residual: Array) -> Array:
    """Level of every band of known noise: root mean squares, all places counting."""
    stack = Stack.from_arrays([np.asarray(residual + 128.0, np.float32)], white=255.0)
    places = window_places(stack.shape, 10_000)
    bands = cut_blocks(stack, np.stack([stack[0][place] for place in places]))
    return np.sqrt([np.square(band.values).mean() for band in bands])


def focus_stack(frames: int, made: Any, *, seed: int = 0, colour: bool = False) -> list[Array]:
    """Frames of one scene with noise of its own each, not rounded and not clipped."""
    scene = sample_picture("coffee")[40:296, 60:380]
    scene = scene if colour else cv2.cvtColor(scene, cv2.COLOR_RGB2GRAY)
    sharp = simulate_stack(scene / 255.0, frames=frames, sigma=0.0, seed=seed).frames
    return [
        np.asarray((20 + 0.85 * 255 * frame + made(k, frame.shape)) / 255, np.float32)
        for k, frame in enumerate(sharp)
    ]


# --- one picture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("sigma", [2.0, 5.0, 15.0, 40.0])
def test_pure_noise_is_measured_within_a_few_per_cent(sigma: float, seed: int) -> None:
    assert noise_level(128 + noise(sigma, seed)) == pytest.approx(sigma, rel=0.04)


@pytest.mark.parametrize("sigma", [2.0, 5.0, 10.0, 20.0])
def test_noise_on_slopes(sigma: float) -> None:
    for seed in range(3):
        assert noise_level(smooth_picture() + noise(sigma, seed)) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("sigma", [2.0, 5.0, 20.0])
def test_noise_on_hard_edges_everywhere(sigma: float) -> None:
    # No sixteen pixels are without an edge: of one picture coarser bands can only be guessed.
    for seed in range(3):
        assert sigma * 0.9 < noise_level(chequered_picture() + noise(sigma, seed)) < sigma * 1.4


@pytest.mark.parametrize("sigma", [10.0, 20.0, 40.0])
def test_noise_on_texture_everywhere(sigma: float) -> None:
    for seed in range(3):
        picture = np.clip(natural_picture(100 + seed), 1, 254) + noise(sigma, seed)
        assert noise_level(picture) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("rounded", [False, True])
def test_a_clean_smooth_picture_has_hardly_any(rounded: bool) -> None:
    picture = np.rint(smooth_picture()) if rounded else smooth_picture()
    assert noise_level(picture) < 0.7


@pytest.mark.parametrize("value", [0.0, 100.0, 255.0])
def test_a_constant_picture_has_no_noise(value: float) -> None:
    assert noise_level(np.full((SIDE, SIDE), value)) < 0.05


@pytest.mark.parametrize("sigma", [5.0, 15.0])
def test_a_black_background_does_not_fool_it(sigma: float) -> None:
    # Noise on black is cut in half: a flat, nearly noise-free region in three quarters.
    picture = np.zeros((SIDE, SIDE))
    picture[40:160, 40:160] = smooth_picture(120)
    picture = np.clip(picture + noise(sigma), 0, 255)
    assert noise_level(picture) == pytest.approx(sigma, rel=0.1)


def blown_out_sky() -> Array:
    picture = smooth_picture()
    picture[:80] = 262  # most of the noise there is clipped, but not all
    return np.clip(picture + noise(10.0), 0, 255)


@pytest.mark.parametrize("white", [65535, 16383, 4095, 15600, 60001])
def test_white_is_recognised_as_clipped_at_any_depth(white: int) -> None:
    # White times the float32 nearest to 255/white is not always 255 itself.
    frame = np.rint(blown_out_sky() * (white / 255)).astype(np.uint16)
    law = estimate_noise(Stack.from_arrays([frame], white=white))
    assert law.sigma == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("shape", [(1, 1), (6, 200), (7, 7), (7, 7, 3)])
def test_pictures_smaller_than_a_block_are_unknown(shape: tuple[int, ...]) -> None:
    frame = np.random.default_rng(0).integers(1, 255, shape).astype(np.uint8)
    law = estimate_noise([frame, 255 - frame])
    assert law.is_clean and (law.errors == 1).all() and law.estimated


@pytest.mark.parametrize("shape", [(8, 8), (15, 300), (40, 31, 3), (130, 64)])
def test_small_pictures_have_a_law_of_all_bands(shape: tuple[int, ...]) -> None:
    frame = 128 + np.random.default_rng(0).normal(0, 12, shape)
    law = estimate_noise(Stack.from_arrays([frame.astype(np.float32)], white=255.0))
    assert law.levels.shape == (1, 3 if len(shape) == 3 else 1, BANDS)
    assert law.sigma == pytest.approx(12.0, rel=0.35)


def test_hot_pixels_are_not_noise() -> None:
    rng = np.random.default_rng(5)
    picture = smooth_picture() + noise(4.0)
    rows, columns = rng.integers(0, SIDE, (2, 60))
    picture[rows, columns] = 250.0
    assert noise_level(picture) == pytest.approx(4.0, rel=0.1)


def test_the_picture_is_not_written_to() -> None:
    picture = (128 + noise(5.0)).astype(np.float32)
    picture.setflags(write=False)
    noise_level(picture)


# --- its colour ----------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
@pytest.mark.parametrize("made", [noise, coarse_noise])
def test_bands_of_white_and_of_coarse_noise(made: Any, frames: int) -> None:
    noises = [made(10.0, seed, 320)[:256] for seed in range(frames)]
    stack = Stack.from_arrays(focus_stack(frames, lambda k, _: noises[k]))
    law = estimate_noise(stack)
    truth = np.mean([true_levels(n) for n in noises], axis=0)
    assert not law.blocks and law.errors.min() > 0
    # The two coarsest have few blocks, and detail of a scene is mostly there.
    assert law.by_band[0, :3] == pytest.approx(truth[:3], rel=0.2)
    assert law.by_band[0, 3:] == pytest.approx(truth[3:], rel=0.4)


def test_frames_differ_in_their_noise() -> None:
    given_levels = [6.0, 12.0, 6.0, 3.0]
    rng = np.random.default_rng(7)
    frames = focus_stack(4, lambda k, shape: rng.normal(0, given_levels[k], shape))
    law = estimate_noise(frames)
    assert law.by_frame[:, 0] == pytest.approx(given_levels, rel=0.15)


def test_planes_of_colour_differ_in_their_noise() -> None:
    # The same noise in all channels is luminance only; opposite noise of R and B is chrominance.
    rng = np.random.default_rng(3)

    def made(_: int, shape: tuple[int, ...]) -> Array:
        shared, opposed = rng.normal(0, 1, (2, *shape[:2]))
        own = rng.normal(0, 3, shape)
        return 4 * shared[..., None] + 8 * opposed[..., None] * np.array([1, 0, -1]) + own

    law = estimate_noise(focus_stack(2, made, colour=True))
    expected = [np.hypot(4 * 3**0.5, 3), np.hypot(8 * 2**0.5, 3), 3.0]
    assert law.by_frame[0] == pytest.approx(expected, rel=0.12)


def test_equal_channels_have_the_noise_of_each_in_luminance_alone() -> None:
    grey = np.float32((smooth_picture() + noise(8.0)) / 255)
    law = estimate_noise([np.stack([grey] * 3, axis=-1)])
    alone = estimate_noise([grey])
    assert law.sigma == pytest.approx(alone.sigma, rel=0.02)
    assert law.levels[0, 1:].max() < 0.5


# --- stacks --------------------------------------------------------------------------------------


def test_copies_do_not_make_noise_vanish() -> None:
    rng = np.random.default_rng(1)
    frames = focus_stack(3, lambda _, shape: rng.normal(0, 8, shape))
    alone = estimate_noise(frames)
    repeated = estimate_noise([frames[0], frames[0], frames[1], frames[2], frames[2]])
    np.testing.assert_array_equal(repeated.levels, alone.levels[[0, 0, 1, 2, 2]])
    assert estimate_noise([frames[0]] * 4).sigma == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("gain", [0.9, 1.1])
def test_flicker_and_small_shifts_are_not_noise(gain: float) -> None:
    rng = np.random.default_rng(2)
    frames = focus_stack(4, lambda _, shape: rng.normal(0, 6, shape))
    frames[1] = frames[1] * np.float32(gain)
    frames[2] = np.roll(frames[2], 1, axis=1)
    assert estimate_noise(frames).by_band[0, 0] == pytest.approx(6.0, rel=0.15)


def test_eight_and_sixteen_bits_and_floats_give_the_same_grey_levels() -> None:
    levels = np.clip(smooth_picture() + noise(8.0), 0, 255)
    stacks = {
        "uint8": Stack.from_arrays([np.rint(levels).astype(np.uint8)]),
        "uint16": Stack.from_arrays([np.rint(levels * 257).astype(np.uint16)]),
        "12 bits": Stack.from_arrays([np.rint(levels * 4095 / 255).astype(np.uint16)], white=4095),
        "float": Stack.from_arrays([levels / 255]),
    }
    for name, stack in stacks.items():
        assert estimate_noise(stack).sigma == pytest.approx(noise_level(levels), rel=0.02), name


def test_sixteen_bits_of_small_range_are_measured_on_their_own_scale() -> None:
    counts = np.rint(300 + 4 * (smooth_picture() - 128) + noise(12.0)).astype(np.uint16)
    stack = Stack.from_arrays([counts, counts[::-1].copy()])
    expected = 12.0 * 255.0 / stack.white
    assert estimate_noise(stack).sigma == pytest.approx(expected, rel=0.1)


@settings(deadline=None, max_examples=6)
@given(st.permutations(range(4)))
def test_order_changes_little(order: list[int]) -> None:
    rng = np.random.default_rng(4)
    frames = focus_stack(4, lambda _, shape: rng.normal(0, 7, shape))
    found = estimate_noise([frames[k] for k in order]).sigma
    assert found == pytest.approx(estimate_noise(frames).sigma, rel=0.08)


# --- JPEG ----------------------------------------------------------------------------------------


def grid_of(frame: Array) -> float:
    stack = Stack.from_arrays([frame])
    places = window_places(stack.shape, 160)
    return jpeg_grid(stack, np.stack([stack[0][place] for place in places]), places)


@pytest.mark.parametrize("quality", [70, 85, 95])
@pytest.mark.parametrize("sigma", [0.0, 5.0, 15.0])
def test_a_jpeg_is_recognised_wherever_it_is_cut(quality: int, sigma: float) -> None:
    rng = np.random.default_rng(0)
    scene = sample_picture("coffee") + rng.normal(0, sigma, sample_picture("coffee").shape)
    picture = np.clip(np.rint(scene), 0, 255).astype(np.uint8)
    coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    decoded = cv2.imdecode(coded, cv2.IMREAD_COLOR)
    assert grid_of(decoded) > 0.2
    assert grid_of(np.ascontiguousarray(decoded[3:, 5:])) > 0.2


@pytest.mark.parametrize("sigma", [1.0, 5.0, 15.0])
def test_noise_and_texture_have_no_grid(sigma: float) -> None:
    for seed in range(3):
        for picture in (smooth_picture(), natural_picture(seed), chequered_picture()):
            frame = np.clip(np.rint(picture + noise(sigma, seed)), 0, 255).astype(np.uint8)
            assert grid_of(frame) == 0


# --- parts ---------------------------------------------------------------------------------------


def test_white_noise_has_one_variance_in_all_bands_and_coefficients() -> None:
    levels = true_levels(noise(10.0, 1, 1024))
    assert levels == pytest.approx(np.full(BANDS, 10.0), rel=0.05)
    planes = to_opponent(np.random.default_rng(0).normal(0, 1, (64, 64, 3)).astype(np.float32))
    assert planes.std(axis=(0, 1)) == pytest.approx(np.ones(3), rel=0.05)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_residues_of_pure_noise_are_its_variance(frames: int) -> None:
    rng = np.random.default_rng(0)
    blocks = [rng.normal(0, 1, (20_000, 1, COEFFICIENTS)).astype(np.float32) for _ in range(frames)]
    score, coarse, fine = residues(blocks)
    # What is measured was not chosen for being small, unlike the score.
    assert coarse.mean() == pytest.approx(1.0, rel=0.01)
    assert fine.mean() == pytest.approx(1.0, rel=0.01)
    assert frames == 1 or score.mean() < 0.9


@pytest.mark.parametrize("frames", [2, 3])
def test_residues_do_not_see_what_frames_share(frames: int) -> None:
    rng = np.random.default_rng(1)
    detail = rng.normal(0, 50, (2000, 1, COEFFICIENTS)).astype(np.float32)
    shares = [1.0, 0.7, 0.2][:frames]
    blocks = [
        np.float32(share) * detail + rng.normal(0, 1, detail.shape).astype(np.float32)
        for share in shares
    ]
    _, coarse, fine = residues(blocks)
    # One direction of the frames, and hardly a degree of freedom, is lost to the detail.
    assert np.median((coarse + fine) / 2) == pytest.approx(1.0, rel=0.1)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_theleast_way_is_the_least_eigenvector(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(0, 1, (5, size, 40)) * np.array([9.0, 4.0, 1.0])[:size, None]
    form = (root @ np.swapaxes(root, 1, 2) / 40).astype(np.float32)
    way = least_way(form)
    assert np.linalg.norm(way, axis=-1) == pytest.approx(np.ones(5), rel=1e-5)
    energy = np.einsum("ni,nij,nj->n", way, form, way)
    assert energy == pytest.approx(np.linalg.eigvalsh(form)[:, 0], rel=0.02)


def test_the_floor_is_that_of_the_places_without_detail() -> None:
    rng = np.random.default_rng(2)
    half = COEFFICIENTS // 2
    detail = np.where(rng.uniform(size=4000) < 0.7, rng.exponential(20, 4000), 0.0)
    energies = [
        ((4 + detail) * rng.chisquare(n, 4000) / n).astype(np.float32)
        for n in (half, half // 2, half // 2)
    ]
    floor = Floor.of(np.stack(energies))
    assert floor.variance == pytest.approx(4.0, rel=0.1)
    assert floor.detail > 2 and abs(floor.slope) < 0.05
    none = Floor.of(np.empty((3, 0), np.float32))
    assert none.variance == 0 and none.error == np.inf


def test_the_median_against_the_mean_is_that_of_its_law() -> None:
    freedom = COEFFICIENTS // 2
    # Of an even number of degrees the χ² law is that of waiting for so many events (Erlang).
    terms = (freedom * MEDIAN / 2) ** np.arange(freedom // 2)
    factorials = np.cumprod(np.maximum(np.arange(freedom // 2, dtype=float), 1))
    above = np.exp(-freedom * MEDIAN / 2) * np.sum(terms / factorials)
    assert above == pytest.approx(0.5, abs=1e-3)
