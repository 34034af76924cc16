"""The value of white: stated by files, shown by frames, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

import cofuse
from cofuse import Stack, fuse, read_image, read_stack, write_image
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_metadata
from cofuse.images.pixels import found_white, largest_shown
from tests.command_line import run
from tests.test_files_samples import ICC

Array = np.ndarray[Any, Any]


def frames_of(most: int, least: int = 0) -> st.SearchStrategy[list[Array]]:
    """Some small frames of one shape with values up to ``most``."""
    sizes = st.tuples(st.integers(3, 9), st.integers(3, 9))
    shapes = sizes | sizes.map(lambda size: (*size, 3))
    values = st.integers(least, most)
    return shapes.flatmap(
        lambda shape: st.lists(arrays(np.uint16, shape, elements=values), min_size=1, max_size=4)
    )


# What frames show.


@given(frames_of(40000), st.randoms(use_true_random=False))
def test_white_does_not_depend_on_the_order_of_frames_or_how_they_lie(frames, random) -> None:
    white = found_white(frames)
    shuffled = list(frames)
    random.shuffle(shuffled)
    assert found_white(shuffled) == white
    for turn in (np.flipud, np.fliplr, lambda frame: np.swapaxes(frame, 0, 1)):
        assert found_white([turn(frame) for frame in frames]) == white


@given(frames_of(30000), st.data())
def test_fewer_frames_and_parts_of_them_never_show_more(frames, data) -> None:
    white = found_white(frames)
    kept = data.draw(st.lists(st.sampled_from(range(len(frames))), min_size=1, unique=True))
    assert found_white([frames[k] for k in kept]) <= white
    rows = data.draw(st.integers(3, frames[0].shape[0]))
    assert found_white([frame[:rows] for frame in frames]) <= white


@given(frames_of(2000, least=300), st.integers(1, 16))
def test_white_follows_the_unit_of_the_values(frames, factor) -> None:
    assert found_white([frame * np.uint16(factor) for frame in frames]) == factor * found_white(
        frames
    )


@given(frames_of(65535))
def test_white_is_one_of_the_values_or_that_of_8_or_16_bits(frames) -> None:
    white = found_white(frames)
    assert white in (255, 65535) or (
        255 < white <= 32767 and any((f == white).any() for f in frames)
    )


@given(frames_of(3000), st.data())
def test_hot_pixels_and_hot_lines_do_not_set_the_scale(frames, data) -> None:
    frame = frames[0]
    usual = max(255.0, float(frame.max()))
    rows, columns = frame.shape[:2]
    hot = frame.copy()
    # One in any three by three has no majority, nor has a line.
    hot[:: data.draw(st.integers(3, 4)), :: data.draw(st.integers(3, 4))] = 65535
    assert found_white([hot]) <= usual
    line = frame.copy()
    line[data.draw(st.integers(0, rows - 1))] = 65535
    assert found_white([line]) <= usual
    block = frame.copy()
    y, x = data.draw(st.integers(0, rows - 2)), data.draw(st.integers(0, columns - 2))
    block[y : y + 2, x : x + 2] = 65535
    assert found_white([block]) <= usual


def test_what_is_there_counts_however_small() -> None:
    frame = np.full((50, 50), 300, np.uint16)
    frame[20:23, 30:33] = 5000
    assert largest_shown(frame) == 5000
    assert largest_shown(np.array([[7, 900]], np.uint16)) == 900


def test_frames_are_looked_at_only_where_it_matters() -> None:
    full, dark = np.full((4, 4), 40000, np.uint16), np.full((4, 4), 900, np.uint16)
    for first, second, white, looked_at in (
        (full, dark, 65535, {0}),
        (dark, full, 65535, {0, 1}),
        (dark, dark // 2, 900, {0, 1}),
    ):
        read = []
        frames = (first, second)
        stack = Stack([lambda k=k, f=frames, r=read: (r.append(k), f[k])[1] for k in (0, 1)])
        assert read == [0]
        assert stack.white == white and set(read) == looked_at
        assert stack.white_is_found == (white == 900)
        read.clear()
        assert stack.made_into([lambda f=first: f] * 2).white == stack.white and not read


@given(frames_of(65535), st.sampled_from([None, 4095.0, 65535.0]))
def test_values_come_back_whatever_white_is(frames, white) -> None:
    stack = Stack.from_arrays(frames, white=white)
    for frame in stack:
        np.testing.assert_array_equal(stack.from_levels(stack.to_levels(frame)), frame)


def test_8_bits_in_16_are_fused_as_8_bits_are() -> None:
    made = simulate_stack(sample_picture("chelsea"), frames=3, shape=(64, 80), sigma=12, seed=3)
    eight = [frame.copy() for frame in made.frames]
    for frame in eight:
        frame[:3, :3] = 255
    wide = fuse([frame.astype(np.uint16) for frame in eight])
    same = fuse(eight)
    assert wide.sigma == same.sigma > 5
    np.testing.assert_array_equal(wide.source_map, same.source_map)
    np.testing.assert_array_equal(np.minimum(wide.image, 255), same.image)


def dim_stack(unit: float, sigma: float = 10.0) -> list[Array]:
    """Frames of a microscope's kind: a few hundred counts of 65535, with noise."""
    made = simulate_stack(sample_picture("coffee"), frames=3, shape=(72, 96), sigma=sigma, seed=5)
    return [np.rint(frame[..., 1] * unit).astype(np.uint16) for frame in made.frames]


