"""How good the results are: every table the quality of `auto` is judged by.

``python -m experiments.quality --data DIR`` computes them, prints them in Markdown and writes each
to the output folder. What was computed with the same source is not computed again. ``--quick``
takes a few scenes of each, ``--subset tuning`` only scenes that tuning may see.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from experiments import quality_tables as tables_of
from experiments.pictures import add_data_option, data_folder
from experiments.quality_plan import SUBSETS, QualityPlan, is_kept_aside, plan_of
from experiments.quality_sheet import Sheet
from experiments.trials import (
    Trial,
    code_version,
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
    "noisy-stacks": tables_of.noisy_stacks,
    "single": tables_of.single,
}


def run(plan: QualityPlan, tables: Sequence[str], *, pool: Executor) -> int:
    """Compute, print and write tables; return the number of trials that failed."""
    form = f"{plan.subset} subset{', quick' if plan.quick else ''}"
    head = f"*{form}; {machine()}; source {code_version('auto')[:8]}*\n"
    if plan.quick or plan.subset != "report":
        head += "\n*Targets are meant for the full report subset.*\n"
    suffix = f"{'-tuning' * (plan.subset == 'tuning')}{'-quick' * plan.quick}"
    print(head)
    written, failed = [head], set()
    for name in tables:
        started = time.monotonic()
        sheets = TABLES[name](plan)
        wanted = [trial for sheet in sheets for trial in sheet.trials()]
        if plan.subset == "tuning":
            _refuse_kept_aside(wanted)
        records = run_trials(wanted, data=plan.data, output=plan.output, pool=pool)
        text = f"## {name}\n\n" + "\n".join(sheet.text(records) for sheet in sheets)
        print(text, flush=True)
        write_whole(plan.output / f"{name}{suffix}.md", f"{head}\n{text}")
        written.append(text)
        failed |= {trial for trial, record in records.items() if "error" in record}
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
    add("--quick", action="store_true", help="a few scenes each, noisy ones cut small")
    add("--subset", choices=SUBSETS, default="report", help="tuning: only what tuning may see")
    add("--output", type=Path, default=Path("results") / "quality")
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
    with worker_pool(plan.workers) as pool:
        failed = run(plan, tables, pool=pool)
    return 1 if failed else 0


def _refuse_kept_aside(trials: Sequence[Trial]) -> None:
    """Stop before anything is computed on a scene that tuning must not see."""
    for trial in trials:
        if is_kept_aside(trial.dataset, trial.item):
            raise RuntimeError(f"{trial} is kept aside; the tuning subset must not name it")


if __name__ == "__main__":
    sys.exit(main())
