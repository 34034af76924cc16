"""All experiments of the letter and those beyond it, and the report.

``python -m experiments.reproduce --data DIR [--quick] [--simulated]``. What was computed before is
reused; after an interrupt the same command goes on where it stopped. Exit code 1 tells of failed
cases, which the report lists.
"""

from __future__ import annotations

import argparse
import sys
import time

from experiments import report
from experiments.letter import STEPS
from experiments.plan import Plan, add_arguments, plan_from


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    return run(plan_from(parser.parse_args(arguments)))


def run(plan: Plan) -> int:
    """Compute every step, write the report, and return the exit code."""
    began = time.monotonic()
    computed = failed = 0
    try:
        for step in STEPS:
            outcome = step.compute(plan)
            computed, failed = computed + outcome.computed, failed + outcome.failed
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    path = report.write(plan.results)
    minutes = (time.monotonic() - began) / 60
    print(f"{computed} cases computed, {failed} failed, {minutes:.1f} minutes; see {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
