"""The joint model's compiled kernels against the plain ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.joint import (
    AGREEMENT_SCALES,
    BAND_WINDOWS,
    BANDS,
    DETAIL_CHANNELS,
    DETAIL_FILTERS,
    GUIDES,
    LEVEL_CHANNELS,
    PENALTIES,
    JointModel,
    _expected_shapes,
)
from cofuse.kernels import (
    cpu,
    joint_layers,
    joint_mixing,
    joint_mixing_loops,
    joint_reference,
    joint_stage_loops,
    joint_stages,
)
from cofuse.kernels.joint_layers import Scratch
from cofuse.kernels.joint_reach import Reach
from cofuse.kernels.joint_weigher import Guides, Weigher

Array = np.ndarray[Any, Any]

SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 70)


def random_model(seed: int, *, stages: int = 2, filters: int = 10, side: int = 7) -> JointModel:
    """A model none of whose parameters is zero, of about the magnitudes training gives."""
    rng = np.random.default_rng(seed)
    coarse = max(1, filters // 2)
    names = {f"stages.{i}.fine.filters": np.empty((filters, 1, side, side)) for i in range(stages)}
    names["stages.0.coarse.filters"] = np.empty((coarse, 1, side, side))
    arrays = {}
    for name, shape in _expected_shapes(names).items():
        values = rng.normal(size=shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        part = name.rpartition(".")[2]
        if part == "width":
            values = rng.uniform(0, 3, shape)
        elif part in ("strength", "filters", "correction"):
            values *= 0.3
        elif part == "guide":
            values *= 0.1
        elif part == "fidelity":  # too large, steps would overshoot, and roundings grow with them
            values = rng.normal([-1.5, 0, 0, 0], 0.3)
        elif part in ("strength_noise", "width_noise", "strength_left", "width_left"):
            values = rng.normal(-0.5, 0.3, shape)
        arrays[name] = values.astype(np.float32)
    return JointModel.from_arrays(arrays, {"seed": seed})


def frames_of(count: int, height: int, width: int, seed: int) -> Array:
    """Frames in units of noise, with some structure."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 12, (count, height // 8 + 1, width // 8 + 1))
    fine = np.kron(coarse, np.ones((1, 8, 8)))[:, :height, :width]
    return (fine + rng.normal(size=(count, height, width))).astype(np.float32)


def doubles(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: values.astype(np.float64) for name, values in arrays.items()}


def weigh(
    model: JointModel, frames: Array, relative: list[float], unit: float
) -> tuple[Array, Array]:
    """Scores of whole pictures, and all guides at half size, four planes each."""
    count, height, width = frames.shape
    rows, columns = (Reach.of((0, n), n, len(LEVEL_CHANNELS)) for n in (height, width))
    out = np.empty((count, 1 + BANDS, height, width), np.float32)
    arrays = model.part("weigher")
    guides = Guides(arrays["guide"])
    weigher = Weigher(arrays, rows, columns, unit, Scratch())
    made = list(weigher.scores(list(frames), relative, out, guides=guides))
    assert all(np.shares_memory(a, b) for a, b in zip(made, out, strict=True))
    everything = slice(None)
    return out, guides.planes(everything, everything, everything)


def test_channels_come_in_fours() -> None:
    channels = *LEVEL_CHANNELS, DETAIL_CHANNELS, DETAIL_FILTERS, 1 + BANDS
    assert all(count % 4 == 0 for count in channels)


