"""Public functions refuse what they cannot use with one line of words, and take what they can."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cofuse
from cofuse import CofuseError
from cofuse.arguments import MOST_SIGMA, check_number
from cofuse.evaluation.baselines import METHODS
from cofuse.evaluation.simulation import sample_picture
from cofuse.learning import LearningSettings, sample_patches

FRAMES = [np.random.default_rng(k).integers(0, 256, (24, 20), np.uint8) for k in range(3)]
#: The same, a little further each time.
MOVED = [sample_picture("coffee")[100:220, 100 + k : 260 + k] for k in (0, 1, 3)]
PATCHES = np.random.default_rng(0).normal(size=(16, 40))


def ignore(*_: object) -> None:
    """Take anything, as a callback may."""


#: What is of the wrong kind for almost anything.
ODD = [None, "x", b"x", 1.5, -1, 10**400, float("nan"), float("inf"), 1j, True, [], {}]
ODD += [object(), ignore]


def fuse(**arguments: Any) -> Any:
    return cofuse.fuse(FRAMES, **({"preset": "fast", "sigma": 0.0} | arguments))


def align(**arguments: Any) -> Any:
    return cofuse.align_stack(FRAMES, **({"on_failure": "leave-out"} | arguments))


def learn(**arguments: Any) -> Any:
    chosen = LearningSettings(rows=16, rounds=1, coding_iterations=1)
    return cofuse.learn_operator(PATCHES, **({"settings": chosen} | arguments))


def simulate(**arguments: Any) -> Any:
    return cofuse.simulate_stack(FRAMES[0], **({"frames": 2, "objects": 0} | arguments))


#: Function, argument, and something that it cannot use.
MISTAKES: list[tuple[Callable[..., Any], str, Any]] = [
    (fuse, "sigma", "x"),
    (fuse, "sigma", -1.0),
    (fuse, "sigma", 128.5),
    (fuse, "sigma", 1e9),
    (fuse, "sigma", 1e30),
    (fuse, "sigma", float("nan")),
    (fuse, "sigma", [5.0]),
    (fuse, "sigma", np.zeros(2)),
    (fuse, "noise", 5.0),
    (fuse, "noise", {"sigma": 5.0}),
    (fuse, "noise", cofuse.NoiseLaw),
    (fuse, "denoise", "half"),
    (fuse, "denoise", None),
    (fuse, "denoise", 1.5),
    (fuse, "preset", 3),
    (fuse, "preset", None),
    (fuse, "preset", ["fast"]),
    (fuse, "preset", {}),
    (fuse, "align", "yes"),
    (fuse, "align", np.zeros(2)),
    (fuse, "operator", 3),
    (fuse, "operator", b"dct-7"),
    (fuse, "white", "x"),
    (fuse, "white", 0),
    (fuse, "white", 1e-300),
    (fuse, "white", float("inf")),
    (fuse, "max_memory", "1GB"),
    (fuse, "max_memory", -5),
    (fuse, "max_memory", float("nan")),
    (fuse, "progress", None),
    (fuse, "progress", "bar"),
    (fuse, "preview", "show"),
    (align, "model", 3),
    (align, "model", ["similarity"]),
    (align, "reference", "first"),
    (align, "reference", 0.5),
    (align, "on_failure", None),
    (align, "still", "x"),
    (align, "still", None),
    (align, "progress", None),
    (learn, "settings", {"rows": 16}),
    (learn, "progress", None),
    (learn, "provenance", "mine"),
    (fuse, "device", 3),
    (fuse, "device", np.zeros(2)),
    (fuse, "operator", np.zeros(2)),
    (simulate, "dtype", "x"),
    (simulate, "frames", 2.5),
    (simulate, "frames", "two"),
    (simulate, "frames", 100_000),
    (simulate, "layers", "x"),
    (simulate, "objects", None),
    (simulate, "max_radius", 1e21),
    (simulate, "max_radius", 3000),
    (simulate, "max_radius", "wide"),
    (simulate, "sigma", None),
    (simulate, "sigma", 1e30),
    (simulate, "shape", 3),
    (simulate, "seed", -1),
    (simulate, "seed", "x"),
]


@pytest.mark.parametrize(
    ("function", "name", "value"),
    MISTAKES,
    ids=[f"{f.__name__}-{n}-{v!r:.20}" for f, n, v in MISTAKES],
)
def test_a_wrong_argument_is_named_with_what_was_expected(function, name, value):
    with pytest.raises(CofuseError) as refusal:
        function(**{name: value})
    text = str(refusal.value)
    assert re.match(rf"`{name}` is .+; expected .+", text) and "\n" not in text, text


@pytest.mark.parametrize(
    "call",
    [
        lambda: cofuse.fuse(3),
        lambda: cofuse.fuse(None),
        lambda: cofuse.fuse("abc"),
        lambda: cofuse.fuse([]),
        lambda: cofuse.fuse([[[1, 2], [3]]]),
        lambda: cofuse.fuse(FRAMES[0]),
        lambda: cofuse.fuse(FRAMES, device=3),
        lambda: cofuse.fuse(FRAMES, device=["cpu"]),
        lambda: cofuse.align_stack(None),
        lambda: cofuse.aligned(FRAMES, None),
        lambda: cofuse.aligned(MOVED[:2], cofuse.align_stack(MOVED)),
        lambda: cofuse.estimate_noise(3),
        lambda: cofuse.estimate_noise(FRAMES, progress=None),
        lambda: cofuse.estimate_depth(FRAMES, z_step="x"),
        lambda: cofuse.estimate_depth(FRAMES, z_step=0),
        lambda: cofuse.estimate_depth(FRAMES, most_pixels="x"),
        lambda: cofuse.estimate_depth(FRAMES, source_map=3),
        lambda: cofuse.estimate_depth(FRAMES, progress=None),
        lambda: cofuse.learn_operator(None),
        lambda: cofuse.learn_operator([[1.0]], separable=True),
        lambda: cofuse.load_operator(3),
        lambda: cofuse.load_operator(None),
        lambda: cofuse.load_operator("a" * 300),
        lambda: cofuse.load_operator("dct-" + "9" * 5000),
        lambda: cofuse.read_image(3),
        lambda: cofuse.read_image(None),
        lambda: cofuse.read_stack(None),
        lambda: cofuse.read_stack([3]),
        lambda: cofuse.read_stack(3),
        lambda: cofuse.write_image(3, FRAMES[0]),
        lambda: cofuse.write_image("x.png", "picture"),
        lambda: cofuse.write_image("x.png", None),
        lambda: cofuse.write_image("x.png", FRAMES[0], quality="best"),
        lambda: cofuse.write_image("x.png", FRAMES[0], depth=[8]),
        lambda: cofuse.write_image("x.png", FRAMES[0], depth=16, white="x"),
        lambda: cofuse.write_image("x.png", FRAMES[0], metadata=3),
        lambda: cofuse.write_image("x.jpg", FRAMES[0], quality=np.zeros((2, 2))),
        lambda: cofuse.Stack.from_arrays(FRAMES, white=None, names=["one"]),
        lambda: cofuse.Stack.from_arrays(FRAMES, names=3),
        lambda: cofuse.Stack(3),
        lambda: cofuse.Stack(FRAMES),
        lambda: cofuse.FastSettings(window="x"),
        lambda: cofuse.FastSettings(window=None),
        lambda: cofuse.PaperSettings(epsilon="x"),
        lambda: cofuse.AutoSettings(model=3),
        lambda: cofuse.PaperSettings(x_step=[]),
        lambda: LearningSettings(rows="x"),
        lambda: LearningSettings(rows=1_000_000),
        lambda: LearningSettings(rounds=0),
        lambda: LearningSettings(seed=-1),
        lambda: sample_patches([FRAMES[0]], patch_size=4, count=99_999_999_999, seed=0),
        lambda: sample_patches([FRAMES[0]], patch_size="x", count=10, seed=0),
        lambda: sample_patches([FRAMES[0]], patch_size=4, count=10, seed="x"),
        lambda: METHODS["average"](cofuse.Stack.from_arrays(FRAMES), sigma="x"),
        lambda: METHODS["average"](cofuse.Stack.from_arrays(FRAMES), sigma=1e30),
    ],
)
def test_other_mistakes_are_refused_in_words(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CofuseError) as refusal:
        call()
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 6000
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    function=st.sampled_from([fuse, align, simulate]),
    data=st.data(),
)
def test_whatever_is_given_works_or_is_refused(function, data):
    names = sorted({name for f, name, _ in MISTAKES if f is function})
    name = data.draw(st.sampled_from(names))
    value = data.draw(
        st.one_of(st.sampled_from(ODD), st.floats(), st.integers(), st.text(max_size=9))
    )
    try:
        function(**{name: value})
    except CofuseError as refusal:
        assert "\n" not in str(refusal)


@given(st.floats(), st.floats(allow_nan=False), st.floats(allow_nan=False), st.booleans())
def test_numbers_are_taken_exactly_within_their_bounds(value, least, most, whole):
    fits = not whole and least <= value <= most and abs(value) != float("inf")
    if fits:
        check_number("it", value, least, most, whole=whole)
    else:
        with pytest.raises(CofuseError, match=r"^`it` is .*; expected a (whole )?number"):
            check_number("it", value, least, most, whole=whole)


def test_numbers_of_numpy_are_numbers():
    for number in (np.float32(3), np.float64(3), np.int64(3), np.uint8(3), 3, 3.0):
        check_number("it", number, 0, 5)
    check_number("it", np.int16(3), 0, 5, whole=True)
    assert fuse(sigma=np.float32(0), denoise=np.int8(1), align=np.bool_(False)).image.shape == (
        24,
        20,
    )


def test_the_largest_noise_level_is_that_of_black_and_white():
    # Half the pixels black and half white: nothing between 0 and 255 varies more.
    assert np.std([0, 255]) <= MOST_SIGMA < np.std([0, 255]) + 1
    frames = [sample_picture("chelsea")[:40, :40] for _ in range(2)]
    restored = cofuse.fuse(frames, sigma=MOST_SIGMA, preset="fast").image
    assert abs(restored.mean() - frames[0].mean()) < 8, "a picture, not noise or nothing"


def test_arrays_are_as_good_as_a_stack():
    stack = cofuse.Stack.from_arrays(MOVED)
    found, of_arrays = (cofuse.align_stack(frames) for frames in (stack, MOVED))
    assert found.largest_displacement() == of_arrays.largest_displacement() > 1
    for frames in (MOVED, iter(MOVED), np.array(MOVED)):
        np.testing.assert_array_equal(
            list(cofuse.aligned(frames, found)), list(cofuse.aligned(stack, found))
        )
    assert cofuse.estimate_noise(stack).sigma == cofuse.estimate_noise(MOVED).sigma
    depths = [cofuse.estimate_depth(frames).position for frames in (stack, MOVED)]
    np.testing.assert_array_equal(*depths)
