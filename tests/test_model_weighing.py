"""Weighing: weights add up, whatever is kept and however a picture is cut; what is told."""

from __future__ import annotations

import math
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.fusion import AutoSettings, fuse
from cofuse.fusion.mixing import MixingRun
from cofuse.images import Stack
from cofuse.images.pixels import MIXED_BANDS
from cofuse.images.tiles import Tile, tiles_of
from cofuse.model.runtime import Networks, load_networks, model_folder
from cofuse.model.tiling import HALO, LEAST_SHARE, tile_sides, working_bytes
from cofuse.model.weighing import Glance, ModelWeigher, Told, noise_told
from cofuse.progress import silent
from cofuse.sensor.law import BANDS, NoiseLaw, NoiseModel
from tests.test_images_bands import split

Levels = NDArray[np.float32]


NETWORKS = load_networks("auto")


def whole(shape: tuple[int, int]) -> Tile:
    (tile,) = tiles_of(shape, 16 * math.ceil(max(shape) / 16), 16)
    return tile


def silence(count: int, sigma: float = 0.0) -> Told:
    return Told(np.full((count, 2), sigma, np.float32), 1.0)


def weighed(
    frames: Levels,
    tile: Tile | None = None,
    *,
    networks: Networks = NETWORKS,
    told: Told | None = None,
    side: int = 256,
) -> Levels:
    """Weigh frames (number, h, w), 0 to 1, in a tile, part by part."""
    shape = frames.shape[1], frames.shape[2]
    tile = whole(shape) if tile is None else tile
    told = silence(len(frames)) if told is None else told
    stack = Stack.from_arrays(list(frames), white=1.0)
    seen = ModelWeigher(networks, told, 1536, side).look(stack, tile)
    weights = np.zeros((len(frames), MIXED_BANDS, *shape), np.float32)
    for part, numbers in seen.parts():
        levels = {number: stack.part_levels(number, part.around) for number in numbers}
        for number, own in zip(numbers, seen.weigh(part, levels), strict=True):
            weights[(number, slice(None), *part.here)] = own
    return weights[(..., *tile.here)]


def grey_frames(count: int, shape: tuple[int, int], seed: int = 0) -> Levels:
    made = simulate_stack(sample_picture("coffee"), frames=count, seed=seed, shape=shape)
    return np.stack([frame.mean(axis=-1) / 255 for frame in made.frames]).astype(np.float32)


@settings(max_examples=25)
@given(
    st.integers(2, 5),
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
    st.floats(0, 0.2),
    st.integers(0, 10**6),
)
def test_weights_add_up_and_none_is_negative(
    count: int, shape: tuple[int, int], sigma: float, seed: int
) -> None:
    frames = np.random.default_rng(seed).random((count, *shape), np.float32)
    weights = weighed(frames, told=silence(count, sigma))
    assert weights.shape == (count, MIXED_BANDS, *shape) and weights.dtype == np.float32
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=0, atol=1e-5)


def test_the_sharp_frame_has_most_of_the_detail_weight_where_it_is_sharp() -> None:
    sharp = sample_picture("coffee")[:128, :192].mean(axis=-1).astype(np.float32) / 255
    soft = cv2.GaussianBlur(sharp, (0, 0), 2.0)
    left = np.arange(192) < 96
    frames = np.stack([np.where(left, sharp, soft), np.where(left, soft, sharp)])
    weights = weighed(frames.astype(np.float32))
    # Where there is detail; on plain ground nobody can tell the frames apart.
    detailed = np.abs(sharp - soft) > 0.03
    detailed[:, 80:112] = False
    for part, number in ((left, 0), (~left, 1)):
        assert weights[number, 0][detailed & part].mean() > 0.9


def test_the_order_of_frames_is_no_matter() -> None:
    frames = grey_frames(4, (64, 80))
    order = [2, 0, 3, 1]
    levels = np.outer(np.arange(4), [0.01, 0.02]).astype(np.float32)
    before = weighed(frames, told=Told(levels, 0.5))
    after = weighed(frames[order], told=Told(levels[order], 0.5))
    np.testing.assert_allclose(after, before[order], rtol=0, atol=1e-5)


def test_what_is_told_of_noise_is_heard() -> None:
    frames = grey_frames(3, (64, 80))
    plain = weighed(frames)
    assert np.abs(weighed(frames, told=silence(3, 0.1)) - plain).max() > 1e-3


