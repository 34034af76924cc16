"""The threads of the kernels: they last, and stand in nobody's way."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cofuse.kernels import cpu


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_threads_last_but_neither_bind_forks_nor_the_exit() -> None:
    code = """
import os
from cofuse.kernels import cpu
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
    subprocess.run(command, check=True, timeout=60)


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
