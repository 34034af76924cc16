"""What each part of `auto` is worth: the same stacks with and without it.

    python -m experiments.ablation --data DIR [--real NAME ...] [--pairs N]

Real stacks, aligned as for `experiments.looks`, are judged by what is lost and phantom, in percent;
MFI-WHU pairs that tuning may see, clean, by PSNR without 8 pixels at each side, and with white
noise of 15 grey levels, estimated, by PSNR.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cofuse import Stack, fuse
from cofuse.evaluation.metrics import psnr
from cofuse.model import restoring, weighing
from experiments.looks_stacks import grey_levels, real_stacks
from experiments.pictures import add_data_option, data_folder, noisy, whu
from experiments.quality_plan import WHU_SEEN
from experiments.realness import Frames

_REAL = ("bowl", "coffee", "damselfly", "pcb", "sky")
_RIM = 8


def _one_for_all_bands(weights: Any) -> Any:
    return np.repeat(weights[:, :1], weights.shape[1], axis=1)


def _largest_alone(weights: Any) -> Any:
    best = weights == weights.max(axis=0)
    return (best / best.sum(axis=0)).astype(np.float32)


def _changed(owner: Any, name: str, change: Callable[[Any], Any]) -> Callable[[], Any]:
    """Pass on, in place of what a function returns, what is made of it."""
    plain = getattr(owner, name)
    return lambda: mock.patch.object(owner, name, lambda *given: change(plain(*given)))


def _untold(told: Any) -> Any:
    return told._replace(levels=0 * told.levels)


#: Name, and how to make `auto` do so.
VARIANTS: dict[str, Callable[[], Any]] = {
    "`auto`": nullcontext,
    "one weight for all bands": _changed(weighing.Glance, "weigh", _one_for_all_bands),
    "the largest weight alone": _changed(weighing.Glance, "weigh", _largest_alone),
    "faint weights kept": lambda: mock.patch.object(weighing, "_LEAST_WEIGHT", 0.0),
    "no frame left out by a glance": lambda: mock.patch.object(weighing, "LEAST_SHARE", 0.0),
    "noise not told to the networks": _changed(weighing, "noise_told", _untold),
    "noise left taken for that of a frame": _changed(restoring.NoiseLeft, "scales", np.ones_like),
    "changes not held to what varies": _changed(
        restoring, "_varies", lambda levels: np.full_like(levels, np.inf)
    ),
}


def varied(name: str, stack: Stack) -> Any:
    """Fuse by a variant."""
    with VARIANTS[name]():
        return fuse(stack).image


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_data_option(parser, workers=False)
    add("--real", nargs="*", default=_REAL, metavar="NAME", help="real stacks")
    add("--pairs", type=int, default=6, help="MFI-WHU pairs")
    add("--out", type=Path, default=Path("results") / "looks", help="folder of aligned frames")
    given = parser.parse_args()
    data = data_folder(parser, given)
    stacks = [s for s in real_stacks(data, given.out / "stacks") if s.name in given.real]
    heads = [*(s.name for s in stacks), "MFI-WHU, σ = 0", "σ = 15"]
    print(f"| variant | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}", flush=True)
    for name in VARIANTS:
        cells = [_real(name, stack) for stack in stacks]
        cells += [_pairs(name, data, given.pairs, sigma) for sigma in (0, 15)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _real(name: str, stack: Any) -> str:
    frames = stack.aligned()
    levels = grey_levels(frames)
    picture = levels(varied(name, Stack.from_arrays(frames)))
    lost, phantom = Frames([levels(frame) for frame in frames]).judge(picture).shares
    return f"{100 * lost:.1f} / {100 * phantom:.2f}"


def _pairs(name: str, data: Path, count: int, sigma: int) -> str:
    scores = []
    rim = slice(_RIM, -_RIM)
    for number in WHU_SEEN[:count]:
        frames, truth = whu(data, number)
        stack = Stack.from_arrays(noisy(frames, sigma, number), white=255.0)
        picture = varied(name, stack)
        scores.append(psnr(picture[rim, rim], truth[rim, rim]))
    return f"{np.mean(scores):.2f}"


if __name__ == "__main__":
    main()
