"""What the joint model makes of stacks, against torch and against itself."""

from __future__ import annotations

import itertools
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse import joint, joint_fusion
from cofuse.errors import CofuseError
from cofuse.images import to_opponent
from cofuse.joint import LEVEL_CHANNELS, JointModel, load_model
from cofuse.joint_fusion import JointResult, fuse_planes, fuse_tiles
from cofuse.joint_noise import ModelNoise
from cofuse.joint_tiles import TileWork, spans_of
from cofuse.kernels.joint_reach import Reach
from cofuse.noise.law import BANDS as NOISE_BANDS
from cofuse.progress import Progress
from tests.test_joint_kernels import random_model
from tests.test_noise_spectrum import measured_levels

Array = np.ndarray[Any, Any]


def planes_of(count: int, height: int, width: int, planes: int, seed: int) -> Array:
    """Frames sharp in places, as planes of grey levels, (K, H, W, P)."""
    rng = np.random.default_rng(seed)
    channels = 1 if planes == 1 else 3
    scene = np.kron(
        rng.uniform(20, 235, (height // 5 + 1, width // 5 + 1, channels)), np.ones((5, 5, 1))
    )
    scene = scene[:height, :width]
    frames = scene + rng.normal(0, rng.uniform(1, 15, (count, 1, 1, 1)), (count, *scene.shape))
    frames = frames.astype(np.float32)
    return frames if planes == 1 else to_opponent(frames)


def fuse(model: JointModel, frames: Array, noise: Array, **options: Any) -> JointResult:
    readers = [lambda rows, columns, f=frame: f[rows, columns] for frame in frames]
    return fuse_planes(model, readers, frames.shape[1:3], noise, **options)


def noise_of(count: int, planes: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 25, (count, planes))


def differing(a: JointResult, b: JointResult) -> Array:
    """Pixels where the choices differ and at least one was no near tie."""
    clear = np.maximum(a.confidence, b.confidence) > 1e-4
    return (a.index != b.index) & clear


def same(a: JointResult, b: JointResult, atol: float = 1e-3) -> None:
    assert not differing(a, b).any()
    np.testing.assert_allclose(a.confidence, b.confidence, rtol=0, atol=1e-4)
    np.testing.assert_allclose(a.mixed, b.mixed, rtol=0, atol=atol)
    assert (a.restored is None) == (b.restored is None)
    if a.restored is not None and b.restored is not None:
        np.testing.assert_allclose(a.restored, b.restored, rtol=0, atol=atol)


# Against torch.


def with_torch(
    model: JointModel, frames: Array, noise: Array, *, chosen: bool = False
) -> tuple[Array, Array, Array]:
    """Choice scores, mixture and restored planes by the network itself, plane by plane."""
    import torch

    from cofuse.learning.end_to_end import network

    torch.set_num_threads(1)  # layers this small would mostly wait for each other's threads
    filters, coarse = (len(model.arrays[f"stages.0.{b}.filters"]) for b in ("fine", "coarse"))
    net = network.JointNetwork(model.stages, filters, coarse)
    net.load_state_dict({name: torch.tensor(values) for name, values in model.arrays.items()})
    scale = np.array([3**0.5, 1, 1]) if frames.shape[-1] == 3 else np.ones(1)
    sigma = torch.tensor(np.maximum(noise / scale, 1.0), dtype=torch.float32)
    unit = sigma.square().mean(0).sqrt()
    relative = (sigma[:, 0] / unit[0])[None]
    planes = torch.tensor(np.moveaxis(frames / scale, -1, 0), dtype=torch.float32)
    planes = (planes / unit.view(-1, 1, 1, 1))[:, None]
    with torch.no_grad():
        scores, guides = net.weigher(planes[0], unit[:1], relative)
        logits = scores[:, :, 1:]
        if chosen:
            best = scores[:, :, :1].argmax(1, keepdim=True)
            logits = torch.full_like(logits, -1e4).scatter(1, best.expand_as(logits[:, :1]), 0.0)
        bands = [network.split_bands(plane) for plane in planes]
        mixtures = [network.mix(band, logits, relative) for band in bands]
        mixed = pictures = [mixture.picture for mixture in mixtures]
        for number, stage in enumerate(net.stages):
            if number == joint.REWEIGH_BEFORE and len(frames) > 1 and not chosen:
                logits = scores[:, :, 1:] + net.agreement(planes[0], pictures[0], scores)
                mixtures = [network.mix(band, logits, relative) for band in bands]
            pictures = [
                stage(x, mixture, torch.log(u / 20.0)[None], guides[:, number])
                for x, mixture, u in zip(pictures, mixtures, unit, strict=True)
            ]
        if frames.shape[-1] == 1 and not chosen:
            whole = net(planes[0] * unit[0], sigma[:, 0][None])
            np.testing.assert_allclose(whole.restored, pictures[0] * unit[0], rtol=0, atol=1e-3)
    back = scale * unit.numpy()
    mixed, restored = (
        np.stack([p[0].numpy() for p in some], -1) * back for some in (mixed, pictures)
    )
    return scores[0, :, 0].numpy(), mixed, restored


@pytest.mark.extra("torch")
@pytest.mark.parametrize(
    ("count", "height", "width", "planes", "weights"),
    [
        (1, 45, 70, 1, "all"),
        (2, 45, 70, 1, "all"),
        (3, 64, 96, 3, "all"),
        (5, 33, 101, 1, "all"),
        (2, 71, 45, 3, "all"),
        (3, 45, 70, 1, "chosen"),
        (2, 50, 61, 3, "chosen"),
    ],
)
def test_equals_the_network_for_training(
    count: int, height: int, width: int, planes: int, weights: str
) -> None:
    model = random_model(count, stages=4, filters=50)
    frames, noise = planes_of(count, height, width, planes, 1), noise_of(count, planes)
    choice, mixed, restored = with_torch(model, frames, noise, chosen=weights == "chosen")
    result = fuse(model, frames, noise, weights=weights)
    ranked = np.sort(choice, axis=0)
    clear = ranked[-1] - ranked[-2] > 1e-4 if count > 1 else np.ones(choice.shape[1:], bool)
    np.testing.assert_array_equal(result.index[clear], choice.argmax(axis=0)[clear])
    assert clear.mean() > 0.9
    # Both work in float32, on grey levels up to 255·√3.
    np.testing.assert_allclose(result.mixed, mixed, rtol=0, atol=1e-3)
    assert result.restored is not None
    np.testing.assert_allclose(result.restored, restored, rtol=0, atol=2e-3)
    assert np.abs(restored - mixed).max() > 1, "the stages must have done something"


@pytest.mark.extra("torch")
def test_a_fresh_network_makes_a_valid_model() -> None:
    from cofuse.learning.end_to_end.network import JointNetwork

    state = JointNetwork().state_dict()
    model = JointModel.from_arrays({name: values.numpy() for name, values in state.items()})
    assert model.parameters == sum(values.numel() for values in state.values())


# Against itself.


@pytest.mark.parametrize(
    ("planes", "restore", "weights", "tile"),
    [
        (1, True, "all", 32),
        (1, True, "all", 75),
        (3, True, "all", 128),
        (1, True, "chosen", 75),
        (3, False, "all", 32),
        (1, False, "all", 75),
        (3, False, "chosen", 128),
    ],
)
def test_tiles_do_not_show(planes: int, restore: bool, weights: str, tile: int) -> None:
    model = random_model(3, stages=4, filters=4)
    frames, noise = planes_of(2, 291, 133, planes, 0), noise_of(2, planes)
    options = {"restore": restore, "weights": weights}
    whole = fuse(model, frames, noise, tile=512, **options)
    same(fuse(model, frames, noise, tile=tile, **options), whole)


@given(st.integers(1, 300), st.integers(1, 90))
def test_tiles_start_at_even_pixels_and_cover_all(length: int, side: int) -> None:
    pieces = list(spans_of(length, side))
    assert [i for piece in pieces for i in range(*piece)] == list(range(length))
    assert all(a % 2 == 0 and a < b <= a + side + side % 2 for a, b in pieces)


def test_tiles_do_not_show_when_the_weigher_sees_only_a_part() -> None:
    # Wider than what one tile looks at on either side.
    model = random_model(4, filters=4)
    frames, noise = planes_of(2, 40, 900, 1, 0), noise_of(2, 1)
    same(fuse(model, frames, noise, tile=100), fuse(model, frames, noise, tile=1000))


def test_features_made_twice_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from cofuse.kernels import joint_weigher

    model, frames, noise = random_model(5), planes_of(3, 50, 60, 1, 0), noise_of(3, 1)
    kept = fuse(model, frames, noise)
    monkeypatch.setattr(joint_weigher, "_KEPT_BYTES", 0)
    same(fuse(model, frames, noise), kept, atol=0)


@given(st.permutations(range(3)), st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=8)
def test_the_order_of_the_frames_does_not_matter(order: list[int], planes: int, seed: int) -> None:
    model = random_model(seed, stages=3, filters=4)
    frames, noise = planes_of(3, 40, 44, planes, seed), noise_of(3, planes, seed)
    straight, other = fuse(model, frames, noise), fuse(model, frames[order], noise[order])
    same(
        other,
        JointResult(
            np.argsort(order)[straight.index],
            straight.confidence,
            straight.mixed,
            straight.restored,
        ),
    )


def test_chosen_frames_are_copied_and_the_choice_is_the_same() -> None:
    frames, noise = planes_of(3, 41, 50, 3, 0), noise_of(3, 3)
    mixed = fuse(random_model(0), frames, noise, restore=False)
    result = fuse(random_model(0), frames, noise, restore=False, weights="chosen")
    np.testing.assert_array_equal(result.index, mixed.index)
    np.testing.assert_array_equal(result.confidence, mixed.confidence)
    copied = np.take_along_axis(frames, result.index[None, ..., None].astype(int), 0)[0]
    np.testing.assert_allclose(result.mixed, copied, rtol=0, atol=1e-3)
    assert len(np.unique(result.index)) == 3


def test_single_frame_is_its_own_mixture() -> None:
    frames = planes_of(1, 37, 50, 3, 0)
    result = fuse(random_model(0), frames, noise_of(1, 3))
    assert not result.index.any()
    np.testing.assert_allclose(result.confidence, 1, atol=1e-6)
    np.testing.assert_allclose(result.mixed, frames[0], rtol=0, atol=1e-3)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.booleans())
@settings(deadline=None, max_examples=15)
def test_pictures_of_any_size_are_taken(
    height: int, width: int, planes: int, restore: bool
) -> None:
    frames = planes_of(2, height, width, planes, 0)
    result = fuse(random_model(0), frames, noise_of(2, planes), restore=restore)
    assert result.index.shape == result.confidence.shape == (height, width)
    assert result.mixed.shape == (height, width, planes)
    assert np.isfinite(result.mixed).all()
    assert ((result.confidence >= 0) & (result.confidence <= 1 + 1e-6)).all()
    assert (result.restored is not None) == restore


def test_equal_frames_mix_to_themselves() -> None:
    frame = planes_of(1, 50, 61, 3, 0)
    result = fuse(random_model(1), frame.repeat(4, 0), np.full((4, 3), 9.0), restore=False)
    np.testing.assert_allclose(result.mixed, frame[0], rtol=0, atol=1e-3)


def test_progress_counts_the_tiles_and_frames_are_read_once_a_tile() -> None:
    frames, seen, reads = planes_of(2, 100, 70, 1, 0), [], []

    def reader(number: int) -> Any:
        def read(rows: slice, columns: slice) -> Array:
            reads.append(number)
            return np.asarray(frames[number, rows, columns])

        return read

    readers = [reader(0), reader(1)]
    fuse_planes(random_model(0), readers, (100, 70), np.ones((2, 1)), tile=50, progress=seen.append)
    assert seen == [Progress("fusion", done, 4) for done in (1, 2, 3, 4)]
    assert sorted(reads) == [0] * 4 + [1] * 4


def test_tiles_are_as_large_as_working_memory_allows() -> None:
    for planes, restore in itertools.product((1, 3), (False, True)):
        side = joint_fusion.tile_side(planes, restore)
        assert 600 < side < 1100
        working, *_ = joint_fusion.tile_bytes((1 << 20, 1 << 20), planes, restore)
        assert 300 << 20 < working <= 400 << 20
        # Pictures smaller than a tile take less.
        assert joint_fusion.tile_bytes((100, 100), planes, restore)[0] < working / 50
    assert joint_fusion.tile_side(3, False) > joint_fusion.tile_side(3, True)
    assert joint_fusion.tile_bytes((99, 99), 3, False)[2] == 0, "scores need not be kept"


def test_tiles_reach_as_far_as_their_memory_is_reckoned_for() -> None:
    noise = np.ones((2, 3))
    options: Any = {"restore": True, "weigh_all": True}
    options |= {"keep_planes": True, "keep_scores": True}
    work = TileWork(load_model("joint"), [None] * 2, (9, 9), noise, **options)  # type: ignore[list-item]
    assert work.margins[0] == joint_fusion._STAGES_REACH
    far = 1 << 20
    reach = Reach.of((far, far + 32), 2 * far, len(LEVEL_CHANNELS))
    around = (reach.picture[1] - reach.picture[0] - 32) / 2
    assert abs(around - joint_fusion._WEIGHER_REACH) <= 16


@pytest.mark.parametrize("weights", ["all", "chosen"])
@pytest.mark.parametrize("restore", [False, True])
def test_what_is_kept_of_a_tile_changes_nothing(restore: bool, weights: Any) -> None:
    model, frames, noise = random_model(3), planes_of(3, 60, 70, 3, 0), noise_of(3, 3)
    readers = [lambda rows, columns, k=k: frames[k, rows, columns] for k in range(3)]
    whole = fuse(model, frames, noise, restore=restore, weights=weights, tile=40)
    for planes, scores in itertools.product((False, True), repeat=2):
        tiles = fuse_tiles(
            model,
            readers,  # type: ignore[arg-type]
            (60, 70),
            noise,
            restore=restore,
            weights=weights,
            tile=40,
            keep_planes=planes,
            keep_scores=scores,
        )
        for here, part in tiles:
            for name in ("index", "confidence", "mixed", "restored"):
                if getattr(whole, name) is not None:
                    expected = getattr(whole, name)[here]
                    np.testing.assert_array_equal(getattr(part, name), expected)


@pytest.mark.parametrize("planes", [1, 3])
def test_bands_of_white_noise_change_nothing(planes: int) -> None:
    frames, noise = planes_of(3, 60, 70, planes, 1), noise_of(3, planes, 1)
    noise[0, 0] = 0.2  # below what the model knows
    one = fuse(load_model(), frames, noise)
    other = fuse(load_model(), frames, np.repeat(noise[..., None], NOISE_BANDS, axis=-1))
    for name in ("index", "confidence", "mixed", "restored"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def coloured_stack(seed: int) -> tuple[Array, Array, Array]:
    """Two grey frames, each sharp in one half, with blurred noise: truth, frames and levels."""
    rng = np.random.default_rng(seed)
    truth = cv2.resize(rng.uniform(30, 225, (24, 24)), (192, 192), interpolation=cv2.INTER_NEAREST)
    truth = cv2.GaussianBlur(truth, (0, 0), 0.8)
    # Fine detail, in the octave that has little of the noise.
    truth += 25.0 * (-1.0) ** np.add(*np.indices(truth.shape)) * (np.arange(192) // 24 % 2)
    soft = cv2.GaussianBlur(truth, (0, 0), 4)
    left = np.arange(192) < 96
    noise = cv2.GaussianBlur(rng.standard_normal((192, 192, 2)), (0, 0), 0.7)
    noise *= 15 / noise.std()
    pictures = np.stack([np.where(left, truth, soft), np.where(left, soft, truth)])
    frames = (pictures + np.moveaxis(noise, -1, 0)).astype(np.float32)[..., None]
    levels = [[measured_levels(one)] for one in np.moveaxis(noise, -1, 0)]
    return truth, frames, np.array(levels)


def test_noise_told_by_bands_is_removed_better() -> None:
    errors = []
    for seed in (0, 1):
        truth, frames, levels = coloured_stack(seed)
        scalars = [[[factor * 15.0]] * 2 for factor in (1.0, 1.4, 2.0)]
        results = [fuse(load_model(), frames, noise) for noise in (levels, *map(np.array, scalars))]
        errors.append(
            [((r.restored[..., 0] - truth) ** 2).mean() for r in results if r.restored is not None]
        )
    by_bands, *by_one_number = np.mean(errors, axis=0)
    assert by_bands < 0.9 * min(by_one_number)


def test_units_cover_all_frames_and_the_bands_that_are_looked_at() -> None:
    levels = np.array([[[2.0, 4.0, 4.0, 9.0, 9.0]], [[6.0, 12.0, 12.0, 27.0, 27.0]]])
    noise = ModelNoise.of(levels)
    assert noise.units[0] == pytest.approx(np.sqrt((12.0 + 108.0) / 2))
    assert noise.relative[1] == pytest.approx(3 * noise.relative[0])
    np.testing.assert_allclose(noise.bands[0] * noise.units[0], levels[0, 0] * 5**0.5)
    faint = ModelNoise.of(levels / 100)
    np.testing.assert_array_equal(faint.bands, np.ones((1, NOISE_BANDS)))


@pytest.mark.parametrize(
    "noise",
    [
        [1.0, 2.0],
        [[1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        [[-1.0], [1.0]],
        [[np.nan], [1.0]],
        [[[1.0]], [[1.0]]],
    ],
)
def test_noise_that_does_not_fit_is_refused(noise: Any) -> None:
    with pytest.raises(CofuseError, match="noise"):
        fuse(random_model(0), planes_of(2, 8, 8, 1, 0), noise)


def test_tiles_of_no_pixels_are_refused() -> None:
    with pytest.raises(CofuseError, match="tile is 0"):
        fuse(random_model(0), planes_of(2, 8, 8, 1, 0), np.ones((2, 1)), tile=0)


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(CofuseError, match="weights are 'some'; expected 'all' or 'chosen'"):
        fuse(random_model(0), planes_of(2, 8, 8, 1, 0), np.ones((2, 1)), weights="some")
