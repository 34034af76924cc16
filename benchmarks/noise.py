"""What finding the noise costs beside a clean fusion: CPU seconds of both, in turns.

    python -m benchmarks.noise --case 24x10 --rounds 2

A case is MEGAPIXELSxFRAMES of the frames that `benchmarks.memory` makes; they lie in memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import make_frames
from cofuse import estimate_noise, fuse
from cofuse.files import read_stack


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this process and all its threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="24x10", help="megapixels and frames")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    megapixels, frames = (float(part) for part in arguments.case.split("x"))
    small = [np.zeros((64, 64, 3), np.uint8), np.ones((64, 64, 3), np.uint8)]
    fuse(small, sigma=0.0)  # compiles the kernels
    with tempfile.TemporaryDirectory() as folder:
        paths = make_frames(Path(folder), megapixels, int(frames), 0.0)
        with read_stack(paths).kept() as stack:
            rows = [
                (seconds(lambda: estimate_noise(stack)), seconds(lambda: fuse(stack, sigma=0.0)))
                for _ in range(arguments.rounds)
            ]
    for finding, fusing in rows:
        print(f"noise {finding:.1f} s, clean fusion {fusing:.1f} s: {finding / fusing:.1%}")


if __name__ == "__main__":
    main()
