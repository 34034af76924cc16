"""Fusion: laws that hold for any frames, what the presets promise, and what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cofuse
from cofuse.errors import CofuseError
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.fusion import PRESETS, FusionSettings, fuse
from cofuse.images import Stack, to_opponent
from cofuse.operators import load_operator
from tests.test_fusion_choice import compose

DTYPES = ("uint8", "uint16", "float32", "float64")
AUTO, FAST, PAPER = (PRESETS[name] for name in ("auto", "fast", "paper"))
laws = settings(max_examples=25, deadline=None)
#: Pixels that bands of a mixture reach: two passes of boxes of 3, of 7 and of 21 pixels.
REACH = 2 + 6 + 20


def textured_frames(
    seed: int, count: int, size: tuple[int, int], dtype: str, *, colour: bool
) -> list[np.ndarray]:
    """Random texture; every frame is sharp in a strip of its own and blurred elsewhere."""
    rng = np.random.default_rng(seed)
    shape = (*size, 3) if colour else size
    texture = rng.random(shape)
    blurred = cv2.blur(texture, (5, 5))
    frames = []
    for strip in np.array_split(np.arange(size[1]), count):
        frame = blurred + rng.uniform(-1e-3, 1e-3, shape)
        frame[:, strip] = texture[:, strip]
        frames.append(in_dtype(frame.clip(0, 1), dtype))
    return frames


def in_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """Bring values from 0 to 1 to the range of a dtype."""
    if dtype.startswith("float"):
        return values.astype(dtype)
    return np.rint(values * np.iinfo(dtype).max).astype(dtype)


frame_lists = st.builds(
    textured_frames,
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2, 4),
    size=st.tuples(st.integers(7, 40), st.integers(7, 40)),
    dtype=st.sampled_from(DTYPES),
    colour=st.booleans(),
)


def in_levels(image: np.ndarray) -> np.ndarray:
    """Bring a picture of any dtype to grey levels."""
    white = 1.0 if image.dtype.kind == "f" else np.iinfo(image.dtype).max
    return image.astype(np.float64) * (255.0 / white)


def scene(
    sigma: float, *, colour: bool = False, size: int = 64, count: int = 3, seed: int = 3
) -> Simulation:
    picture = sample_picture("coffee")
    sharp = picture if colour else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return simulate_stack(sharp, frames=count, sigma=sigma, shape=(size, size), seed=seed)


# --- without noise -------------------------------------------------------------------------------


@laws
@given(frame_lists, st.sampled_from(["auto", "fast"]))
def test_clean_stacks_are_mixed_and_nothing_else(frames, preset):
    result = fuse(frames, sigma=0, preset=preset)
    assert result.image.dtype == frames[0].dtype and result.image.shape == frames[0].shape
    assert result.source_map.shape == frames[0].shape[:2]
    assert result.source_map.max() < len(frames)
    assert result.sigma == 0.0 and not result.sigma_estimated and not result.trace
    if preset == "fast":
        mixture = compose(Stack.from_arrays(frames), result.source_map)
        assert np.array_equal(result.image, mixture)


@pytest.mark.filterwarnings("ignore:the frames hardly differ")
@laws
@given(
    seed=st.integers(0, 2**32 - 1),
    place=st.tuples(st.integers(0, 90), st.integers(0, 100)),
    count=st.integers(2, 4),
    colour=st.booleans(),
    preset=st.sampled_from(["auto", "fast"]),
)
def test_where_all_frames_agree_pixels_are_theirs(seed, place, count, colour, preset):
    rng = np.random.default_rng(seed)
    shape = (99, 109, 3) if colour else (99, 109)
    common = rng.random(shape, np.float32)
    frames = [common.copy() for _ in range(count)]
    differ = np.zeros(shape[:2], np.uint8)
    differ[place[0] : place[0] + 9, place[1] : place[1] + 9] = 1
    for frame in frames:
        frame[differ > 0] = rng.random(frame[differ > 0].shape, np.float32)
    agree = cv2.dilate(differ, np.ones((2 * REACH + 1,) * 2, np.uint8)) == 0
    image = fuse(frames, sigma=0, preset=preset).image
    # Bands of values up to 1, weights and their sums in float32.
    np.testing.assert_allclose(image[agree], common[agree], rtol=0, atol=2e-6)


@pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_simulated_scene_is_taken_from_the_right_frames(preset, dtype, colour):
    simulation = scene(0.0, colour=colour, seed=4)
    frames = [in_dtype(frame / 255, dtype) for frame in simulation.frames]
    result = fuse(frames, sigma=0, preset=preset)
    assert (result.source_map == simulation.source_map).mean() > 0.8
    best = max(psnr(frame, simulation.truth) for frame in simulation.frames)
    fused = np.rint(in_levels(result.image).clip(0, 255)).astype(np.uint8)
    assert psnr(fused, simulation.truth) > best + 3


@laws
@given(frame_lists, st.sampled_from(list(PRESETS)), st.sampled_from([0.0, 12.0, None]))
def test_inputs_are_untouched_and_may_be_read_only(frames, preset, sigma):
    before = [frame.copy() for frame in frames]
    for frame in frames:
        frame.flags.writeable = False
    result = fuse(frames, sigma=sigma, preset=preset)
    assert all(np.array_equal(a, b) for a, b in zip(frames, before, strict=True))
    assert not any(np.shares_memory(result.image, frame) for frame in frames)


@laws
@given(frame_lists, st.sampled_from(list(PRESETS)))
def test_results_have_dtype_shape_and_sensible_maps(frames, preset):
    result = fuse(frames, sigma=10, preset=preset)
    assert result.image.dtype == frames[0].dtype and result.image.shape == frames[0].shape
    assert np.isfinite(result.image).all()
    assert result.confidence.shape == result.source_map.shape == frames[0].shape[:2]
    assert result.confidence.dtype == np.float32
    assert result.confidence.min() >= 0 and result.confidence.max() <= 1
    assert np.issubdtype(result.source_map.dtype, np.unsignedinteger)
    assert all(seconds >= 0 for seconds in result.seconds.values()) and result.seconds
    white = 1.0 if frames[0].dtype.kind == "f" else np.iinfo(frames[0].dtype).max
    # Restoring may overshoot by as much as the noise it takes out, three standard deviations.
    over = 3 * 10 / 255 * white
    assert -over <= result.image.min() and result.image.max() <= white + over


@laws
@given(frame_lists, st.randoms(use_true_random=False), st.sampled_from([0.0, 10.0]))
def test_order_of_frames_only_renames_them(frames, random, sigma):
    order = list(range(len(frames)))
    random.shuffle(order)
    for preset in ("auto", "fast"):
        straight = fuse(frames, sigma=sigma, preset=preset)
        shuffled = fuse([frames[k] for k in order], sigma=sigma, preset=preset)
        told_apart = np.ones_like(straight.confidence, bool)
        if preset == "auto":
            # Means over the frames are rounded by their order, which near a tie decides.
            assert np.abs(shuffled.confidence - straight.confidence).max() < 1e-3
            told_apart = straight.confidence > 1e-3
        else:
            assert np.array_equal(shuffled.confidence, straight.confidence)
        renamed = np.array(order)[shuffled.source_map]
        assert np.array_equal(renamed[told_apart], straight.source_map[told_apart])
        # Sums are rounded by their order: hardly at all, but that may decide a whole step.
        step = {"uint8": 1.0, "uint16": 1 / 257}.get(frames[0].dtype.name, 0.0)
        change = np.abs(in_levels(shuffled.image) - in_levels(straight.image))
        assert change.max() < step + 0.01 and (change > 0.01).mean() < 0.02


@settings(max_examples=10, deadline=None)
@given(frame_lists, st.data(), st.sampled_from([0.0, 10.0]))
def test_a_copy_of_a_frame_changes_nothing(frames, data, sigma):
    again = data.draw(st.integers(0, len(frames) - 1))
    at = data.draw(st.integers(again + 1, len(frames)))
    more = [*frames[:at], frames[again].copy(), *frames[at:]]
    one, other = fuse(frames, sigma=sigma), fuse(more, sigma=sigma)
    assert np.array_equal(other.image, one.image)
    assert np.array_equal(other.confidence, one.confidence)
    assert np.array_equal(other.source_map, one.source_map + (one.source_map >= at))


def test_a_copy_of_the_reference_changes_nothing():
    frames = [frame.astype(np.float32) / 255 for frame in scene(0.0, colour=True).frames]
    stack = Stack.from_arrays(frames)
    stack.reference = 1
    with_copy = Stack.from_arrays([frames[1], *frames])
    with_copy.reference = 2
    assert np.array_equal(fuse(with_copy, sigma=0).image, fuse(stack, sigma=0).image)


@pytest.mark.filterwarnings("ignore:one frame only")
@pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_one_clean_frame_is_left_as_it_is(preset, dtype, colour):
    frame = in_dtype(scene(0.0, colour=colour).truth / 255, dtype)
    image = fuse([frame], sigma=0, preset=preset).image
    # Four bands of values up to 255 in float32.
    atol = 0 if frame.dtype.kind == "u" else 1e-6
    np.testing.assert_allclose(image, frame, rtol=0, atol=atol)


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("count", [2, 5])
def test_identical_frames_give_that_frame(preset, count):
    frame = scene(0.0, colour=True).truth
    result = fuse([frame] * count, sigma=0, preset=preset)
    assert np.array_equal(result.image, frame)
    assert not result.source_map.any()
    # Copies do not take part in `auto`: there is one frame, which nothing contests.
    assert (result.confidence == (0 if preset == "paper" else 1)).all()


@pytest.mark.parametrize("preset", list(PRESETS))
def test_one_frame_is_restored_with_a_warning(preset):
    simulation = scene(15.0, count=1)
    with pytest.warns(UserWarning, match="one frame only"):
        result = fuse(simulation.frames, sigma=15, preset=preset)
    assert psnr(result.image, simulation.truth) > psnr(simulation.frames[0], simulation.truth) + 2
    assert not result.source_map.any() and (result.confidence == 1).all()


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("sigma", [0.0, 15.0, None])
@pytest.mark.parametrize("level", [0, 77, 255])
def test_constant_pictures_stay_constant(preset, sigma, level):
    for shape in ((20, 31), (20, 31, 3)):
        frames = [np.full(shape, level, np.uint8)] * 2
        result = fuse(frames, sigma=sigma, preset=preset)
        assert np.array_equal(result.image, frames[0])


@pytest.mark.parametrize("preset", list(PRESETS))
def test_picture_of_exactly_one_patch_works(preset):
    frames = textured_frames(1, 2, (7, 7), "uint8", colour=False)
    assert fuse(frames, sigma=5, preset=preset).image.shape == (7, 7)


# --- one scale for all depths --------------------------------------------------------------------


def check_same_picture(levels: np.ndarray, small: np.ndarray, *, twice: bool) -> None:
    """Compare a picture with its 8-bit version, whose pixels are rounded by half a level.

    If they are rounded ``twice``, before they are restored too, single coefficients may just be
    dropped or just not.
    """
    change = np.abs(levels.clip(0, 255) - small)
    if twice:
        # A rounding is a noise of 1/√12, known to some percent from as few pixels.
        assert np.sqrt(np.square(change).mean()) < 1.2 * (2 / 12) ** 0.5 and change.max() < 5
    else:
        assert change.max() <= 0.5 + 0.05


def check_same_map(one: cofuse.Fusion, other: cofuse.Fusion) -> None:
    """Compare what two results name, except where nothing tells the frames apart."""
    told_apart = one.confidence > 1e-3
    assert np.array_equal(one.source_map[told_apart], other.source_map[told_apart])


@pytest.mark.parametrize("sigma", [0.0, 12.0, None])
@pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_depth_of_the_frames_changes_nothing(preset, colour, sigma):
    frames = scene(12.0, colour=colour, size=48).frames
    small = fuse(frames, sigma=sigma, preset=preset)
    for again in (
        [f.astype(np.uint16) * 257 for f in frames],
        [(f / 255).astype(np.float32) for f in frames],
        [f / 255 for f in frames],
    ):
        result = fuse(again, sigma=sigma, preset=preset)
        assert result.sigma == pytest.approx(small.sigma, abs=0.01)
        check_same_map(result, small)
        twice = preset == "fast" and small.sigma > 0
        check_same_picture(in_levels(result.image), small.image, twice=twice)


def test_grey_frames_and_the_same_in_three_channels_are_one():
    frames = [(f / 255).astype(np.float32) for f in scene(0.0, size=48).frames]
    grey = fuse(frames, sigma=0)
    colour = fuse([np.repeat(f[..., None], 3, axis=2) for f in frames], sigma=0)
    check_same_map(grey, colour)
    np.testing.assert_allclose(
        colour.image, np.repeat(grey.image[..., None], 3, axis=2), rtol=0, atol=1e-5
    )


@laws
@given(
    seed=st.integers(0, 2**32 - 1),
    sigma=st.sampled_from([0.0, 8.0]),
    preset=st.sampled_from(["auto", "fast"]),
)
def test_white_sets_the_scale(seed, sigma, preset):
    frames = textured_frames(seed, 2, (24, 24), "uint8", colour=False)
    small = fuse(frames, sigma=sigma, preset=preset)
    deep = [frame.astype(np.uint16) * 16 for frame in frames]
    twelve = fuse(deep, sigma=sigma, white=255 * 16, preset=preset)
    check_same_map(small, twelve)
    twice = preset == "fast" and sigma > 0
    check_same_picture(twelve.image / 16, small.image, twice=twice)


# --- with noise ----------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_restored_beats_every_source_and_the_average_by_far(preset, colour):
    simulation = scene(15.0, colour=colour, size=128)
    frames, truth = simulation.frames, simulation.truth
    result = fuse(frames, preset=preset)
    assert result.sigma_estimated and result.sigma == pytest.approx(15, abs=1.5)
    mean = np.rint(np.mean(frames, axis=0)).astype(np.uint8)
    rival = max(psnr(picture, truth) for picture in (*frames, mean))
    assert psnr(result.image, truth) > rival + 3


def test_paper_beats_every_source():
    simulation = scene(15.0, size=96)
    best = max(psnr(frame, simulation.truth) for frame in simulation.frames)
    result = fuse(simulation.frames, sigma=15, preset="paper")
    assert psnr(result.image, simulation.truth) > best + 2


@pytest.mark.parametrize("preset", list(PRESETS))
def test_clean_stack_is_found_clean(preset):
    simulation = scene(0.0, colour=True, size=96)
    result = fuse(simulation.frames, preset=preset)
    assert result.sigma == 0.0 and result.sigma_estimated
    assert np.array_equal(result.image, fuse(simulation.frames, sigma=0, preset=preset).image)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_colour_noise_is_reduced_in_every_plane(preset):
    simulation = scene(15.0, colour=True, size=96, count=2)
    truth = to_opponent(simulation.truth.astype(np.float32))

    def error(picture: np.ndarray) -> np.ndarray:
        return (to_opponent(picture.astype(np.float32)) - truth).std(axis=(0, 1))

    before = np.min([error(frame) for frame in simulation.frames], axis=0)
    after = error(fuse(simulation.frames, sigma=15, preset=preset).image)
    assert (after[1:] < 0.6 * before[1:]).all() and after[0] < 0.9 * before[0]


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_more_noise_said_is_more_smoothing_done_and_too_much_does_little_harm(preset):
    made = scene(10.0)
    images = [fuse(made.frames, sigma=s, preset=preset).image for s in (0, 5, 10, 20, 40)]
    roughness = [np.abs(np.diff(image.astype(int), axis=1)).mean() for image in images]
    # As much as there is is taken out; what is said beyond that is not there to be taken out.
    assert roughness[0] > roughness[1] > roughness[2]
    assert max(roughness[3:]) < 1.15 * roughness[2]
    quality = [psnr(image, made.truth) for image in images]
    assert quality[0] < quality[1] < quality[2]
    assert quality[3] > quality[2] - 1 and quality[4] > quality[2] - 2


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_denoise_goes_from_the_mixture_to_the_restored_picture(preset):
    frames = [frame.astype(np.float32) / 255 for frame in scene(12.0, colour=True).frames]
    nothing, half, whole = (
        fuse(frames, sigma=12, preset=preset, denoise=denoise) for denoise in (0.0, 0.5, 1.0)
    )
    assert np.array_equal(whole.image, fuse(frames, sigma=12, preset=preset).image)
    if preset == "fast":
        mixture = compose(Stack.from_arrays(frames), nothing.source_map)
        assert np.array_equal(nothing.image, mixture)
    assert nothing.sigma == half.sigma == 12  # told, though nothing was taken out
    # A blend in float32, on values from 0 to 1.
    np.testing.assert_allclose(half.image, (nothing.image + whole.image) / 2, atol=1e-6)
    assert np.array_equal(half.source_map, whole.source_map)


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_clean_stacks_know_no_denoising(preset):
    frames = scene(0.0).frames
    images = [fuse(frames, sigma=0, preset=preset, denoise=d).image for d in (0.0, 0.3, 1.0)]
    assert np.array_equal(images[0], images[1]) and np.array_equal(images[0], images[2])


# --- the letter ----------------------------------------------------------------------------------


@laws
@given(frame_lists)
def test_letter_without_noise_stays_between_the_frames(frames):
    result = fuse(frames, sigma=0, preset=replace(PAPER, stride=1))
    slack = 2e-6 if frames[0].dtype.kind == "f" else frames[0].dtype.itemsize - 1
    image = result.image.astype(np.float64)
    stack = np.array(frames, np.float64)
    assert (image >= stack.min(axis=0) - slack).all()
    assert (image <= stack.max(axis=0) + slack).all()
    assert not result.trace


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), stride=st.sampled_from([1, 3, 6, 7]), count=st.integers(2, 3)
)
def test_letter_without_noise_is_the_average_of_the_chosen_patches(seed, stride, count):
    frames = textured_frames(seed, count, (19, 23), "float64", colour=False)
    rows = load_operator("full-7").rows
    total, covered = np.zeros((19, 23)), np.zeros((19, 23))
    for y in sorted({*range(0, 13, stride), 12}):
        for x in sorted({*range(0, 17, stride), 16}):
            patches = [frame[y : y + 7, x : x + 7] for frame in frames]
            best = max(patches, key=lambda patch: np.abs(rows @ patch.ravel()).sum())
            total[y : y + 7, x : x + 7] += best
            covered[y : y + 7, x : x + 7] += 1
    result = fuse(frames, sigma=0, preset=replace(PAPER, stride=stride))
    assert np.abs(result.image - total / covered).max() < 1e-5
    assert np.isfinite(result.confidence).all()


@pytest.mark.parametrize("colour", [False, True], ids=["grey", "rgb"])
def test_letter_leaves_converged_traces(colour):
    result = fuse(scene(15.0, colour=colour).frames, sigma=15, preset="paper")
    planes = (" Y", " C1", " C2") if colour else ("",)
    assert set(result.trace) == {
        f"{stage}{plane}" for stage in ("local estimate", "reconstruction") for plane in planes
    }
    for trace in result.trace.values():
        assert trace.converged and 0 < trace.iterations <= PAPER.max_iterations
        assert trace.reason and "\n" not in trace.reason and trace.history
    assert set(result.seconds) == {"choice", "local estimate", "reconstruction"}


def test_iteration_limit_is_kept_and_told():
    result = fuse(scene(15.0).frames, sigma=15, preset=replace(PAPER, max_iterations=2))
    assert all(t.iterations == 2 and not t.converged for t in result.trace.values())
    assert all("limit" in t.reason for t in result.trace.values())


def test_surrogate_step_reaches_the_same_picture():
    frames = [f / 255 for f in scene(15.0).frames]
    # Without the global step: its certified distance would hide what the local steps do.
    rough = replace(PAPER, global_weight=0.0)
    exact = fuse(frames, sigma=15, preset=rough)
    surrogate = fuse(frames, sigma=15, preset=replace(rough, x_step="surrogate"))
    assert "surrogate" in surrogate.trace["local estimate"].solver
    # Each stops when its residuals are a thousandth of the patch, whose length is seven times a
    # contrast of some tens of grey levels: about 0.2 of a grey level either way.
    assert 255 * np.sqrt(np.mean((exact.image - surrogate.image) ** 2)) < 0.2


def test_epsilon_form_constrains_what_the_penalty_punishes():
    frames = scene(15.0).frames
    rough = replace(PAPER, global_weight=0.0)
    copied = fuse(frames, sigma=0, preset=rough)
    loose = fuse(frames, sigma=15, preset=replace(rough, epsilon=100.0))
    tight = fuse(frames, sigma=15, preset=replace(rough, epsilon=0.1))
    assert "local estimate" in tight.trace
    # A ball that holds every patch changes nothing; the letter's 0.1 leaves nearly flat patches.
    assert np.abs(loose.image.astype(int) - copied.image).max() <= 1
    assert tight.image.std() < copied.image.std()
    change = np.abs(np.diff(tight.image.astype(int))).mean()
    assert change < 0.5 * np.abs(np.diff(copied.image.astype(int))).mean()


def test_letter_with_zero_weights_only_averages():
    frames = scene(15.0).frames
    idle = replace(PAPER, local_weight=0.0, global_weight=0.0)
    images = [fuse(frames, sigma=sigma, preset=idle).image.astype(int) for sigma in (15, 0)]
    assert np.abs(images[0] - images[1]).max() <= 1


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("fast", "full-5"),
        ("fast", "full-9"),
        ("fast", "dct-8"),
        ("fast", "differences-4"),
        ("paper", "separable-7"),
        ("paper", "dct-8"),
        ("paper", "full-5"),
        ("paper", "differences-4"),
    ],
)
def test_any_operator_can_take_the_presets_place(preset, name):
    frames = scene(10.0, size=48).frames
    by_name = fuse(frames, sigma=10, preset=preset, operator=name)
    by_object = fuse(frames, sigma=10, preset=preset, operator=load_operator(name))
    assert np.array_equal(by_name.image, by_object.image)
    by_setting = fuse(frames, sigma=10, preset=replace(PRESETS[preset], operator=name))
    assert np.array_equal(by_name.image, by_setting.image)


# --- how it is called ----------------------------------------------------------------------------


def test_stack_sequence_and_array_are_one():
    frames = scene(10.0).frames
    results = [
        fuse(given, sigma=10).image
        for given in (frames, list(frames), np.stack(frames), Stack.from_arrays(frames))
    ]
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_results_repeat_to_the_bit():
    frames = scene(10.0, colour=True).frames
    for preset in PRESETS:
        first, second = (fuse(frames, sigma=10, preset=preset) for _ in range(2))
        assert np.array_equal(first.image, second.image)


def large_scene():
    greys = [
        cv2.cvtColor(sample_picture(name), cv2.COLOR_RGB2GRAY)[:256, :320]
        for name in ("coffee", "chelsea")
    ]
    return simulate_stack(greys[0], frames=3, foreground=greys[1], seed=1)


def test_frames_that_lie_right_are_not_touched_by_aligning():
    frames = large_scene().frames
    images = [fuse(frames, sigma=0, align=align).image for align in (True, False)]
    assert np.array_equal(*images)


def test_shifted_frames_are_aligned_when_asked():
    simulation = large_scene()
    frames = list(simulation.frames)
    frames[2] = np.roll(frames[2], (5, -3), axis=(0, 1))
    untouched = fuse(frames, sigma=0).image
    result = fuse(frames, sigma=0, align=True).image
    assert untouched.shape == (256, 320) and result.shape == (251, 317)
    # The middle frame is the reference: the picture lies as it does.
    assert psnr(result, simulation.truth[:-5, 3:]) > psnr(untouched, simulation.truth) + 5


def test_presets_are_settings_under_their_names():
    frames = scene(8.0).frames
    for name, chosen in PRESETS.items():
        assert isinstance(chosen, FusionSettings)
        assert np.array_equal(
            fuse(frames, sigma=8, preset=name).image, fuse(frames, sigma=8, preset=chosen).image
        )
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["fast"].window = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        PRESETS["mine"] = PRESETS["fast"]  # type: ignore[index]


def test_many_frames_are_all_told_apart():
    sharp = np.random.default_rng(0).integers(0, 255, (32, 32), np.uint8)
    frames = [cv2.GaussianBlur(sharp, (0, 0), 4)] * 300
    frames[270] = sharp
    result = fuse(frames, sigma=0)
    assert (result.source_map == 270).all() and result.source_map.dtype == np.uint16


STAGES = {
    ("auto", None): {"noise", "fusion", "restoration"},
    ("auto", 0.0): {"fusion"},
    ("auto", 10.0): {"fusion", "restoration"},
    ("fast", None): {"noise", "fusion", "restoration"},
    ("fast", 0.0): {"fusion"},
    ("paper", 10.0): {"choice", "local estimate", "reconstruction", "planes"},
}


@pytest.mark.parametrize(("preset", "sigma"), STAGES)
def test_progress_names_the_stages_and_reaches_their_ends(preset, sigma):
    seen: list[cofuse.Progress] = []
    fuse(scene(10.0, colour=True).frames, sigma=sigma, preset=preset, progress=seen.append)
    assert {step.stage for step in seen} == STAGES[preset, sigma]
    assert all(0 < step.done <= step.total for step in seen)
    last = {step.stage: step for step in seen}
    last.pop("reconstruction", None)  # an iterative stage may stop well before its limit
    assert all(step.done == step.total for step in last.values())


@pytest.mark.parametrize(
    ("preset", "stages"),
    [
        ("auto", {"noise", "fusion", "restoration"}),
        ("fast", {"noise", "fusion", "restoration"}),
        ("paper", {"noise", "choice", "local estimate", "reconstruction"}),
    ],
)
def test_every_stage_is_timed(preset, stages):
    assert set(fuse(scene(10.0).frames, preset=preset).seconds) == stages
    assert set(fuse(scene(10.0).frames, sigma=10, preset=preset).seconds) == stages - {"noise"}


class Cancelled(Exception):
    pass


@pytest.mark.parametrize(("preset", "sigma"), STAGES)
def test_a_callback_cancels_by_raising(preset, sigma):
    frames = scene(10.0).frames
    for stage in STAGES[preset, sigma]:

        def cancel(step: cofuse.Progress, stage: str = stage) -> None:
            if step.stage == stage:
                raise Cancelled(stage)

        with pytest.raises(Cancelled, match=stage):
            fuse(frames, sigma=sigma, preset=preset, progress=cancel)


# --- what is refused -----------------------------------------------------------------------------

GREY = np.zeros((16, 16), np.uint8)
NAN = np.full((16, 16), np.nan, np.float32)
HALF = np.full((16, 16), 0.5, np.float32)


@pytest.mark.parametrize(
    ("frames", "options", "words"),
    [
        ([GREY, GREY], {"preset": "fancy"}, ["fancy", "auto", "fast", "paper"]),
        ([GREY, GREY], {"denoise": -0.1}, ["`denoise` is -0.1", "0 to 1"]),
        ([GREY, GREY], {"denoise": 1.01, "preset": "fast"}, ["`denoise` is 1.01"]),
        ([GREY, GREY], {"denoise": np.nan}, ["`denoise` is nan"]),
        ([GREY, GREY], {"denoise": 0.5, "preset": "paper"}, ["`denoise` is 0.5", "auto or fast"]),
        ([GREY, GREY], {"sigma": -1}, ["`sigma` is -1"]),
        ([GREY, GREY], {"sigma": np.nan}, ["`sigma` is nan"]),
        ([GREY, GREY], {"sigma": np.inf}, ["`sigma` is inf"]),
        ([GREY[:5], GREY[:5]], {"preset": "fast"}, ["16x5", "7x7"]),
        ([GREY[:, :1]] * 2, {"preset": "paper"}, ["1x16", "7x7"]),
        ([GREY[:8]] * 2, {"preset": "fast", "operator": "full-9"}, ["16x8", "9x9"]),
        ([GREY, GREY], {"preset": "fast", "operator": "no-such"}, ["no-such", "full-7"]),
        ([GREY, GREY], {"preset": replace(PAPER, stride=8)}, ["stride is 8", "1 to 7"]),
        ([GREY, GREY], {"operator": "full-7"}, ["filters of its own", "fast or paper"]),
        ([GREY, GREY], {"operator": load_operator("dct-5")}, ["filters of its own"]),
        ([GREY, GREY], {"preset": replace(AUTO, model="no-such")}, ["no-such", "auto"]),
        ([GREY, GREY[1:]], {}, ["frame 2", "16x15", "16x16"]),
        ([GREY, GREY.astype(np.uint16)], {}, ["frame 2", "uint16", "uint8"]),
        ([GREY, np.zeros((16, 16, 3), np.uint8)], {}, ["frame 2", "RGB", "grey"]),
        ([np.zeros((16, 16, 4), np.uint8)], {}, ["frame 1", "(16, 16, 4)"]),
        ([HALF, NAN], {}, ["frame 2", "NaN"]),
        ([HALF, np.full_like(HALF, np.inf)], {}, ["frame 2", "infinite"]),
        ([HALF * 510, HALF], {}, ["frame 1", "0-1", "white"]),
        ([GREY.astype(np.int32)] * 2, {}, ["frame 1", "int32"]),
        ([GREY[:0], GREY[:0]], {}, ["frame 1", "empty"]),
        ([GREY, GREY], {"white": 0}, ["`white` is 0"]),
        ([], {}, ["no frames"]),
    ],
)
def test_bad_calls_get_one_clear_line(frames: Any, options: dict[str, Any], words: list[str]):
    for sigma in (0.0, 10.0):
        with pytest.raises(CofuseError) as caught:
            fuse(frames, **{"sigma": sigma, **options})
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message, message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x_step", "guess"),
        ("window", 0),
        ("stride", 0),
        ("stride", -6),
        ("max_iterations", 0),
        ("local_weight", -1.0),
        ("local_weight", float("nan")),
        ("global_weight", float("inf")),
        ("accuracy", 0.0),
        ("accuracy", -1.0),
        ("accuracy", float("nan")),
        ("epsilon", -0.1),
        ("epsilon", float("nan")),
        ("window", 2.5),
        ("stride", 1.5),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, value: Any):
    with pytest.raises(CofuseError, match=name) as caught:
        replace(FAST if name == "window" else PAPER, **{name: value})
    assert "\n" not in str(caught.value)