def test_networks_are_told_of_each_frame_its_noise_and_nothing_else() -> None:
    heard = []

    def listening(name: str, *inputs: Levels) -> list[Levels]:
        # Of all that networks are given, only what they are told is no planes.
        heard.extend((name, given[0].tolist()) for given in inputs if given.ndim == 2)
        return NETWORKS(name, *inputs)

    levels = np.outer(np.arange(3), [0.25, 0.5]).astype(np.float32)
    weighed(grey_frames(3, (32, 48)), networks=listening, told=Told(levels, 0.125))
    looked = [("relate", [0.25 * k, 0.5 * k]) for k in range(3)]
    assert sorted(heard) == [("compare", [0.125]), *looked]


@given(st.tuples(st.integers(1, 70), st.integers(1, 70)))
@settings(max_examples=20)
def test_pictures_are_mirrored_beyond_the_last_row_and_column_always_by_some(
    shape: tuple[int, int],
) -> None:
    seen = []

    def looking(name: str, *inputs: Levels) -> list[Levels]:
        if name == "filter":
            seen.append(inputs[0][0, 0])
        return NETWORKS(name, *inputs)

    frames = np.random.default_rng(0).integers(0, 257, (2, *shape)).astype(np.float32) / 256
    weighed(frames, networks=looking)
    assert len(seen) == 2
    for plane in seen:
        # Frames come in any order, on threads of their own; 0 is mid-grey.
        plane = np.rint(256 * (plane + 0.5)) / 256
        frame = next(frame for frame in frames if frame[0, 0] == plane[0, 0])
        # The first pixel beyond is a copy of the last one; small pictures go to and fro.
        down, right = (
            np.where((place := np.arange(long) % (2 * own)) < own, place, 2 * own - 1 - place)
            for long, own in zip(plane.shape, shape, strict=True)
        )
        assert np.array_equal(plane, frame[np.ix_(down, right)])
        assert all(long % 16 == 0 for long in plane.shape)
        assert all(32 <= long - own < 48 for long, own in zip(plane.shape, shape, strict=True))


# --- tiles ---


def mixed_grey(frames: Levels, weights: Levels) -> Levels:
    """Mix with weights (frames, bands, h, w), and in grey levels."""
    bands = [split(frame) for frame in frames]
    return 255 * np.einsum("kbhw,kbhw->hw", weights, np.array(bands))


def in_tiles(frames: Levels, side: int, halo: int) -> Levels:
    shape = frames.shape[1:]
    weights = np.empty((len(frames), MIXED_BANDS, *shape), np.float32)
    for tile in tiles_of(shape, side, halo):
        weights[(..., *tile.here)] = weighed(frames, tile, told=silence(len(frames), 0.02))
    return mixed_grey(frames, weights)


def test_tiles_make_the_picture_that_the_whole_makes_and_a_small_halo_does_not() -> None:
    frames = grey_frames(3, (300, 400))
    entire = mixed_grey(frames, weighed(frames, told=silence(3, 0.02)))
    apart = {halo: np.abs(in_tiles(frames, 128, halo) - entire).max() for halo in (HALO, 32)}
    assert apart[HALO] == 0
    assert apart[32] > 0.01


