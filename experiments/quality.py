"""How good the results are: every table the quality of `auto` is judged by.

``python -m experiments.quality --data DIR`` computes them, prints them in Markdown and writes each
to the output folder. What was computed with the same source is not computed again. ``--quick``
takes a few scenes of each, ``--subset tuning`` only scenes that tuning may see, ``--pictures``
saves the parts of results that are farthest from the truth, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments import runner
from experiments.quality_more import ablations, cost, real_noise, robustness
from experiments.quality_pictures import save_worst
from experiments.quality_plan import SUBSETS, QualityPlan, is_kept_aside, plan_of
from experiments.quality_real import misaligned, rooms, single
from experiments.quality_sheet import Sheet
from experiments.quality_tables import clean, noisy_pairs, noisy_stacks, stacks, texture, users
from experiments.quality_trials import Trial, code_version, run_trials

__all__ = ["TABLES", "run"]

#: The tables by name.
TABLES: dict[str, Callable[[QualityPlan], list[Sheet]]] = {
    "clean": clean,
    "stacks": stacks,
    "rooms": rooms,
    "misaligned": misaligned,
    "noisy": noisy_pairs,
    "noisy-stacks": noisy_stacks,
    "single": single,
    "users": users,
    "texture": texture,
    "robustness": robustness,
    "real-noise": real_noise,
    "ablations": ablations,
    "cost": cost,
}
#: Tables of other tables' trials: their pictures are saved there.
_SAME_TRIALS = ("texture", "ablations")


def run(
    plan: QualityPlan,
    tables: Sequence[str],
    *,
    methods: Sequence[str] = (),
    pictures: bool = False,
) -> int:
    """Compute, print and write tables, all of them or the cells of some methods alone.

    Returns the number of trials that failed.
    """
    form = f"{plan.subset} subset{', quick' if plan.quick else ''}"
    head = f"*{form}; {runner.machine()}; source {code_version('auto')[:8]}*\n"
    if plan != replace(plan_of(plan.data, plan.output), workers=plan.workers):
        head += "\n*Targets are meant for the full report subset.*\n"
    suffix = f"{'-tuning' * (plan.subset == 'tuning')}{'-quick' * plan.quick}"
    print(head)
    written, failed = [head], set()
    with runner._pool(plan.workers) as pool:
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
            _write(plan.output / f"{name}{suffix}.md", f"{head}\n{text}")
            written.append(text)
            failed |= {trial for trial, record in records.items() if "error" in record}
            if pictures and name not in _SAME_TRIALS:
                save_worst(name + suffix, records, plan.data, plan.output)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if set(tables) == set(TABLES):
        _write(plan.output / f"quality{suffix}.md", "\n".join(written))
    return len(failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, default=os.environ.get("COFUSE_DATA"), help="picture collections")
    add("--tables", default=",".join(TABLES), help=f"some of {','.join(TABLES)}")
    add("--methods", default="", help="fill the cells of these alone, as in auto,auto?")
    add("--quick", action="store_true", help="a few scenes each, noisy ones cut small")
    add("--subset", choices=SUBSETS, default="report", help="tuning: only what tuning may see")
    add("--output", type=Path, default=Path("results") / "quality")
    add("--pictures", action="store_true", help="save the worst parts of results as PNG")
    add("--workers", type=int, default=len(runner.cores()), help="processes (default: one a core)")
    given = parser.parse_args(arguments)
    tables = [name.strip() for name in given.tables.split(",") if name.strip()]
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"there is no table {unknown[0]!r}; known are {', '.join(TABLES)}")
    if given.data is None or not Path(given.data).is_dir():
        parser.error("name the folder of the picture collections with --data or COFUSE_DATA")
    if given.workers < 1:
        parser.error(f"--workers is {given.workers}; expected 1 or more")
    plan = plan_of(
        Path(given.data),
        given.output,
        workers=given.workers,
        quick=given.quick,
        subset=given.subset,
    )
    methods = [name.strip() for name in given.methods.split(",") if name.strip()]
    return 1 if run(plan, tables, methods=methods, pictures=given.pictures) else 0


def _refuse_kept_aside(trials: Sequence[Trial]) -> None:
    """Stop before anything is computed on a scene that tuning must not see."""
    for trial in trials:
        if is_kept_aside(trial.dataset, trial.item):
            raise RuntimeError(f"{trial} is kept aside; the tuning subset must not name it")


def _write(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
