"""Baselines: closed forms, copies are exact, the sharp parts stay; names and joined denoisers."""

import subprocess
import sys

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import METHODS, resolve_method, told_noise
from cofuse.evaluation.baselines.copying import choose_majority, descriptor_norm, fuse_dct_variance
from cofuse.evaluation.baselines.denoising import denoise_picture, denoise_tv
from cofuse.evaluation.baselines.mixing import guided_filter
from cofuse.evaluation.metrics import psnr, to_grey
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.images import Stack

DTYPES = (np.uint8, np.uint16, np.float32, np.float64)
MIXING = ("average", "laplacian", "dwt", "gff")
COPYING = ("dct-variance", "focus-measure", "sf-dct")


def named(*names):
    """Run a test for some methods."""
    return pytest.mark.parametrize("name", names)


@pytest.fixture
def method(name):
    if name == "dwt":
        pytest.importorskip("pywt")
    return METHODS[name]


def make_frames(dtype, colour=False, count=3, shape=(45, 61)):
    values = np.random.default_rng(5).random((count, *shape, 3) if colour else (count, *shape))
    scale = 1.0 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    return list((values * scale).astype(dtype))


def half_blurred(picture, spread=3.0):
    """Two frames: the left half sharp in one, the right half in the other."""
    blurred = cv2.GaussianBlur(picture, (0, 0), spread)
    left = np.arange(picture.shape[1]) < picture.shape[1] // 2
    left = left[None, :, None] if picture.ndim == 3 else left[None]
    return np.where(left, picture, blurred), np.where(left, blurred, picture)


# --- what holds for all ---


@named(*MIXING, *COPYING)
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("shape", [(64, 80), (37, 53), (9, 70)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_frames_come_back(method, name, dtype, shape, colour):
    frame = make_frames(dtype, colour, 1, shape)[0]
    for count in (1, 3):
        fusion = method(Stack.from_arrays([frame] * count))
        assert fusion.image.dtype == dtype
        assert (fusion.source_map is None) == (name in MIXING)
        if np.dtype(dtype).kind == "u":
            np.testing.assert_array_equal(fusion.image, frame)
        else:
            np.testing.assert_allclose(fusion.image, frame, atol=1e-5)


@named(*MIXING, *COPYING)
def test_order_of_frames_does_not_matter(method, name):
    scene = simulate_stack(
        sample_picture("coffee"), frames=3, seed=1, shape=(96, 120), sigma=1.0, dtype=np.float32
    )
    # With two frames no vote can end in a draw of two others.
    order = [1, 0] if name in ("dct-variance", "sf-dct") else [2, 0, 1]
    straight = method(Stack.from_arrays([scene.frames[k] for k in sorted(order)]))
    turned = method(Stack.from_arrays([scene.frames[k] for k in order]))
    np.testing.assert_allclose(turned.image, straight.image, atol=1e-6)
    if straight.source_map is not None:
        np.testing.assert_array_equal(np.array(order)[turned.source_map], straight.source_map)


@named("laplacian", "dwt", "gff", *COPYING)
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
    plain = METHODS["average"](Stack.from_arrays(frames)).image
    rivals = [psnr(rival, picture) for rival in (*frames, plain)]
    assert psnr(fusion.image, picture) > max(rivals) + 3.0


@named("average", "laplacian", "dwt", "gff", "dct-variance", "focus-measure")
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (5, 3), (8, 8)])
def test_tiny_pictures_are_fused(method, shape):
    frames = make_frames(np.uint8, count=2, shape=shape)
    assert method(Stack.from_arrays(frames)).image.shape == shape


@named(*METHODS, "bm3d+average", "average+tv")
def test_the_noise_level_is_checked_and_recorded(name):
    stack = Stack.from_arrays(make_frames(np.uint8, count=2, shape=(24, 30)))
    for sigma in (-1.0, np.nan, np.inf):
        with pytest.raises(CofuseError, match="`sigma` is"):
            resolve_method(name)(stack, sigma=sigma)
    if "+" not in name:
        pytest.importorskip("pywt")
        assert METHODS[name](stack, sigma=2.0).sigma == 2.0


# --- mixing ---


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_average_is_the_mean(dtype, colour):
    frames = make_frames(dtype, colour)
    mean = np.mean(np.stack(frames).astype(np.float64), axis=0)
    image = METHODS["average"](Stack.from_arrays(frames)).image
    limit = 1e-6 if np.dtype(dtype).kind == "f" else 0.51
    assert np.abs(image - mean).max() <= limit


@named("laplacian", "dwt")
def test_constants_are_averaged(method):
    frames = [np.full((40, 44), value, np.uint8) for value in (10, 20, 60)]
    assert (method(Stack.from_arrays(frames)).image == 30).all()


