"""Weighing: weights add up, whatever is kept and however a picture is cut; what is told."""

from __future__ import annotations

import math
import re
import shutil
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import Stack
from cofuse.methods.mixed import MixedRun
from cofuse.mixing import MIXED_BANDS, split
from cofuse.model import weighing
from cofuse.model.runtime import Networks, load_networks, model_folder
from cofuse.model.telling import TOLD, FrameTold, frames_told
from cofuse.model.tiles import Tile, tiles_of
from cofuse.model.weighing import HALO, tile_side, weigh_tile, working_bytes
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import BANDS, NoiseLaw
from cofuse.planning import Plan
from cofuse.progress import silent
from cofuse.settings import FusionSettings
from cofuse.simulation import sample_picture, simulate_stack

Levels = NDArray[np.float32]

NETWORKS = load_networks("auto")


def whole(shape: tuple[int, int]) -> Tile:
    (tile,) = tiles_of(shape, 16 * math.ceil(max(shape) / 16), 16)
    return tile


def told(count: int, sigma: float = 0.0) -> list[FrameTold]:
    return [FrameTold(sigma, sigma, 1.0)] * count


def weigh(frames: Levels, tile: Tile | None = None, **given: object) -> Levels:
    """Weigh frames (number, h, w), 0 to 1."""
    return weigh_tile(
        given.pop("networks", NETWORKS),
        lambda number, where: frames[number][where],
        given.pop("told", told(len(frames))),
        given.pop("reference", None),
        whole(frames.shape[1:]) if tile is None else tile,
        **given,
    )


def grey_frames(count: int, shape: tuple[int, int], seed: int = 0) -> Levels:
    made = simulate_stack(sample_picture("coffee"), frames=count, seed=seed, shape=shape)
    return np.stack([frame.mean(axis=-1) / 255 for frame in made.frames]).astype(np.float32)


@settings(max_examples=25)
@given(
    st.integers(2, 5),
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
    st.sampled_from([None, 0, 1]),
    st.floats(0, 0.2),
    st.integers(0, 10**6),
)
def test_weights_add_up_and_none_is_negative(
    count: int, shape: tuple[int, int], reference: int | None, sigma: float, seed: int
) -> None:
    frames = np.random.default_rng(seed).random((count, *shape), np.float32)
    weights = weigh(frames, reference=reference, told=told(count, sigma))
    assert weights.shape == (count, MIXED_BANDS, *shape) and weights.dtype == np.float32
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=0, atol=1e-5)


def test_the_sharp_frame_has_most_of_the_detail_weight_where_it_is_sharp() -> None:
    sharp = sample_picture("coffee")[:128, :192].mean(axis=-1).astype(np.float32) / 255
    soft = cv2.GaussianBlur(sharp, (0, 0), 2.0)
    left = np.arange(192) < 96
    frames = np.stack([np.where(left, sharp, soft), np.where(left, soft, sharp)])
    weights = weigh(frames.astype(np.float32))
    # Where there is detail; on plain ground nobody can tell the frames apart.
    detailed = np.abs(sharp - soft) > 0.03
    detailed[:, 80:112] = False
    for part, number in ((left, 0), (~left, 1)):
        assert weights[number, 0][detailed & part].mean() > 0.9


@pytest.mark.parametrize("reference", [None, 1])
def test_features_kept_or_looked_at_twice_give_the_same_bits(reference: int | None) -> None:
    frames = grey_frames(3, (70, 90))
    kept, again = (weigh(frames, reference=reference, keep=keep) for keep in (True, False))
    assert np.array_equal(kept, again)


def test_the_order_of_frames_is_no_matter() -> None:
    frames = grey_frames(4, (64, 80))
    order = [2, 0, 3, 1]
    levels = [FrameTold(0.01 * k, 0.02 * k, 0.5) for k in range(4)]
    before = weigh(frames, told=levels, reference=2)
    after = weigh(frames[order], told=[levels[k] for k in order], reference=0)
    np.testing.assert_allclose(after, before[order], rtol=0, atol=1e-5)


def test_what_is_told_of_reference_and_noise_is_heard() -> None:
    frames = grey_frames(3, (64, 80))
    plain = weigh(frames)
    assert np.abs(weigh(frames, reference=1) - plain).max() > 1e-3
    assert np.abs(weigh(frames, told=told(3, 0.1)) - plain).max() > 1e-3


