"""Fig. 4 of the letter: Q_MI and Q^AB/F over the noise level σ, at n = 7.

``python -m experiments.figure4 --data DIR`` computes ``figure4.json`` and draws it.
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.cases import Case
from experiments.command import main_of
from experiments.methods import LETTER_METHODS
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows

NAME = "figure4"
DENSE_SIGMAS = (0, 15)


def cases(plan: Plan) -> list[Case]:
    """The letter's methods at every σ; the dense reading, slow with noise, at 0 and 15 only."""
    dataset, items = plan.pairs
    return [
        Case(dataset, item, sigma, method)
        for sigma in plan.sigmas
        for method in LETTER_METHODS
        for item in items
        if not (method == "paper-dense" and sigma not in DENSE_SIGMAS)
    ]


def compute(plan: Plan) -> Outcome:
    outcome = run_cases(
        NAME, cases(plan), data=plan.data, results=plan.results, workers=plan.workers
    )
    save_rows(plan.results / f"{NAME}.json", outcome, form=plan.form)
    return outcome


def draw(results: Path, out: Path) -> list[Path]:
    """Draw from the JSON: a column for either kind of sources."""
    from experiments.drawing import METRIC_NAMES, draw_lines, panels, save
    from experiments.statistics import pick

    rows = pick(json.loads((results / f"{NAME}.json").read_text("utf-8"))["rows"])
    figure, axes = panels(2, 2, sharex=True)
    for column, reference in enumerate(("noisy", "clean")):
        for row, metric in enumerate(("q_mi", "q_abf")):
            draw_lines(axes[row, column], rows, "sigma", f"{metric}_{reference}")
            axes[row, 0].set_ylabel(METRIC_NAMES[metric])
        axes[0, column].set_title(f"against the {reference} sources")
        axes[1, column].set_xlabel("noise σ (grey levels)")
    save(figure, axes[0, 0], out / f"{NAME}.svg")
    return [out / f"{NAME}.svg"]


if __name__ == "__main__":
    main_of(compute, draw, __doc__)
