"""SR-KSVD: what sparse coding of patches must do to a stack, and the shipped dictionaries."""

import json
from importlib import resources

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import sr_ksvd
from cofuse.evaluation.baselines.sparse_coding import approximate
from cofuse.evaluation.baselines.sr_ksvd import (
    SHIPPED_PATCH_SIZES,
    fuse_sr_ksvd,
    load_dictionary,
)
from cofuse.evaluation.metrics import psnr, to_grey
from cofuse.evaluation.simulation import add_noise, disc_kernel, sample_picture, simulate_stack
from cofuse.images import Stack
from experiments.ksvd import learn_shipped_dictionaries


@pytest.fixture(scope="module")
def scene():
    """A grey stack of two frames with known truth."""
    picture = to_grey(sample_picture("chelsea"))
    return simulate_stack(picture, frames=2, shape=(72, 80), max_radius=4.0, seed=3)


@pytest.fixture(scope="module")
def texture():
    return np.random.default_rng(0).integers(40, 216, (28, 34, 3), dtype=np.uint8)


@pytest.mark.parametrize("patch_size", SHIPPED_PATCH_SIZES)
@pytest.mark.parametrize("stride", [1, 3])
def test_identical_frames_come_back(texture, patch_size, stride):
    grey = texture[..., 0]
    fusion = fuse_sr_ksvd(Stack.from_arrays([grey] * 3), patch_size=patch_size, stride=stride)
    # Every pixel is an average of values at most 0.1 grey levels off, which rounds to the pixel.
    np.testing.assert_array_equal(fusion.image, grey)
    assert fusion.source_map is not None
    assert not fusion.source_map.any()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_one_colour_frame_of_any_dtype_comes_back(texture, dtype):
    frame = texture[:20, :24].astype(dtype)
    if dtype == np.uint16:
        frame *= 257
    elif dtype != np.uint8:
        frame /= 255
    fusion = fuse_sr_ksvd(Stack.from_arrays([frame]))
    white = 1.0 if fusion.image.dtype.kind == "f" else np.iinfo(dtype).max
    assert fusion.image.dtype == dtype
    assert fusion.image.shape == frame.shape
    np.testing.assert_allclose(fusion.image, frame, atol=0.11 / 255 * white)


def test_the_sharp_frame_beats_its_blurred_copy(texture):
    blurred = cv2.filter2D(texture, -1, disc_kernel(2.0))
    for frames, sharp in (([texture, blurred], 0), ([blurred, texture], 1)):
        fusion = fuse_sr_ksvd(Stack.from_arrays(frames))
        assert fusion.source_map is not None
        assert (fusion.source_map == sharp).all()
        np.testing.assert_array_equal(fusion.image, texture)


def test_fusion_is_sharper_than_any_frame_and_finds_the_sources(scene):
    fusion = fuse_sr_ksvd(scene.stack())
    alone = max(psnr(frame, scene.truth) for frame in scene.frames)
    assert psnr(fusion.image, scene.truth) > alone + 4.0
    assert np.mean(fusion.source_map == scene.source_map) > 0.9
    assert fusion.sigma == 0.0


def test_order_of_frames_does_not_matter(texture):
    frames = [cv2.filter2D(texture, -1, disc_kernel(r)) for r in (1.0, 2.0, 3.0)]
    left = np.arange(texture.shape[1])[:, None] < 20
    frames[2] = np.where(left, texture, frames[2])
    first = fuse_sr_ksvd(Stack.from_arrays(frames), stride=2)
    other = fuse_sr_ksvd(Stack.from_arrays(frames[::-1]), stride=2)
    np.testing.assert_array_equal(first.image, other.image)
    np.testing.assert_array_equal(first.source_map, 2 - other.source_map)


def test_bands_give_the_same_picture(scene, monkeypatch):
    whole = fuse_sr_ksvd(scene.stack(), stride=2, sigma=10.0)
    monkeypatch.setattr(sr_ksvd, "_BAND_BYTES", 4 * 49 * 40 * 3 * 5)  # five rows of patches
    banded = fuse_sr_ksvd(scene.stack(), stride=2, sigma=10.0)
    np.testing.assert_array_equal(banded.source_map, whole.source_map)
    assert np.abs(banded.image.astype(int) - whole.image).max() <= 1


