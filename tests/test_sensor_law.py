"""The law of noise: what it says in one number, its file, and fusing by one that is given."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cofuse
from cofuse import NoiseLaw
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.sensor.law import BANDS, CLEAN_BELOW, NoiseModel

numbers = st.floats(0, 1e6)


@st.composite
def laws(draw: st.DrawFn) -> NoiseLaw:
    shape = draw(st.integers(1, 4)), draw(st.sampled_from([1, 3])), BANDS
    return NoiseLaw(
        model=NoiseModel(draw(numbers), draw(numbers)),
        levels=draw(arrays(np.float64, shape, elements=numbers)),
        errors=draw(arrays(np.float64, shape, elements=numbers)),
        brightness=draw(arrays(np.float64, (draw(st.integers(0, 5)), 3), elements=numbers)),
        blocks=draw(numbers),
        estimated=draw(st.booleans()),
    )


def assert_same(one: NoiseLaw, other: NoiseLaw) -> None:
    for name in ("levels", "errors", "brightness"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.model, one.blocks, one.estimated) == (other.model, other.blocks, other.estimated)


def small_stack(*, colour: bool, sigma: float = 10.0, frames: int = 3) -> list[Any]:
    picture = sample_picture("astronaut")
    picture = picture if colour else picture[..., 1]
    return list(simulate_stack(picture, frames=frames, shape=(48, 64), sigma=sigma, seed=1).frames)


# What it says.


@given(st.floats(0, 128), st.integers(1, 50), st.booleans())
def test_white_noise_is_its_level_to_the_last_bit(sigma, frames, colour) -> None:
    law = NoiseLaw.white(sigma, frames=frames, colour=colour)
    assert law.sigma == law.overall == sigma and not law.estimated
    assert (law.by_frame == sigma).all() and (law.by_band == sigma).all()
    assert law.is_clean == (sigma < CLEAN_BELOW)


@given(laws())
def test_totals_lie_between_the_least_and_the_largest_level(law) -> None:
    least, most = law.levels.min(axis=-1), law.levels.max(axis=-1)
    slack = 1e-12 * most
    assert (law.by_frame >= least - slack).all() and (law.by_frame <= most + slack).all()
    assert law.levels.min() * (1 - 1e-12) <= law.overall <= law.levels.max() * (1 + 1e-12)


def test_a_band_counts_by_the_frequencies_it_holds() -> None:
    levels = np.zeros((1, 1, BANDS))
    for band, share in enumerate((3 / 4, 3 / 16, 3 / 64, 3 / 256, 1 / 256)):
        levels[:] = 0
        levels[..., band] = 8.0
        law = NoiseLaw(model=NoiseModel(0.0), levels=levels.copy(), errors=np.zeros_like(levels))
        assert law.overall == pytest.approx(8.0 * share**0.5)


def test_what_is_to_be_removed_is_nothing_where_there_is_little() -> None:
    for sigma in (0.0, 0.5, 0.99 * CLEAN_BELOW):
        nothing = NoiseLaw.white(sigma, frames=3, colour=True).to_remove()
        assert nothing.overall == 0 and nothing.levels.shape == (3, 3, BANDS)
    much = NoiseLaw.white(CLEAN_BELOW)
    assert much.to_remove() is much


# Its file.


@given(laws())
@settings(deadline=None)
def test_the_file_keeps_every_digit(law) -> None:
    assert_same(NoiseLaw.from_json(law.to_json()), law)


@pytest.mark.parametrize(
    "text",
    ["", "noise", "[]", "3", '"format"', "{}", '{"format": "cofuse-noise"}', "[" * 100_000],
)
def test_what_is_no_law_is_refused(text: str) -> None:
    with pytest.raises(CofuseError, match=r"^this is no noise law; `cofuse noise` writes one$"):
        NoiseLaw.from_json(text)


CHANGES: dict[str, tuple[str, Any, str]] = {
    "other format": ("format", "cofuse alignment", "format 'cofuse alignment' version 1"),
    "later version": ("version", 2, "version 2; expected cofuse-noise version 1"),
    "negative floor": ("floor", -1.0, "floor is -1.0"),
    "words": ("gain", "much", "could not convert"),
    "no number": ("blocks", None, "cannot be used"),
    "a huge number": ("floor", 10**400, "cannot be used"),
    "not a number": ("blocks", float("nan"), "not from 0 to 1e+06"),
    "negative levels": ("levels", [[[-1.0] * BANDS]], "not from 0 to 1e+06"),
    "two planes": ("levels", [[[1.0] * BANDS] * 2], r"shape (1, 2, 5)"),
    "no frames": ("levels", [], r"shape (0,)"),
    "ragged": ("levels", [[[1.0] * BANDS, [1.0]]], "inhomogeneous"),
    "few bands": ("levels", [[[1.0] * 4]], r"shape (1, 1, 4)"),
    "other errors": ("errors", [[[0.0] * BANDS]] * 2, "errors"),
    "endless errors": ("errors", [[[float("inf")] * BANDS]], "not from 0 to 1e+06"),
    "half a row": ("brightness", [[1.0, 2.0]], "cannot reshape"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_law_is_refused_in_one_line(change: str) -> None:
    name, value, said = CHANGES[change]
    content = json.loads(NoiseLaw.white(5.0).to_json()) | {name: value}
    with pytest.raises(CofuseError) as refusal:
        NoiseLaw.from_json(json.dumps(content))
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "name", ["floor", "gain", "levels", "errors", "brightness", "blocks", "estimated"]
)
def test_a_law_that_lacks_a_part_is_refused(name: str) -> None:
    content = json.loads(NoiseLaw.white(5.0).to_json())
    del content[name]
    with pytest.raises(CofuseError, match=f"'{name}' is missing"):
        NoiseLaw.from_json(json.dumps(content))


# Fusing by one.


@pytest.mark.filterwarnings("ignore:the frames hardly differ")
@pytest.mark.parametrize("preset", ["auto", "fast", "paper"])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("sigma", [0.0, 1.2, 10.0])
def test_a_white_law_is_as_good_as_its_level(preset, colour, sigma) -> None:
    frames = small_stack(colour=colour)
    told = cofuse.fuse(frames, sigma=sigma, preset=preset)
    by_law = cofuse.fuse(frames, noise=NoiseLaw.white(sigma, colour=colour), preset=preset)
    np.testing.assert_array_equal(by_law.image, told.image)
    np.testing.assert_array_equal(by_law.source_map, told.source_map)
    for result in (told, by_law):
        assert result.sigma == sigma and not result.sigma_estimated
        assert_same(result.noise, NoiseLaw.white(sigma, frames=len(frames), colour=colour))


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_the_estimated_law_gives_what_estimating_gives(preset) -> None:
    frames = small_stack(colour=True)
    found = cofuse.fuse(frames, preset=preset)
    given_law = cofuse.fuse(frames, noise=cofuse.estimate_noise(frames), preset=preset)
    np.testing.assert_array_equal(given_law.image, found.image)
    assert_same(given_law.noise, found.noise)
    assert found.sigma_estimated and not given_law.sigma_estimated
    assert found.sigma == given_law.sigma > 0


def test_little_noise_is_left_if_found_and_taken_out_if_given() -> None:
    ramp = np.tile(np.linspace(40, 200, 64, dtype=np.float32) / 255, (48, 1))
    frames = [ramp, ramp[:, ::-1].copy()]
    found = cofuse.fuse(frames)
    assert found.sigma == 0 and found.sigma_estimated and found.noise.is_clean
    law = NoiseLaw.white(1.2)
    result = cofuse.fuse(frames, noise=law)
    assert result.sigma == 1.2 and result.noise.sigma == 1.2
    assert not np.array_equal(result.image, found.image)


def test_frames_that_are_left_out_take_their_noise_with_them() -> None:
    first, second, third = small_stack(colour=False)
    levels = np.array([4.0, 8.0, 100.0, 12.0])[:, None, None] * np.ones((4, 1, BANDS))
    law = NoiseLaw(model=NoiseModel(8.0), levels=levels, errors=np.zeros_like(levels))
    result = cofuse.fuse([first, second, first, third], noise=law)
    expected = cofuse.fuse([first, second, third], noise=law.only([0, 1, 3]))
    np.testing.assert_array_equal(result.image, expected.image)
    assert result.noise.by_frame.ravel().tolist() == [4.0, 8.0, 12.0]


def test_a_law_of_another_stack_lends_its_typical_frame() -> None:
    levels = np.array([4.0, 8.0, 100.0])[:, None, None] * np.ones((3, 1, BANDS))
    law = NoiseLaw(
        model=NoiseModel(8.0), levels=levels, errors=np.zeros_like(levels), estimated=True
    )
    fitted = law.for_stack(2, colour=False)
    assert fitted.by_frame.tolist() == [[8.0], [8.0]] and fitted.estimated
    assert law.for_stack(3, colour=False) is law


def test_wrong_laws_are_refused_before_the_work() -> None:
    grey, colour = (small_stack(colour=each, sigma=0.0) for each in (False, True))
    with pytest.raises(CofuseError, match="`sigma` and `noise` were both given; expected one"):
        cofuse.fuse(grey, sigma=3.0, noise=NoiseLaw.white(3.0))
    with pytest.raises(CofuseError, match="one of RGB frames, but the frames are grey"):
        cofuse.fuse(grey, noise=NoiseLaw.white(3.0, colour=True))
    with pytest.raises(CofuseError, match="one of grey frames, but the frames are RGB"):
        cofuse.fuse(colour, noise=NoiseLaw.white(3.0))
    with pytest.raises(CofuseError, match=r"`noise` is 129.0; expected .* from 0 to 128"):
        cofuse.fuse(grey, noise=NoiseLaw.white(129.0))


@pytest.mark.parametrize(("sigma", "error", "clean"), [(1.6, 0.0, False), (1.6, 0.3, True)])
def test_a_law_may_be_clean_by_its_own_error(sigma, error, clean) -> None:
    law = NoiseLaw.white(sigma, frames=2, colour=False)
    assert replace(law, errors=np.full_like(law.errors, error)).is_clean is clean
    assert not replace(law, levels=2 * law.levels).is_clean
