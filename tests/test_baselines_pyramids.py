"""Laplacian pyramid and wavelets: they rebuild what they took apart, and keep the sharp parts."""

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.pyramids import (
    _collapse,
    _laplacian_pyramid,
    fuse_dwt,
    fuse_laplacian,
)
from cofuse.evaluation.baselines.simple import fuse_average
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import sample_picture
from cofuse.images import Stack


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


@pytest.mark.parametrize("window", [1, 5])
def test_window_of_salience_can_be_chosen(method, window):
    picture = sample_picture("chelsea")[:64, :80, 1]
    stack = Stack.from_arrays(half_blurred(picture))
    assert psnr(method(stack, window=window).image, picture) > 25.0


@pytest.mark.parametrize("given", [{"levels": 0}, {"levels": 2.5}, {"window": 0}, {"window": 2}])
def test_bad_numbers_are_refused(method, given):
    stack = Stack.from_arrays([np.zeros((16, 16), np.uint8)])
    with pytest.raises(CofuseError, match=next(iter(given))):
        method(stack, **given)


def test_unknown_wavelet_is_refused():
    pytest.importorskip("pywt")
    stack = Stack.from_arrays([np.zeros((16, 16), np.uint8)])
    with pytest.raises(CofuseError, match="'db99'"):
        fuse_dwt(stack, wavelet="db99")


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pywt", None)
    stack = Stack.from_arrays([np.zeros((16, 16), np.uint8)])
    with pytest.raises(CofuseError, match=r"PyWavelets.*cofuse\[bench\]"):
        fuse_dwt(stack)
