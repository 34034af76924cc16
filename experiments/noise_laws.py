"""How far `estimate_noise` is from the noise that frames have.

``python -m experiments.noise_laws --data DIR`` adds noise as cameras and files make it, of known
level, to both frames of MFI-WHU pairs, and holds the estimated law against the true one
(`experiments.noise_truth`). ``--stacks`` does so with simulated stacks of 5 and 10 frames instead,
``--real`` with flat patches of real stacks (`experiments.real_noise_patches`).

A measurement is the level of one band of one frame: of its luminance, or of its two chrominances
together. Tables show, over all pictures and frames, in percent the median and the 90th percentile
of how far the estimate is off, and the median ratio of estimate to truth. The pictures' own grain,
which `clean` shows, counts as an error of the estimate.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError, Stack, read_image
from cofuse.evaluation.simulation import simulate_stack
from cofuse.sensor.estimation import estimate_noise
from experiments import runner
from experiments.cases import write_json
from experiments.noise_tables import report
from experiments.noise_truth import CLEAN, GRADED, even, kinds_of, spread, true_levels
from experiments.pictures import WHU_PAIRS, scene_files
from experiments.real_noise_patches import real_report

__all__ = ["measure", "pictures"]

Row = dict[str, Any]
Setting = tuple[str, float]

_LEVELS = (3.0, 5.0, 10.0, 20.0)
#: Pictures of which stacks are simulated, unless told otherwise, and how many frames those have.
_STACKS, _FRAMES = 12, (5, 10)


def pictures(data: Path, item: int, frames: int) -> list[NDArray[np.uint8]]:
    """Read the two frames of a pair, or simulate more of its truth: clean, RGB, even sides."""
    *pair, truth = (even(read_image(file)) for file in scene_files(data, "mfi_whu", item))
    return pair if frames == 2 else list(simulate_stack(truth, frames=frames, seed=item).frames)


def measure(
    data: Path, tools: Path, item: int, frames: int, settings: Sequence[Setting]
) -> list[Row]:
    """Estimate the noise of one picture's frames in every setting, and measure the true one."""
    kinds, clean = kinds_of(tools), pictures(data, item, frames)
    rows = []
    for kind, level in settings:
        made = [
            kinds[kind](frame, level, number, np.random.default_rng((item, number)))
            for number, frame in enumerate(clean, 1)
        ]
        law = estimate_noise(Stack.from_arrays([noisy for noisy, _ in made]))
        row = {"kind": kind, "level": level, "item": item, "frames": frames, "sigma": law.sigma}
        row |= {"is_clean": law.is_clean, "blocks": law.blocks}
        row |= {"floor": law.model.floor, "gain": law.model.gain}
        row |= {"levels": law.levels.tolist(), "errors": law.errors.tolist()}
        true = [true_levels(noisy, truth, law.model) for noisy, truth in made]
        for name, levels in zip(("flat", "everywhere"), zip(*true, strict=True), strict=True):
            row[name] = [_listed(level) for level in levels]
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, default=os.environ.get("COFUSE_DATA"), help="picture collections")
    add("--tools", type=Path, help="folder of real_noise.py (default: tools beside --data)")
    add("--pairs", type=int, help="pictures, evenly over the set (default: all; 12 for stacks)")
    add("--kinds", nargs="+", choices=(*GRADED, *CLEAN), default=(*GRADED, *CLEAN))
    add("--levels", nargs="+", type=float, default=_LEVELS)
    add("--stacks", action="store_true", help="simulated stacks of 5 and 10 frames, no pairs")
    add("--real", action="store_true", help="flat patches of real stacks, no pairs")
    add("--out", type=Path, help="Markdown file to write as well, with the rows as JSON beside it")
    add("--workers", type=int, default=len(runner.cores()), help="processes (default: one a core)")
    given = parser.parse_args(arguments)
    if given.data is None or not Path(given.data).is_dir():
        parser.error("name the folder of the picture collections with --data or COFUSE_DATA")
    data = Path(given.data).resolve()
    settings = [(kind, level) for kind in given.kinds if kind in GRADED for level in given.levels]
    settings += [(kind, 0.0) for kind in given.kinds if kind in CLEAN]
    rows: list[Row] = []
    try:
        if not given.real:
            rows = _measured(data, given.tools or data.parent / "tools", given, settings)
        text = real_report(data, estimate_noise) if given.real else report(rows)
    except CofuseError as error:
        parser.error(str(error))
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, "utf-8")
    if given.out and rows:
        write_json(given.out.with_suffix(".json"), {"machine": runner.machine(), "rows": rows})
    return 0


def _measured(
    data: Path, tools: Path, given: argparse.Namespace, settings: Sequence[Setting]
) -> list[Row]:
    """Measure all pictures in worker processes, in the order of the pictures."""
    kinds_of(tools)  # a missing folder is named before any work
    count = given.pairs or (_STACKS if given.stacks else len(WHU_PAIRS))
    items = spread(WHU_PAIRS, count)
    tasks = [(item, frames) for frames in (_FRAMES if given.stacks else (2,)) for item in items]
    with runner._pool(min(given.workers, len(tasks))) as pool:
        futures = {pool.submit(measure, data, tools, *task, settings): task for task in tasks}
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            print(f"{done} of {len(tasks)} pictures", file=sys.stderr, flush=True)
    return [row for future in futures for row in future.result()]


def _listed(levels: NDArray[np.float64]) -> list[list[float | None]]:
    """Turn levels into lists, for JSON, which knows no NaN."""
    return [[None if np.isnan(value) else value for value in row] for row in levels.tolist()]


if __name__ == "__main__":
    sys.exit(main())
