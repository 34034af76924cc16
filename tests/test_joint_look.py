"""The look at small frames, and tiles in which only likely frames are weighed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cofuse import fuse, joint_fusion
from cofuse.joint import load_model
from cofuse.joint_fusion import fuse_planes, fuse_tiles
from cofuse.joint_look import LOOK_BLOCK, LOOK_SCALE, LikelyFrames, likely_frames
from cofuse.joint_tiles import spans_of
from cofuse.kernels import cpu
from cofuse.simulation import sample_picture, simulate_stack

Floats = NDArray[np.float32]


def readers(frames: list[Floats]) -> list[Callable[[slice, slice], Floats]]:
    return [lambda rows, columns, f=f: f[rows, columns, None] for f in frames]  # type: ignore[misc]


def banded(count: int = 4, band: int = 192, width: int = 448) -> tuple[list[Floats], Floats]:
    """Texture, sharp in every frame in a band of rows of its own."""
    import cv2

    rng = np.random.default_rng(3)
    shape = count * band, width
    scene = np.full(shape, 120.0, np.float32)
    for scale, contrast in ((1, 12.0), (4, 20.0), (16, 25.0)):
        small = rng.standard_normal((shape[0] // scale, shape[1] // scale)).astype(np.float32)
        scene += contrast * cv2.resize(small, shape[::-1], interpolation=cv2.INTER_CUBIC)
    blurred = cv2.GaussianBlur(scene, (0, 0), 3.0)
    frames = [blurred.copy() for _ in range(count)]
    for number, frame in enumerate(frames):
        frame[number * band : (number + 1) * band] = scene[number * band : (number + 1) * band]
    return frames, scene


def reduced(frames: list[Floats]) -> list[Floats]:
    from cofuse.selection import reduce

    return [reduce(frame, LOOK_SCALE) for frame in frames]


def test_the_sharp_frame_is_likely_and_far_ones_are_not() -> None:
    frames, _ = banded()
    small = reduced(frames)
    noise = np.zeros((len(frames), 1))
    likely = likely_frames(load_model(), readers(small), small[0].shape, noise)
    band = 192 // LOOK_BLOCK
    for number in range(len(frames)):
        inner = slice(number * band + 1, (number + 1) * band - 1)
        own = likely.blocks[number, inner]
        others = np.delete(likely.blocks, number, axis=0)[:, inner]
        assert own.all()
        assert others.mean() < 0.1


def test_a_frame_that_is_unfit_is_not_likely() -> None:
    frames, _ = banded()
    small = reduced(frames)
    unfit = np.zeros((len(frames), *(-(-n // 8) for n in frames[0].shape)), np.bool_)
    unfit[0] = True
    likely = likely_frames(
        load_model(), readers(small), small[0].shape, np.zeros((len(frames), 1)), unfit=unfit
    )
    assert not likely.blocks[0].any()
    assert likely.blocks.any(axis=0).all()


def test_with_all_frames_likely_the_result_is_that_of_all() -> None:
    frames, _ = banded(3, 64, 160)
    shape, noise = frames[0].shape, np.zeros((3, 1))
    whole = fuse_planes(load_model(), readers(frames), shape, noise, restore=False)
    blocks = np.ones((3, *(-(-n // LOOK_BLOCK) for n in shape)), np.bool_)
    tiles = fuse_tiles(
        load_model(),
        readers(frames),
        shape,
        noise,
        restore=False,
        likely=LikelyFrames(blocks),
        tile=64,
    )
    for here, part in tiles:
        np.testing.assert_array_equal(part.index, whole.index[here])
        np.testing.assert_allclose(part.mixed, whole.mixed[here], atol=1e-3)


def test_where_one_frame_is_likely_it_is_copied() -> None:
    frames, _ = banded(3, 64, 160)
    shape = frames[0].shape
    blocks = np.zeros((3, *(-(-n // LOOK_BLOCK) for n in shape)), np.bool_)
    blocks[2] = True
    tiles = fuse_tiles(
        load_model(),
        readers(frames),
        shape,
        np.zeros((3, 1)),
        restore=False,
        likely=LikelyFrames(blocks),
    )
    for here, part in tiles:
        assert (part.index == 2).all()
        assert (part.confidence == 1).all()
        np.testing.assert_array_equal(part.mixed[..., 0], frames[2][here])


@pytest.mark.parametrize("frames", [2, 5])
def test_large_pictures_lose_little(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stack as a large picture and as a small one, against truth.

    Seams are mixed by one band instead of three, which costs up to a third of a decibel where, as
    here, much of the picture is seam.
    """
    made = simulate_stack(sample_picture(), frames=frames, seed=1)
    truth = np.asarray(made.truth, np.float64)

    def error() -> tuple[float, NDArray[Any]]:
        fusion = fuse([np.asarray(f) for f in made.frames], sigma=0)
        return float(np.mean((fusion.image - truth) ** 2)), fusion.source_map

    whole, _ = error()
    monkeypatch.setattr(joint_fusion, "LARGE", 1)
    looked, _ = error()
    assert 10 * np.log10(looked / whole) < 0.5


def test_threads_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [frame.astype(np.uint8) for frame in banded()[0]]
    monkeypatch.setattr(joint_fusion, "LARGE", 1)
    monkeypatch.setattr(cpu, "_threads", lambda: 1)
    alone = fuse(frames, sigma=0)
    monkeypatch.setattr(cpu, "_threads", lambda: 3)
    together = fuse(frames, sigma=0)
    np.testing.assert_array_equal(alone.image, together.image)
    np.testing.assert_array_equal(alone.source_map, together.source_map)
    np.testing.assert_array_equal(alone.confidence, together.confidence)


@pytest.mark.parametrize(("length", "side", "step"), [(1, 4, 2), (100, 32, 32), (6000, 256, 32)])
def test_spans_cover_an_axis_at_whole_steps(length: int, side: int, step: int) -> None:
    spans = spans_of(length, side, step)
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert all(start % step == 0 for start, _ in spans)
    assert max(b - a for a, b in spans) <= -(-side // step) * step


def test_tiles_come_in_order_and_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_threads", lambda: 3)
    at_work, most, lock = [0], [0], threading.Lock()

    def work(tile: int) -> int:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(0.01 * (tile % 3))
        with lock:
            at_work[0] -= 1
        return tile

    assert list(cpu.over_tiles(work, range(20), at_once=2)) == list(range(20))
    assert most[0] <= 3  # two asked for, and the next one when the first is taken


def test_a_tile_that_fails_ends_all_and_leaves_none_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "_threads", lambda: 2)
    begun: list[int] = []

    def work(tile: int) -> int:
        begun.append(tile)
        if tile == 3:
            raise ValueError("this one")
        return tile

    with pytest.raises(ValueError, match="this one"):
        list(cpu.over_tiles(work, range(50), at_once=2))
    count = len(begun)
    time.sleep(0.05)
    assert len(begun) == count < 10