@pytest.mark.parametrize("unit", [2.5, 4.0, 16.0])
@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_dim_16_bit_frames_are_denoised(unit: float, preset: str) -> None:
    frames = dim_stack(unit)
    result = fuse(frames, preset=preset)
    assert result.sigma > 5 and result.sigma_estimated
    clean = np.mean(np.stack(dim_stack(unit, 0.0)).astype(float), axis=0)

    def error(image: Array) -> float:
        return float(np.mean(np.abs(np.diff(image.astype(float) - clean, axis=1))))

    assert error(result.image) < 0.5 * min(error(frame) for frame in frames)
    # A white that is only found does not cut anything off.
    assert fuse(frames, sigma=0).image.max() > Stack.from_arrays(frames).white


@pytest.mark.filterwarnings("ignore:the frames hardly differ")
def test_white_that_is_given_rules() -> None:
    frames = dim_stack(2.5)
    assert fuse(frames, white=65535).sigma == 0
    assert Stack.from_arrays(frames, white=4095).white == 4095
    assert Stack.from_arrays(frames, white=4095).ceiling == 4095
    assert Stack.from_arrays(frames).ceiling == 65535


# What files say.


def test_files_say_their_white(tmp_path: Path) -> None:
    frames = dim_stack(2.5)
    shown = Stack.from_arrays(frames).white

    def white(name: str, *, each: Any = None, **options: Any) -> float:
        paths = []
        for k, frame in enumerate(frames):
            paths.append(tmp_path / f"{name}-{k}.tif")
            tags = () if each is None else each(k)
            tifffile.imwrite(paths[-1], frame, metadata=None, extratags=tags, **options)
        return read_stack(paths).white

    assert 255 < shown < 700 and white("plain") == shown
    assert white("profile", iccprofile=ICC) == 65535
    assert white("most", each=lambda k: [(281, 3, 1, 4000 + k, True)]) == 4002
    assert white("signed", each=lambda k: [(341, 11, 1, 1023.0, True)]) == 1023
    # A default, and what not all frames say, says nothing.
    assert white("default", each=lambda k: [(281, 3, 1, 65535, True)]) == shown
    assert white("some", each=lambda k: [(281, 3, 1, 4095, True)] if k else ()) == shown
    for bits, expected in ((12, 4095), (16, shown)):
        path = tmp_path / f"{bits}.ome.tif"
        tifffile.imwrite(
            path, np.stack(frames), metadata={"axes": "ZYX", "SignificantBits": bits}, ome=True
        )
        assert read_stack(path).white == expected
        assert read_metadata(path).white == (4095 if bits == 12 else None)
    assert read_stack(tmp_path / "12.ome.tif", white=1000).white == 1000


