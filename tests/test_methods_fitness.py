"""Which frames are ruled out, and where: closed-form scenes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cofuse.methods.fitness import judge_frames


def ruled_out(frames, sigma=0.0):
    readers = [lambda rows, columns, f=f: f[rows, columns, None] for f in frames]
    names = [f"frame {k + 1}" for k in range(len(frames))]
    return judge_frames(readers, frames[0].shape, np.full(len(frames), sigma), names).unfit


def texture(seed=0, shape=(160, 200)):
    return (128 + 40 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def edge_over(width):
    """A step of 100 levels at column 100, spread evenly over ``width`` pixels."""
    ramp = np.clip((np.arange(200) - 100) / width + 0.5, 0, 1)
    return np.tile((50 + 100 * ramp).astype(np.float32), (160, 1))


@pytest.mark.parametrize(("width", "out"), [(20, False), (100, True)])
def test_an_edge_is_lost_once_it_is_spread_over_more_than_fifty_pixels(width, out):
    unfit = ruled_out([edge_over(1), edge_over(width)])
    assert unfit[1, 8:12, 12].all() == out
    # Beside its edge the sharp frame is flat, where the blurred one slopes: it stays all the same.
    assert not unfit[0].any()


def test_detail_that_is_blurred_away_rules_a_frame_out_but_for_the_rim_of_a_pair():
    sharp = texture()
    unfit = ruled_out([sharp, cv2.GaussianBlur(sharp, (0, 0), 16)])
    assert unfit[1, 1:-1, 1:-1].all() and not unfit[1, 0].any() and not unfit[0].any()


def test_frames_of_nothing_but_noise_are_all_fit():
    flat = [np.full((160, 200), 90.0, np.float32) + 0.5 * texture(k) for k in range(4)]
    assert not ruled_out(flat, sigma=20.0).any()


def test_who_passes_by_in_one_frame_rules_out_no_other():
    frames = [np.full((160, 200), 60.0, np.float32) for _ in range(4)]
    frames[2][40:120, 60:140] = texture(1, (80, 80)) + 60
    unfit = ruled_out(frames)
    assert not unfit[:, 7:13, 9:16].any()


def test_a_frame_of_other_brightness_is_out_everywhere_and_named():
    frames = [texture(), texture(), texture(), 0.4 * texture()]
    with pytest.warns(UserWarning, match="frame 4 differs"):
        unfit = ruled_out(frames)
    assert unfit[3].all() and not unfit[:3].any()


@pytest.mark.parametrize("shape", [(1, 1), (24, 300), (25, 31), (77, 203)])
def test_any_size_gives_a_block_for_every_pixel(shape):
    frames = [texture(k, shape) for k in range(2)]
    assert ruled_out(frames).shape == (2, -(-shape[0] // 8), -(-shape[1] // 8))
