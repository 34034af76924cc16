"""SF-DCT: the spatial frequency's two forms, exact copies, the majority filter, denoising."""

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import sf_dct
from cofuse.evaluation.baselines.sf_dct import dct_spatial_frequency, fuse_sf_dct
from cofuse.evaluation.metrics import psnr, to_grey
from cofuse.evaluation.simulation import disc_kernel, sample_picture, simulate_stack
from cofuse.images import Stack


@pytest.fixture(scope="module")
def picture():
    return np.ascontiguousarray(sample_picture("coffee")[40:136, 60:180])


@pytest.fixture(scope="module")
def texture():
    """A picture without flat places, where no frame could be told from another."""
    return np.random.default_rng(0).integers(40, 216, (96, 120, 3), dtype=np.uint8)


@pytest.mark.parametrize("n", [2, 5, 6, 7, 8, 9, 16])
def test_spatial_frequency_equals_its_definition(n):
    blocks = np.random.default_rng(n).uniform(0, 255, (7, 3, n, n))
    rows = (np.diff(blocks, axis=-1) ** 2).sum(axis=(-2, -1)) / n**2
    columns = (np.diff(blocks, axis=-2) ** 2).sum(axis=(-2, -1)) / n**2
    transformed = np.stack([[scipy_dct(block) for block in line] for line in blocks])
    np.testing.assert_allclose(
        dct_spatial_frequency(transformed), np.sqrt(rows + columns), rtol=1e-10
    )
    np.testing.assert_allclose(sf_dct._dct(blocks), transformed, atol=1e-9)


def scipy_dct(block):
    """The orthonormal DCT-II by an independent hand."""
    from scipy.fft import dctn

    return dctn(block, norm="ortho")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("n", [5, 8])
def test_the_sharper_half_is_copied_exactly(texture, dtype, n):
    frame = texture.astype(dtype) * (257 if dtype == np.uint16 else 1)
    frame = frame / 255 if np.dtype(dtype).kind == "f" else frame
    frame = frame.astype(dtype)
    blurred = cv2.GaussianBlur(frame, (0, 0), 2.0)
    left = np.arange(frame.shape[1])[:, None] < 60
    frames = [np.where(left, frame, blurred), np.where(left, blurred, frame)]
    fusion = fuse_sf_dct(Stack.from_arrays(frames), block_size=n)
    assert fusion.image.dtype == dtype
    assert (fusion.source_map[:, :50] == 0).all()
    assert (fusion.source_map[:, 70:] == 1).all()
    np.testing.assert_array_equal(fusion.image[:, :50], frame[:, :50])
    np.testing.assert_array_equal(fusion.image[:, 70:], frame[:, 70:])


@pytest.mark.parametrize("shape", [(32, 40), (33, 47), (8, 8), (9, 23), (15, 8)])
def test_blocks_cover_textures_of_any_size(texture, shape):
    grey = to_grey(texture)[: shape[0], : shape[1]]
    fusion = fuse_sf_dct(Stack.from_arrays([cv2.blur(grey, (3, 3)), grey]))
    assert (fusion.source_map == 1).all()
    np.testing.assert_array_equal(fusion.image, grey)


def test_the_last_block_is_measured_where_it_was_moved():
    frames = np.zeros((2, 8, 20), np.uint8)
    frames[0, ::2, 12:16] = 200  # in the second block and in the moved one, columns 12 to 19
    frames[1, ::2, 16:] = 100
    fusion = fuse_sf_dct(Stack.from_arrays(frames), consistency=False)
    assert fusion.source_map[0].tolist() == [0] * 20
    np.testing.assert_array_equal(fusion.image, frames[0])


def test_order_of_frames_does_not_matter(texture):
    scene = simulate_stack(texture, frames=3, max_radius=5.0, seed=2)
    first = fuse_sf_dct(Stack.from_arrays(scene.frames), consistency=False)
    other = fuse_sf_dct(Stack.from_arrays(scene.frames[::-1]), consistency=False)
    np.testing.assert_array_equal(first.image, other.image)
    np.testing.assert_array_equal(first.source_map, 2 - other.source_map)
    pair = scene.frames[:2]  # with two frames the majority filter has no ties of its own
    first, other = (fuse_sf_dct(Stack.from_arrays(frames)) for frames in (pair, pair[::-1]))
    np.testing.assert_array_equal(first.image, other.image)


