"""Fusing small arrays again and again: what a call leaves alone, leaves behind, and disturbs."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest

from cofuse import fuse
from tests.waiting import PATIENCE

#: A pair of frames, for what runs in a process of its own.
PAIR = """
import numpy as np
import cofuse
pair = np.random.default_rng(0).integers(0, 256, (2, {side}, {side}), np.uint8)
"""


def told(code: str, **values: object) -> Any:
    """What a program of its own says in JSON; nobody else there opens files or starts threads."""
    program = (PAIR + code).format(**values)
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return json.loads(done.stdout)


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_a_second_call_on_a_clean_pair_opens_no_file_and_starts_no_thread(preset: str) -> None:
    """Networks, operators and their spectra are there; tiny tiles need no look at the memory."""
    code = """
import json, sys
seen = []
cofuse.fuse(pair, sigma=0, preset={preset!r})
sys.addaudithook(lambda event, arguments: seen.append(event))
cofuse.fuse(pair, sigma=0, preset={preset!r})
asked = ("open", "os.listdir", "os.scandir", "_thread.start_new_thread")
print(json.dumps([event for event in seen if event in asked]))
"""
    assert told(code, side=64, preset=preset) == []


def test_many_calls_leave_nothing_behind() -> None:
    code = """
import gc, json, os, threading, psutil
def state():
    gc.collect()
    process = psutil.Process()
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return process.memory_info().rss, files, threading.active_count(), len(gc.get_objects())
def calls(number):
    for _ in range(number):
        for preset in ("auto", "fast"):
            for sigma in (0, 10):
                cofuse.fuse(pair, sigma=sigma, preset=preset)
    return state()
print(json.dumps([calls(30), calls(60)]))
"""
    (memory, *before), (memory_after, *after) = told(code, side=128)
    assert after[:2] == before[:2]  # files, threads
    assert after[2] - before[2] < 60  # objects that the collector knows: less than one a round
    # Of every call a picture, a map and a confidence: 240 of them take 24 MB.
    assert memory_after - memory < 10e6


def test_threads_at_once_make_what_one_makes_after_the_other() -> None:
    sharp = np.random.default_rng(1).uniform(0, 255, (200, 260, 3))
    soft, left = cv2.blur(sharp, (5, 5)), np.arange(260)[:, None] < 130
    pairs = []
    for number, kind in product(range(2), (np.uint8, np.uint16)):
        halves = (np.where(left, *order) for order in ((sharp, soft), (soft, sharp)))
        scale = 257 if kind is np.uint16 else 1
        pairs.append([(scale * np.roll(half, 7 * number, axis=1)).astype(kind) for half in halves])
    jobs = list(product(pairs, (0.0, 10.0), ("auto", "fast")))

    def made(job: tuple[Any, float, str]) -> tuple[bytes, ...]:
        frames, sigma, preset = job
        result = fuse(frames, sigma=sigma, preset=preset)
        assert result.source_map is not None and result.confidence is not None
        return tuple(a.tobytes() for a in (result.image, result.source_map, result.confidence))

    expected = [made(job) for job in jobs]
    assert len(set(expected)) == len(jobs)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(made, jobs)) == expected


def test_the_first_calls_may_come_from_several_threads() -> None:
    code = """
import json, threading
together, made = threading.Barrier(4), []
def call():
    together.wait()
    made.append(cofuse.fuse(pair, sigma=10).image.tobytes())
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([len(made), len(set(made))]))
"""
    assert told(code, side=64) == [4, 1]
