"""How far `estimate_noise` is from the noise that frames have.

``python -m experiments.noise_laws --data DIR`` adds noise as cameras and files make it, of known
level, to both frames of MFI-WHU pairs, and holds the estimated law against the true one
(`experiments.noise_truth`). ``--stacks`` does so with simulated stacks of 5 and 10 frames instead,
``--real`` with flat patches of real stacks (`experiments.real_noise_patches`).

A measurement is the level of one band of one frame: of its luminance, or of its two chrominances
together. A cell is a level of noise, a plane and a band; over all pictures and frames the median
and the 90th percentile of how far its estimates are off are told, in percent. The pictures' own
grain, which `clean` shows, counts as an error of the estimate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import Stack, read_image
from cofuse.evaluation.simulation import simulate_stack
from cofuse.sensor.estimation import estimate_noise
from cofuse.sensor.law import BANDS
from experiments.noise_truth import CLEAN, GRADED, even, folders, kinds_of, spread, true_levels
from experiments.pictures import WHU_PAIRS, scene_files
from experiments.real_noise_patches import real_report
from experiments.statistics import markdown
from experiments.trials import run_all

Row = dict[str, Any]
Setting = tuple[str, float]

_LEVELS = (3.0, 5.0, 10.0, 20.0)
#: Pictures of which stacks are simulated, unless told otherwise, and how many frames those have.
_STACKS, _FRAMES = 12, (5, 10)
_PLANES = ("luminance", "chrominance")
#: Errors that are counted, in percent: of medians, and of 90th percentiles.
_MEDIAN, _TENTH = 15.0, 30.0
#: Grey levels below which the relative error of a level does not matter.
_FAINT = 1.0


def pictures(data: Path, item: int, frames: int) -> list[NDArray[np.uint8]]:
    """Read the two frames of a pair, or simulate more of its truth: clean, RGB, even sides."""
    *pair, truth = (even(read_image(file)) for file in scene_files(data, "mfi_whu", item))
    return pair if frames == 2 else list(simulate_stack(truth, frames=frames, seed=item).frames)


def measure(
    data: Path, tools: Path, item: int, frames: int, settings: Sequence[Setting]
) -> list[Row]:
    """Estimate the noise of one picture's frames in every setting, and measure the true one.

    Levels, their relative errors and the truth have the shape (frames, planes, bands).
    """
    kinds, clean = kinds_of(tools), pictures(data, item, frames)
    rows = []
    for kind, level in settings:
        made = [
            kinds[kind](frame, level, number, np.random.default_rng((item, number)))
            for number, frame in enumerate(clean, 1)
        ]
        law = estimate_noise(Stack.from_arrays([noisy for noisy, _ in made]))
        row = {"kind": kind, "level": level, "item": item, "frames": frames, "sigma": law.sigma}
        row |= {"is_clean": law.is_clean, "levels": law.levels, "errors": law.errors}
        row["true"] = np.stack([true_levels(*pair, law.model)[0] for pair in made])
        rows.append(row)
    return rows


def report(rows: Sequence[Row]) -> str:
    """Write all tables of all counts of frames."""
    parts = []
    for frames in sorted({row["frames"] for row in rows}):
        chosen = [row for row in rows if row["frames"] == frames]
        items = len({row["item"] for row in chosen})
        parts.append(f"# {items} {'pairs' if frames == 2 else f'stacks of {frames} frames'}\n")
        if graded := [row for row in chosen if row["kind"] in GRADED]:
            parts += [_summary(graded), _calibration(graded)]
        if clean := [row for row in chosen if row["kind"] in CLEAN]:
            parts.append(_clean(clean))
    return "\n".join(parts)


def _summary(rows: Sequence[Row]) -> str:
    """Sum up every kind of noise; cells with too little of it count in grey levels alone."""
    body = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        cells, faint, missing = [], [], []
        for level in dict.fromkeys(row["level"] for row in rows if row["kind"] == kind):
            chosen = [r for r in rows if (r["kind"], r["level"]) == (kind, level)]
            estimate, true = (_two_planes(chosen, name) for name in ("levels", "true"))
            missing.append(np.isnan(true).mean())
            for p, b in np.ndindex(2, BANDS):
                told, there = estimate[:, p, b], true[:, p, b]
                if np.nanmedian(there) < _FAINT:
                    faint.append(np.nanmedian(np.abs(told - there)))
                    continue
                off = 100 * np.abs(told / there - 1)
                name = f"{_PLANES[p]} {b} at {level:g}"
                cells.append((np.nanmedian(off), np.nanquantile(off, 0.9), name))
        nothing = (np.nan, np.nan, "none")
        worst = [
            max(cells, key=lambda cell, k=k: np.nan_to_num(cell[k]), default=nothing)
            for k in (0, 1)
        ]
        line = [kind, *(f"{cell[k]:.0f} % ({cell[2]})" for k, cell in enumerate(worst))]
        for k, limit in enumerate((_MEDIAN, _TENTH)):
            line.append(f"{sum(cell[k] <= limit for cell in cells)} of {len(cells)}")
        line += [f"{100 * np.mean(missing):.0f} %", str(len(faint))]
        body.append([*line, f"{max(faint):.2f}" if faint else "–"])
    header = ["kind", "worst median", "worst 90 %", f"medians ≤ {_MEDIAN:g} %"]
    header += [f"90 % ≤ {_TENTH:g} %", "not measured", f"cells below {_FAINT:g} level"]
    return markdown("## How far levels are off", [*header, "their worst median, levels"], body)


def _two_planes(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """Levels of luminance and of both chrominances together: (measurements, 2, bands)."""
    squares = np.concatenate([row[name] for row in rows]) ** 2
    return np.sqrt(np.stack([squares[:, 0], squares[:, 1:].mean(axis=1)], axis=1))


def _calibration(rows: Sequence[Row]) -> str:
    """Count true levels, of every frame, plane and band, within the law's own errors."""
    levels, errors, true = (
        np.concatenate([row[name] for row in rows]) for name in ("levels", "errors", "true")
    )
    distances = np.abs(true - levels) / np.maximum(errors * levels, 1e-9)
    body = []
    for reach in (1, 2):
        inside = np.where(np.isfinite(distances), distances <= reach, np.nan)
        shares = [100 * np.nanmean(inside), *(100 * np.nanmean(inside, axis=(0, 1)))]
        body.append([str(reach), *(f"{share:.0f} %" for share in shares)])
    header = ["standard errors", "all", *(f"band {band}" for band in range(BANDS))]
    return markdown("## True levels within the law's standard errors (68 and 95 %)", header, body)


