"""Laws of the preset ``auto``, at the sizes and counts at which shortcuts would break them."""

from __future__ import annotations

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
