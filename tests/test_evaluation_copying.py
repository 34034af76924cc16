"""Baselines that copy, and the guided filter: they pick the sharp frame; copies are exact."""

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.blending import fuse_guided_filter
from cofuse.evaluation.baselines.copying import (
    _all_blocks_agree,
    _block_variance,
    _choose_majority,
    _descriptor_norm,
    _drop_small_regions,
    _spatial_frequency,
    fuse_dct_variance,
    fuse_focus_measure,
    fuse_sf_dct,
    fuse_single_best,
)
from cofuse.evaluation.metrics import psnr, to_grey
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.images import Stack

COPYING = [fuse_dct_variance, fuse_focus_measure, fuse_sf_dct]
ALL = [*COPYING, fuse_guided_filter]


def half_blurred(picture, spread=3.0):
    """Two frames: the left half sharp in one, the right half in the other."""
    blurred = cv2.GaussianBlur(picture, (0, 0), spread)
    left = np.arange(picture.shape[1]) < picture.shape[1] // 2
    left = left[None, :, None] if picture.ndim == 3 else left[None]
    return np.where(left, picture, blurred), np.where(left, blurred, picture)


@pytest.mark.parametrize("method", COPYING)
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_pixels_are_copied(method, dtype, colour):
    shape = (45, 61, 3) if colour else (45, 61)
    values = np.random.default_rng(3).random((4, *shape))
    scale = 1.0 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    frames = (values * scale).astype(dtype)
    fusion = method(Stack.from_arrays(list(frames)))
    assert fusion.image.dtype == dtype
    assert fusion.source_map.shape == shape[:2]
    rows, columns = np.indices(shape[:2])
    np.testing.assert_array_equal(fusion.image, frames[fusion.source_map, rows, columns])
    assert len(np.unique(fusion.source_map)) > 1


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("colour", [False, True])
def test_sharper_half_is_picked(method, colour):
    # Detail everywhere: in flat parts a blurred edge nearby has more variance than the sharp frame.
    noise = np.random.default_rng(8).integers(0, 256, (128, 160, 3), dtype=np.uint8)
    picture = noise if colour else noise[..., 1]
    frames = half_blurred(picture)
    fusion = method(Stack.from_arrays(frames))
    half, seam = picture.shape[1] // 2, 20
    if fusion.source_map is not None:
        assert (fusion.source_map[:, : half - seam] == 0).mean() > 0.95
        assert (fusion.source_map[:, half + seam :] == 1).mean() > 0.95
    assert psnr(fusion.image, picture) > max(psnr(frame, picture) for frame in frames) + 3.0


@pytest.mark.parametrize("method", COPYING)
def test_five_frames_are_sorted_out(method):
    scene = simulate_stack(sample_picture("chelsea"), frames=5, objects=1, seed=2, shape=(160, 200))
    fusion = method(scene.stack())
    assert (fusion.source_map == scene.source_map).mean() > 0.6
    assert psnr(fusion.image, scene.truth) > max(psnr(f, scene.truth) for f in scene.frames) + 2.0


@pytest.mark.parametrize("method", ALL)
def test_equal_frames_come_back(method):
    frame = sample_picture("rocket")[:50, :70]
    for count in (1, 3):
        fusion = method(Stack.from_arrays([frame] * count))
        np.testing.assert_array_equal(fusion.image, frame)


@pytest.mark.parametrize("method", ALL)
def test_order_of_frames_does_not_matter(method):
    scene = simulate_stack(
        sample_picture("coffee"), frames=3, seed=1, shape=(96, 120), sigma=1.0, dtype=np.float32
    )
    # With two frames no vote can end in a draw of two others.
    order = [2, 0, 1] if method in (fuse_focus_measure, fuse_guided_filter) else [1, 0]
    straight = method(Stack.from_arrays([scene.frames[k] for k in sorted(order)]))
    turned = method(Stack.from_arrays([scene.frames[k] for k in order]))
    np.testing.assert_allclose(turned.image, straight.image, atol=1e-6)
    if straight.source_map is not None:
        np.testing.assert_array_equal(np.array(order)[turned.source_map], straight.source_map)


@pytest.mark.parametrize("method", [m for m in ALL if m is not fuse_sf_dct])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (5, 3), (8, 8)])
def test_tiny_pictures_are_fused(method, shape):
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    assert method(Stack.from_arrays(list(frames))).image.shape == shape


def test_variance_of_pixels_is_that_of_dct_coefficients():
    block = np.random.default_rng(0).uniform(0, 255, (8, 8))
    d = cv2.dct(block)
    expected = (np.square(d).sum() - d[0, 0] ** 2) / 64
    np.testing.assert_allclose(_block_variance(block.astype(np.float32)), [[expected]], rtol=1e-5)


def test_majority_mends_lone_decisions_and_keeps_ties():
    choice = np.zeros((5, 6), np.uint8)
    choice[2, 2] = 3
    assert not _choose_majority(choice, 4).any()
    halves = np.zeros((2, 2), np.uint8)
    halves[:, 1] = 1
    np.testing.assert_array_equal(_choose_majority(halves, 2), halves)
    three = np.array([[0, 1, 1], [0, 2, 1], [0, 0, 1]], np.uint8)
    assert _choose_majority(three, 3)[1, 1] == 0  # four votes each for 0 and 1: the earlier