def _clean(rows: Sequence[Row]) -> str:
    body = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        chosen = [row for row in rows if row["kind"] == kind]
        sigmas = np.array([row["sigma"] for row in chosen])
        worst = chosen[int(sigmas.argmax())]["item"]
        count = sum(row["is_clean"] for row in chosen)
        cells = [f"{np.median(sigmas):.2f}", f"{np.quantile(sigmas, 0.9):.2f}"]
        cells += [f"{sigmas.max():.2f} (picture {worst})", f"{count} of {len(chosen)}"]
        body.append([kind, *cells])
    header = ["kind", "median σ", "90 % σ", "largest σ", "taken for clean"]
    return markdown("## Frames without noise", header, body)


def main() -> None:
    """Measure what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--pairs", type=int, help="pictures, evenly over the set (default: all; 12 for stacks)")
    add("--kinds", nargs="+", choices=(*GRADED, *CLEAN), default=(*GRADED, *CLEAN))
    add("--levels", nargs="+", type=float, default=_LEVELS)
    add("--stacks", action="store_true", help="simulated stacks of 5 and 10 frames, no pairs")
    add("--real", action="store_true", help="flat patches of real stacks, no pairs")
    given, data, tools = folders(parser)
    settings = [(kind, level) for kind in given.kinds if kind in GRADED for level in given.levels]
    settings += [(kind, 0.0) for kind in given.kinds if kind in CLEAN]
    items = spread(WHU_PAIRS, given.pairs or (_STACKS if given.stacks else len(WHU_PAIRS)))
    counts = _FRAMES if given.stacks else (2,)
    if given.real:
        print(real_report(data))
        return
    tasks = [(data, tools, item, frames, settings) for frames in counts for item in items]
    found = run_all(measure, tasks, given.workers, "pictures")
    print(report([row for rows in found for row in rows]))


if __name__ == "__main__":
    main()
