"""Laws of the preset ``auto``, at the sizes and counts at which shortcuts would break them."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from cofuse import fuse
from cofuse.devices import TORCH_ON_CPU
from cofuse.simulation import Simulation, sample_picture, simulate_stack

#: Rows and columns that the model looks around a pixel, and those of a seam: what happens farther
#: away must not matter.
REACH = 224


def scene(seed: int, count: int = 6, shape: tuple[int, int] = (280, 380)) -> Simulation:
    picture = sample_picture(("astronaut", "chelsea", "coffee", "yard")[seed % 4])
    return simulate_stack(picture, frames=count, seed=seed, shape=shape, max_radius=10)


def psnr(image: Any, truth: Any) -> float:
    return float(10 * np.log10(255**2 / np.mean((image.astype(float) - truth) ** 2)))


@pytest.mark.parametrize("sigma", [0, 10])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_frames_only_renames_them(seed: int, sigma: int) -> None:
    frames = scene(seed).frames
    order = np.random.default_rng(seed).permutation(len(frames))
    one, other = fuse(frames, sigma=sigma), fuse([frames[k] for k in order], sigma=sigma)
    # Sums over frames round otherwise in another order: that may decide ties, nothing more.
    assert np.mean(order[other.source_map] != one.source_map) < 1e-4
    assert np.mean(other.image != one.image) < 1e-4


@pytest.mark.parametrize("sigma", [0, 10])
@pytest.mark.parametrize(("copied", "place"), [(0, 4), (3, 0), (2, 2), (0, 1)])
def test_a_copy_of_a_frame_changes_nothing(copied: int, place: int, sigma: int) -> None:
    frames = list(scene(1, 4).frames)
    more = [*frames[:place], frames[copied].copy(), *frames[place:]]
    one, other = fuse(frames, sigma=sigma), fuse(more, sigma=sigma)
    # The first of two copies stays, perhaps in another order: sums round otherwise.
    assert np.mean(other.image != one.image) < 1e-4
    numbers = [k + (k >= place) for k in range(4)]
    numbers[copied] = min(numbers[copied], place)
    assert np.mean(other.source_map != np.array(numbers)[one.source_map]) < 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_a_frame_taken_twice_changes_nothing_that_can_be_seen(seed: int) -> None:
    """The camera returns to its first focus: the same picture but for a grey level here or there.

    Weights of frames that agree are shared: pictures move by a quarter of a decibel or so. The
    choice between the two is a toss; that between others must stay.
    """
    simulation = scene(seed)
    frames, rng = list(simulation.frames), np.random.default_rng(seed)
    again = np.clip(frames[0] + rng.integers(-1, 2, frames[0].shape), 0, 255).astype(np.uint8)
    before, after = fuse(frames, sigma=0), fuse([*frames, again], sigma=0)
    assert psnr(after.image, simulation.truth) > psnr(before.image, simulation.truth) - 0.5


@pytest.mark.parametrize(
    ("count", "height", "width"),
    [(6, 256, 380), (3, 281, 300), pytest.param(3, 1733, 1733, marks=pytest.mark.slow)],
)
def test_a_row_less_changes_nothing_away_from_the_border(
    count: int, height: int, width: int
) -> None:
    frames = scene(2, count).frames
    tall = [np.tile(f, (7, 7, 1))[: 7 * f.shape[0], : 7 * f.shape[1]] for f in frames]
    frames = [frame[:height, :width] for frame in tall]
    one, other = fuse(frames, sigma=0), fuse([frame[:-1] for frame in frames], sigma=0)
    far = slice(0, height - 1 - REACH)
    np.testing.assert_array_equal(other.source_map[far], one.source_map[far])
    np.testing.assert_array_equal(other.image[far], one.image[far])


@pytest.mark.parametrize("shape", [(24, 40), (25, 40), (255, 64), (256, 64)])
def test_no_size_is_a_cliff(shape: tuple[int, int]) -> None:
    """Frames sharp in one half each give both halves, whatever the size."""
    sharp = sample_picture("coffee")[: shape[0], : shape[1], 0]
    blurred = cv2.GaussianBlur(sharp, (0, 0), 4)
    frames = [sharp.copy(), sharp.copy(), blurred]
    frames[0][:, shape[1] // 2 :] = blurred[:, shape[1] // 2 :]
    frames[1][:, : shape[1] // 2] = blurred[:, : shape[1] // 2]
    assert psnr(fuse(frames, sigma=0).image, sharp) > psnr(np.mean(frames, axis=0), sharp) + 10


def test_the_device_that_is_told_is_the_one_that_worked() -> None:
    """Soft pictures are chosen among in small, on the CPU, whatever device was asked for."""
    small = scene(0, 3, (120, 130))
    frames = [cv2.resize(f, None, fx=8, fy=8, interpolation=cv2.INTER_CUBIC) for f in small.frames]
    assert fuse(frames, sigma=0, device=TORCH_ON_CPU).device == "cpu"


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_devices_agree_with_the_cpu_above_three_megapixels() -> None:
    frames = [np.tile(f, (6, 5, 1))[:1740, :1740, 1] for f in scene(3, 2, (300, 380)).frames]
    one = fuse(frames, sigma=0, device="cpu")
    other = fuse(frames, sigma=0, device=TORCH_ON_CPU)
    assert (one.device, other.device) == ("cpu", TORCH_ON_CPU)
    assert np.mean(one.source_map != other.source_map) < 1e-4
    assert np.mean(one.image != other.image) < 1e-4