def test_majority_is_the_plain_definition():
    choice = np.random.default_rng(4).integers(0, 4, (13, 17)).astype(np.uint8)
    expected = choice.copy()
    for y, x in np.ndindex(choice.shape):
        near = choice[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        votes = np.bincount(near.ravel(), minlength=4)
        if votes[choice[y, x]] < votes.max():
            expected[y, x] = votes.argmax()
    np.testing.assert_array_equal(_choose_majority(choice, 4), expected)


def test_certain_pixels_lie_in_won_blocks_only():
    rng, side = np.random.default_rng(0), 3
    won = rng.random((7, 9)) < 0.8
    agreed = _all_blocks_agree(won, side)
    assert agreed.shape == (9, 11)
    for y, x in np.ndindex(agreed.shape):
        blocks = won[max(y - side + 1, 0) : y + 1, max(x - side + 1, 0) : x + 1]
        assert agreed[y, x] == blocks.all()


def test_small_regions_and_small_holes_go():
    mask = np.zeros((30, 30), dtype=bool)
    mask[5:25, 5:25] = True
    mask[10:12, 10:12] = False
    mask[0, 0:3] = True
    cleaned = _drop_small_regions(mask, 5)
    expected = np.zeros_like(mask)
    expected[5:25, 5:25] = True
    np.testing.assert_array_equal(cleaned, expected)


def test_descriptor_norm_is_the_sum_of_all_bins_and_cells():
    """Lay out the 4×4 cells of 8 directions around one pixel and sum them."""
    slope = np.tile(np.arange(64, dtype=np.float32), (64, 1))
    tent = 1.0 - np.abs(np.arange(-5, 6)) / 6
    cells = (4 * tent.sum()) ** 2
    # The slope is 1 and points along one direction: |cos|⁹ of the other bins is 2 · 2^(-4.5).
    expected = cells * (1.0 + 2.0 * np.sqrt(0.5) ** 9)
    np.testing.assert_allclose(_descriptor_norm(slope)[32, 32], expected, rtol=1e-4)
    turned = _descriptor_norm(np.ascontiguousarray(slope.T))[32, 32]
    np.testing.assert_allclose(turned, expected, rtol=1e-4)


@pytest.mark.parametrize("method", ALL)
def test_bad_noise_levels_are_refused(method):
    with pytest.raises(CofuseError, match="sigma"):
        method(Stack.from_arrays([np.zeros((16, 16), np.uint8)]), sigma=-1.0)


def test_single_best_copies_the_sharpest_frame():
    sharp = sample_picture("coffee")[:120, :160]
    frames = [cv2.GaussianBlur(sharp, (0, 0), s) for s in (2.0, 0.6, 3.0)]
    frames.insert(2, sharp)
    fusion = fuse_single_best(Stack.from_arrays(frames))
    np.testing.assert_array_equal(fusion.image, sharp)
    assert fusion.source_map.shape == sharp.shape[:2]
    assert (fusion.source_map == 2).all()
    fusion.image[:] = 0  # a copy: the caller's frame is not touched
    assert sharp.any()


@pytest.mark.parametrize("n", [2, 5, 8, 9])
def test_spatial_frequency_equals_its_definition(n):
    blocks = np.random.default_rng(n).uniform(0, 255, (7, 3, n, n))
    rows = (np.diff(blocks, axis=-1) ** 2).sum(axis=(-2, -1)) / n**2
    columns = (np.diff(blocks, axis=-2) ** 2).sum(axis=(-2, -1)) / n**2
    np.testing.assert_allclose(_spatial_frequency(blocks), np.sqrt(rows + columns), rtol=1e-10)


@pytest.mark.parametrize("shape", [(32, 40), (33, 47), (8, 8), (9, 23), (15, 8)])
def test_sf_dct_covers_textures_of_any_size(shape):
    # A picture without flat places, where no frame could be told from another.
    grey = np.random.default_rng(0).integers(40, 216, shape, dtype=np.uint8)
    fusion = fuse_sf_dct(Stack.from_arrays([cv2.blur(grey, (3, 3)), grey]))
    assert (fusion.source_map == 1).all()
    np.testing.assert_array_equal(fusion.image, grey)


def test_the_last_block_is_measured_where_it_was_moved():
    frames = np.zeros((2, 8, 20), np.uint8)
    frames[0, ::2, 12:16] = 200  # in the second block and in the moved one, columns 12 to 19
    frames[1, ::2, 16:] = 100
    fusion = fuse_sf_dct(Stack.from_arrays(frames))
    assert fusion.source_map[0].tolist() == [0] * 20
    np.testing.assert_array_equal(fusion.image, frames[0])


@pytest.mark.parametrize("colour", [False, True])
def test_sf_dct_denoises_noisy_frames_first(colour):
    picture = np.ascontiguousarray(sample_picture("coffee")[40:136, 60:180])
    truth = picture if colour else to_grey(picture)
    scene = simulate_stack(truth, frames=2, sigma=20.0, seed=6)
    blind = fuse_sf_dct(scene.stack())
    restored = fuse_sf_dct(scene.stack(), sigma=20.0)
    assert restored.sigma == 20.0
    assert psnr(restored.image, scene.truth) > psnr(blind.image, scene.truth) + 2.0


@pytest.mark.parametrize("block_size", [1, 17])
def test_sf_dct_refuses_blocks_that_do_not_fit(block_size):
    with pytest.raises(CofuseError, match=f"is {block_size}"):
        fuse_sf_dct(Stack.from_arrays([np.zeros((16, 16), np.uint8)]), block_size=block_size)
