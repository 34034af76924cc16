"""Frames read on threads and held between looks: the same frames, and no thread is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from cofuse.alignment import align_stack
from cofuse.cli.application import COMMANDS, app
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture
from cofuse.files import read_stack, write_image
from cofuse.images import Stack
from cofuse.sensor.hot_pixels import find_hot_pixels
from tests.waiting import PATIENCE

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cofuse.images.stack.processors", lambda: 3)


def frames_of(count: int, shape: tuple[int, ...] = (30, 40)) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, shape, np.uint8) for _ in range(count)]


class Readers:
    """Readers that remember who asked for what, and how many were at work together."""

    def __init__(self, frames: list[Array]) -> None:
        self.frames, self.lock = frames, threading.Lock()
        self.asked: list[int] = []
        self.threads: set[int] = set()
        self.working = self.most = 0

    def read(self, index: int) -> Array:
        with self.lock:
            self.asked.append(index)
            self.threads.add(threading.get_ident())
            self.working += 1
            self.most = max(self.most, self.working)
        threading.Event().wait(0.002)
        with self.lock:
            self.working -= 1
        return self.frames[index]

    def stack(self, *, concurrent: bool) -> Stack:
        readers = [lambda k=k: self.read(k) for k in range(len(self.frames))]  # type: ignore[misc]
        stack = Stack(readers, concurrent=concurrent)
        self.asked.clear()
        self.threads.clear()
        return stack


@pytest.mark.parametrize("concurrent", [False, True])
def test_kept_frames_are_read_once_and_the_same(concurrent: bool) -> None:
    readers = Readers(frames_of(9))
    before = set(threading.enumerate())
    kept = readers.stack(concurrent=concurrent).kept()
    assert set(threading.enumerate()) <= before
    for frame, wanted in zip(kept, readers.frames, strict=True):
        np.testing.assert_array_equal(frame, wanted)
    assert sorted(readers.asked) == list(range(9))
    # Who did not say that readers may be called together is called alone, by the caller's thread.
    assert (readers.threads == {threading.get_ident()}) is not concurrent
    assert readers.most <= (3 if concurrent else 1)


def test_large_frames_are_read_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cofuse.images.stack.processors", lambda: 16)
    readers = Readers([np.broadcast_to(np.uint8(k), (6000, 6000)) for k in range(12)])
    stack = readers.stack(concurrent=True)
    with stack.ahead(stack.__getitem__) as frames:
        assert [frame[0, 0] for frame in frames] == list(range(12))
    assert readers.most <= 2


def test_damaged_frame_is_told_by_the_same_error(tmp_path: Path) -> None:
    for number, frame in enumerate(frames_of(5, (64, 64, 3))):
        write_image(tmp_path / f"{number}.jpg", frame)
    stack = read_stack(tmp_path)
    cut = tmp_path / "3.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    with pytest.raises(CofuseError, match=r"3\.jpg") as alone:
        stack[3]
    before = set(threading.enumerate())
    with pytest.raises(CofuseError) as ahead:
        stack.kept()
    assert str(ahead.value) == str(alone.value)
    assert set(threading.enumerate()) <= before


class Cancelled(Exception):
    pass


def cancel(step: object) -> None:
    raise Cancelled


@pytest.mark.parametrize(
    "job",
    [
        lambda stack: align_stack(stack, progress=cancel),
        lambda stack: find_hot_pixels(stack, progress=cancel),
    ],
)
def test_cancelling_leaves_no_thread_and_nothing_of_opencv_changed(job: Any) -> None:
    picture = np.ascontiguousarray(np.asarray(sample_picture("coffee"))[:200, :200])
    stack = Stack.from_arrays([picture] * 6)
    before, opencv = set(threading.enumerate()), cv2.getNumThreads()
    with pytest.raises(Cancelled):
        job(stack)
    assert set(threading.enumerate()) <= before
    assert cv2.getNumThreads() == opencv


def test_alignment_is_the_same_with_and_without_threads() -> None:
    picture = np.asarray(sample_picture("yard"))
    frames = [np.ascontiguousarray(picture[k : k + 200, 2 * k : 2 * k + 240]) for k in range(5)]
    with_threads = align_stack(Stack.from_arrays(frames))
    readers = Readers(frames)
    assert align_stack(readers.stack(concurrent=False)) == with_threads
    assert sorted(readers.asked) == list(range(5))


def test_stack_made_of_another_reads_nothing() -> None:
    readers = Readers(frames_of(3))
    stack = readers.stack(concurrent=False)
    made = stack.made_into([lambda: readers.read(2)[:5, :6]], names=["cut"], shape=(5, 6))
    assert readers.asked == [] and not made.in_memory
    assert (len(made), made.shape, made.names, made.white) == (1, (5, 6), ("cut",), stack.white)
    np.testing.assert_array_equal(made[0], readers.frames[2][:5, :6])
    with pytest.raises(CofuseError, match="must agree"):
        _ = stack.made_into([lambda: readers.frames[0]] * 3, shape=(9, 9))[0]


def test_command_loads_no_other_command() -> None:
    code = (
        "import sys, cofuse.cli\n"
        "assert cofuse.cli.main(['fuse', 'nowhere.png', '-o', 'out.png']) == 2\n"
        "print([m for m in sys.modules if m.startswith('cofuse.cli.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.strip("[]\n").replace("'", "").split(", "))
    assert loaded == {f"cofuse.cli.{name}" for name in ("application", "fuse")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    assert app[name].name == (name,)