def test_parts_of_any_side_weigh_the_same() -> None:
    """Frames that do not matter in a part are not looked at there, and that does not show."""
    frames = grey_frames(4, (150, 210))
    pictures = [mixed_grey(frames, weighed(frames, side=side)) for side in (512, 64, 16)]
    for other in pictures[1:]:
        assert np.abs(other - pictures[0]).max() < 1e-3


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.sampled_from([16, 48, 112]),
    st.sampled_from([16, 64]),
)
@settings(max_examples=40)
def test_parts_cover_every_tile_once_with_the_frames_that_have_a_share(
    shape: tuple[int, int], side: int, part_side: int
) -> None:
    times = np.zeros(shape, int)
    rng = np.random.default_rng(0)
    for tile in tiles_of(shape, side, HALO):
        # Coarse pixels at which each of three frames has a share, of all around the tile.
        coarse = [-(-(seen.stop - seen.start) // 4) for seen in tile.around]
        shares = (rng.random((3, *coarse)) < 0.002).astype(np.float32)
        glance = Glance(NETWORKS, tile, shape, [], [], shares, part_side)
        for part, numbers in glance.parts():
            times[part.here] += 1
            assert times[part.here].size > 0
            rows, columns = (
                slice(own.start - every.start, own.stop - every.start)
                for own, every in zip(part.around, tile.around, strict=True)
            )
            large = shares.repeat(4, axis=1).repeat(4, axis=2)[:, rows, columns]
            assert numbers == list(np.flatnonzero(large.any(axis=(1, 2))))
    assert (times == 1).all()


def test_more_frames_have_smaller_tiles_down_to_a_side_that_is_fair() -> None:
    best = [tile_sides(count)[0] for count in range(1, 300)]
    assert best[0] == 2048 and best[-1] == 512
    assert best == sorted(best, reverse=True)
    for count in (1, 30, 1000):
        sides = tile_sides(count)
        assert sides == sorted(sides, reverse=True) and sides[-1] == 128


def test_smaller_tiles_and_pictures_need_less_memory() -> None:
    needed = [working_bytes((9000, 9000), 20, side) for side in (128, 256, 768, 1536)]
    assert needed == sorted(needed)
    assert working_bytes((60, 50), 5, 1536) < working_bytes((60, 500), 5, 1536)
    assert working_bytes((900, 900), 5, 512) < working_bytes((900, 900), 6, 512)


# --- weights from scores, and noise that is told ---


def saying(
    coarse: list[Any], exact: list[float], seen: list[tuple[int, Levels]] | None = None
) -> Networks:
    """Make networks that score every frame as told, coarsely and exactly.

    A frame is known by its fine noise, and to the last network by a plane of its context. Coarse
    scores are numbers, or planes at a quarter of the size; ``seen`` takes what the last network
    sees: the number of a frame, its luminance and detail, and those of the mixture beside it.
    """

    def run(name: str, *inputs: Levels) -> list[Levels]:
        if name == "filter":
            return [np.ascontiguousarray(inputs[0][..., ::4, ::4])] * 2
        if name == "compare":
            return [inputs[0]]
        if name == "relate":
            return [np.full((1, 1, *inputs[0].shape[2:]), inputs[-1][0, 0], np.float32)]
        if name == "look":
            return [inputs[0]]
        if name == "share":
            return [inputs[0][:, :1]]
        if name == "weigh":
            scores = np.zeros((1, MIXED_BANDS, *inputs[0].shape[2:]), np.float32)
            number = round(float(inputs[0][0, 0, 0, 0]))
            told = np.asarray(coarse[number])
            if told.ndim == 2:
                # Planes are of the frame alone; what is scored beyond it is no matter.
                rows, columns = scores.shape[2] - told.shape[0], scores.shape[3] - told.shape[1]
                told = np.pad(told, ((0, rows), (0, columns)))
            scores[:] = told
            return [scores, np.full((1, 3, *scores.shape[2:]), number, np.uint8)]
        assert name == "border"
        lights, details, _, context = inputs
        number = int(context[0, 0, 0, 0])
        if seen is not None:
            seen.append((number, np.stack([lights[0], details[0]], axis=1)))
        score = np.float32(exact[number])
        return [np.full((1, MIXED_BANDS, *inputs[0].shape[2:]), score)]

    return run


def numbered(count: int) -> Told:
    return Told(np.array([[k, 0] for k in range(count)], np.float32), 1.0)


def test_weights_are_the_softmax_of_scores_without_those_that_are_next_to_nothing() -> None:
    frames = np.zeros((4, 20, 30), np.float32)
    # By the largest these are 1, 1/2, just above and just below a thousandth.
    parts = np.array([1.0, 0.5, 0.0011, 0.0009])
    networks = saying([0.0] * 4, list(np.log(parts) + 40))
    weights = weighed(frames, networks=networks, told=numbered(4))
    expected = np.where(parts > 0.001, parts, 0) / parts[:3].sum()
    np.testing.assert_allclose(
        weights, np.broadcast_to(expected[:, None, None, None], weights.shape), rtol=1e-4
    )
    assert not weights[3].any()


def test_a_frame_that_a_glance_leaves_out_is_not_looked_at_and_has_no_weight() -> None:
    frames = np.zeros((3, 20, 30), np.float32)
    # By the largest just above and just below what is left out; looked at, it would win.
    coarse = list(np.log([1.0, 1.05 * LEAST_SHARE, 0.95 * LEAST_SHARE]) + 7)
    looked: list[tuple[int, Levels]] = []
    weights = weighed(frames, networks=saying(coarse, [0.0, 0.0, 50.0], looked), told=numbered(3))
    assert [number for number, _ in looked] == [0, 1]
    np.testing.assert_allclose(weights[:2], 0.5, rtol=1e-6)
    assert not weights[2].any()


def test_a_frame_has_no_weight_where_a_glance_leaves_it_out() -> None:
    """Also where it is looked at, because it matters beside; there it may win."""
    frames = np.zeros((2, 64, 96), np.float32)
    left = np.where(np.arange(24) < 12, 0.0, -20.0) * np.ones((16, 1))
    weights = weighed(frames, networks=saying([0.0, left], [0.0, 9.0]), told=numbered(2))
    # Shares are smoothly enlarged: they end two pixels beyond the last coarse one.
    assert (weights[1, ..., :48] > 0.99).all()
    assert not weights[1, ..., 50:].any() and (weights[0, ..., 50:] == 1).all()


def test_a_glance_of_all_bands_decides_together() -> None:
    """A frame that has the coarsest band alone is looked at."""
    frames = np.zeros((2, 16, 16), np.float32)
    own = np.full((MIXED_BANDS, 1, 1), -20.0)
    own[-1] = 20.0
    weights = weighed(frames, networks=saying([0.0, own], [0.0, 0.0]), told=numbered(2))
    np.testing.assert_allclose(weights, 0.5, rtol=1e-6)


def test_frames_are_looked_at_beside_a_mixture_by_roots_of_coarse_weights() -> None:
    rng = np.random.default_rng(0)
    frames = np.stack([np.full((40, 48), 0.2), 0.8 + 0.1 * rng.standard_normal((40, 48))])
    frames = frames.astype(np.float32)
    looked: list[tuple[int, Levels]] = []
    # Weights of 9 to 1 make shares of 3 to 1.
    networks = saying(list(np.log([9.0, 1.0])), [0.0, 0.0], looked)
    weighed(frames, networks=networks, told=numbered(2))
    assert [number for number, _ in looked] == [0, 1]
    for number, ((light, own_detail), (mixture, strength)) in looked:
        blurred = cv2.blur(frames[number], (5, 5), borderType=cv2.BORDER_REPLICATE)
        np.testing.assert_allclose(light, frames[number] - 0.5, atol=1e-6)
        np.testing.assert_allclose(own_detail, frames[number] - blurred, atol=1e-6)
        expected = 0.75 * frames[0] + 0.25 * frames[1] - 0.5
        np.testing.assert_allclose(mixture, expected, atol=1e-6)
        detail = np.abs(frames[1] - cv2.blur(frames[1], (5, 5), borderType=cv2.BORDER_REPLICATE))
        expected = 0.25 * cv2.blur(detail, (9, 9), borderType=cv2.BORDER_REPLICATE)
        np.testing.assert_allclose(strength, expected, atol=1e-6)


def test_close_looks_see_nothing_beyond_the_border() -> None:
    """Of sides that are no multiples of 4: grey, and no detail, as beyond the other borders."""
    frames = np.random.default_rng(1).random((2, 21, 30), np.float32)
    looked: list[tuple[int, Levels]] = []
    weighed(frames, networks=saying([0.0, 0.0], [0.0, 0.0], looked), told=numbered(2))
    for _, seen in looked:
        assert seen.shape[2:] == (24, 32)
        for outside in (seen[..., 21:, :], seen[..., 30:]):
            assert not outside.any()  # mid-grey, from which networks count
        assert seen[:, 1, :21, :30].any()


@given(st.integers(1, 4), st.floats(0, 60), st.booleans())
def test_white_noise_is_told_as_that_of_the_mean_of_channels(
    count: int, sigma: float, colour: bool
) -> None:
    found = noise_told(NoiseLaw.white(sigma, frames=count, colour=colour))
    expected = sigma / 255 / math.sqrt(3 if colour else 1)
    np.testing.assert_allclose(found.levels, np.full((count, 2), expected), rtol=1e-6, atol=1e-30)
    assert found.floor == 1.0


def test_noise_that_grows_is_told_at_mid_grey_with_its_part_in_black() -> None:
    model = NoiseModel(3.0, 0.4)
    levels = np.full((2, 1, BANDS), model.stabilised_sigma)
    levels[1] *= 2
    (first, second), floor = noise_told(
        NoiseLaw(model=model, levels=levels, errors=np.zeros_like(levels))
    )
    # The variance is 3² + 0.4 I, of which 9 are there in black.
    variance = 9 + 0.4 * 127.5
    assert first[0] == pytest.approx(math.sqrt(variance) / 255)
    assert second[0] == pytest.approx(2 * first[0])
    assert floor == pytest.approx(9 / variance)


def test_fine_and_coarse_noise_are_told_apart() -> None:
    levels = np.zeros((2, 1, BANDS))
    levels[0, 0, 0], levels[1, 0, -1] = 10.0, 10.0
    fine, coarse = noise_told(
        NoiseLaw(model=NoiseModel(10.0), levels=levels, errors=np.zeros_like(levels))
    ).levels
    assert fine[0] > 10 * fine[1] and coarse[1] > 10 * coarse[0]


# --- grey and colour ---


def mixed_by_run(frames: list[NDArray[np.uint8]], law: NoiseLaw) -> tuple[Levels, Levels]:
    """Weights and mixture of frames that are one part."""
    run = MixingRun(
        stack=Stack.from_arrays(frames),
        taken=range(len(frames)),
        progress=silent,
        weigher=lambda _: weigher,
        model="auto",
    )
    weigher = ModelWeigher(NETWORKS, noise_told(law), 256, 256)
    (made,) = run.mixtures(weigher)
    assert made.part.here == tuple(slice(0, length) for length in frames[0].shape[:2])
    every = np.zeros((len(frames), *made.weights.shape[1:]), np.float32)
    every[made.numbers] = made.weights
    return every, made.mixture


def test_grey_frames_and_rgb_ones_of_equal_channels_weigh_the_same() -> None:
    grey = [np.rint(255 * frame).astype(np.uint8) for frame in grey_frames(3, (64, 90))]
    colour = [np.repeat(frame[..., None], 3, axis=-1) for frame in grey]
    weights, mixture = mixed_by_run(grey, NoiseLaw.white(0.0, frames=3))
    others, colours = mixed_by_run(colour, NoiseLaw.white(0.0, frames=3, colour=True))
    np.testing.assert_allclose(weights, others, rtol=0, atol=1e-5)
    assert mixture.shape == (64, 90)
    of_channels = np.repeat(mixture[..., None], 3, axis=-1)
    np.testing.assert_allclose(of_channels, colours, rtol=0, atol=1e-4)


@pytest.mark.parametrize("colour", [True, False])
def test_a_lone_frame_has_all_the_weight(colour: bool) -> None:
    shape = (40, 30, 3) if colour else (40, 30)
    frame = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    weights, mixture = mixed_by_run([frame], NoiseLaw.white(5.0, colour=colour))
    assert weights.shape == (1, MIXED_BANDS, 40, 30) and (weights == 1).all()
    assert np.array_equal(mixture, frame)


def test_a_folder_without_a_network_is_no_model(tmp_path: Path) -> None:
    shutil.copytree(model_folder("auto"), tmp_path / "half")
    (tmp_path / "half" / "weigh.onnx").unlink()
    with pytest.raises(CofuseError, match=r"no weigh\.onnx; expected one of auto, or"):
        load_networks(str(tmp_path / "half"))
    with pytest.raises(CofuseError, match=r"filter\.onnx, .*, restore\.onnx;"):
        load_networks(str(tmp_path / "nowhere"))


def test_the_network_that_restores_is_loaded_where_there_is_noise(tmp_path: Path) -> None:
    """It takes as long to load as all others; a wrong one is refused before the work."""
    shutil.copytree(model_folder("auto"), tmp_path / "model")
    (tmp_path / "model" / "restore.onnx").write_bytes(b"precious")
    frames = np.random.default_rng(0).integers(0, 256, (2, 64, 64), np.uint8)
    fusing = partial(fuse, frames, preset=AutoSettings(model=str(tmp_path / "model")))
    assert np.array_equal(fusing(sigma=0).image, fuse(frames, sigma=0).image)
    stages: list[str] = []
    with pytest.raises(CofuseError, match=r"restore\.onnx cannot be read"):
        fusing(sigma=10, progress=lambda step: stages.append(step.stage))
    assert stages == []


@pytest.mark.parametrize("wrong", ["damaged", "of another network"])
def test_a_file_that_is_no_such_network_is_named(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder("auto"), folder)
    other = b"precious" if wrong == "damaged" else (folder / "share.onnx").read_bytes()
    (folder / "look.onnx").write_bytes(other)
    with pytest.raises(CofuseError, match=r"look\.onnx") as caught:
        load_networks(str(folder))
    assert re.search(r"; \w+", str(caught.value)), "nothing is said of what to do"
