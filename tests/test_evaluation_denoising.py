"""Denoisers: constants stay, noise goes, and total variation proves how far it still is."""

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.denoising import (
    DENOISERS,
    denoise_bm3d,
    denoise_nlm,
    denoise_picture,
    solve_tv,
)

PACKAGES = {"tv": "numpy", "nlm": "skimage.restoration", "bm3d": "bm3d"}


@pytest.fixture(params=sorted(DENOISERS))
def denoiser(request):
    pytest.importorskip(PACKAGES[request.param])
    return DENOISERS[request.param]


def piecewise_smooth(shape=(64, 72)):
    y, x = np.indices(shape)
    ramp = 40.0 + 60.0 * x / shape[1]
    disc = np.hypot(y - 30, x - 40) < 18
    return np.where(disc, 200.0 - 0.8 * y, ramp).astype(np.float32)


def noisy(clean, sigma, seed=0):
    noise = np.random.default_rng(seed).normal(0.0, sigma, clean.shape)
    return (clean + noise).astype(np.float32)


def total_variation(x):
    down, right = np.zeros_like(x), np.zeros_like(x)
    down[:-1], right[:, :-1] = np.diff(x, axis=0), np.diff(x, axis=1)
    return np.hypot(down, right).sum(dtype=np.float64)


def objective(x, y, weight):
    return 0.5 * np.square((x - y).astype(np.float64)).sum() + weight * total_variation(x)


def test_constant_pictures_stay(denoiser):
    flat = np.full((40, 44), 77.0, dtype=np.float32)
    np.testing.assert_allclose(denoiser(flat, 15.0), flat, atol=0.05)


def test_no_noise_means_a_copy():
    picture = noisy(piecewise_smooth(), 20.0)
    kept = picture.copy()
    clean = denoise_picture(picture, 0.0, denoise_nlm)
    np.testing.assert_array_equal(clean, picture)
    clean[:] = 0.0
    np.testing.assert_array_equal(picture, kept)


@pytest.mark.parametrize("sigma", [5.0, 20.0])
def test_noise_goes(denoiser, sigma):
    clean = piecewise_smooth()
    picture = noisy(clean, sigma)
    kept = picture.copy()
    restored = denoiser(picture, sigma)
    assert restored.dtype == np.float32
    assert restored.shape == clean.shape
    assert np.square(restored - clean).mean() < 0.35 * sigma**2
    np.testing.assert_array_equal(picture, kept)


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (9, 8)])
def test_tiny_planes_are_denoised(denoiser, shape):
    picture = noisy(np.full(shape, 100.0), 10.0)
    restored = denoiser(picture, 10.0)
    assert restored.shape == shape
    assert np.isfinite(restored).all()


@pytest.mark.parametrize("tolerance", [0.5, 0.05])
def test_duality_gap_certifies_the_error(tolerance):
    y, weight = noisy(piecewise_smooth(), 15.0), 9.0
    best, fine = solve_tv(y, weight, tolerance=0.01)
    x, trace = solve_tv(y, weight, tolerance=tolerance)
    assert fine.converged
    assert trace.converged
    assert trace.last("error bound") <= tolerance
    assert trace.iterations <= fine.iterations
    assert np.sqrt(np.square(x - best).mean()) <= tolerance
    gap = objective(x, y, weight) - objective(best, y, weight)
    assert gap <= 0.5 * y.size * tolerance**2


def test_total_variation_keeps_the_mean_and_flattens_in_the_limit():
    y = noisy(piecewise_smooth(), 15.0)
    np.testing.assert_allclose(solve_tv(y, 20.0)[0].mean(), y.mean(), atol=1e-3)
    small = y[:6, :7]
    flat, trace = solve_tv(small, 300.0, tolerance=0.05)
    assert trace.converged
    np.testing.assert_allclose(flat, small.mean(), atol=0.1)


def test_iterations_have_an_end():
    _, trace = solve_tv(noisy(piecewise_smooth(), 15.0), 10.0, tolerance=0.0)
    assert not trace.converged
    assert trace.reason == "out of iterations"


def test_total_variation_agrees_with_scikit_image():
    restoration = pytest.importorskip("skimage.restoration")
    y, weight = noisy(piecewise_smooth(), 15.0), 9.0
    x, _ = solve_tv(y, weight, tolerance=0.01)
    # Its weight multiplies the data term's inverse, on the scale of the picture.
    theirs = restoration.denoise_tv_chambolle(y, weight=weight, eps=1e-9, max_num_iter=4000)
    assert np.sqrt(np.square(x - theirs).mean()) < 0.1
    assert objective(x, y, weight) <= objective(theirs, y, weight) * (1 + 1e-5)


def test_colour_is_denoised_plane_by_plane(denoiser):
    clean = np.stack([piecewise_smooth() * part for part in (1.0, 0.8, 0.5)], axis=-1)
    picture = noisy(clean, 15.0)
    restored = denoise_picture(picture, 15.0, denoiser)
    assert restored.dtype == np.float32
    assert np.square(restored - clean).mean() < 0.35 * 15.0**2


def test_a_grey_picture_is_one_plane_and_planes_make_the_picture_again():
    picture = noisy(np.stack([piecewise_smooth()] * 3, axis=-1), 15.0)
    np.testing.assert_allclose(denoise_picture(picture, 15.0, lambda x, s: x), picture, atol=1e-4)
    plane = picture[..., 0]
    halved = denoise_picture(plane, 15.0, lambda x, sigma: x * np.float32(0.5))
    np.testing.assert_array_equal(halved, plane * np.float32(0.5))


@pytest.mark.parametrize("sigma", [-1.0, np.nan])
def test_wrong_noise_is_refused(sigma):
    with pytest.raises(CofuseError, match="`sigma` is"):
        denoise_picture(np.zeros((8, 8), np.float32), sigma, denoise_nlm)


@pytest.mark.parametrize(
    ("method", "module", "package"),
    [(denoise_bm3d, "bm3d", "bm3d"), (denoise_nlm, "skimage.restoration", "scikit-image")],
)
def test_missing_package_is_named(monkeypatch, method, module, package):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(CofuseError, match=rf"{package}.*cofuse\[bench\]"):
        method(np.zeros((16, 16), np.float32), 5.0)
