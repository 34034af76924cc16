"""Fig. 3 of the letter: Q_MI and Q^AB/F over the patch size n, at σ = 0 and σ = 15.

``python -m experiments.figure3 --data DIR`` computes ``figure3.json`` and draws it.
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.cases import Case
from experiments.command import main_of
from experiments.methods import LETTER_METHODS
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows

NAME = "figure3"


def cases(plan: Plan) -> list[Case]:
    """The letter's methods for every n and σ; the dense reading with noise at n = 7 only."""
    dataset, items = plan.pairs
    return [
        Case(dataset, item, sigma, method, n)
        for sigma in plan.size_sigmas
        for n in plan.sizes
        for method in LETTER_METHODS
        for item in items
        if not (method == "paper-dense" and sigma > 0 and n != 7)
    ]


def compute(plan: Plan) -> Outcome:
    outcome = run_cases(
        NAME, cases(plan), data=plan.data, results=plan.results, workers=plan.workers
    )
    save_rows(plan.results / f"{NAME}.json", outcome, form=plan.form)
    return outcome


def draw(results: Path, out: Path) -> list[Path]:
    """Draw from the JSON: a column for each σ and, with noise, for each kind of sources."""
    from experiments.drawing import METRIC_NAMES, draw_lines, panels, save
    from experiments.statistics import pick, values

    rows = json.loads((results / f"{NAME}.json").read_text("utf-8"))["rows"]
    columns = []
    for sigma in values(rows, "sigma"):
        if sigma == 0:
            columns.append((sigma, "clean", "σ = 0"))
        else:
            columns.append((sigma, "noisy", f"σ = {sigma:g}, against the noisy sources"))
            columns.append((sigma, "clean", f"σ = {sigma:g}, against the clean sources"))
    figure, axes = panels(2, len(columns), sharex=True)
    for column, (sigma, reference, title) in enumerate(columns):
        for row, metric in enumerate(("q_mi", "q_abf")):
            draw_lines(axes[row, column], pick(rows, sigma=sigma), "n", f"{metric}_{reference}")
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("patch size n")
    for row, metric in enumerate(("q_mi", "q_abf")):
        axes[row, 0].set_ylabel(METRIC_NAMES[metric])
    save(figure, axes[0, 0], out / f"{NAME}.svg")
    return [out / f"{NAME}.svg"]


if __name__ == "__main__":
    main_of(compute, draw, __doc__)
