"""DCT variance, focus measure and guided filter: they pick the sharp frame, and copy exactly."""

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.decision_maps import (
    _all_blocks_agree,
    _block_variance,
    _choose_majority,
    _descriptor_norm,
    _drop_small_regions,
    fuse_dct_variance,
    fuse_focus_measure,
)
from cofuse.evaluation.baselines.guided_filter import _guided_filter, fuse_guided_filter
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.images import Stack

COPYING = [fuse_dct_variance, fuse_focus_measure]
ALL = [*COPYING, fuse_guided_filter]


def half_blurred(picture, spread=3.0):
    """Two frames: the left half sharp in one, the right half in the other."""
    import cv2

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
    fusion = method(Stack.from_arrays(list(frames)), sigma=4.0)
    assert fusion.sigma == 4.0
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
    # A vote can end in a draw of two other frames; without votes no two frames are equal.
    options = {"majority_window": 1} if method is fuse_dct_variance else {}
    order = [2, 0, 1]
    straight = method(Stack.from_arrays(scene.frames), **options)
    turned = method(Stack.from_arrays([scene.frames[k] for k in order]), **options)
    np.testing.assert_allclose(turned.image, straight.image, atol=1e-6)
    if straight.source_map is not None:
        np.testing.assert_array_equal(np.array(order)[turned.source_map], straight.source_map)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (5, 3), (8, 8)])
def test_tiny_pictures_are_fused(method, shape):
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    assert method(Stack.from_arrays(list(frames))).image.shape == shape


def test_variance_of_pixels_is_that_of_dct_coefficients():
    import cv2

    block = np.random.default_rng(0).uniform(0, 255, (8, 8))
    d = cv2.dct(block)
    expected = (np.square(d).sum() - d[0, 0] ** 2) / 64
    np.testing.assert_allclose(
        _block_variance(block.astype(np.float32), 8), [[expected]], rtol=1e-5
    )


def test_lone_blocks_are_outvoted_and_ties_keep_their_frame():
    choice = np.zeros((5, 6), dtype=np.intp)
    choice[2, 2] = 1
    choice[:, 4:] = 2
    cleaned = _choose_majority(choice, 3, 3)
    assert cleaned[2, 2] == 0
    np.testing.assert_array_equal(cleaned[:, :3], 0)
    np.testing.assert_array_equal(cleaned[:, 4:], 2)
    np.testing.assert_array_equal(_choose_majority(choice, 3, 1), choice)


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


def test_guided_filter_solves_its_regression():
    """Compare with the definition: in each window a ridge regression of the mask on the guide."""
    rng = np.random.default_rng(4)
    guide, mask = rng.random((9, 11)), (rng.random((9, 11)) < 0.5).astype(float)
    radius, epsilon = 2, 0.05
    slope, offset = np.zeros_like(guide), np.zeros_like(guide)
    for y, x in np.ndindex(guide.shape):
        window = np.s_[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1]
        g, m = guide[window], mask[window]
        slope[y, x] = np.mean((g - g.mean()) * (m - m.mean())) / (g.var() + epsilon)
        offset[y, x] = m.mean() - slope[y, x] * g.mean()
    expected = np.zeros_like(guide)
    for y, x in np.ndindex(guide.shape):
        window = np.s_[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1]
        expected[y, x] = slope[window].mean() * guide[y, x] + offset[window].mean()
    filtered = _guided_filter(guide, mask, radius, epsilon)
    np.testing.assert_allclose(filtered, np.clip(expected, 1e-9, 1.0), atol=1e-12)


def test_weights_of_the_guided_filter_sum_to_one():
    # With weights that sum to one, adding a constant to all frames adds it to the fusion, and
    # constant frames of one value stay what they are.
    rng = np.random.default_rng(6)
    frames = rng.random((3, 40, 52, 3)).astype(np.float32) * 0.5
    fused = fuse_guided_filter(Stack.from_arrays(list(frames))).image
    # A guided filter does not see a constant in its guide.
    raised = fuse_guided_filter(Stack.from_arrays(list(frames + np.float32(0.25)))).image
    np.testing.assert_allclose(raised, fused + 0.25, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        (fuse_dct_variance, {"block_size": 0}),
        (fuse_dct_variance, {"majority_window": 2}),
        (fuse_focus_measure, {"block_size": 1.5}),
        (fuse_focus_measure, {"smallest_region": 0}),
        (fuse_guided_filter, {"base_radius": 0}),
        (fuse_guided_filter, {"detail_radius": -1}),
        (fuse_guided_filter, {"base_epsilon": 0.0}),
        *[(method, {"sigma": -1.0}) for method in ALL],
    ],
)
def test_bad_numbers_are_refused(method, given):
    stack = Stack.from_arrays([np.zeros((16, 16), np.uint8)])
    with pytest.raises(CofuseError, match=next(iter(given)).split("_")[-1]):
        method(stack, **given)
