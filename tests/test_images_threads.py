"""Threads: work done ahead, in order, with nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from cofuse.errors import CofuseError
from cofuse.images.tiles import done_ahead, map_ahead
from tests.waiting import PATIENCE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_child_fuses_after_its_parent_did() -> None:
    """Threads of the runtime do not live on in a child: it must not wait for them."""
    code = """
import os
import numpy as np
import cofuse
frames = list(np.random.default_rng(0).integers(0, 256, (2, 400, 300, 3), np.uint8))
cofuse.fuse(frames, sigma=20)
child = os.fork()
if child == 0:
    assert cofuse.fuse(frames, sigma=20).image.shape == (400, 300, 3)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    subprocess.run(command, check=True, timeout=PATIENCE)


def test_results_come_in_order_and_from_other_threads() -> None:
    def work(item: int) -> tuple[int, int]:
        time.sleep(0.002 * (item % 3))
        return item, threading.get_ident()

    with done_ahead(work, range(20), workers=3) as coming:
        results = list(coming)
    assert [item for item, _ in results] == list(range(20))
    assert threading.get_ident() not in {thread for _, thread in results}
    with done_ahead(work, range(5), workers=0) as coming:
        assert {thread for _, thread in coming} == {threading.get_ident()}


def test_the_only_piece_of_work_is_done_by_the_caller() -> None:
    def threads(pieces: int) -> set[int]:
        return set(map_ahead(lambda _: threading.get_ident(), range(pieces), pixels=10**7))

    assert threads(1) == {threading.get_ident()}
    assert threading.get_ident() not in threads(2)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_no_more_is_begun_than_there_are_workers(workers: int) -> None:
    begun = []
    with done_ahead(begun.append, range(30), workers=workers) as coming:
        for number, _ in enumerate(coming):
            time.sleep(0.001)
            assert len(begun) <= number + 1 + workers


def test_result_is_nobodys_but_the_takers() -> None:
    class Large:
        pass

    with done_ahead(lambda _: Large(), range(6), workers=2) as coming:
        seen = []
        for result in coming:
            seen.append(weakref.ref(result))
            del result
            assert sum(ref() is not None for ref in seen) <= 1


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_error_comes_where_its_result_was_due_and_no_thread_is_left(workers: int) -> None:
    before = set(threading.enumerate())
    told = CofuseError("frame 4 is damaged")

    def work(item: int) -> int:
        if item == 4:
            raise told
        return item

    taken = []
    with (
        pytest.raises(CofuseError) as raised,
        done_ahead(work, range(9), workers=workers) as coming,
    ):
        for result in coming:
            taken.append(result)
    assert raised.value is told and taken == [0, 1, 2, 3]
    assert set(threading.enumerate()) <= before


def test_whoever_stops_taking_stops_the_work() -> None:
    before, begun = set(threading.enumerate()), []

    def work(item: int) -> None:
        begun.append(item)
        time.sleep(0.005)

    def cancelled() -> None:
        with done_ahead(work, range(1000), workers=2) as coming:
            for _ in coming:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancelled()
    assert set(threading.enumerate()) <= before
    count = len(begun)
    assert count <= 4
    time.sleep(0.02)
    assert len(begun) == count