@named("laplacian", "dwt")
def test_grey_and_its_rgb_copy_agree(method):
    frames = half_blurred(sample_picture("rocket")[:64, :80, 1])
    grey = method(Stack.from_arrays(frames)).image
    colour = method(Stack.from_arrays([np.repeat(f[..., None], 3, axis=2) for f in frames])).image
    # The weights of R, G and B do not quite sum to one: a salience may round to the other side.
    assert (colour != grey[..., None]).any(axis=2).mean() < 0.01


def test_a_window_of_one_takes_the_largest_coefficient():
    picture = sample_picture("chelsea")[:64, :80, 1]
    stack = Stack.from_arrays(half_blurred(picture))
    assert psnr(METHODS["laplacian"](stack, window=1).image, picture) > 25.0


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
    filtered = guided_filter(guide, mask, radius, epsilon)
    np.testing.assert_allclose(filtered, np.clip(expected, 1e-9, 1.0), atol=1e-12)


def test_weights_of_the_guided_filter_sum_to_one():
    # With weights that sum to one, adding a constant to all frames adds it to the fusion: a guided
    # filter does not see a constant in its guide.
    frames = np.random.default_rng(6).random((3, 40, 52, 3)).astype(np.float32) * 0.5
    fused, raised = (
        METHODS["gff"](Stack.from_arrays(list(frames + np.float32(more)))).image
        for more in (0.0, 0.25)
    )
    np.testing.assert_allclose(raised, fused + 0.25, atol=1e-4)


# --- copying ---


@named(*COPYING)
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pixels_are_copied(method, dtype, colour):
    frames = make_frames(dtype, colour, 4)
    fusion = method(Stack.from_arrays(frames))
    assert fusion.image.dtype == dtype
    rows, columns = np.indices(frames[0].shape[:2])
    np.testing.assert_array_equal(fusion.image, np.stack(frames)[fusion.source_map, rows, columns])
    assert len(np.unique(fusion.source_map)) > 1


@named(*COPYING)
def test_five_frames_are_sorted_out(method):
    scene = simulate_stack(sample_picture("chelsea"), frames=5, objects=1, seed=2, shape=(160, 200))
    fusion = method(scene.stack())
    assert (fusion.source_map == scene.source_map).mean() > 0.6
    assert psnr(fusion.image, scene.truth) > max(psnr(f, scene.truth) for f in scene.frames) + 2.0


@pytest.mark.parametrize("n", [2, 5, 8, 9])
def test_a_block_goes_to_the_largest_spatial_frequency(n):
    """As the paper reads it off the coefficients of a DCT."""
    blocks = np.random.default_rng(n).uniform(0, 1, (7, n, n))
    basis = np.cos(np.pi / n * np.outer(np.arange(n), np.arange(n) + 0.5))
    basis /= np.linalg.norm(basis, axis=1, keepdims=True)
    sines = np.sin(np.pi * np.arange(n) / (2 * n)) ** 2
    squares = (sines[:, None] + sines) * (basis @ blocks @ basis.T) ** 2
    fusion = METHODS["sf-dct"](Stack.from_arrays(list(blocks)), block_size=n)
    assert (fusion.source_map == squares.sum(axis=(1, 2)).argmax()).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_block_goes_to_the_largest_energy_of_dct_coefficients(seed):
    blocks = np.random.default_rng(seed).uniform(0, 1, (7, 8, 8))
    energy = [np.square(cv2.dct(block)).sum() - cv2.dct(block)[0, 0] ** 2 for block in blocks]
    fusion = METHODS["dct-variance"](Stack.from_arrays(list(blocks)))
    assert (fusion.source_map == np.argmax(energy)).all()


