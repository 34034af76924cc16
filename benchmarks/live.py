"""Fusing small pairs again and again, as in a pipeline: what a call costs beside its pixels.

    python -m benchmarks.live --calls 1000

Frames are arrays: a texture, sharp in the left half of one frame and in the right half of the
other. Two frames of 16 x 16 have next to nothing to be done to, so their row is what a call costs
anyway. The last columns are what the calls left behind: resident memory, and open files.
"""

from __future__ import annotations

import argparse
import itertools
import time

import cv2
import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.measuring import markdown_table
from cofuse import fuse

HEAD = ("pair", "σ", "preset", "CPU ms a call", "MB more", "files more")


def pair(side: int, sigma: float) -> list[NDArray[np.uint8]]:
    """Two frames, each sharp in one half."""
    random = np.random.default_rng(0)
    sharp = cv2.GaussianBlur(random.uniform(0, 255, (side, side)), (0, 0), 1)
    soft = cv2.GaussianBlur(sharp, (0, 0), 3)
    left = np.arange(side) < side // 2
    frames = (np.where(left, *order) for order in ((sharp, soft), (soft, sharp)))
    noisy = (frame + sigma * random.normal(size=frame.shape) for frame in frames)
    return [np.clip(frame, 0, 255).astype(np.uint8) for frame in noisy]


def row(side: int, sigma: float, preset: str, calls: int) -> list[str]:
    """What calls on a pair take, and what they leave behind."""
    frames, process = pair(side, sigma), psutil.Process()

    def taken(calls: int) -> tuple[float, int, int]:
        start = time.process_time()
        for _ in range(calls):
            fuse(frames, sigma=sigma, preset=preset)
        seconds = time.process_time() - start
        return seconds / calls, process.memory_info().rss, process.num_fds()

    _, memory, files = taken(20)  # loads what it needs
    seconds, memory_after, files_after = taken(calls)
    words = [f"2 × {side} × {side}", f"{sigma:g}", preset, f"{1000 * seconds:.2f}"]
    return [*words, f"{(memory_after - memory) / 1e6:.1f}", f"{files_after - files}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000, help="for a row")
    parser.add_argument("--sides", type=int, nargs="+", default=[16, 64, 256])
    options = parser.parse_args()
    cases = itertools.product(options.sides, (0, 10), ("auto", "fast"))
    print(markdown_table(HEAD, (row(*case, options.calls) for case in cases)))


if __name__ == "__main__":
    main()