@pytest.mark.parametrize("suffix", [".tif", ".png"])
def test_the_command_line_says_white_and_noise_in_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    frames = dim_stack(2.5)
    stack = Stack.from_arrays(frames)
    for k, frame in enumerate(frames):
        write_image(tmp_path / f"f{k}{suffix}", frame)
    words = ("fuse", tmp_path, "-o", tmp_path.parent / f"{tmp_path.name}.tif", "--no-align")
    words += ("--overwrite", "--hot-pixels", "off")
    assert run(*words) == 0
    told = capsys.readouterr()
    assert f"white at {stack.white:g} (found in them)" in told.err
    expected = cofuse.estimate_noise(stack).sigma
    counts = expected * stack.white / 255
    assert f"sigma {expected:.1f} ({counts:.3g} counts, estimated)" in told.out
    assert run(*words, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"]["white"] == stack.white and report["frames"]["white_found"]
    assert report["sigma"] == expected
    assert report["sigma_counts"] == pytest.approx(counts)
    assert run(*words, "--white", 65535, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"]["white"] == 65535 and not report["frames"]["white_found"]
    assert report["sigma"] == report["sigma_counts"] == 0
    assert run(*words, "--white", 1000) == 0
    assert "white at 1000 (given)" in capsys.readouterr().err


def test_a_batch_says_noise_in_counts_and_takes_white(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for k, frame in enumerate(dim_stack(2.5)):
        write_image(tmp_path / "s" / f"f{k}.tif", frame)
    words = ("batch", tmp_path, "--preset", "fast", "--no-align", "--hot-pixels", "off")
    assert run(*words, "-o", tmp_path / "found") == 0
    assert run(*words, "-o", tmp_path / "given", "--white", 65535) == 0
    found, given = (
        json.loads((tmp_path / name / "s.json").read_text()) for name in ("found", "given")
    )
    assert found["sigma_counts"] > found["sigma"] > 1 and given["sigma"] == 0


# Noise: one number, whoever asks.


def camera_frames(colour: bool, depth: type, seed: int, gain: float, floor: float) -> list[Array]:
    picture = sample_picture("astronaut")
    picture = picture if colour else picture[..., 1]
    made = simulate_stack(picture, frames=3, shape=(72, 96), seed=seed)
    rng = np.random.default_rng(seed)
    unit = 1 if depth is np.uint8 else 257
    frames = []
    for frame in made.frames:
        levels = frame.astype(float)
        noisy = levels + rng.normal(0, 1, levels.shape) * np.sqrt(floor**2 + gain * levels)
        frames.append(np.clip(np.rint(noisy * unit), 0, 255 * unit).astype(depth))
    return frames


@settings(max_examples=8, deadline=None)
@given(
    st.booleans(),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(0, 99),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([0.0, 4.0, 12.0]),
    st.sampled_from(["auto", "fast"]),
)
def test_the_public_estimate_is_what_fusing_uses(colour, depth, seed, gain, floor, preset) -> None:
    frames = camera_frames(colour, depth, seed, gain, floor)
    found = cofuse.estimate_noise(Stack.from_arrays(frames))
    result = fuse(frames, preset=preset)
    np.testing.assert_array_equal(result.noise.levels, found.levels)
    assert result.sigma == (found.sigma if found.beyond_texture().overall > 0 else 0.0)
    # Noise of a grey level is less than texture may pass for.
    assert (result.sigma > 0) or floor < 2


# Alpha.


def test_alpha_is_on_the_scale_of_white(tmp_path: Path) -> None:
    image = np.full((8, 9), 2000, np.uint16)
    alpha = np.full((8, 9), 4095, np.uint16)
    alpha[:4] = 2048
    path = write_image(tmp_path / "a.png", image, alpha=alpha, depth=8, white=4095)
    found = np.asarray(Image.open(path))
    assert (found[..., 0] == 125).all()
    assert (found[:4, :, 1] == 128).all() and (found[4:, :, 1] == 255).all()
    path = write_image(
        tmp_path / "b.png", image, alpha=alpha * np.uint16(16), depth=8, white=4095, opaque=65520
    )
    np.testing.assert_array_equal(np.asarray(Image.open(path)), found)


@pytest.mark.parametrize("opaque", [65535, 4095])
def test_frames_with_and_without_alpha_have_one_scale(tmp_path: Path, opaque: int) -> None:
    rng = np.random.default_rng(0)
    picture = rng.integers(300, 4000, (40, 48), dtype=np.uint16)
    soft = np.full_like(picture, 2000)
    left = np.where(np.arange(48) < 24, picture, soft)
    right = np.where(np.arange(48) < 24, soft, picture)
    alpha = np.full_like(picture, opaque)
    alpha[:, 30:] = round(opaque / 4)
    for name, frame, clear in (("a", left, None), ("b", right, alpha)):
        write_image(tmp_path / f"{name}.tif", np.dstack([frame] * 3), alpha=clear)
    words = ("fuse", tmp_path / "a.tif", tmp_path / "b.tif", "--no-align", "--white", 4095)
    words += ("--sigma", 0, "--quiet")
    assert run(*words, "-o", tmp_path / "x.tif") == 0
    assert run(*words, "-o", tmp_path / "y.png", "--bit-depth", 8) == 0
    deep, flat = tifffile.imread(tmp_path / "x.tif"), np.asarray(Image.open(tmp_path / "y.png"))
    assert set(np.unique(deep[..., 3])) == {round(opaque / 4), opaque}
    assert (flat[:, :20, 3] == 255).all() and (flat[:, 34:, 3] == 64).all()


def test_simulated_noise_is_on_the_scale_of_the_type() -> None:
    dark = np.full((64, 64), 900, np.uint16)
    noisy = simulate_stack(dark, frames=1, sigma=2.0).frames[0]
    assert np.std(noisy.astype(float)) == pytest.approx(257 * 2, rel=0.2)


def test_read_image_is_not_scaled(tmp_path: Path) -> None:
    frame = dim_stack(2.5)[0]
    np.testing.assert_array_equal(read_image(write_image(tmp_path / "a.tif", frame)), frame)