def test_scratch_is_used_again_and_grows() -> None:
    scratch = Scratch()
    first = scratch.take("a", 3, 4)
    assert np.shares_memory(first, scratch.take("a", 2, 5))
    assert not np.shares_memory(first, scratch.take("b", 3, 4))
    assert scratch.take("a", 5, 4).shape == (5, 4)
    second = scratch.take("b", 3, 4)
    scratch.clear()
    assert not np.shares_memory(second, scratch.take("b", 3, 4))


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_cut_repeats_edges_past_the_picture(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    whole = np.arange(2.0 * height * width, dtype=np.float32).reshape(2, height, width)
    spans = []
    for size in (height, width):
        start = data.draw(st.integers(-2, size - 1))
        spans.append((start, data.draw(st.integers(max(start, 0) + 1, size + 3))))
    rows, columns = (np.arange(*span) for span in spans)
    piece = joint_layers.Piece(whole, ((0, height), (0, width)))
    out = np.full((2, len(rows), len(columns)), np.nan, np.float32)
    joint_layers.cut(piece, (spans[0], spans[1]), out)
    expected = whole[:, rows.clip(0, height - 1)][:, :, columns.clip(0, width - 1)]
    np.testing.assert_array_equal(out, expected)


@given(st.integers(1, 4), SIDES, SIDES, st.floats(1.0, 60.0), SEEDS)
@settings(deadline=None, max_examples=20)
def test_scores_equal_the_reference(
    count: int, height: int, width: int, unit: float, seed: int
) -> None:
    model = random_model(seed)
    frames = frames_of(count, height, width, seed)
    relative = list(np.random.default_rng(seed).uniform(0.5, 2.0, count))
    scores, guides = weigh(model, frames, relative, unit)
    expected, told = joint_reference.weigh(
        frames.astype(np.float64), relative, unit, doubles(model.part("weigher"))
    )
    shuffled = joint_reference._shuffled(guides)[:, :height, :width]
    assert shuffled.shape == told.shape == (model.stages * GUIDES, height, width)
    # Sums of some hundred products of order 1 pass a dozen layers.
    for got, wanted in ((scores, expected), (shuffled, told)):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * (1 + np.abs(wanted).max()))


@given(st.integers(33, 400), st.data())
@settings(deadline=None, max_examples=60)
def test_reach_holds_all_that_a_level_takes(length: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, length - 1))
    stop = data.draw(st.integers(start + 1, length))
    levels = len(LEVEL_CHANNELS)
    part, whole = Reach.of((start, stop), length, levels), Reach.of((0, length), length, levels)
    assert whole.picture == (0, length)
    assert part.picture[0] <= start < stop <= part.picture[1]
    placed = part.placed
    assert part.picture[0] <= max(placed[0] - 2, 0)
    assert min(placed[1] + 2, length) <= part.picture[1]
    assert 2 * part.risen[0] <= placed[0] <= start < stop <= placed[1] <= 2 * part.risen[1]
    assert part.answers[0][0] <= part.risen[0] <= part.guides[0]
    assert part.guides[1] <= part.risen[1] <= part.answers[0][1]
    for spans in zip(part.answers, part.totals, part.features, whole.features, strict=True):
        for inner, outer in itertools.pairwise(spans):
            assert outer[0] <= inner[0] < inner[1] <= outer[1]


