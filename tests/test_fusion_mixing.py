"""From weights to the picture: what is kept, mixed, restored and told, by `auto` and by `fast`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cofuse import Progress, fuse
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.fusion.fast import ActivityWeigher
from cofuse.fusion.fusing import distinct_frames
from cofuse.fusion.mixing import MixingRun
from cofuse.images import Fusion, Levels, Stack
from cofuse.images.pixels import MIXED_BANDS, REACH
from cofuse.images.tiles import Tile
from cofuse.model.runtime import Networks, load_networks
from cofuse.model.weighing import ModelWeigher, noise_told
from cofuse.operators import load_operator
from cofuse.progress import Preview, ProgressCallback, silent
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import BANDS, NoiseModel

Picture = NDArray[np.generic]
Sides = tuple[int, int]


def scene(frames: int = 3, sigma: float = 0.0, *, shape: Sides = (120, 170)) -> Simulation:
    picture = sample_picture("astronaut")
    return simulate_stack(picture, frames=frames, seed=2, shape=shape, sigma=sigma)


def fused_in_tiles(
    frames: Sequence[Picture],
    law: NoiseLaw,
    *,
    side: int = 64,
    part: int = 32,
    denoise: float = 1.0,
    white: float | None = None,
    networks: Networks | None = None,
    progress: ProgressCallback = silent,
    preview: Preview | None = None,
) -> Fusion:
    """Fuse by `auto` with several tiles of either kind, and several parts in a tile."""
    run = networks or load_networks("auto")
    stack = Stack.from_arrays(frames, white=white)
    return MixingRun(
        stack=stack,
        taken=distinct_frames(stack),
        progress=progress,
        weigher=lambda law: ModelWeigher(run, noise_told(law), side, part),
        model="auto",
        preview=preview,
        restored_side=side,
    ).fuse(law, denoise)


# --- what stays as it is ---


@settings(max_examples=10)
@given(
    st.integers(1, 4),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([np.uint8, np.uint16, np.float32]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_identical_frames_are_the_picture(
    count: int, shape: Sides, dtype: type, colour: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.random((*shape, 3) if colour else shape)
    frame = (levels * (1 if dtype is np.float32 else np.iinfo(dtype).max)).astype(dtype)
    stack = [frame.copy() for _ in range(count)]
    if count == 1:
        with pytest.warns(UserWarning, match="one frame only"):
            result = fuse(stack, sigma=0.0)
    else:
        result = fuse(stack, sigma=0.0)
    assert result.image.dtype == dtype
    np.testing.assert_allclose(result.image, frame, rtol=0, atol=0 if dtype is np.uint8 else 1e-6)
    assert (result.source_map == 0).all()


@pytest.mark.filterwarnings("ignore:the frames hardly differ")
def test_a_pixel_where_all_frames_agree_is_theirs() -> None:
    """Weights add up in every band: where frames agree around a pixel they are no matter."""
    frames = [frame.copy() for frame in scene().frames]
    for frame in frames[1:]:
        frame[:, :100] = frames[0][:, :100]
    image = fuse(frames, sigma=0.0).image.astype(int)
    far = 100 - REACH
    assert np.abs(image - frames[0])[:, :far].max() <= 1
    assert np.mean(image[:, :far] == frames[0][:, :far]) > 0.999


def test_little_noise_is_told_and_taken_out() -> None:
    frames = [frame.astype(np.float32) for frame in scene(3, sigma=0.6).frames]
    law = NoiseLaw.white(0.6, frames=3, colour=True)
    result = fuse(frames, noise=law, white=255.0)
    assert result.sigma == pytest.approx(0.6)


def test_exposures_of_one_focus_are_a_lottery_and_that_is_said() -> None:
    rng = np.random.default_rng(0)
    truth = scene().truth
    frames = []
    for _ in range(5):
        noisy = truth + rng.normal(0, 5, truth.shape)
        frames.append(np.clip(noisy.round(), 0, 255).astype(np.uint8))
    with pytest.warns(UserWarning, match="hardly differ in focus"):
        result = fuse(frames)
    assert psnr(result.image, truth) > max(psnr(frame, truth) for frame in frames) + 3


def test_sharp_parts_are_taken_from_their_frames() -> None:
    made = scene(3)
    result = fuse(made.frames, sigma=0.0)
    best = max(psnr(frame, made.truth) for frame in made.frames)
    assert psnr(result.image, made.truth) > best + 6
    assert result.image.shape == made.truth.shape
    assert result.source_map is not None and set(np.unique(result.source_map)) == {0, 1, 2}
    assert result.confidence is not None
    assert result.confidence.min() >= 0 and result.confidence.max() <= 1


def trusting(name: str, *inputs: Picture) -> list[Picture]:
    """Stand in for networks that give all weight to the frame that has noise."""
    if name == "filter":
        return [np.ascontiguousarray(inputs[0][..., ::4, ::4])] * 2
    if name == "compare":
        return [inputs[0]]
    if name == "relate":
        return [np.full((1, 1, *inputs[0].shape[2:]), inputs[-1][0, 0] > 0, np.float32)]
    if name == "look":
        return [inputs[0]]
    if name == "share":
        return [inputs[0][:, :1]]
    assert name == "weigh", "a frame that is alone is not looked at closely"
    return [np.repeat(100 * inputs[0], MIXED_BANDS, axis=1), inputs[0].astype(np.uint8)]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("colour", [True, False])
def test_a_frame_whose_weight_is_1_everywhere_is_returned_as_it_is(
    colour: bool, dtype: type
) -> None:
    rng = np.random.default_rng(0)
    shape = (3, 101, 83, 3) if colour else (3, 101, 83)
    largest = 1 if dtype is np.float32 else np.iinfo(dtype).max
    frames = (rng.random(shape) * largest).astype(dtype)
    levels = np.zeros((3, 3 if colour else 1, BANDS))
    levels[1] = 5.0
    law = NoiseLaw(model=NoiseModel(5.0), levels=levels, errors=np.zeros_like(levels))
    result = fused_in_tiles(list(frames), law, denoise=0.0, networks=trusting)
    if dtype is np.float32:
        np.testing.assert_allclose(result.image, frames[1], rtol=0, atol=1e-6)
    else:
        assert np.array_equal(result.image, frames[1])
    assert (result.source_map == 1).all() and (result.confidence == 1).all()


@pytest.mark.filterwarnings("ignore:the frames hardly differ")  # those of one pixel
@pytest.mark.parametrize("sigma", [0.0, 10.0])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (1, 33), (17, 2)])
def test_tiny_pictures_are_fused(shape: Sides, colour: bool, sigma: float) -> None:
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (3, *shape, 3) if colour else (3, *shape), np.uint8)
    result = fuse(list(frames), sigma=sigma)
    assert result.image.shape == frames[0].shape and result.image.dtype == np.uint8
    assert result.source_map is not None and result.source_map.shape == shape
    assert result.source_map.max() <= 2
    assert result.confidence is not None
    assert result.confidence.min() >= 0 and result.confidence.max() <= 1
    if shape == (1, 1) and not sigma:
        # There are no bands in a pixel: it lies between those that there are.
        assert (frames.min(axis=0) <= result.image).all()
        assert (result.image <= frames.max(axis=0)).all()


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_the_order_of_frames_is_no_matter(sigma: float) -> None:
    frames = [frame.astype(np.float32) for frame in scene(4, sigma).frames]
    order = [2, 0, 3, 1]
    before, after = (
        fuse(each, sigma=sigma, white=255.0) for each in (frames, [frames[k] for k in order])
    )
    assert np.abs(before.image - after.image).max() < 0.01
    assert before.source_map is not None and after.source_map is not None
    assert np.mean(np.array(order)[after.source_map] == before.source_map) > 0.999


def test_a_copy_of_a_frame_changes_nothing_and_is_never_named() -> None:
    frames = list(scene(3).frames)
    before, after = fuse(frames, sigma=0.0), fuse([frames[0], *frames], sigma=0.0)
    assert np.array_equal(before.image, after.image)
    assert after.source_map is not None and before.source_map is not None
    named = np.array([0, 2, 3])[before.source_map]
    assert np.array_equal(after.source_map, named)


# --- the reference ---


def test_which_frame_is_the_reference_is_no_matter_to_the_picture() -> None:
    frames = [frame.copy() for frame in scene(3, shape=(96, 96)).frames]
    frames[0][30:60, 30:60] = 250  # something that is in one frame only
    pictures = []
    for reference in (None, 0, 1):
        stack = Stack.from_arrays(frames)
        stack.reference = reference
        pictures.append(fuse(stack, sigma=0.0).image)
    assert np.array_equal(pictures[0], pictures[1]) and np.array_equal(pictures[0], pictures[2])


def test_a_reference_stays_where_a_copy_of_it_comes_before() -> None:
    frames = list(scene(3, shape=(96, 96)).frames)
    stack = Stack.from_arrays([frames[0], *frames])
    stack.reference = 1
    result, alone = fuse(stack, sigma=0.0), fuse(frames, sigma=0.0)
    assert np.array_equal(result.image, alone.image)
    assert result.source_map is not None and alone.source_map is not None
    assert np.array_equal(result.source_map, alone.source_map + 1)


# --- noise ---


def test_noise_is_taken_out() -> None:
    made = scene(3, sigma=12.0)
    result, untouched = (fuse(made.frames, sigma=12.0, denoise=share) for share in (1.0, 0.0))
    assert psnr(result.image, made.truth) > psnr(untouched.image, made.truth) + 3
    assert result.sigma == 12.0 and not result.sigma_estimated
    estimated = fuse(made.frames)
    assert estimated.sigma_estimated and estimated.sigma == pytest.approx(12.0, rel=0.25)


@pytest.mark.parametrize("colour", [True, False])
def test_denoise_blends_linearly(colour: bool) -> None:
    frames = [frame.astype(np.float32) for frame in scene(2, sigma=10.0, shape=(80, 96)).frames]
    frames = frames if colour else [frame[..., 1].copy() for frame in frames]
    none, half, most, everything = (
        fuse(frames, sigma=10.0, white=255.0, denoise=share).image.astype(float)
        for share in (0.0, 0.5, 0.8, 1.0)
    )
    assert np.abs(everything - none).max() > 5
    np.testing.assert_allclose(half, (none + everything) / 2, rtol=0, atol=1e-3)
    np.testing.assert_allclose(most, 0.2 * none + 0.8 * everything, rtol=0, atol=1e-3)


def test_a_lone_frame_is_restored() -> None:
    made = scene(2, sigma=15.0)
    noisy = np.clip(made.truth + np.random.default_rng(0).normal(0, 15, made.truth.shape), 0, 255)
    with pytest.warns(UserWarning, match="one frame only"):
        result = fuse([noisy.astype(np.uint8)], sigma=15.0)
    assert psnr(result.image, made.truth) > psnr(noisy, made.truth) + 4
    assert (result.source_map == 0).all() and (result.confidence == 1).all()


@pytest.mark.parametrize("colour", [True, False])
def test_a_sharp_frame_without_noise_among_others_is_left_as_it_is(colour: bool) -> None:
    sharp = scene(2).truth.copy()
    # Between lines there is black, of which nothing at all is left where it is the only sharp one.
    sharp[:, :80] = 0
    sharp[::12, :80] = sharp[:, :80:12] = 255
    sharp = sharp if colour else sharp[..., 1].copy()
    noise = np.random.default_rng(1).normal(0, 12, sharp.shape)
    soft = np.clip(cv2.GaussianBlur(sharp, (0, 0), 3.0) + noise, 0, 255).astype(np.uint8)
    levels = np.zeros((2, 3 if colour else 1, BANDS))
    levels[1] = 12.0
    result = fuse(
        [sharp, soft],
        noise=NoiseLaw(model=NoiseModel(12.0), levels=levels, errors=np.zeros_like(levels)),
    )
    alone = (result.source_map == 0) & (result.confidence == 1)
    apart = np.abs(result.image.astype(int) - sharp)
    # Where no weight was seen for the other frame, in detail at least.
    assert np.mean(alone) > 0.2 and np.median(apart[alone]) == 0


def test_no_noise_leaves_the_mixture_as_it_is() -> None:
    frames = scene(3).frames
    both = [fuse(frames, sigma=0.0, denoise=share) for share in (0.0, 1.0)]
    assert np.array_equal(both[0].image, both[1].image)
    assert all("restoration" not in one.seconds for one in both)


# --- tiles, files and what is told ---


@pytest.mark.parametrize("shape", [(61, 303), (303, 61)])
def test_tiles_make_the_picture_that_one_does(shape: Sides) -> None:
    frames = [frame.astype(np.float32) for frame in scene(2, 8.0, shape=shape).frames]
    law = NoiseLaw.white(8.0, frames=2, colour=True)
    whole = fuse(frames, noise=law, white=255.0)
    tiled = fused_in_tiles(frames, law, side=96, part=80, white=255.0)
    assert np.abs(whole.image - tiled.image).max() < 0.01
    assert np.mean(whole.source_map == tiled.source_map) > 0.9999


def test_tiles_of_fast_make_the_picture_that_one_does() -> None:
    """The halo holds the patches, the window and the blending that reach into a tile."""
    frames = scene(3, 6.0, shape=(150, 190)).frames
    stack, law = Stack.from_arrays(frames), NoiseLaw.white(6.0, frames=3, colour=True)
    pictures = []
    for side in (1024, 32):
        weigher = ActivityWeigher(load_operator("separable-7"), 11, law)
        weigher.side = side
        run = MixingRun(
            stack=stack,
            taken=range(3),
            progress=silent,
            weigher=lambda _, weigher=weigher: weigher,
            model="auto",
        )
        pictures.append(run.fuse(law, 0.0))
    np.testing.assert_array_equal(pictures[0].image, pictures[1].image)
    assert pictures[0].source_map is not None and pictures[1].source_map is not None
    np.testing.assert_array_equal(pictures[0].source_map, pictures[1].source_map)


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_preview_is_told_every_tile(sigma: float) -> None:
    frames = scene(2, sigma, shape=(150, 170)).frames
    shown = np.zeros_like(frames[0])
    times = np.zeros(shown.shape[:2], int)

    def preview(rows: slice, columns: slice, pixels: Picture) -> None:
        shown[rows, columns] = pixels
        times[rows, columns] += 1

    law = NoiseLaw.white(sigma, frames=2, colour=True)
    result = fused_in_tiles(frames, law, preview=preview)
    # Where there is noise, before and after it is taken out.
    assert (times == (2 if sigma else 1)).all()
    assert np.array_equal(shown, result.image)
    assert np.array_equal(fused_in_tiles(frames, law).image, result.image)


def test_progress_counts_pixels_and_tiles_and_may_stop_the_work() -> None:
    frames = scene(2, 10.0, shape=(150, 170)).frames
    told: list[Progress] = []
    law = NoiseLaw.white(10.0, frames=2, colour=True)
    result = fused_in_tiles(frames, law, progress=told.append)
    mixed, restored = (
        [(one.done, one.total) for one in told if one.stage == stage]
        for stage in ("fusion", "restoration")
    )
    assert len(mixed) >= 9 and mixed == sorted(set(mixed))
    assert mixed[-1][0] == 150 * 170 and {total for _, total in mixed} == {150 * 170}
    assert restored == [(k, 9) for k in range(1, 10)]
    assert result.seconds["fusion"] > 0 and result.seconds["restoration"] > 0

    class Enough(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.stage == "restoration":
            raise Enough

    with pytest.raises(Enough):
        fused_in_tiles(frames, law, progress=stop)


def test_a_frame_of_other_brightness_is_left_out_with_a_warning() -> None:
    frames = list(scene(4, shape=(96, 128)).frames)
    dark = [*frames[:2], (frames[2] * 0.1).astype(np.uint8), frames[3]]
    with pytest.warns(UserWarning, match="differs from the other frames in brightness"):
        result = fuse(dark, sigma=0.0)
    assert result.source_map is not None and 2 not in result.source_map
    kept = fuse([frames[0], frames[1], frames[3]], sigma=0.0)
    assert np.array_equal(result.image, kept.image)


@pytest.mark.parametrize(("level", "taken"), [(70, True), (130, True), (136, False), (64, False)])
def test_brightness_may_differ_by_a_quarter_and_eight_levels(level: int, taken: bool) -> None:
    """The others are at 100, from which 33 levels either way are allowed."""
    frames = [np.full((32, 32), value, np.uint8) for value in (100, 100, level, 100)]
    for number, frame in enumerate(frames):
        frame[number] = 0  # no copies
    if taken:
        assert 2 in distinct_frames(Stack.from_arrays(frames))
    else:
        with pytest.warns(UserWarning, match="frame 3 differs"):
            assert 2 not in distinct_frames(Stack.from_arrays(frames))


@dataclass
class Uncertain:
    """Gives all frames the same weight in the upper rows, and the first frame all in the others."""

    rows: int
    side: int = 32
    halo: int = 0

    def look(self, stack: Stack, tile: Tile) -> Uncertain:
        self.tile, self.frames = tile, len(stack)
        return self

    def parts(self) -> Iterable[tuple[Tile, list[int]]]:
        return [(self.tile, list(range(self.frames)))]

    def weigh(self, part: Tile, frames: dict[int, Levels]) -> Levels:
        rows, columns = (here.stop - here.start for here in part.here)
        weights = np.zeros((len(frames), MIXED_BANDS, rows, columns), np.float32)
        weights[0] = 1
        weights[:, :, : max(0, self.rows - part.rows.start)] = 1 / len(frames)
        return weights

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        return weights[0, 0]


@pytest.mark.parametrize("rows", [38, 32, 33])
def test_most_of_the_picture_must_be_a_lottery_to_be_warned_of(rows: int) -> None:
    rng = np.random.default_rng(0)
    stack = Stack.from_arrays(list(rng.integers(0, 255, (3, 64, 32), np.uint8)))
    law = NoiseLaw.white(0, frames=3)
    run = MixingRun(
        stack=stack,
        taken=range(3),
        progress=silent,
        weigher=lambda _: Uncertain(rows),
        model="auto",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run.fuse(law, 1.0)
    assert bool(caught) is (rows > 32)
    np.testing.assert_array_equal(result.image[rows + REACH :], stack[0][rows + REACH :])
