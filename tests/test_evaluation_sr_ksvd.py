"""SR-KSVD: the pursuit against a plain one, what it does to a stack, and its dictionaries."""

import json
from importlib import resources

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.sr_ksvd import (
    SHIPPED_PATCH_SIZES,
    code_signals,
    fuse_sr_ksvd,
    load_dictionary,
)
from cofuse.evaluation.metrics import psnr, to_grey
from cofuse.evaluation.simulation import disc_kernel, sample_picture, simulate_stack
from cofuse.images import Stack
from experiments.ksvd import dense_codes, learn_dictionary, learn_shipped_dictionaries


def random_dictionary(m, atoms, seed=0):
    dictionary = np.random.default_rng(seed).standard_normal((m, atoms))
    return dictionary / np.linalg.norm(dictionary, axis=0)


# --- the pursuit ---


def plain_omp(signal, dictionary, tolerance, most):
    """Orthogonal matching pursuit as it is defined, by a new least-squares fit in every step."""
    chosen: list[int] = []
    code = np.zeros(dictionary.shape[1])
    residual = signal.copy()
    while len(chosen) < most and np.linalg.norm(residual) > tolerance:
        chosen.append(int(np.abs(dictionary.T @ residual).argmax()))
        fit = np.linalg.lstsq(dictionary[:, chosen], signal, rcond=None)[0]
        residual = signal - dictionary[:, chosen] @ fit
        code[:] = 0
        code[chosen] = fit
    return code


