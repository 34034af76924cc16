"""Table 1 of the letter: seconds a pair at σ = 0 and 15, as ratios to SR-KSVD.

One process on one core runs one case after the other; within each pair the methods take turns, and
every other repeat in reverse, so that a machine that slows down slows all of them. The letter does
not say which stride its methods ran with: both of SR-KSVD and both of ours are timed.
``python -m experiments.table1 --data DIR`` computes ``table1.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.cases import Case
from experiments.command import main_of
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows
from experiments.statistics import Mean, mean, scores_by_item

NAME = "table1"
METHODS = ("sf-dct", "sr-ksvd", "sr-ksvd-dense", "paper", "paper-dense", "fast")
SIGMAS = (0, 15)

#: The letter's own seconds, on another machine, at σ = 0 and 15.
LETTER = {"sf-dct": (1.073, 2.179), "sr-ksvd": (4.342, 5.281), "paper": (4.567, 5.981)}


def cases(plan: Plan) -> list[Case]:
    """Every method on every timed pair, taking turns."""
    dataset = plan.pairs[0]
    return [
        Case(dataset, item, sigma, method, repeat=repeat + 1)
        for repeat in range(plan.repeats)
        for item in plan.timed
        for sigma in SIGMAS
        for method in METHODS[:: -1 if repeat % 2 else 1]
    ]


def compute(plan: Plan) -> Outcome:
    outcome = run_cases(NAME, cases(plan), data=plan.data, results=plan.results, workers=1)
    save_rows(plan.results / f"{NAME}.json", outcome, form=plan.form)
    return outcome


def read(results: Path) -> dict[str, Any]:
    """Return, by method and σ, mean CPU and wall seconds and their ratios to either SR-KSVD."""
    content = json.loads((results / f"{NAME}.json").read_text("utf-8"))
    rows, table = content["rows"], []
    for method in METHODS:
        for sigma in SIGMAS:
            times = {
                clock: mean(_by_pair(rows, clock, method, sigma).values())
                for clock in ("cpu", "wall")
            }
            ratios = {
                rival: _ratio(rows, method, rival, sigma) for rival in ("sr-ksvd", "sr-ksvd-dense")
            }
            table.append({"method": method, "sigma": sigma, **times, "ratios": ratios})
    return {"machine": content["machine"], "table": table}


def _ratio(rows: list[dict[str, Any]], method: str, rival: str, sigma: float) -> Mean:
    """Mean over pairs of the ratio of CPU seconds."""
    own, other = (_by_pair(rows, "cpu", name, sigma) for name in (method, rival))
    return mean(own[pair] / other[pair] for pair in own if other.get(pair))


def _by_pair(rows: list[dict[str, Any]], clock: str, method: str, sigma: float) -> dict[Any, float]:
    """Seconds by pair, each the mean of its repeats: those say nothing about other pairs."""
    repeats: dict[Any, list[float]] = {}
    for key, seconds in scores_by_item(rows, clock, method=method, sigma=sigma).items():
        repeats.setdefault(key[:2], []).append(seconds)
    return {pair: mean(seconds).mean for pair, seconds in repeats.items()}


if __name__ == "__main__":
    main_of(compute, None, __doc__)
