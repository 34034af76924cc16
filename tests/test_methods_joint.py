"""The joint method, the preset ``auto``: clean pixels are copied, noisy ones are restored."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.baselines import METHODS
from cofuse.fusion import PRESETS, fuse
from cofuse.images import Fusion, Stack
from cofuse.metrics import psnr
from cofuse.selection import picture_scale
from cofuse.simulation import Simulation, sample_picture, simulate_stack
from tests.test_fusion import away_from_seams, in_dtype, in_levels, pick, textured_frames

AUTO = PRESETS["auto"]
laws = settings(max_examples=15, deadline=None)
both_kinds = pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
#: One frame is restored with a warning, which `test_fusion` looks for.
quiet_alone = pytest.mark.filterwarnings("ignore:one frame only")


def scene(
    *,
    count: int = 5,
    sigma: float = 0.0,
    size: int = 160,
    colour: bool = False,
    name: str = "coffee",
) -> Simulation:
    picture = sample_picture(name)
    sharp = picture if colour else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return simulate_stack(sharp, frames=count, sigma=sigma, shape=(size, size), seed=3)


def as_photographed(frames: Any, spread: Any, seed: int = 0) -> list[np.ndarray]:
    """Add noise whose standard deviation ``spread(number, levels)`` tells, and round to 8 bits."""
    rng = np.random.default_rng(seed)
    noisy = []
    for number, frame in enumerate(frames):
        levels = frame.astype(np.float64)
        levels += spread(number, levels) * rng.normal(size=levels.shape)
        noisy.append(np.rint(levels).clip(0, 255).astype(np.uint8))
    return noisy


def check_copies(frames: Any, result: Fusion, seam: int = AUTO.seam) -> None:
    """Hold every pixel away from the borders of the choice against the frame that is named."""
    inside = away_from_seams(result.source_map, seam)
    assert np.array_equal(result.image[inside], pick(frames, result.source_map)[inside])


# --- clean stacks are copied ---------------------------------------------------------------------


@quiet_alone
@both_kinds
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_clean_stack_is_copied_whether_told_or_found(count, dtype, colour):
    simulation = scene(count=count, size=80, colour=colour)
    frames = [in_dtype(frame / 255, dtype) for frame in simulation.frames]
    told, found = fuse(frames, sigma=0), fuse(frames)
    check_copies(frames, told)
    assert away_from_seams(told.source_map).mean() > 0.3
    assert told.sigma == found.sigma == 0.0 and found.sigma_estimated
    for name in ("image", "source_map", "confidence"):
        assert np.array_equal(getattr(told, name), getattr(found, name))
    assert told.image.dtype == frames[0].dtype


@laws
@given(
    seed=st.integers(0, 2**32 - 1),
    place=st.tuples(st.integers(0, 30), st.integers(0, 40)),
    count=st.integers(2, 5),
    colour=st.booleans(),
)
def test_where_all_frames_agree_pixels_are_theirs(seed, place, count, colour):
    rng = np.random.default_rng(seed)
    shape = (40, 50, 3) if colour else (40, 50)
    common = rng.random(shape, np.float32)
    frames = [common.copy() for _ in range(count)]
    differ = np.zeros(shape[:2], np.uint8)
    differ[place[0] : place[0] + 9, place[1] : place[1] + 9] = 1
    for frame in frames:
        frame[differ > 0] = rng.random(frame[differ > 0].shape, np.float32)
    # The bands of the mixture reach eight pixels: two means each over windows of 3 and of 7.
    agree = cv2.dilate(differ, np.ones((17, 17), np.uint8)) == 0
    image = fuse(frames, sigma=0).image
    assert np.array_equal(image[agree], common[agree])


@pytest.mark.parametrize("seam", [1, 2, 5, 15])
def test_seam_says_how_far_frames_are_mixed(seam):
    frames = scene(count=3, size=96).frames
    result = fuse(frames, sigma=0, preset=replace(AUTO, seam=seam))
    check_copies(frames, result, seam)


@laws
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_chosen_weights_take_every_clean_pixel_from_some_frame(seed, count):
    frames = textured_frames(seed, count, (30, 34), "uint16", colour=False)
    chosen = fuse(frames, sigma=0, preset=replace(AUTO, weights="chosen"))
    # Through grey levels in float32 and back, which is exact for 16 bits.
    assert (np.stack(frames) == chosen.image).any(axis=0).all()
    assert np.array_equal(chosen.source_map, fuse(frames, sigma=0).source_map)


def test_jpeg_frames_count_as_clean():
    simulation = scene(count=3, colour=True)
    frames = []
    for frame in simulation.frames:
        code = cv2.imencode(".jpg", frame[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])[1]
        frames.append(np.ascontiguousarray(cv2.imdecode(code, cv2.IMREAD_COLOR)[..., ::-1]))
    result = fuse(frames)
    assert result.sigma == 0.0
    check_copies(frames, result)


def enlarged(factor: int, *, colour: bool = False) -> tuple[list[np.ndarray], np.ndarray]:
    """A scene with more pixels than detail: the frames, and the truth."""
    simulation = scene(count=3, size=128, colour=colour)
    frames = [cv2.resize(frame, None, fx=factor, fy=factor) for frame in simulation.frames]
    return frames, cv2.resize(simulation.truth, None, fx=factor, fy=factor)


@both_kinds
def test_frames_with_more_pixels_than_detail_are_chosen_well_too(colour):
    frames, truth = enlarged(4, colour=colour)
    result = fuse(frames, sigma=0)
    scale = picture_scale(Stack.from_arrays(frames))
    assert scale > 1
    check_copies(frames, result, 2 * scale + 1)
    assert psnr(result.image, truth) > psnr(fuse(frames, sigma=0, preset="fast").image, truth) + 2
    plain = fuse(frames, sigma=0, preset=replace(AUTO, seam=1))
    assert np.array_equal(plain.image, pick(frames, plain.source_map))


@pytest.mark.parametrize("change", [{"sigma": 1e-3}, {"sigma": 5, "denoise": 1e-6}])
def test_frames_with_more_pixels_than_detail_do_not_jump_at_no_noise(change):
    frames, _ = enlarged(4)
    change = change | {"preset": replace(AUTO, seam=1)}
    none = change | ({"denoise": 0} if "denoise" in change else {"sigma": 0})
    images = [fuse(frames, **options).image.astype(int) for options in (change, none)]
    assert np.abs(images[0] - images[1]).max() <= 1


# --- noisy stacks are restored -------------------------------------------------------------------


@both_kinds
def test_restored_beats_frames_average_and_fast(colour):
    simulation = scene(sigma=15, colour=colour)
    frames, truth = simulation.frames, simulation.truth
    told, found = fuse(frames, sigma=15), fuse(frames)
    reached = psnr(told.image, truth)
    mean = np.rint(np.mean(frames, axis=0)).astype(np.uint8)
    assert reached > max(psnr(frame, truth) for frame in frames) + 8
    assert reached > psnr(mean, truth) + 6
    assert reached > psnr(fuse(frames, sigma=15, preset="fast").image, truth) + 1
    assert reached > psnr(fuse(frames, sigma=15, denoise=0).image, truth) + 5
    chosen = fuse(frames, sigma=15, preset=replace(AUTO, weights="chosen"))
    assert reached > psnr(chosen.image, truth) + 0.3
    assert found.sigma_estimated and found.sigma == pytest.approx(15, abs=0.75)
    assert abs(psnr(found.image, truth) - reached) < 0.2


@quiet_alone
@both_kinds
@pytest.mark.parametrize("sigma", [5, 25])
@pytest.mark.parametrize("count", [1, 2])
def test_few_frames_are_restored_too(count, sigma, colour):
    simulation = scene(count=count, sigma=sigma, size=96, colour=colour)
    frames, truth = simulation.frames, simulation.truth
    reached = psnr(fuse(frames, sigma=sigma).image, truth)
    assert reached > psnr(fuse(frames, sigma=sigma, preset="fast").image, truth)
    assert reached > max(psnr(frame, truth) for frame in frames) + 1


@both_kinds
def test_frame_with_twice_the_noise_hurts_little_when_noise_is_estimated(colour):
    simulation = scene(colour=colour)
    truth = simulation.truth
    even = as_photographed(simulation.frames, lambda number, _: 15.0)
    uneven = as_photographed(simulation.frames, lambda number, _: 30.0 if number == 2 else 15.0)
    found = psnr(fuse(uneven).image, truth)
    assert found > psnr(fuse(even).image, truth) - 1
    assert found > psnr(fuse(uneven, sigma=15).image, truth) + 2


def test_noise_that_grows_with_brightness_is_better_found_than_told_as_white():
    simulation = scene()
    frames = as_photographed(simulation.frames, lambda _, levels: np.sqrt(4 + 2 * levels))
    result = fuse(frames)
    typical = float(np.sqrt(4 + 2 * np.mean(simulation.frames)))
    reached = psnr(result.image, simulation.truth)
    assert reached > psnr(fuse(frames, sigma=typical).image, simulation.truth) + 0.5
    for sigma in (8, 12, 15, 18, 22):
        assert reached > psnr(fuse(frames, sigma=sigma).image, simulation.truth) + 0.1


def test_camera_noise_does_not_darken_the_picture():
    simulation, rng, gain = scene(), np.random.default_rng(0), 6.0
    frames = []
    for frame in simulation.frames:
        spread = np.sqrt(4 + gain * frame.astype(np.float64))
        frames.append(((frame + spread * rng.normal(size=frame.shape)) / 255).astype(np.float32))
    # Means of square roots, squared, lie below the means by a quarter of the gain.
    off = 255 * fuse(frames).image.mean() - simulation.truth.mean()
    assert abs(off) < 0.15 * gain


@pytest.mark.parametrize("denoise", [0.0, 0.4])
def test_denoise_works_on_camera_noise_as_well(denoise):
    simulation = scene(count=3, size=128)
    frames = as_photographed(simulation.frames, lambda _, levels: np.sqrt(4 + 2 * levels))
    frames = [frame.astype(np.float32) / 255 for frame in frames]
    copied, some, whole = (fuse(frames, denoise=d) for d in (0.0, denoise, 1.0))
    check_copies(frames, copied)
    expected = copied.image * (1 - denoise) + whole.image * denoise
    np.testing.assert_allclose(some.image, expected, atol=1e-6)


@both_kinds
def test_pictures_tend_to_copies_as_noise_tends_to_nothing(colour):
    frames = [f.astype(np.float32) / 255 for f in scene(sigma=3, size=64, colour=colour).frames]
    copied, least = fuse(frames, sigma=0), fuse(frames, sigma=1)
    for sigma in (1e-6, 1e-3, 0.1, 0.5, 0.9):
        result = fuse(frames, sigma=sigma)
        change = in_levels(result.image) - in_levels(copied.image)
        # Below one grey level the model sees one, and the result is blended in by σ².
        expected = sigma**2 * (in_levels(least.image) - in_levels(copied.image))
        np.testing.assert_allclose(change, expected, atol=1e-3)
        assert sigma > 1e-3 or np.abs(change).max() < 0.01
        assert np.array_equal(result.source_map, copied.source_map)


# --- pictures of any kind ------------------------------------------------------------------------


@quiet_alone
@pytest.mark.parametrize("sigma", [0.0, 1e-3, 1.0, 15.0, 50.0, None])
@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_constant_stacks_stay_constant(level, sigma):
    for shape in ((33, 20), (12, 21, 3), (1, 1), (2, 2, 3)):
        for count in (1, 2, 5):
            frames = [np.full(shape, level, np.float32)] * count
            image = fuse(frames, sigma=sigma).image
            # Sums over filters in float32, by units of the noise: thousandths of a grey level.
            np.testing.assert_allclose(image, level, atol=0.01 / 255)


def test_constant_frames_of_several_levels_give_something_between():
    frames = [np.full((40, 40), level, np.float32) for level in (0.4, 0.45, 0.5)]
    assert np.array_equal(fuse(frames, sigma=0).image, frames[0])
    restored = fuse(frames, sigma=10).image
    assert restored.min() >= 0.4 and restored.max() <= 0.5


@pytest.mark.parametrize("count", [2, 5])
def test_identical_noisy_frames_are_restored_as_a_picture(count):
    simulation = scene(count=1, sigma=15, size=96)
    result = fuse(list(simulation.frames) * count, sigma=15)
    assert not result.source_map.any()
    # The noise of copies is the same in all: nothing is gained by them.
    with pytest.warns(UserWarning, match="one frame only"):
        np.testing.assert_array_equal(result.image, fuse(simulation.frames, sigma=15).image)


@quiet_alone
@both_kinds
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (5, 3), (16, 16), (2, 300), (257, 3)])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_pictures_of_any_size_are_fused(count, size, colour):
    rng = np.random.default_rng(0)
    frames = list(rng.integers(0, 256, (count, *size, *[3] * colour), np.uint8))
    check_copies(frames, fuse(frames, sigma=0))
    for sigma, preset in ((0.0, replace(AUTO, seam=1)), (12.0, AUTO), (None, AUTO)):
        result = fuse(frames, sigma=sigma, preset=preset)
        assert result.image.shape == frames[0].shape and result.image.dtype == np.uint8
        assert result.source_map.shape == result.confidence.shape == size
        assert np.isfinite(result.confidence).all() and result.source_map.max() < count
        if sigma == 0:
            assert np.array_equal(result.image, pick(frames, result.source_map))


@pytest.mark.parametrize(("factor", "offset"), [(3.0, -1.0), (15.0, 0.0), (1e-4, 0.5)])
def test_floats_beyond_black_and_white_are_kept(factor, offset):
    frames = [
        (frame * factor + offset).astype(np.float32)
        for frame in textured_frames(5, 3, (40, 50), "float32", colour=True)
    ]
    check_copies(frames, fuse(frames, sigma=0))
    for sigma in (10.0, None):
        image = fuse(frames, sigma=sigma).image
        low, high = np.min(frames), np.max(frames)
        spare = 0.05 * (high - low) + 0.05
        assert low - spare < image.min() and image.max() < high + spare


@both_kinds
def test_twelve_bits_in_sixteen_are_fused_as_eight_bits_are(colour):
    small = scene(count=3, sigma=12, size=96, colour=colour)
    deep = [frame.astype(np.uint16) * 16 for frame in small.frames]
    told = fuse(deep, sigma=0, white=4080)
    check_copies(deep, told)
    assert np.array_equal(told.source_map, fuse(small.frames, sigma=0).source_map)
    result, expected = fuse(deep, white=4080), fuse(small.frames)
    assert result.sigma == pytest.approx(expected.sigma, abs=0.01)
    # The 8-bit picture is rounded to whole levels, and cut off at black and white.
    change = (result.image / 16).clip(0, 255) - expected.image
    assert np.abs(change).max() < 0.51


# --- stacks that are not as they should be -------------------------------------------------------

RIVALS = ("average", "single-best", "laplacian", "dct-variance", "gff", "focus-measure")


def rivals(frames: list[np.ndarray], truth: np.ndarray) -> dict[str, float]:
    stack = Stack.from_arrays(frames)
    return {name: psnr(METHODS[name](stack).image, truth) for name in RIVALS}


@pytest.mark.parametrize("name", ["coffee", "astronaut"])
def test_frame_that_is_a_pixel_off_hurts_no_more_than_it_must(name):
    for sigma in (0.0, 15.0):
        simulation = scene(count=3, sigma=sigma, name=name)
        frames = list(simulation.frames)
        frames[1] = np.roll(frames[1], 1, axis=1)
        best = max(rivals(frames, simulation.truth).values())
        reached = psnr(fuse(frames, sigma=sigma).image, simulation.truth)
        # Who copies the frame copies it a pixel off: without noise the misplaced edges are nearly
        # all of the error, alike for all, and the seams decide over a few tenths of a decibel.
        assert reached > (best - 0.3 if sigma == 0 else best + 2)


def test_something_in_one_frame_only_leaves_no_ghost():
    passer_by = cv2.cvtColor(sample_picture("rocket"), cv2.COLOR_RGB2GRAY)[100:130, 200:230]
    ours, theirs = [], []
    for name in ("coffee", "chelsea", "astronaut"):
        simulation = scene(count=3, name=name)
        frames = [frame.copy() for frame in simulation.frames]
        frames[1][60:90, 60:90] = passer_by
        result, before = fuse(frames, sigma=0), fuse(simulation.frames, sigma=0)
        check_copies(frames, result)
        far = np.ones((160, 160), bool)
        far[50:100, 50:100] = False
        # The choice looks far around; what it makes of that stays below what can be seen.
        difference = result.image[far].astype(np.float64) - before.image[far]
        assert np.sqrt(np.mean(difference**2)) < 0.5
        ours.append(psnr(result.image, simulation.truth))
        theirs.append(list(rivals(frames, simulation.truth).values()))
    # Whether the passer-by is taken for the scene is chance in one stack; on the whole nobody of
    # the others does better.
    assert np.mean(ours) > np.mean(theirs, axis=0).max()


@pytest.mark.parametrize("sigma", [0.0, 15.0])
@pytest.mark.parametrize("kind", ["darker", "defocused"])
def test_frame_of_little_use_does_little_harm(kind, sigma):
    simulation = scene(count=3, sigma=sigma)
    if kind == "darker":
        more = (simulation.frames[1] * 0.9).astype(np.uint8)
    else:
        blurred = cv2.GaussianBlur(scene(count=3).truth, (0, 0), 4.0)
        more = as_photographed([blurred], lambda *_: sigma)[0]
    frames, truth = simulation.frames, simulation.truth
    without = psnr(fuse(frames, sigma=sigma).image, truth)
    # A decibel or so: the frame is a tenth darker, and in smooth places as good as any.
    assert psnr(fuse([*frames, more], sigma=sigma).image, truth) > without - 1.5


@pytest.mark.parametrize("sigma", [0.0, None])
@pytest.mark.parametrize("level", [0, 128])
def test_frame_without_anything_in_it_is_left_out(level, sigma):
    simulation = scene(count=3, sigma=0.0 if sigma == 0 else 15.0)
    frames, truth = simulation.frames, simulation.truth
    without = psnr(fuse(frames, sigma=sigma).image, truth)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="frame 4 differs from the other frames")
        result = fuse([*frames, np.full_like(truth, level)], sigma=sigma)
    assert psnr(result.image, truth) > without - 3


@pytest.mark.parametrize("sigma", [0.0, 15.0])
@pytest.mark.parametrize("share", [0.0, 0.4, 3.0])
def test_frame_of_other_brightness_is_named_and_left_out(share, sigma):
    simulation = scene(count=3, sigma=sigma)
    frames, truth = simulation.frames, simulation.truth
    without = psnr(fuse(frames, sigma=sigma).image, truth)
    other = np.clip(frames[0] * share, 0, 255).astype(frames[0].dtype)
    with pytest.warns(UserWarning, match="frame 4 differs .* left out"):
        result = fuse([*frames, other], sigma=sigma)
    assert not (result.source_map == 3).any()
    assert psnr(result.image, truth) > without - 1


@pytest.mark.parametrize("radius", [16, 24])
def test_frame_with_very_wide_blur_is_not_used(radius):
    simulation = scene(count=3)
    frames, truth = simulation.frames, simulation.truth
    without = psnr(fuse(frames, sigma=0).image, truth)
    wide = cv2.GaussianBlur(truth, (0, 0), radius)
    assert psnr(fuse([*frames, wide], sigma=0).image, truth) > without - 0.5


# --- how it goes about it ------------------------------------------------------------------------


def test_every_frame_is_read_once():
    simulation = scene(count=3, size=64)
    calls = [0, 0, 0]

    def reader(number: int) -> np.ndarray:
        calls[number] += 1
        return simulation.frames[number]

    stack = Stack([lambda k=k: reader(k) for k in range(3)])
    calls[0] = 0  # the stack has looked at its first frame
    images = [fuse(stack).image, fuse(simulation.frames).image]
    assert calls == [1, 1, 1] and np.array_equal(*images)
    with stack.kept(most_bytes=0) as on_disk:
        assert np.array_equal(fuse(on_disk).image, images[0])


def test_small_regions_go_to_their_neighbours():
    frames = scene(count=3, sigma=8, size=96).frames
    counts = []
    for smallest in (0.0, AUTO.smallest_region, 0.2):
        preset = replace(AUTO, smallest_region=smallest)
        index = fuse(frames, sigma=8, preset=preset).source_map
        regions = sum(
            cv2.connectedComponents((index == k).astype(np.uint8))[0] - 1 for k in (0, 1, 2)
        )
        counts.append(regions)
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


def test_one_frame_is_as_sure_as_can_be():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fuse(scene(count=1, sigma=10, size=64).frames)
    assert not result.source_map.any() and (result.confidence == 1).all()


@pytest.mark.parametrize("sigma", [0.0, 15.0])
def test_a_preview_shows_every_part_of_the_picture_once(sigma: float) -> None:
    frames = textured_frames(0, 3, (70, 90), "uint8", colour=True)
    shown = np.zeros(frames[0].shape, np.uint8)
    times = np.zeros(frames[0].shape[:2], int)

    def preview(rows: slice, columns: slice, pixels: Any) -> None:
        shown[rows, columns] = pixels
        times[rows, columns] += 1

    fusion = fuse(frames, sigma=sigma, preview=preview)
    assert (times == 1).all()
    if sigma:
        np.testing.assert_array_equal(shown, fusion.image)
    else:  # what is copied may differ from the mixture that is shown first
        assert np.abs(shown.astype(int) - fusion.image).mean() < 3


def test_a_preview_of_frames_weighed_in_small_shows_chosen_pixels() -> None:
    frames, _ = enlarged(4, colour=True)
    shown = np.zeros(frames[0].shape, frames[0].dtype)

    def preview(rows: slice, columns: slice, pixels: Any) -> None:
        shown[rows, columns] = pixels

    fusion = fuse(frames, sigma=0, preview=preview)
    agree = shown == fusion.image
    assert agree.mean() > 0.9