@pytest.mark.parametrize("reference", [None, 1])
def test_networks_are_told_of_each_frame_its_noise_and_whether_it_is_the_reference(
    reference: int | None,
) -> None:
    heard = []

    def listening(name: str, *inputs: Levels) -> list[Levels]:
        if name == "look":
            beside = inputs[1][0, 2]
            heard.append((inputs[2][0].tolist(), beside[:32, :48]))
        return NETWORKS(name, *inputs)

    frames = grey_frames(3, (32, 48))
    levels = [FrameTold(0.25 * k, 0.5 * k, 0.125) for k in range(3)]
    weigh(frames, networks=listening, told=levels, reference=reference)
    for number, (numbers, beside) in enumerate(heard):
        expected = [0.25 * number, 0.5 * number, 0.125, number == reference, reference is not None]
        assert numbers == expected
        if reference is not None:
            assert np.array_equal(beside, frames[reference])
    assert len(heard) == 3


# --- tiles ---


def mixed_grey(frames: Levels, weights: Levels) -> Levels:
    """Mix with weights (frames, bands, h, w), and in grey levels."""
    bands = [split(frame) for frame in frames]
    return 255 * np.einsum("kbhw,kbhw->hw", weights, np.array(bands))


def in_tiles(frames: Levels, side: int, halo: int) -> Levels:
    shape = frames.shape[1:]
    weights = np.empty((len(frames), MIXED_BANDS, *shape), np.float32)
    for tile in tiles_of(shape, side, halo):
        weights[(..., *tile.here)] = weigh(frames, tile, told=told(len(frames), 0.02))
    return mixed_grey(frames, weights)


def test_tiles_make_the_picture_that_the_whole_makes_and_a_small_halo_does_not() -> None:
    frames = grey_frames(3, (300, 400))
    entire = mixed_grey(frames, weigh(frames, told=told(3, 0.02)))
    apart = {halo: np.abs(in_tiles(frames, 128, halo) - entire).max() for halo in (HALO, 16)}
    assert apart[HALO] < 0.01
    assert apart[16] > 0.01


def test_memory_grows_with_frames_until_tiles_change() -> None:
    shape = 4000, 6000
    needed = [working_bytes(shape, count, keep=True) for count in range(1, 200)]
    drops = {k for k, (a, b) in enumerate(pairwise(needed), start=2) if b < a}
    assert drops and drops <= {k for k in range(2, 200) if tile_side(k) != tile_side(k - 1)}
    # With nothing kept tiles are the smallest, and fewer frames never need more.
    least = [working_bytes(shape, count, keep=False) for count in range(1, 200)]
    assert all(a < b for a, b in pairwise(least))
    assert working_bytes(shape, 5, keep=False) < working_bytes(shape, 5, keep=True)
    assert working_bytes((60, 50), 5, keep=True) < working_bytes((60, 500), 5, keep=True)


def test_memory_is_bounded_as_long_as_the_smallest_tiles_fit() -> None:
    """Features up to the bound, a third of that for luminance and weights, and one network."""
    largest = (weighing._SIDES[0] + 2 * HALO) ** 2
    bound = 1.34 * weighing._KEPT_BYTES + weighing._NETWORK_BYTES * largest
    for count in range(1, 200):
        assert tile_side(count) in weighing._SIDES
        assert working_bytes((9000, 9000), count, keep=True) < bound


def test_few_frames_have_the_largest_tiles_and_many_the_smallest() -> None:
    assert list(weighing._SIDES) == sorted(weighing._SIDES, reverse=True)
    assert tile_side(2) == weighing._SIDES[0]
    assert tile_side(1000) == tile_side(10**6) == weighing._SIDES[-1]


# --- weights from scores, and noise that is told ---


def saying(scores: list[float]) -> Networks:
    """Make networks that score every frame as told: a frame is known by its fine noise."""

    def run(name: str, *inputs: Levels) -> list[Levels]:
        if name == "look":
            return [np.full((1, 1, *inputs[0].shape[2:]), inputs[2][0, 0], np.float32)] * 2
        if name == "share":
            return [inputs[0][:, :1]]
        score = np.float32(scores[round(float(inputs[0][0, 0, 0, 0]))])
        return [np.full((1, MIXED_BANDS, *inputs[0].shape[2:]), score)]

    return run


def test_weights_are_the_softmax_of_scores_without_those_that_are_next_to_nothing() -> None:
    frames = np.zeros((4, 20, 30), np.float32)
    numbers = [FrameTold(float(k), 0.0, 1.0) for k in range(4)]
    # By the largest these are 1, 1/2, just above and just below a thousandth.
    parts = np.array([1.0, 0.5, 0.0011, 0.0009])
    for keep in (True, False):
        weights = weigh(frames, networks=saying(list(np.log(parts) + 40)), told=numbers, keep=keep)
        expected = np.where(parts > 0.001, parts, 0) / parts[:3].sum()
        np.testing.assert_allclose(
            weights, np.broadcast_to(expected[:, None, None, None], weights.shape), rtol=1e-4
        )
        assert not weights[3].any()


