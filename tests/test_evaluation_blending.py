"""Mean, Laplacian pyramid, wavelets, guided filter: closed forms, and the sharp parts stay."""

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.blending import (
    _collapse,
    _guided_filter,
    _laplacian_pyramid,
    fuse_average,
    fuse_dwt,
    fuse_guided_filter,
    fuse_laplacian,
)
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import sample_picture
from cofuse.images import Stack

DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


def make_frames(dtype, colour=False, count=3, shape=(40, 50)):
    size = (*shape, 3) if colour else shape
    values = np.random.default_rng(5).random((count, *size))
    scale = 1.0 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    return [(frame * scale).astype(dtype) for frame in values]


@pytest.fixture(params=[fuse_laplacian, fuse_dwt], ids=["laplacian", "dwt"])
def method(request):
    if request.param is fuse_dwt:
        pytest.importorskip("pywt")
    return request.param


def half_blurred(picture, spread=3.0):
    """Two frames: the left half sharp in one, the right half in the other."""
    import cv2

    blurred = cv2.GaussianBlur(picture, (0, 0), spread)
    left = np.arange(picture.shape[1]) < picture.shape[1] // 2
    left = left[None, :, None] if picture.ndim == 3 else left[None]
    return np.where(left, picture, blurred), np.where(left, blurred, picture)


@pytest.mark.parametrize("shape", [(64, 64), (37, 53), (5, 90), (2, 3), (1, 1)])
def test_pyramid_is_undone_by_its_inverse(shape):
    picture = np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)
    depth = int(np.log2(min(shape)))
    *details, top = _laplacian_pyramid(picture, depth)
    assert len(details) == depth
    np.testing.assert_allclose(_collapse(details, top), picture, atol=1e-4)


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("shape", [(64, 80), (37, 53), (3, 70), (1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_equal_frames_come_back(method, dtype, shape, colour):
    size = (*shape, 3) if colour else shape
    values = np.random.default_rng(1).random(size)
    frame = values.astype(dtype)
    if np.dtype(dtype).kind == "u":
        frame = (values * np.iinfo(dtype).max).astype(dtype)
    for count in (1, 3):
        fusion = method(Stack.from_arrays([frame] * count), sigma=2.0)
        assert fusion.image.shape == frame.shape
        assert fusion.image.dtype == dtype
        assert fusion.sigma == 2.0
        assert fusion.source_map is None
        if np.dtype(dtype).kind == "u":
            np.testing.assert_array_equal(fusion.image, frame)
        else:
            np.testing.assert_allclose(fusion.image, frame, atol=1e-5)


def test_constants_are_averaged(method):
    frames = [np.full((40, 44), value, np.uint8) for value in (10, 20, 60)]
    assert (method(Stack.from_arrays(frames)).image == 30).all()


@pytest.mark.parametrize("colour", [False, True])
def test_sharp_halves_are_joined(method, colour):
    picture = sample_picture("coffee")[40:168, 60:220]
    picture = picture if colour else picture[..., 1]
    frames = half_blurred(picture)
    fused = method(Stack.from_arrays(frames)).image
    blurred_best = max(psnr(frame, picture) for frame in frames)
    assert psnr(fused, picture) > blurred_best + 3.0
    assert psnr(fused, picture) > psnr(fuse_average(Stack.from_arrays(frames)).image, picture) + 3.0


def test_order_of_frames_does_not_matter(method):
    # Random floats: no two saliences are equal.
    frames = np.random.default_rng(2).random((3, 48, 60))
    fused = [
        method(Stack.from_arrays([frames[k] for k in order])).image
        for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2))
    ]
    np.testing.assert_allclose(fused[1], fused[0], atol=1e-6)
    np.testing.assert_allclose(fused[2], fused[0], atol=1e-6)


def test_grey_and_its_rgb_copy_agree(method):
    picture = sample_picture("rocket")[:64, :80, 1]
    frames = half_blurred(picture)
    grey = method(Stack.from_arrays(frames)).image
    colour = method(Stack.from_arrays([np.repeat(f[..., None], 3, axis=2) for f in frames])).image
    # The weights of R, G and B do not quite sum to one: a salience may round to the other side.
    differs = (colour != grey[..., None]).any(axis=2)
    assert differs.mean() < 0.01


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pywt", None)
    stack = Stack.from_arrays([np.zeros((16, 16), np.uint8)])
    with pytest.raises(CofuseError, match=r"PyWavelets.*cofuse\[bench\]"):
        fuse_dwt(stack)


def test_a_window_of_one_takes_the_largest_coefficient():
    picture = sample_picture("chelsea")[:64, :80, 1]
    stack = Stack.from_arrays(half_blurred(picture))
    assert psnr(fuse_laplacian(stack, window=1).image, picture) > 25.0


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_average_is_the_mean(dtype, colour):
    frames = make_frames(dtype, colour)
    fusion = fuse_average(Stack.from_arrays(frames), sigma=3.0)
    mean = np.mean(np.stack(frames).astype(np.float64), axis=0)
    assert fusion.image.dtype == dtype
    assert fusion.sigma == 3.0
    assert fusion.source_map is None
    if np.dtype(dtype).kind == "f":
        np.testing.assert_allclose(fusion.image, mean, atol=1e-6)
    else:
        assert np.abs(fusion.image - mean).max() <= 0.51


@pytest.mark.parametrize("dtype", DTYPES)
def test_average_of_one_picture_is_the_picture(dtype):
    frame = make_frames(dtype, count=1)[0]
    for count in (1, 3):
        image = fuse_average(Stack.from_arrays([frame] * count)).image
        if np.dtype(dtype).kind == "u":
            np.testing.assert_array_equal(image, frame)
        else:
            np.testing.assert_allclose(image, frame, atol=1e-6)


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
