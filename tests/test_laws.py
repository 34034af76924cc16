"""Laws of fusing, whatever the model: what must not change a picture, or only within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from cofuse import fuse
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import SAMPLE_NAMES, Simulation, sample_picture, simulate_stack

Picture = NDArray[Any]


def made_scene(
    seed: int, frames: int = 3, shape: tuple[int, int] = (120, 136), sigma: float = 0.0
) -> Simulation:
    """Make a stack from a picture of the package."""
    picture = sample_picture(SAMPLE_NAMES[seed % len(SAMPLE_NAMES)])
    return simulate_stack(
        picture, frames=frames, seed=seed, shape=shape, max_radius=10, sigma=sigma
    )


def fused(frames: Sequence[Picture], part: Any, sigma: float) -> Picture:
    """Fuse a part of every frame."""
    frames = [np.ascontiguousarray(frame[part]) for frame in frames]
    return fuse(frames, sigma=sigma).image.astype(np.float64)


def change(before: Picture, after: Picture, truth: Picture) -> tuple[float, float]:
    """How far apart two pictures are, RMS in grey levels, and by how much the PSNR fell, in dB."""
    # Errors below half a level do not show, and a tiny picture may have none.
    wrong = [max(np.mean((picture - truth) ** 2), 0.25) for picture in (before, after)]
    apart = float(np.sqrt(np.mean((before - after) ** 2)))
    return apart, max(0.0, 10 * float(np.log10(wrong[1] / wrong[0])))


@pytest.mark.parametrize("sigma", [0.0, 10.0])
@pytest.mark.parametrize(("copied", "place"), [(0, 3), (2, 0), (0, 1)])
def test_a_copy_of_a_frame_changes_nothing(copied: int, place: int, sigma: float) -> None:
    frames = list(made_scene(1, sigma=sigma).frames)
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
    made = made_scene(seed, 6, (280, 380))
    frames, rng = list(made.frames), np.random.default_rng(seed)
    again = np.clip(frames[0] + rng.integers(-1, 2, frames[0].shape), 0, 255).astype(np.uint8)
    before, after = fuse(frames, sigma=0), fuse([*frames, again], sigma=0)
    assert psnr(after.image, made.truth) > psnr(before.image, made.truth) - 0.5


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_a_mirrored_stack_gives_the_mirrored_picture(sigma: float) -> None:
    made, mirrored = made_scene(2, sigma=sigma), np.s_[::-1, ::-1]
    straight, turned = (fused(made.frames, part, sigma) for part in (np.s_[:], mirrored))
    rms, lost = change(straight, turned[mirrored], made.truth)
    assert rms < 2.0 and lost < 0.3


@pytest.mark.parametrize("sigma", [0.0, 10.0])
def test_rows_and_columns_cut_off_change_little_far_from_them(sigma: float) -> None:
    inner, far = np.s_[13:-13, 13:-13], np.s_[64:-64, 64:-64]  # on no grid of the model
    changes = []
    for seed in range(4):
        made = made_scene(seed, 3, (220, 230), sigma)
        whole = fused(made.frames, np.s_[:], sigma)[inner][far]
        cut = fused(made.frames, inner, sigma)[far]
        changes.append(change(whole, cut, made.truth[inner][far]))
    assert np.mean([rms for rms, _ in changes]) < 2.0
    assert max(lost for _, lost in changes) < 0.3


@pytest.mark.filterwarnings("ignore:the frames hardly differ")  # those of 16 pixels
@pytest.mark.parametrize("sigma", [0.0, 10.0])
@pytest.mark.parametrize("side", [16, 24, 31, 32, 48, 63, 64, 96])
def test_a_row_and_a_column_less_are_no_cliff_at_any_size(side: int, sigma: float) -> None:
    made, small = made_scene(3, sigma=sigma), np.s_[:side, :side]
    large = fused(made.frames, np.s_[: side + 1, : side + 1], sigma)[small]
    rms, lost = change(large, fused(made.frames, small, sigma), made.truth[small])
    assert rms < 3.0 and lost < 1.0


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