@given(st.integers(1, 4), st.floats(0, 60), st.booleans())
def test_white_noise_is_told_as_that_of_the_mean_of_channels(
    count: int, sigma: float, colour: bool
) -> None:
    found = frames_told(NoiseLaw.white(sigma, frames=count, colour=colour))
    assert len(found) == count
    expected = TOLD * sigma / 255 / math.sqrt(3 if colour else 1)
    for own in found:
        assert own.fine == pytest.approx(expected) and own.coarse == pytest.approx(expected)
        assert own.floor == 1.0


def test_noise_that_grows_is_told_at_mid_grey_with_its_part_in_black() -> None:
    model = NoiseModel(3.0, 0.4)
    levels = np.full((2, 1, BANDS), model.stabilised_sigma)
    levels[1] *= 2
    first, second = frames_told(NoiseLaw(model, levels, np.zeros_like(levels)))
    # The variance is 3² + 0.4 I, of which 9 are there in black.
    variance = 9 + 0.4 * 127.5
    assert first.fine == pytest.approx(TOLD * math.sqrt(variance) / 255)
    assert second.fine == pytest.approx(2 * first.fine)
    assert first.floor == second.floor == pytest.approx(9 / variance)


def test_fine_and_coarse_noise_are_told_apart() -> None:
    levels = np.zeros((2, 1, BANDS))
    levels[0, 0, 0], levels[1, 0, -1] = 10.0, 10.0
    fine, coarse = frames_told(NoiseLaw(NoiseModel(10.0), levels, np.zeros_like(levels)))
    assert fine.fine > 10 * fine.coarse and coarse.coarse > 10 * coarse.fine


# --- grey and colour ---


def run_of(frames: list[NDArray[np.uint8]]) -> MixedRun:
    return MixedRun(Stack.from_arrays(frames), FusionSettings(), silent, Plan())


def test_grey_frames_and_rgb_ones_of_equal_channels_weigh_the_same() -> None:
    grey = [np.rint(255 * frame).astype(np.uint8) for frame in grey_frames(3, (64, 90))]
    colour = [np.repeat(frame[..., None], 3, axis=-1) for frame in grey]
    tile = whole((64, 90))
    law = NoiseLaw.white(0.0, frames=3)
    networks: Networks = NETWORKS
    of_grey = run_of(grey).weights(networks, frames_told(law), tile)
    law = NoiseLaw.white(0.0, frames=3, colour=True)
    of_colour = run_of(colour).weights(networks, frames_told(law), tile)
    np.testing.assert_allclose(of_grey, of_colour, rtol=0, atol=1e-5)
    mixed = [run_of(frames).mixed(of_grey, tile) for frames in (grey, colour)]
    assert mixed[0].shape == (64, 90)
    of_channels = np.repeat(mixed[0][..., None], 3, axis=-1)
    np.testing.assert_allclose(of_channels, mixed[1], rtol=0, atol=1e-4)


def test_a_lone_frame_has_all_the_weight() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (40, 30), np.uint8)
    alone = frames_told(NoiseLaw.white(5.0))
    weights = run_of([frame]).weights(NETWORKS, alone, whole((40, 30)))
    assert weights.shape == (1, MIXED_BANDS, 40, 30) and (weights == 1).all()


def test_a_folder_without_a_network_is_no_model(tmp_path: Path) -> None:
    shutil.copytree(model_folder("auto"), tmp_path / "half")
    (tmp_path / "half" / "weigh.onnx").unlink()
    with pytest.raises(CofuseError, match=r"no weigh\.onnx; expected one of auto, or"):
        load_networks(str(tmp_path / "half"))
    with pytest.raises(CofuseError, match=r"look\.onnx, share\.onnx, weigh\.onnx;"):
        load_networks(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("wrong", ["damaged", "of another network"])
def test_a_file_that_is_no_such_network_is_named(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder("auto"), folder)
    other = b"precious" if wrong == "damaged" else (folder / "share.onnx").read_bytes()
    (folder / "look.onnx").write_bytes(other)
    with pytest.raises(CofuseError, match=r"look\.onnx") as caught:
        load_networks(str(folder))
    assert re.search(r"; \w+", str(caught.value)), "nothing is said of what to do"
