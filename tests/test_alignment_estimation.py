"""Known transforms and gains are found again; what cannot be aligned is said, not warped."""

import cv2
import numpy as np
import pytest

from cofuse.alignment import Transform, align_stack, aligned, alignment_from_json, alignment_to_json
from cofuse.alignment.transforms import corners
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import demo_simulation, sample_picture, simulate_stack
from cofuse.images import Stack, luminance

SHAPE = (300, 440)
MARGIN = 42


def picture(name="coffee"):
    """A sharp grey picture of floats at one and a half times its size."""
    grey = luminance(sample_picture(name).astype(np.float32)) / 255
    large = cv2.resize(grey, None, fx=1.5, fy=1.5, interpolation=cv2.INTER_CUBIC)
    return np.asarray(large[: SHAPE[0] + 2 * MARGIN, : SHAPE[1] + 2 * MARGIN], np.float64)


def matrix(x=0.0, y=0.0, degrees=0.0, scale=1.0):
    """Reference to frame, turned and scaled about the centre."""
    angle = np.deg2rad(degrees)
    found = np.eye(3)
    found[:2, :2] = scale * np.array(
        [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    )
    centre = np.array([SHAPE[1] - 1, SHAPE[0] - 1]) / 2
    found[:2, 2] = np.array([x, y]) + centre - found[:2, :2] @ centre
    return found


def moved(scene, found):
    """The frame that has at T(x) what the scene, which is larger by MARGIN, has at x."""
    rows, columns = np.indices(SHAPE)
    back = Transform(np.linalg.inv(found))
    there = (back(np.stack([columns, rows], axis=-1)) + MARGIN).astype(np.float32)
    return cv2.remap(scene, there[..., 0], there[..., 1], cv2.INTER_LANCZOS4)


def to_bits(frames, sigma=0.0, dtype=np.uint8):
    rng = np.random.default_rng(5)
    white = np.iinfo(dtype).max
    return [
        np.clip(np.rint((f + rng.normal(0, sigma / 255, f.shape)) * white), 0, white).astype(dtype)
        for f in frames
    ]


def worst(transform, truth):
    points = corners(SHAPE)
    return np.hypot(*(transform(points) - Transform(truth)(points)).T).max()


TRUTH = [
    matrix(-31, 14, 1.8, 0.97),
    matrix(-12, 5, -0.6, 0.985),
    np.eye(3),
    matrix(9, -22, 0.9, 1.02),
    matrix(35.3, -8.6, -1.9, 1.04),
]


@pytest.fixture(scope="module")
def scene_frames():
    """Five frames focused at different depths, moved by TRUTH; floats."""
    focused = simulate_stack(picture().astype(np.float32), frames=5, max_radius=6, seed=3).frames
    return [moved(frame, truth) for frame, truth in zip(focused, TRUTH, strict=True)]


@pytest.mark.parametrize(("sigma", "bound"), [(0, 0.2), (25, 0.6)])
def test_known_transforms_are_found(scene_frames, sigma, bound):
    found = align_stack(Stack.from_arrays(to_bits(scene_frames, sigma)))
    assert found.reference == 2
    assert found.transforms[2].whole_shift == (0, 0)
    errors = [worst(t, truth) for t, truth in zip(found.transforms, TRUTH, strict=True)]
    assert max(errors) < bound
    assert not found.already_aligned
    furthest = max(Transform(truth).corner_displacement(SHAPE) for truth in TRUTH)
    assert found.largest_displacement() == pytest.approx(furthest, abs=bound)


def test_any_frame_may_be_the_reference(scene_frames):
    stack = Stack.from_arrays(to_bits(scene_frames))
    found = align_stack(stack, reference=0, match_exposure=False)
    for transform, truth in zip(found.transforms, TRUTH, strict=True):
        assert worst(transform, truth @ np.linalg.inv(TRUTH[0])) < 0.3


def test_sixteen_bit_and_float_give_what_eight_bit_gives(scene_frames):
    frames = [scene_frames[k] for k in (1, 2)]
    results = [
        align_stack(Stack.from_arrays(these), reference=1).transforms[0]
        for these in (
            to_bits(frames),
            to_bits(frames, dtype=np.uint16),
            [f.astype(np.float32) for f in frames],
            [f.astype(np.float64) for f in frames],
        )
    ]
    for transform in results[1:]:
        assert worst(transform, results[0].matrix) < 0.05


@pytest.mark.parametrize(
    ("model", "truth"),
    [
        ("translation", matrix(-17.4, 8.7)),
        ("affine", matrix(5, 3) @ np.array([[1.02, 0.01, -4], [-0.004, 0.99, 2], [0, 0, 1]])),
        ("homography", np.array([[1.01, 0.004, 3], [-0.003, 1.0, -2], [1.5e-5, -1e-5, 1]])),
    ],
)
def test_other_models(model, truth):
    scene = picture("astronaut")
    frames = [moved(scene, np.eye(3)), moved(scene, truth)]
    found = align_stack(Stack.from_arrays(to_bits(frames)), model=model, reference=0)
    assert found.model == model
    assert worst(found.transforms[1], truth) < 0.1


@pytest.mark.parametrize("sigma", [0, 25])
def test_aligned_stacks_are_recognised_and_untouched(sigma):
    stack = demo_simulation(frames=3, sigma=sigma).stack()
    found = align_stack(stack)
    assert found.already_aligned
    assert found.changes_nothing
    assert aligned(stack, found) is stack


def test_identical_frames_and_single_frames_do_not_move():
    frame = to_bits([picture()])[0]
    found = align_stack(Stack.from_arrays([frame, frame, frame]))
    assert found.changes_nothing
    alone = align_stack(Stack.from_arrays([frame]))
    assert alone.changes_nothing and alone.kept == (0,)


def test_whole_pixel_shifts_are_exactly_that():
    scene = to_bits([picture()])[0]
    frames = [scene[20:320, 20:460], scene[13:313, 31:471]]
    found = align_stack(Stack.from_arrays(frames), reference=0)
    assert found.transforms[1].whole_shift == (-11, 7)
    both = aligned(Stack.from_arrays(frames), found)
    assert np.array_equal(both[0], both[1])


def test_aligning_brings_frames_together(scene_frames):
    stack = Stack.from_arrays(to_bits(scene_frames))
    text = alignment_to_json(align_stack(stack))
    result = aligned(stack, alignment_from_json(text))
    before = np.abs(stack[0].astype(float) - stack[2]).mean()
    after = np.abs(result[0].astype(float) - result[2]).mean()
    assert after < before / 3
    assert result.height > 180 and result.width > 280


def test_gains_are_found_and_undone(scene_frames):
    gains = np.array([0.8, 0.9, 1.1])
    colours = [np.repeat(f[..., None], 3, axis=2) * [0.7, 0.6, 0.5] for f in scene_frames[1:4]]
    colours[0] = colours[0] * gains
    stack = Stack.from_arrays(to_bits(colours, sigma=5))
    found = align_stack(stack)
    np.testing.assert_allclose(found.gains[0], 1 / gains, rtol=0.012)
    np.testing.assert_allclose(found.gains[2], 1, rtol=0.006)
    assert found.gains[1] == (1.0, 1.0, 1.0)
    unasked = align_stack(stack, match_exposure=False)
    assert all(gain == 1.0 for triple in unasked.gains for gain in triple)
    assert worst(found.transforms[0], TRUTH[1]) < 0.3  # other light does not disturb


def other_scene():
    return to_bits([picture("rocket")[MARGIN:-MARGIN, MARGIN:-MARGIN]])[0]


NO_PLACE = {
    "flat": lambda: np.full(SHAPE, 120, np.uint8),
    "black": lambda: np.zeros(SHAPE, np.uint8),
    "noise": lambda: np.random.default_rng(1).normal(128, 25, SHAPE).clip(0, 255).astype(np.uint8),
    "another scene": other_scene,
    "mirrored": lambda: to_bits([picture()])[0][MARGIN:-MARGIN, MARGIN:-MARGIN][:, ::-1].copy(),
}


@pytest.mark.parametrize("kind", NO_PLACE)
def test_frames_that_have_no_place_are_named(scene_frames, kind):
    frames = to_bits(scene_frames)
    frames.insert(4, NO_PLACE[kind]())
    stack = Stack.from_arrays(frames, names=[f"{k}.tif" for k in range(6)])
    with pytest.raises(CofuseError, match=r"4\.tif cannot be aligned.*leave"):
        align_stack(stack, reference=2)
    found = align_stack(stack, reference=2, on_failure="leave-out")
    assert list(found.left_out) == [4]
    assert found.transforms[4] is None
    assert found.kept == (0, 1, 2, 3, 5)
    assert worst(found.transforms[5], TRUTH[4]) < 0.3  # found from the one before
    assert len(aligned(stack, found)) == 5


def test_a_bad_reference_is_named(scene_frames):
    frames = to_bits(scene_frames[:2])
    frames.insert(1, NO_PLACE["black"]())
    with pytest.raises(CofuseError, match="reference frame 2 shows no detail"):
        align_stack(Stack.from_arrays(frames))
    frames[1] = other_scene()
    with pytest.raises(CofuseError, match="no frame could be aligned to the reference frame 2"):
        align_stack(Stack.from_arrays(frames), on_failure="leave-out")


def test_every_frame_is_read_once_and_progress_told(scene_frames):
    read, told = [], []
    frames = to_bits(scene_frames)

    def reader(k):
        read.append(k)
        return frames[k]

    stack = Stack([lambda k=k: reader(k) for k in range(5)])
    read.clear()
    align_stack(stack, progress=told.append)
    assert sorted(read) == [0, 1, 2, 3, 4]
    assert [p.done for p in told] == [1, 2, 3, 4, 5]
    assert {(p.stage, p.total) for p in told} == {("align", 5)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "spline"}, "spline"),
        ({"reference": 3}, "`reference` is 3"),
        ({"reference": -1}, "`reference` is -1"),
        ({"on_failure": "ignore"}, "ignore"),
        ({"still": float("nan")}, "`still` is nan"),
    ],
)
def test_nonsense_is_refused_in_words(options, words):
    stack = Stack.from_arrays([np.zeros((20, 20), np.uint8)] * 2)
    with pytest.raises(CofuseError, match=words):
        align_stack(stack, **options)


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (16, 16), (40, 33)])
def test_tiny_pictures_do_no_harm(shape):
    """Aligned or refused, never an exception of NumPy's."""
    frames = [np.random.default_rng(k).integers(0, 255, shape, np.uint8) for k in range(2)]
    with pytest.raises(CofuseError):
        align_stack(Stack.from_arrays(frames))
