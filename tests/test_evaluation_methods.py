"""How methods are found by name and joined with denoisers."""

import subprocess
import sys

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import denoise_then, resolve_method, then_denoise
from cofuse.evaluation.baselines.copying import fuse_single_best
from cofuse.evaluation.baselines.denoising import denoise_picture, denoise_tv
from cofuse.images import Stack

DTYPES = (np.uint8, np.uint16, np.float32, np.float64)


def make_frames(dtype, colour=False, count=3, shape=(40, 50)):
    size = (*shape, 3) if colour else shape
    values = np.random.default_rng(5).random((count, *size))
    scale = 1.0 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    return [(frame * scale).astype(dtype) for frame in values]


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["average", "single-best", "bm3d+average", "average+tv"])
def test_noise_level_is_checked(name, sigma):
    with pytest.raises(CofuseError, match="`sigma` is"):
        resolve_method(name)(Stack.from_arrays(make_frames(np.uint8)), sigma=sigma)


def test_listing_methods_imports_no_heavy_package():
    code = (
        "import sys, cofuse.evaluation.baselines as b; list(b.METHODS); b.METHODS['average']; "
        "print([m for m in ('numba', 'scipy', 'cv2', 'skimage', 'pywt', 'bm3d')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["", "gfff", "gff+gff", "tv", "tv+bm3d", "bm3d+gff+tv", "gff+"])
def test_unknown_name_lists_the_known_ones(name):
    with pytest.raises(CofuseError, match=r"average, single-best.*tv, nlm, bm3d"):
        resolve_method(name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_denoise_before_or_after(dtype):
    frames = make_frames(dtype, colour=True, count=2, shape=(24, 30))
    stack = Stack.from_arrays(frames)
    levels = [stack.to_levels(frame) for frame in frames]

    before = resolve_method("tv+average")(stack, sigma=12.0)
    expected = np.mean([denoise_picture(x, 12.0, denoise_tv) for x in levels], axis=0)
    _assert_levels(stack, before.image, expected)
    after = resolve_method("average+tv")(stack, sigma=12.0)
    expected = denoise_picture(np.mean(levels, axis=0), 12.0, denoise_tv)
    _assert_levels(stack, after.image, expected)

    for fusion in (before, after):
        assert fusion.image.dtype == dtype
        assert fusion.sigma == 12.0


def _assert_levels(stack, image, expected):
    step = 255.0 / stack.white if stack.dtype.kind == "u" else 0.0
    np.testing.assert_allclose(stack.to_levels(image), expected.clip(0, 255), atol=0.51 * step + 1)


def test_choice_survives_a_denoiser_after_it():
    frames = make_frames(np.uint8, count=3)
    stack = Stack.from_arrays(frames)
    plain = fuse_single_best(stack)
    fused = then_denoise(fuse_single_best, denoise_tv)(stack, sigma=10.0)
    np.testing.assert_array_equal(fused.source_map, plain.source_map)
    assert fused.image.std() < plain.image.std()


@pytest.mark.parametrize("join", [denoise_then, then_denoise])
def test_pairs_copy_clean_stacks(join):
    frames = make_frames(np.float64, count=2)
    fusion = join(fuse_single_best, denoise_tv)(Stack.from_arrays(frames))
    np.testing.assert_array_equal(fusion.image, frames[fusion.source_map[0, 0]])
