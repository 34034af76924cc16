"""Rivals on the Lytro pairs without noise, to be held against their published figures.

``python -m experiments.core --data DIR`` prints the table.
"""

from __future__ import annotations

import argparse

import numpy as np

from cofuse import Stack
from cofuse.evaluation.baselines import METHODS
from cofuse.evaluation.metrics import q_abf, q_mi
from experiments.pictures import LYTRO_PAIRS, add_data_option, data_folder, scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_option(parser, workers=False)
    data = data_folder(parser, parser.parse_args())
    print("| Lytro, grey, sigma 0 | Q_MI | Q^AB/F | lytro-01 alone |\n|---|---|---|---|")
    for name in ("gff", "dwt", "dct-variance", "focus-measure"):
        scores = []
        for number in LYTRO_PAIRS:
            frames, _ = scene(data, "lytro", number)
            fused = METHODS[name](Stack.from_arrays(frames)).image
            scores.append((q_mi(frames, fused), q_abf(frames, fused)))
        (mi, abf), (first_mi, first_abf) = np.mean(scores, axis=0), scores[0]
        print(f"| {name} | {mi:.4f} | {abf:.4f} | {first_mi:.4f} / {first_abf:.4f} |", flush=True)


if __name__ == "__main__":
    main()
