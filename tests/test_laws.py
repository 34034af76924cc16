"""Laws of fusing, whatever the model: what must not change a picture, or only within bounds."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cofuse import fuse
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture
from experiments import laws


def scene(seed: int, sigma: float = 0.0) -> Simulation:
    return laws.made_scene(seed, frames=3, shape=(120, 136), sigma=sigma)


@pytest.mark.parametrize("sigma", [0.0, 10.0])
@pytest.mark.parametrize(("copied", "place"), [(0, 3), (2, 0), (0, 1)])
def test_a_copy_of_a_frame_changes_nothing(copied: int, place: int, sigma: float) -> None:
    frames = list(scene(1, sigma).frames)
    more = [*frames[:place], frames[copied].copy(), *frames[place:]]
    one, other = fuse(frames, sigma=sigma), fuse(more, sigma=sigma)
    assert one.source_map is not None and other.source_map is not None
    # The first of two copies stays, perhaps in another order: sums round otherwise.
    assert np.mean(other.image != one.image) < 1e-3
    numbers = [k + (k >= place) for k in range(3)]
    numbers[copied] = min(numbers[copied], place)
    assert np.mean(other.source_map != np.array(numbers)[one.source_map]) < 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_a_frame_taken_twice_changes_nothing_that_can_be_seen(seed: int) -> None:
    """The camera returns to its first focus: the same picture but for a grey level here or there.

    Weights of frames that agree are shared: pictures move by a quarter of a decibel or so.
    """
    made = laws.made_scene(seed, frames=6)
    frames, rng = list(made.frames), np.random.default_rng(seed)
    again = np.clip(frames[0] + rng.integers(-1, 2, frames[0].shape), 0, 255).astype(np.uint8)
    before, after = fuse(frames, sigma=0), fuse([*frames, again], sigma=0)
    assert psnr(after.image, made.truth) > psnr(before.image, made.truth) - 0.5


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_a_mirrored_stack_gives_the_mirrored_picture(sigma: float) -> None:
    made = scene(2, sigma)
    change = laws.mirror(made.frames, made.truth, sigma=sigma)
    assert change.rms < 2.0 and change.lost < 0.3


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_rows_and_columns_cut_off_change_little_far_from_them(sigma: float) -> None:
    made = [laws.made_scene(seed, 3, (220, 230), sigma) for seed in range(4)]
    changes = [laws.crop(one.frames, one.truth, sigma=sigma) for one in made]
    assert np.mean([change.rms for change in changes]) < 2.0
    assert max(change.lost for change in changes) < 0.3


@pytest.mark.filterwarnings("ignore:the frames hardly differ")  # those of 16 pixels
@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_a_row_and_a_column_less_are_no_cliff_at_any_size(sigma: float) -> None:
    made = scene(3, sigma)
    change = laws.size(made.frames, made.truth, sigma=sigma)
    assert change.rms < 3.0 and change.lost < 1.0


@pytest.mark.parametrize("shape", [(24, 40), (25, 40), (255, 64), (256, 64)])
def test_frames_sharp_in_one_half_each_give_both_at_every_size(shape: tuple[int, int]) -> None:
    sharp = sample_picture("coffee")[: shape[0], : shape[1], 0]
    blurred = cv2.GaussianBlur(sharp, (0, 0), 4)
    frames = [sharp.copy(), sharp.copy(), blurred]
    frames[0][:, shape[1] // 2 :] = blurred[:, shape[1] // 2 :]
    frames[1][:, : shape[1] // 2] = blurred[:, : shape[1] // 2]
    mean = np.mean(frames, axis=0).astype(np.uint8)
    # Of the smallest all is border, beyond which networks see nothing.
    assert psnr(fuse(frames, sigma=0).image, sharp) > psnr(mean, sharp) + 9


def test_a_measure_of_change_is_what_it_says() -> None:
    truth = np.zeros((4, 4))
    change = laws._change(truth + 2.0, truth + 4.0, truth)
    assert change == pytest.approx((2.0, 1.0, 20 * np.log10(2)))
