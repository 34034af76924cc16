"""All experiments of the letter and those beyond it, and the report.

``python -m experiments.reproduce --data DIR [--quick] [--simulated]``. What was computed before is
reused; after an interrupt the same command goes on where it stopped. Exit code 1 tells of failed
trials, which the report lists.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from experiments import report
from experiments.letter import STEPS, Plan
from experiments.pictures import add_data_option, data_folder
from experiments.statistics import Row
from experiments.trials import run_trials, worker_pool


def plan_from(arguments: list[str] | None) -> Plan:
    """Make the plan the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add_data_option(parser)
    add("--quick", action="store_true", help="4 pairs, 3 points an axis")
    add("--simulated", action="store_true", help="make small pairs of the package's own pictures")
    add("--results", type=Path, help="folder of all results (default: results/FORM)")
    given = parser.parse_args(arguments)
    if given.simulated:
        given.data = Path()
    form = "simulated" if given.simulated else "quick" if given.quick else ""
    results = given.results or Path("results") / form
    plan = Plan(data_folder(parser, given), results, given.workers)
    plan = plan.quick() if given.quick else plan
    return plan.simulated() if given.simulated else plan


def run(plan: Plan) -> int:
    """Compute every step, write the report, and return the exit code."""
    began = time.monotonic()
    rows: dict[str, list[Row]] = {}
    try:
        for name, trials in STEPS.items():
            # What is timed has the machine alone.
            with worker_pool(1 if name == "table1" else plan.workers) as pool:
                found = run_trials(trials(plan), data=plan.data, output=plan.results, pool=pool)
            rows[name] = [found[trial] for trial in trials(plan)]
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    path = report.write(plan, rows)
    failed = sum("error" in row for group in rows.values() for row in group)
    print(f"{failed} trials failed, {(time.monotonic() - began) / 60:.1f} minutes; see {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(plan_from(None)))
