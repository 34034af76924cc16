"""The command line that the scripts of the figures share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from experiments.plan import Plan, add_arguments, plan_from
from experiments.runner import Outcome

__all__ = ["main_of"]


def main_of(
    compute: Callable[[Plan], Outcome],
    draw: Callable[[Path, Path], list[Path]] | None,
    text: str | None,
) -> None:
    """Compute one experiment, then draw it from what was written."""
    parser = argparse.ArgumentParser(description=text)
    add_arguments(parser)
    plan = plan_from(parser.parse_args())
    outcome = compute(plan)
    if draw:
        for path in draw(plan.results, plan.results / "report"):
            print(path)
    sys.exit(1 if outcome.failed else 0)
