"""What Q_MI and Q^AB/F cost: CPU time and memory for a small and a large pair.

``python -m benchmarks.metrics`` prints a table; the pictures are random texture.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from cofuse.evaluation.metrics import q_abf, q_mi


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    rng = np.random.default_rng(0)
    print("| pair | metric | CPU seconds | peak memory of the process (MB) |\n|---|---|---|---|")
    for height, width, repeats in ((520, 520, 5), (4000, 6000, 1)):
        a, b, fused = (rng.integers(0, 256, (height, width), dtype=np.uint8) for _ in range(3))
        for metric in (q_mi, q_abf):
            metric([a[:64, :64], b[:64, :64]], fused[:64, :64])  # imports and caches
            start = time.process_time()
            for _ in range(repeats):
                metric([a, b], fused)
            seconds = (time.process_time() - start) / repeats
            name = f"{width}x{height}"
            print(f"| {name} | {metric.__name__} | {seconds:.3f} | {peak_megabytes():.0f} |")


if __name__ == "__main__":
    main()
