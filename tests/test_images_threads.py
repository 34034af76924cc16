"""Threads: those of the kernels last and stand in nobody's way, others end with their work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from cofuse.errors import CofuseError
from cofuse.images.threads import done_ahead
from cofuse.operators import cpu
from tests.waiting import PATIENCE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_threads_last_but_neither_bind_forks_nor_the_exit() -> None:
    code = """
import os
from cofuse.operators import cpu
cpu._threads = lambda: 3
work = lambda start, stop: os.getpid()
assert cpu._pool() is cpu._pool()
assert {pid for _, pid in cpu._over_bands(work, 99)} == {os.getpid()}
child = os.fork()
if child == 0:
    assert {pid for _, pid in cpu._over_bands(work, 99)} == {os.getpid()}
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    subprocess.run(command, check=True, timeout=PATIENCE)


def test_failure_in_one_band_is_told_when_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def work(start: int, stop: int) -> None:
        if start == 0:
            raise ValueError("first band")
        time.sleep(0.05)
        done.append(start)

    monkeypatch.setattr(cpu, "_threads", lambda: 3)
    with pytest.raises(ValueError, match="first band"):
        cpu._over_bands(work, 99)
    assert sorted(done) == [33, 66]


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
