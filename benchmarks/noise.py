"""What finding the noise costs beside a clean fusion: CPU seconds of both, in turns.

    python -m benchmarks.noise --case 24x10 --rounds 2

A case is MEGAPIXELSxFRAMES of `benchmarks.stacks`; the frames lie in memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stacks import StackRecipe, make_stack
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
    fuse([np.zeros((64, 64, 3), np.uint8)] * 2, sigma=0.0)  # loads what it needs
    with tempfile.TemporaryDirectory() as folder:
        made = make_stack(StackRecipe(megapixels, int(frames)), Path(folder) / "stack")
        stack = read_stack(made.frames).kept()
        for _ in range(arguments.rounds):
            finding = seconds(lambda: estimate_noise(stack))
            fusing = seconds(lambda: fuse(stack, sigma=0.0))
            ratio = f"{finding / fusing:.1%}"
            print(f"noise {finding:.1f} s, clean fusion {fusing:.1f} s: {ratio}")


if __name__ == "__main__":
    main()