@pytest.mark.parametrize("colour", [False, True])
def test_noise_is_removed(colour):
    picture = sample_picture("chelsea")[::2, ::2]
    scene = simulate_stack(
        picture if colour else to_grey(picture), frames=2, shape=(48, 56), sigma=20.0, seed=1
    )
    blind = fuse_sr_ksvd(scene.stack())
    restored = fuse_sr_ksvd(scene.stack(), sigma=20.0)
    assert restored.sigma == 20.0
    assert psnr(restored.image, scene.truth) > psnr(blind.image, scene.truth) + 3.0


def test_constant_frames_keep_their_value():
    frames = [np.full((12, 15), value, np.uint8) for value in (90, 180)]
    fusion = fuse_sr_ksvd(Stack.from_arrays(frames), sigma=5.0)
    assert (fusion.image == 90).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sigma": -1.0}, "`sigma` is -1"),
        ({"patch_size": 4}, "no dictionary is shipped"),
        ({"stride": 0}, "stride is 0"),
    ],
)
def test_refuses_odd_settings(texture, change, words):
    with pytest.raises(CofuseError, match=words):
        fuse_sr_ksvd(Stack.from_arrays([texture]), **change)


def test_refuses_frames_smaller_than_a_patch(texture):
    with pytest.raises(CofuseError, match="smaller than a patch"):
        fuse_sr_ksvd(Stack.from_arrays([texture[:6]]))


def overcomplete_cosines(n, count=16):
    """The classical 256-atom start of K-SVD: products of 16 frequencies, mean taken off."""
    waves = np.cos(np.pi / count * np.outer(np.arange(n) + 0.5, np.arange(count)))
    atoms = np.kron(waves, waves)[:, 1:]
    atoms -= atoms.mean(axis=0)
    return atoms / np.linalg.norm(atoms, axis=0)


@pytest.mark.parametrize("n", SHIPPED_PATCH_SIZES)
def test_shipped_dictionaries_are_sound_and_better_than_cosines(n):
    dictionary = load_dictionary(n)
    assert dictionary.shape == (n * n, 256)
    assert dictionary.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(dictionary, axis=0), 1.0, atol=1e-5)
    np.testing.assert_allclose(dictionary.mean(axis=0), 0.0, atol=1e-6)
    assert np.linalg.matrix_rank(dictionary) == n * n - 1
    assert np.abs(np.triu(dictionary.T @ dictionary, k=1)).max() < 0.99
    picture = to_grey(sample_picture("coffee")).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(picture, (n, n))[::9, ::9]
    patches = windows.reshape(-1, n * n).T
    patches = patches - patches.mean(axis=0)
    left = [
        np.linalg.norm(patches - approximate(patches, atoms, max_atoms=6)[0])
        for atoms in (dictionary, overcomplete_cosines(n))
    ]
    assert left[0] < 0.95 * left[1]


def test_shipped_dictionaries_say_where_they_are_from():
    folder = resources.files("cofuse").joinpath("data", "dictionaries")
    for n in SHIPPED_PATCH_SIZES:
        with resources.as_file(folder.joinpath(f"ksvd-{n}.npz")) as path, np.load(path) as archive:
            header = json.loads(str(archive["header"]))
        assert header["format"] == "cofuse-dictionary"
        assert header["name"] == f"ksvd-{n}"
        assert {"pictures", "patches", "seed", "rounds", "sparsity"} <= set(header["provenance"])


def test_dictionaries_are_learned_from_a_folder(tmp_path):
    learning = {"atoms": 30, "sparsity": 3, "rounds": 4, "seed": 0}
    for name in ("coffee", "rocket"):
        picture = np.ascontiguousarray(to_grey(sample_picture(name))[:90, :90])
        cv2.imwrite(str(tmp_path / f"{name}.png"), picture)
    for out in ("first", "second"):
        learn_shipped_dictionaries(
            tmp_path, tmp_path / out, sizes=(5,), learning=learning, count=600
        )
    with np.load(tmp_path / "first" / "ksvd-5.npz") as archive:
        assert archive["dictionary"].shape == (25, 30)
        assert json.loads(str(archive["header"]))["provenance"]["atoms"] == 30
    files = [(tmp_path / out / "ksvd-5.npz").read_bytes() for out in ("first", "second")]
    assert files[0] == files[1]
    with pytest.raises(CofuseError, match="no PNG"):
        learn_shipped_dictionaries(tmp_path / "first", tmp_path / "third")


def test_noise_may_be_native_to_the_dtype():
    clean = np.full((30, 30), 0.5, np.float32)
    noisy = add_noise(clean, 10.0, seed=2)
    fusion = fuse_sr_ksvd(Stack.from_arrays([noisy]), sigma=10.0)
    assert np.std(fusion.image - clean) < 0.3 * 10.0 / 255