@given(
    st.integers(1, 13),
    st.sampled_from([3, 5, 7, 9]),
    st.integers(1, 50),
    st.integers(1, 40),
    st.floats(-3, 2),
    SEEDS,
)
@settings(deadline=None, max_examples=40)
def test_stage_equals_the_reference(
    filters: int, side: int, height: int, width: int, log_unit: float, seed: int
) -> None:
    arrays = random_model(seed, filters=filters, side=side).part("stages.0")
    rng = np.random.default_rng(seed)
    x, pictures = np.stack([frames_of(2, height, width, seed + i) for i in (0, 1)], 1)
    fine, coarse = rng.uniform(-2, 0.5, (2, height, width)).astype(np.float32)
    guide = rng.normal(0, 1.5, (4 * GUIDES, -(-height // 2), -(-width // 2))).astype(np.float32)
    units = [log_unit, log_unit + 0.3]
    # Planes may have widths of their own.
    own = {"fine.width": rng.normal(0, 0.5, (2, PENALTIES, filters)).astype(np.float32)}
    of_planes = [arrays | {name: width[plane] for name, width in own.items()} for plane in (0, 1)]
    arrays |= own
    result = joint_stages.stage(
        x, joint_stages.Mixture(pictures, fine, coarse), units, guide, arrays
    )
    assert result.dtype == np.float32
    guides = joint_reference._shuffled(guide.astype(np.float64))[:, :height, :width]
    for plane, unit in enumerate(units):
        mixture = tuple(p.astype(np.float64) for p in (pictures[plane], fine, coarse))
        expected = joint_reference.stage(
            x[plane].astype(np.float64), mixture, unit, guides, doubles(of_planes[plane])
        )
        atol = 1e-5 * (1 + np.abs(expected).max())
        np.testing.assert_allclose(result[plane], expected, rtol=0, atol=atol)


@given(st.integers(1, 30), st.integers(1, 30), SEEDS)
@settings(deadline=None, max_examples=40)
def test_halving_and_enlarging_equal_the_reference(height: int, width: int, seed: int) -> None:
    plane = np.random.default_rng(seed).normal(size=(height, width)).astype(np.float32)
    small = joint_stages._halved(plane)
    np.testing.assert_allclose(small, joint_reference.halve(plane), atol=1e-6)
    out = plane.copy()
    joint_layers.enlarged(small, out)
    expected = plane + joint_reference.upsample(small[None])[0, :height, :width]
    np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize(("fine", "coarse", "reach"), [(7, 7, 16), (7, 3, 8), (13, 3, 12)])
def test_reach_of_a_stage_is_even_and_no_longer_than_needed(
    fine: int, coarse: int, reach: int
) -> None:
    arrays = {
        "fine.filters": np.empty((4, 1, fine, fine), np.float32),
        "coarse.filters": np.empty((4, 1, coarse, coarse), np.float32),
    }
    assert joint_stages.stage_reach(arrays) == reach


@pytest.mark.parametrize("terms", [1, 2, 3, 4])
def test_slope_keeps_its_accuracy_over_all_magnitudes(terms: int) -> None:
    rng = np.random.default_rng(terms)
    u = np.concatenate([[0.0], np.geomspace(1e-8, 1e5, 400)])
    u = np.concatenate([-u[::-1], u]).astype(np.float32)
    # Positive strengths: without cancellation the relative error is that of a few roundings.
    arrays = {
        "strength": rng.uniform(1e-4, 1, (terms, 4)),
        "strength_noise": rng.normal(size=(terms, 4)),
        "width": rng.uniform(-4, 5, (terms, 4)),
        "width_noise": rng.normal(0, 0.3, (terms, 4)),
    }
    packed = joint_stages._terms({n: a.astype(np.float32) for n, a in arrays.items()}, 0.7)
    strength = arrays["strength"] * np.exp(arrays["strength_noise"] * 0.7)
    inverse = np.exp(-2 * (arrays["width"] + arrays["width_noise"] * 0.7))
    one, ten = np.ones_like(u), np.full_like(u, 10)
    for j in range(4):
        bent = u.copy()
        joint_stage_loops._slope(bent, packed[j], one, ten)
        expected = joint_reference.slope(10.0 * u.astype(np.float64), strength[:, j], inverse[:, j])
        np.testing.assert_allclose(bent, expected / 10, rtol=1e-5)


def test_more_terms_than_the_kernel_takes_are_refused() -> None:
    names = ("strength", "strength_noise", "width", "width_noise")
    with pytest.raises(ValueError, match="4 terms of a penalty, not 5"):
        joint_stages._terms({name: np.ones((5, 4), np.float32) for name in names}, 0.0)


def mix(frames: Array, scores: Array, relative: list[float]) -> joint_stages.Mixture:
    """Mix frames (K, planes, H, W) that come one after the other."""
    mixer = joint_mixing.Mixer(frames.shape[1], BANDS, frames.shape[2:])
    for frame, own, noise in zip(frames, scores, relative, strict=True):
        mixer.add(joint_mixing.lows(list(frame), BAND_WINDOWS), own[1:], noise)
    return mixer.mixture()


def equal_mixtures(
    mixture: joint_stages.Mixture, frames: Array, scores: Array, relative: list[float]
) -> None:
    for plane, picture in enumerate(mixture.pictures):
        expected = joint_reference.mix(
            frames[:, plane].astype(np.float64), scores.astype(np.float64), relative, BAND_WINDOWS
        )
        for got, wanted in zip((picture, mixture.fine, mixture.coarse), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@given(st.integers(1, 5), SIDES, SIDES, st.sampled_from([0.1, 3.0, 60.0]), SEEDS)
@settings(deadline=None, max_examples=30)
def test_mixtures_equal_the_reference(
    count: int, height: int, width: int, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    frames = np.stack([frames_of(count, height, width, seed + p) for p in range(3)], 1)
    scores = rng.normal(0, spread, (count, 1 + BANDS, height, width)).astype(np.float32)
    relative = list(rng.uniform(0.5, 2, count))
    equal_mixtures(mix(frames, scores, relative), frames, scores, relative)


@given(st.integers(1, 5), SIDES, SIDES, SEEDS)
@settings(deadline=None, max_examples=15)
def test_copies_equal_mixtures_of_one_frame(count: int, height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = np.stack([frames_of(count, height, width, seed + p) for p in range(2)], 1)
    index = rng.integers(0, count, (height, width))
    relative = list(rng.uniform(0.5, 2, count))
    own = index == np.arange(count)[:, None, None]
    scores = np.repeat(np.where(own, 0.0, -1e4)[:, None], 1 + BANDS, 1)
    mixture = joint_mixing.chosen([list(frame) for frame in frames], index, relative)
    equal_mixtures(mixture, frames, scores, relative)


@given(st.integers(1, 5), SIDES, SIDES, SEEDS)
@settings(deadline=None, max_examples=30)
def test_second_weighing_equals_the_reference(
    count: int, height: int, width: int, seed: int
) -> None:
    arrays = random_model(seed).part("agreement")
    *frames, picture = frames_of(count + 1, height, width, seed)
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, (count, 1 + BANDS, height, width)).astype(np.float32)
    before = scores.copy()
    expected = joint_reference.reweigh(
        np.stack(frames).astype(np.float64),
        picture.astype(np.float64),
        scores.astype(np.float64),
        doubles(arrays),
        AGREEMENT_SCALES,
    )
    agreement = joint_mixing.Agreement(frames, picture, arrays, AGREEMENT_SCALES)
    corrected = np.stack([agreement.scores(k, own) for k, own in enumerate(scores)])
    np.testing.assert_allclose(corrected, expected[:, 1:], rtol=0, atol=1e-4)
    np.testing.assert_array_equal(scores, before)


def choose(scores: Array) -> tuple[Array, Array]:
    choice = joint_mixing.Choice(scores.shape[2:])
    for own in scores:
        choice.add(own[0])
    return choice.index, choice.confidence()


@given(st.integers(1, 6), st.integers(1, 40), SIDES, st.sampled_from([0.1, 3.0, 80.0]), SEEDS)
@settings(deadline=None, max_examples=30)
def test_choice_equals_the_reference(
    count: int, height: int, width: int, spread: float, seed: int
) -> None:
    shape = count, 1 + BANDS, height, width
    scores = np.random.default_rng(seed).normal(0, spread, shape).astype(np.float32)
    index, confidence = choose(scores)
    expected, lead = joint_reference.choose(scores.astype(np.float64))
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_allclose(confidence, lead, rtol=0, atol=1e-5)


def test_earlier_of_equal_frames_is_chosen_without_confidence() -> None:
    scores = np.ones((3, 1 + BANDS, 5, 4), np.float32)
    index, confidence = choose(scores)
    assert not index.any()
    np.testing.assert_allclose(confidence, 0, atol=1e-7)


def test_exponential_is_as_good_as_single_precision() -> None:
    x = np.linspace(-87, 88, 20001).astype(np.float32)
    result = np.array([joint_mixing_loops._exp(value) for value in x])
    # Far from 0 the argument's own rounding counts: |x| units in the last place.
    np.testing.assert_allclose(result, np.exp(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_results_do_not_depend_on_the_number_of_bands(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(0)
    frames = frames_of(2, 130, 90, 0)
    zeros = np.zeros((130, 90), np.float32)

    def everything() -> tuple[Array, Array]:
        mixture = joint_stages.Mixture(frames[1:], zeros, zeros)
        scores, guide = weigh(model, frames, [1.0, 1.0], 5.0)
        guide = guide[: 4 * GUIDES, :65, :45].copy()
        step = joint_stages.stage(frames[:1], mixture, [0.0], guide, model.part("stages.0"))
        return scores, step

    monkeypatch.setattr(cpu, "_threads", lambda: 1)
    one = everything()
    monkeypatch.setattr(cpu, "_threads", lambda: threads)
    many = everything()
    for a, b in zip(many, one, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