@pytest.mark.parametrize(("tolerance", "most"), [(0.0, 6), (12.0, 25), (2.0, 25)])
def test_agrees_with_plain_omp(tolerance, most):
    dictionary = random_dictionary(25, 60)
    signals = 10.0 * np.random.default_rng(1).standard_normal((80, 25))
    codes = dense_codes(signals, dictionary, tolerance=tolerance, max_atoms=most)
    expected = np.stack([plain_omp(x, dictionary, tolerance, most) for x in signals])
    np.testing.assert_array_equal(codes != 0, expected != 0)
    np.testing.assert_allclose(codes, expected, atol=2e-3)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_orthonormal_dictionary_keeps_the_largest_products(count):
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((16, 16)))[0]
    signals = np.random.default_rng(3).standard_normal((50, 16))
    codes = dense_codes(signals, basis, max_atoms=count)
    products = signals @ basis
    cut = np.sort(np.abs(products), axis=1)[:, [-count]]
    np.testing.assert_allclose(codes, np.where(np.abs(products) >= cut, products, 0), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(tolerance=st.floats(0.05, 50.0), scale=st.floats(1.0, 100.0), seed=st.integers(0, 2**31))
def test_residual_respects_the_tolerance_and_needs_every_atom(tolerance, scale, seed):
    dictionary = random_dictionary(36, 100)
    signals = scale * np.random.default_rng(seed).standard_normal((30, 36))
    codes = dense_codes(signals, dictionary, tolerance=tolerance)
    residual = np.linalg.norm(signals - codes @ dictionary.T, axis=1)
    assert (residual <= tolerance * 1.001 + 1e-3).all()
    most = int(np.count_nonzero(codes, axis=1).max())
    if most > 1:
        shorter = dense_codes(signals, dictionary, tolerance=tolerance, max_atoms=most - 1)
        left = np.linalg.norm(signals - shorter @ dictionary.T, axis=1)
        assert left.max() > tolerance * 0.999


def test_approximation_is_the_dictionary_times_the_code():
    dictionary = random_dictionary(49, 256)
    # More signals than are coded together, and not a multiple of that.
    signals = 30.0 * np.random.default_rng(5).standard_normal((1300, 49))
    coded = code_signals(signals, dictionary, tolerance=20.0)
    codes = dense_codes(signals, dictionary, tolerance=20.0)
    np.testing.assert_allclose(coded.fitted, codes @ dictionary.T, atol=1e-2)
    np.testing.assert_allclose(np.abs(coded.values).sum(1), np.abs(codes).sum(1), rtol=1e-5)


def test_signals_outside_the_span_end_without_an_endless_loop():
    dictionary = random_dictionary(12, 30)
    dictionary[:4] = 0
    dictionary /= np.linalg.norm(dictionary, axis=0)
    signals = np.concatenate([np.zeros((1, 12)), np.eye(12), np.ones((1, 12))])
    codes = dense_codes(signals, dictionary, tolerance=1e-4)
    residual = signals - codes @ dictionary.T
    np.testing.assert_allclose(residual[:, :4], signals[:, :4], atol=1e-5)
    np.testing.assert_allclose(residual[:, 4:], 0.0, atol=2e-3)
    assert not codes[0].any()


# --- learning by K-SVD ---


def planted(noise, seed, count=1500):
    """The experiment of Aharon, Elad and Bruckstein: 50 atoms of 20 numbers, 3 a signal."""
    rng = np.random.default_rng(seed)
    truth = random_dictionary(20, 50, seed)
    codes = np.zeros((count, 50))
    for row in codes:
        row[rng.choice(50, 3, replace=False)] = rng.standard_normal(3)
    signals = codes @ truth.T
    return truth, signals + noise * signals.std() * rng.standard_normal(signals.shape)


@pytest.mark.parametrize("noise", [0.0, 0.1])  # 0.1: 20 dB
def test_planted_dictionary_is_recovered(noise):
    truth, signals = planted(noise, seed=6)
    learned, _ = learn_dictionary(signals, atoms=50, sparsity=3, rounds=80, seed=0)
    nearest = np.abs(truth.T @ learned).max(axis=1)
    assert (nearest > 0.99).sum() >= 46


def test_learning_is_deterministic_and_lowers_the_error():
    signals = planted(0.1, seed=7, count=600)[1]
    (first, trace), (again, _), (other, _) = (
        learn_dictionary(signals, atoms=50, sparsity=3, rounds=12, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(np.linalg.norm(first, axis=0), 1.0, atol=1e-5)
    errors = trace.history["rms_error"]
    assert errors[-1] < 0.6 * errors[0]
    assert not np.array_equal(first, other)


def test_learning_stops_when_nothing_is_gained():
    basis = np.linalg.qr(np.random.default_rng(10).standard_normal((8, 8)))[0]
    signals = np.repeat(basis.T, 20, axis=0) * np.linspace(1, 2, 160)[:, None]
    _, trace = learn_dictionary(signals, atoms=8, sparsity=8, rounds=50, seed=0)
    assert trace.converged and trace.iterations < 50
    with pytest.raises(CofuseError, match="cannot teach"):
        learn_dictionary(np.eye(8), atoms=9, sparsity=2)


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


# --- the dictionaries that are shipped ---


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
    patches = windows.reshape(-1, n * n)
    patches = patches - patches.mean(axis=1, keepdims=True)
    left = [
        np.linalg.norm(patches - code_signals(patches, atoms, max_atoms=6).fitted)
        for atoms in (dictionary, overcomplete_cosines(n))
    ]
    assert left[0] < 0.95 * left[1]
    file = resources.files("cofuse").joinpath("data", "dictionaries", f"ksvd-{n}.npz")
    with resources.as_file(file) as path, np.load(path) as archive:
        header = json.loads(str(archive["header"]))
    assert header["name"] == f"ksvd-{n}" and "pictures" in header["provenance"]


# --- fusion ---


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
    np.testing.assert_allclose(fusion.image, frame, atol=0.11 / 255 * white)


def test_the_sharp_frame_beats_its_blurred_copy(texture):
    blurred = cv2.filter2D(texture, -1, disc_kernel(2.0))
    for frames, sharp in (([texture, blurred], 0), ([blurred, texture], 1)):
        fusion = fuse_sr_ksvd(Stack.from_arrays(frames))
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


def test_bands_give_the_same_picture(scene):
    five_rows = 4 * 49 * 40 * 3 * 5
    whole, banded = (
        fuse_sr_ksvd(scene.stack(), stride=2, sigma=10.0, **limit)
        for limit in ({}, {"band_bytes": five_rows})
    )
    np.testing.assert_array_equal(banded.source_map, whole.source_map)
    assert np.abs(banded.image.astype(int) - whole.image).max() <= 1


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_noise_is_removed(colour, dtype):
    picture = sample_picture("chelsea")[::2, ::2]
    picture = picture if colour else to_grey(picture)
    scene = simulate_stack(picture, frames=2, shape=(48, 56), sigma=20.0, seed=1, dtype=dtype)
    white = 1.0 if dtype == np.float32 else 255.0
    blind, restored = (
        psnr(fuse_sr_ksvd(scene.stack(), sigma=sigma).image, scene.truth, white=white)
        for sigma in (0.0, 20.0)
    )
    assert restored > blind + 3.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sigma": -1.0}, "`sigma` is -1"),
        ({"patch_size": 4}, "no dictionary is shipped"),
        ({"patch_size": 9}, "smaller than a patch"),
        ({"stride": 0}, "stride is 0"),
    ],
)
def test_refuses_odd_settings(texture, change, words):
    with pytest.raises(CofuseError, match=words):
        fuse_sr_ksvd(Stack.from_arrays([texture[:8]]), **change)
