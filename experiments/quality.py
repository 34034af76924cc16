"""How good the results are: every table the quality of `auto` is judged by.

``python -m experiments.quality --data DIR`` computes them, prints them in Markdown and writes each
to the output folder. What was computed with the same source is not computed again. ``--quick``
takes a few scenes of each, ``--subset tuning`` only scenes that tuning may see, ``--pictures``
saves the parts of results that are farthest from the truth, to be looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import write_image
from experiments import quality_tables as tables_of
from experiments.methods import Denoised
from experiments.pictures import add_data_option, data_folder, to_8_bit
from experiments.quality_plan import SUBSETS, QualityPlan, is_kept_aside, plan_of
from experiments.quality_sheet import Sheet
from experiments.scores import WINDOW
from experiments.trials import (
    Record,
    Trial,
    code_version,
    fused_picture,
    machine,
    run_trials,
    worker_pool,
    write_whole,
)

#: The tables by name.
TABLES: dict[str, Callable[[QualityPlan], list[Sheet]]] = {
    "clean": tables_of.clean,
    "stacks": tables_of.stacks,
    "rooms": tables_of.rooms,
    "misaligned": tables_of.misaligned,
    "noisy": tables_of.noisy_pairs,
    "noisy-stacks": tables_of.noisy_stacks,
    "single": tables_of.single,
    "users": tables_of.users,
    "texture": tables_of.texture,
    "robustness": tables_of.robustness,
}

_ZOOM, _GAP = 4, 8
_MOST = 4
#: How much the difference is amplified around mid-grey.
_DIFFERENCE_GAIN = 4.0


def run(
    plan: QualityPlan,
    tables: Sequence[str],
    *,
    methods: Sequence[str] = (),
    pictures: bool = False,
    pool: Executor,
) -> int:
    """Compute, print and write tables, all of them or the cells of some methods alone.

    Returns the number of trials that failed.
    """
    form = f"{plan.subset} subset{', quick' if plan.quick else ''}"
    head = f"*{form}; {machine()}; source {code_version('auto')[:8]}*\n"
    if plan != replace(plan_of(plan.data, plan.output), workers=plan.workers):
        head += "\n*Targets are meant for the full report subset.*\n"
    suffix = f"{'-tuning' * (plan.subset == 'tuning')}{'-quick' * plan.quick}"
    print(head)
    written, failed = [head], set()
    for name in tables:
        started = time.monotonic()
        sheets = TABLES[name](plan)
        wanted = [trial for sheet in sheets for trial in sheet.trials()]
        if methods:
            wanted = [trial for trial in wanted if trial.method in methods]
        if plan.subset == "tuning":
            _refuse_kept_aside(wanted)
        records = run_trials(wanted, data=plan.data, output=plan.output, pool=pool)
        text = f"## {name}\n\n" + "\n".join(sheet.text(records) for sheet in sheets)
        print(text, flush=True)
        write_whole(plan.output / f"{name}{suffix}.md", f"{head}\n{text}")
        written.append(text)
        failed |= {trial for trial, record in records.items() if "error" in record}
        if pictures and name != "texture":  # its trials are those of other tables
            _save_worst(name + suffix, records, plan.data, plan.output)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if set(tables) == set(TABLES):
        write_whole(plan.output / f"quality{suffix}.md", "\n".join(written))
    return len(failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add_data_option(parser)
    add("--tables", default=",".join(TABLES), help=f"some of {','.join(TABLES)}")
    add("--methods", default="", help="fill the cells of these alone, as in auto,auto?")
    add("--quick", action="store_true", help="a few scenes each, noisy ones cut small")
    add("--subset", choices=SUBSETS, default="report", help="tuning: only what tuning may see")
    add("--output", type=Path, default=Path("results") / "quality")
    add("--pictures", action="store_true", help="save the worst parts of results as PNG")
    given = parser.parse_args(arguments)
    tables = [name.strip() for name in given.tables.split(",") if name.strip()]
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"there is no table {unknown[0]!r}; known are {', '.join(TABLES)}")
    plan = plan_of(
        data_folder(parser, given),
        given.output,
        workers=given.workers,
        quick=given.quick,
        subset=given.subset,
    )
    methods = [name.strip() for name in given.methods.split(",") if name.strip()]
    with worker_pool(plan.workers) as pool:
        failed = run(plan, tables, methods=methods, pictures=given.pictures, pool=pool)
    return 1 if failed else 0


def _refuse_kept_aside(trials: Sequence[Trial]) -> None:
    """Stop before anything is computed on a scene that tuning must not see."""
    for trial in trials:
        if is_kept_aside(trial.dataset, trial.item):
            raise RuntimeError(f"{trial} is kept aside; the tuning subset must not name it")


def _save_worst(
    name: str, records: Mapping[Trial, Record], data: Path | None, output: Path
) -> None:
    """Save the windows with the largest error of `auto`, four a table.

    Side by side: the truth, the result, their difference (amplified four times), and the frame
    that comes nearest to the truth there.
    """
    folder = output / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for rank, trial in enumerate(_worst_trials(records), 1):
        scores = records[trial]["scores"]
        given = trial.situation(data)
        picture, _ = fused_picture(trial.method, trial.n, given, Denoised(None))
        top, left = int(scores["worst_top"]), int(scores["worst_left"])
        window = np.s_[top : top + WINDOW, left : left + WINDOW]
        truth = given.truth[window].astype(np.float32)
        result = picture[window].astype(np.float32)
        frames = [given.stack.to_levels(frame)[window] for frame in given.stack]
        nearest = min(frames, key=lambda frame: float(np.mean((frame - truth) ** 2)))
        strip = _strip([truth, result, 128.0 + _DIFFERENCE_GAIN * (result - truth), nearest])
        file = folder / f"{name}-{rank}-{_file_name(trial)}.png"
        write_image(file, strip, overwrite=True)


def _worst_trials(records: Mapping[Trial, Record]) -> list[Trial]:
    """Name the trials of `auto` whose worst windows are the worst, one a scene at most."""
    ours = [
        trial
        for trial, record in records.items()
        if trial.method == "auto" and "worst" in record.get("scores", {})
    ]
    ours.sort(key=lambda trial: records[trial]["scores"]["worst"], reverse=True)
    by_scene: dict[tuple[str, int], Trial] = {}
    for trial in ours:
        by_scene.setdefault((trial.dataset, trial.item), trial)
    return list(by_scene.values())[:_MOST]


def _strip(panels: list[NDArray[Any]]) -> NDArray[Any]:
    """Put panels in a row, magnified."""
    large = [to_8_bit(panel).repeat(_ZOOM, axis=0).repeat(_ZOOM, axis=1) for panel in panels]
    bar = np.full((large[0].shape[0], _GAP, *large[0].shape[2:]), 255, np.uint8)
    row = [part for panel in large for part in (panel, bar)][:-1]
    return np.concatenate(row, axis=1)


def _file_name(trial: Trial) -> str:
    parts = [trial.dataset, str(trial.item), f"sigma{trial.sigma:g}"]
    parts += [trial.change] if trial.change else []
    return "-".join(parts).replace(" ", "_").replace("%", "percent")


if __name__ == "__main__":
    sys.exit(main())