def test_majority_is_the_plain_definition():
    choice = np.random.default_rng(4).integers(0, 4, (13, 17)).astype(np.uint8)
    expected = choice.copy()
    for y, x in np.ndindex(choice.shape):
        near = choice[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        votes = np.bincount(near.ravel(), minlength=4)
        if votes[choice[y, x]] < votes.max():
            expected[y, x] = votes.argmax()
    np.testing.assert_array_equal(choose_majority(choice, 4), expected)


def test_descriptor_norm_is_the_sum_of_all_bins_and_cells():
    """Lay out the 4×4 cells of 8 directions around one pixel and sum them."""
    slope = np.tile(np.arange(64, dtype=np.float32), (64, 1))
    tent = 1.0 - np.abs(np.arange(-5, 6)) / 6
    cells = (4 * tent.sum()) ** 2
    # The slope is 1 and points along one direction: |cos|⁹ of the other bins is 2 · 2^(-4.5).
    expected = cells * (1.0 + 2.0 * np.sqrt(0.5) ** 9)
    for picture in (slope, np.ascontiguousarray(slope.T)):
        np.testing.assert_allclose(descriptor_norm(picture)[32, 32], expected, rtol=1e-4)


@pytest.mark.parametrize("shape", [(32, 40), (33, 47), (8, 8), (9, 23), (15, 8)])
def test_sf_dct_covers_textures_of_any_size(shape):
    # A picture without flat places, where no frame could be told from another.
    grey = np.random.default_rng(0).integers(40, 216, shape, dtype=np.uint8)
    fusion = METHODS["sf-dct"](Stack.from_arrays([cv2.blur(grey, (3, 3)), grey]))
    assert (fusion.source_map == 1).all()
    np.testing.assert_array_equal(fusion.image, grey)


def test_the_last_block_is_measured_where_it_was_moved():
    frames = np.zeros((2, 8, 20), np.uint8)
    frames[0, ::2, 12:16] = 200  # in the second block and in the moved one, columns 12 to 19
    frames[1, ::2, 16:] = 100
    fusion = METHODS["sf-dct"](Stack.from_arrays(frames))
    assert fusion.source_map[0].tolist() == [0] * 20
    np.testing.assert_array_equal(fusion.image, frames[0])


@pytest.mark.parametrize("colour", [False, True])
def test_sf_dct_denoises_noisy_frames_first(colour):
    picture = np.ascontiguousarray(sample_picture("coffee")[40:136, 60:180])
    truth = picture if colour else to_grey(picture)
    scene = simulate_stack(truth, frames=2, sigma=20.0, seed=6)
    blind, restored = (METHODS["sf-dct"](scene.stack(), sigma=sigma) for sigma in (0.0, 20.0))
    assert psnr(restored.image, scene.truth) > psnr(blind.image, scene.truth) + 2.0


@pytest.mark.parametrize(
    ("block_size", "words"), [(1, "`block_size` is 1"), (17, "16x16 pixels .* patch of 17x17")]
)
def test_sf_dct_refuses_blocks_that_do_not_fit(block_size, words):
    with pytest.raises(CofuseError, match=words):
        METHODS["sf-dct"](Stack.from_arrays([np.zeros((16, 16), np.uint8)]), block_size=block_size)


# --- names, and denoisers before and after ---


def test_extras_are_imported_when_a_method_first_runs(monkeypatch):
    code = (
        "import sys, cofuse.evaluation.baselines as b; b.METHODS['average']; "
        "print([m for m in ('numba', 'scipy', 'skimage', 'pywt', 'bm3d') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    monkeypatch.setitem(sys.modules, "pywt", None)
    with pytest.raises(CofuseError, match=r"PyWavelets.*cofuse\[bench\]"):
        METHODS["dwt"](Stack.from_arrays([np.zeros((16, 16), np.uint8)]))


@pytest.mark.parametrize("name", ["", "gfff", "gff+gff", "tv", "tv+bm3d", "bm3d+gff+tv", "gff+"])
def test_unknown_name_lists_the_known_ones(name):
    with pytest.raises(CofuseError, match=r"average, laplacian.*tv, nlm, bm3d"):
        resolve_method(name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_denoise_before_or_after(dtype):
    frames = make_frames(dtype, colour=True, count=2, shape=(24, 30))
    stack = Stack.from_arrays(frames)
    levels = [stack.to_levels(frame) for frame in frames]
    step = 255.0 / stack.white if stack.dtype.kind == "u" else 0.0
    denoised_first = np.mean([denoise_picture(x, 12.0, denoise_tv) for x in levels], axis=0)
    denoised_last = denoise_picture(np.mean(levels, axis=0), 12.0, denoise_tv)
    for name, expected in (("tv+average", denoised_first), ("average+tv", denoised_last)):
        fusion = resolve_method(name)(stack, sigma=12.0)
        assert fusion.image.dtype == dtype and fusion.sigma == 12.0
        np.testing.assert_allclose(
            stack.to_levels(fusion.image), expected.clip(0, 255), atol=0.51 * step + 1
        )


def test_choice_survives_a_denoiser_after_it():
    stack = Stack.from_arrays(make_frames(np.uint8))
    plain = fuse_dct_variance(stack)
    fused = told_noise(fuse_dct_variance, after=denoise_tv)(stack, sigma=10.0)
    np.testing.assert_array_equal(fused.source_map, plain.source_map)
    assert fused.image.std() < plain.image.std()


@pytest.mark.parametrize("place", ["before", "after"])
def test_pairs_copy_clean_stacks(place):
    stack = Stack.from_arrays(make_frames(np.float64, count=2))
    fusion = told_noise(fuse_dct_variance, **{place: denoise_tv})(stack)
    np.testing.assert_array_equal(fusion.image, fuse_dct_variance(stack).image)
