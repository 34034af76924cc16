"""Frames held to the depth where they are blurred wider than the model knows."""

from __future__ import annotations

import cv2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import cofuse
from cofuse.depth import Depth
from cofuse.images import Stack
from cofuse.methods import focus
from cofuse.methods.fitness import judge_frames
from cofuse.methods.focus import focus_of, out_of_focus_blocks
from cofuse.progress import silent
from cofuse.simulation import sample_picture, simulate_stack


def depth_of(position, frames, confidence=1.0):
    position = np.asarray(position, np.float32)
    sure = np.full_like(position, confidence)
    return Depth(position, sure, np.ones_like(position), frames)


@settings(max_examples=40, deadline=None)
@given(
    frames=st.integers(3, 40),
    place=st.floats(0, 1),
    shape=st.tuples(st.integers(8, 90), st.integers(8, 90)),
    scale=st.integers(1, 4),
)
def test_a_flat_depth_allows_the_frames_around_it(frames, place, shape, scale):
    at = place * (frames - 1)
    small = tuple(-(-side // scale) for side in shape)
    out = out_of_focus_blocks(depth_of(np.full(small, at), frames), shape, everywhere=True)
    assert out.shape == (frames, -(-shape[0] // 8), -(-shape[1] // 8))
    near = max(0.75, 0.04 * frames)
    away = np.abs(np.arange(frames) - np.float32(at))
    assert (out == (away > near)[:, None, None])[np.abs(away - near) > 1e-4].all()
    assert not out.all(axis=0).any()


def test_along_an_outline_all_frames_between_both_sides_are_allowed():
    position = np.zeros((80, 80), np.float32)
    position[:, 40:] = 6.0
    out = out_of_focus_blocks(depth_of(position, 7), (80, 80), everywhere=True)
    assert not out[:, :, 4:6].any()
    assert out[1:, :, :3].all() and out[:6, :, 7:].all()
    assert not out[0, :, :3].any() and not out[6, :, 7:].any()


def test_where_nothing_is_in_focus_the_nearest_frames_are_left():
    position = np.full((64, 64), 2.5, np.float32)
    clear, blind = depth_of(position, 40), depth_of(position, 40, confidence=0.0)
    out = out_of_focus_blocks(clear, (64, 64), everywhere=True)
    assert (~out).any(axis=(1, 2)).nonzero()[0].tolist() == [1, 2, 3, 4]
    for everywhere in (True, False):
        out = out_of_focus_blocks(blind, (64, 64), everywhere=everywhere)
        assert (~out).any(axis=(1, 2)).nonzero()[0].tolist() == [2, 3]
    assert not out_of_focus_blocks(clear, (64, 64), everywhere=False).any()


def test_where_nothing_is_in_focus_the_choice_is_smoother(monkeypatch):
    """The left half is in focus in the first frame, the right half is never anything but blur."""
    sharp = np.asarray(cv2.cvtColor(sample_picture("coffee"), cv2.COLOR_RGB2GRAY))[:280, :400]
    frames = []
    for k, blur in enumerate((0, 2, 4, 6, 8)):
        frame = cv2.GaussianBlur(sharp, (0, 0), blur) if blur else sharp.copy()
        frame[:, 200:] = cv2.GaussianBlur(sharp, (0, 0), 20 + k)[:, 200:]
        frames.append(frame)

    def borders():
        index = cofuse.fuse(frames, sigma=0).source_map[:, 230:].astype(int)
        return (np.diff(index, axis=1) != 0).mean()

    held = borders()
    monkeypatch.setattr("cofuse.methods.joint.can_tell_focus", lambda stack: False)
    assert held < 0.3 * borders()


def bars(blurs):
    """Wide dark bars seen through blur of these widths."""
    columns = (np.arange(360) // 45) % 2
    sharp = np.tile(40.0 + 170.0 * columns, (280, 1)).astype(np.float32)
    sharp += 4 * np.random.default_rng(0).standard_normal(sharp.shape).astype(np.float32)
    return [np.clip(cv2.GaussianBlur(sharp, (0, 0), b) if b else sharp, 0, 255) for b in blurs]


def in_bytes(frames):
    return [np.rint(frame).astype(np.uint8) for frame in frames]


def test_wide_blur_is_told_from_what_the_model_knows():
    def beyond(frames):
        readers = [lambda rows, columns, f=f: f[rows, columns, None] for f in frames]
        names = [str(k) for k in range(len(frames))]
        noise = np.zeros(len(frames), np.float32)
        return judge_frames(readers, frames[0].shape, noise, names).is_beyond_model

    assert not beyond(bars((0, 1, 2)))
    assert beyond(bars((0, 8, 16, 24)))


def test_only_frames_in_the_order_of_their_focus_have_a_depth():
    greys = [
        cv2.cvtColor(sample_picture(name), cv2.COLOR_RGB2GRAY)[:256, :320]
        for name in ("coffee", "chelsea")
    ]
    frames = simulate_stack(greys[0], frames=10, foreground=greys[1], seed=0).frames
    assert focus_of(Stack.from_arrays(frames), silent) is not None
    mixed = [frames[k] for k in (4, 8, 1, 6, 3, 0, 9, 7, 2, 5)]
    assert focus_of(Stack.from_arrays(mixed), silent) is None


def test_inside_of_wide_bars_comes_from_the_sharp_frame():
    frames = in_bytes(bars((24, 16, 8, 0, 8)))
    result = cofuse.fuse(frames, sigma=0)
    assert (result.source_map == 3).mean() > 0.95


def test_frames_that_are_alike_when_made_smaller_tell_no_depth(monkeypatch):
    """Blur of a pixel or two is gone at an eighth of the size: no depth, rather than a guess."""
    rng = np.random.default_rng(0)
    scene = np.zeros((320, 480), np.float32)
    for step in (2, 4, 8, 16, 32):
        small = rng.standard_normal((320 // step, 480 // step)).astype(np.float32)
        scene += 14 * cv2.resize(small, (480, 320), interpolation=cv2.INTER_CUBIC)
    blurred = cv2.GaussianBlur(scene, (0, 0), 1.2)
    frames = [np.clip(blurred + 128, 0, 255).astype(np.uint8) for _ in range(4)]
    for number, frame in enumerate(frames):
        rows = slice(80 * number, 80 * (number + 1))
        frame[rows] = np.clip(scene[rows] + 128, 0, 255)
    assert focus_of(Stack.from_arrays(frames), silent) is not None
    monkeypatch.setattr(focus, "_PIXELS", 320 * 480 // 64)
    assert focus_of(Stack.from_arrays(frames), silent) is None
    # The right frame is chosen nevertheless, which it was not when a guess ruled it out.
    fusion = cofuse.fuse(frames, sigma=0)
    wanted = np.repeat(np.arange(4), 80)[:, None]
    assert (fusion.source_map == wanted)[:, 20:-20].mean() > 0.85