def test_majority_mends_lone_decisions_and_keeps_ties():
    choice = np.zeros((5, 6), np.uint8)
    choice[2, 2] = 3
    assert not sf_dct._majority(choice).any()
    halves = np.zeros((2, 2), np.uint8)
    halves[:, 1] = 1
    np.testing.assert_array_equal(sf_dct._majority(halves), halves)
    three = np.array([[0, 1, 1], [0, 2, 1], [0, 0, 1]], np.uint8)
    assert sf_dct._majority(three)[1, 1] == 0  # four votes each for 0 and 1: the earlier


def test_majority_is_the_plain_definition():
    choice = np.random.default_rng(4).integers(0, 4, (13, 17)).astype(np.uint8)
    expected = choice.copy()
    for y, x in np.ndindex(choice.shape):
        near = choice[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        votes = np.bincount(near.ravel(), minlength=4)
        if votes[choice[y, x]] < votes.max():
            expected[y, x] = votes.argmax()
    np.testing.assert_array_equal(sf_dct._majority(choice), expected)


def test_fusion_of_a_simulated_stack(picture):
    scene = simulate_stack(picture, frames=4, max_radius=6.0, seed=5)
    fusion = fuse_sf_dct(scene.stack())
    alone = max(psnr(frame, scene.truth) for frame in scene.frames)
    assert psnr(fusion.image, scene.truth) > alone + 3.0
    assert set(fusion.seconds) == {"choose", "copy"}
    chosen = np.take_along_axis(
        np.stack(scene.frames), fusion.source_map[None, ..., None].astype(int), axis=0
    )[0]
    np.testing.assert_array_equal(fusion.image, chosen)


def test_one_frame_is_copied(picture):
    np.testing.assert_array_equal(fuse_sf_dct(Stack.from_arrays([picture])).image, picture)


@pytest.mark.parametrize("colour", [False, True])
def test_noisy_frames_are_denoised_first(picture, colour):
    truth = picture if colour else to_grey(picture)
    scene = simulate_stack(truth, frames=2, sigma=20.0, seed=6)
    blind = fuse_sf_dct(scene.stack())
    restored = fuse_sf_dct(scene.stack(), sigma=20.0)
    assert restored.sigma == 20.0
    assert psnr(restored.image, scene.truth) > psnr(blind.image, scene.truth) + 2.0


@pytest.mark.parametrize(("room", "calls"), [(1 << 30, 2), (0, 4)])
def test_a_denoiser_of_ones_own(picture, monkeypatch, room, calls):
    monkeypatch.setattr(sf_dct, "_KEPT_BYTES", room)
    grey = to_grey(picture)
    blurred = cv2.filter2D(grey, -1, disc_kernel(3.0))
    left = np.arange(grey.shape[1]) < 64
    stack = Stack.from_arrays([np.where(left, grey, blurred), np.where(left, blurred, grey)])
    seen = []

    def darken(levels, sigma):
        seen.append((levels.shape, levels.dtype, sigma))
        return levels - np.float32(sigma)

    fusion = fuse_sf_dct(stack, sigma=2.0, denoise=darken)
    plain = fuse_sf_dct(stack, denoise=darken)
    assert seen == [(grey.shape, np.float32, 2.0)] * calls
    np.testing.assert_array_equal(fusion.image, np.maximum(plain.image, 2) - 2)


def test_progress_counts_the_frames(picture):
    seen = []
    fuse_sf_dct(Stack.from_arrays([picture] * 3), progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sigma": np.inf}, "`sigma` is inf"),
        ({"block_size": 1}, "is 1"),
        ({"block_size": 97}, "97"),
    ],
)
def test_refuses_odd_settings(picture, change, words):
    with pytest.raises(CofuseError, match=words):
        fuse_sf_dct(Stack.from_arrays([picture]), **change)
