"""BM3D on every frame, then each pixel from the frame with the strongest focus measure.

``python -m benchmarks.bm3d_job FRAMES OUTPUT SIGMA``; run by `benchmarks.peers`.
"""

from __future__ import annotations

import sys

from cofuse.evaluation.baselines import resolve_method
from cofuse.files import read_stack, write_image

if __name__ == "__main__":
    folder, output, sigma = sys.argv[1:]
    fusion = resolve_method("bm3d+focus-measure")(read_stack(folder), sigma=float(sigma))
    write_image(output, fusion.image, overwrite=True)
