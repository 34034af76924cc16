"""Beyond the letter: PSNR and SSIM where the truth is known, and stacks of more than two frames.

The MFI-WHU pairs, focus stacks of K frames simulated from test pictures, and the Lytro triples
(no truth: Q_MI and Q^AB/F). To bound the time, SR-KSVD without noise and `paper` with noise run on
every third MFI-WHU pair; on simulated stacks SR-KSVD runs for two frames only and `paper` at σ = 0
and 15 only. Tables compare on the same pairs.

``python -m experiments.truth --data DIR`` computes ``truth.json`` and draws it.
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.cases import Case
from experiments.command import main_of
from experiments.methods import LETTER_METHODS
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows

NAME = "truth"
USUAL = ("average", "laplacian", "gff", "focus-measure", "tv+focus-measure")
PAIR_METHODS = ("fast", "paper", "sf-dct", "sr-ksvd", *USUAL)
STACK_METHODS = ("fast", "paper", "sr-ksvd", *USUAL)
TRIPLE_SIGMAS = (0, 15)
PAPER_SIGMAS = (0, 15)


def cases(plan: Plan) -> list[Case]:
    """Pairs with truth, triples and simulated stacks."""
    pairs, items = plan.truth_pairs
    found = [
        Case(pairs, item, sigma, method)
        for sigma in plan.truth_pair_sigmas
        for method in PAIR_METHODS
        for item in (items[::3] if _is_thinned(method, sigma) else items)
    ]
    triples, items = plan.triples
    found += [
        Case(triples, item, sigma, method)
        for sigma in TRIPLE_SIGMAS
        for method in (*LETTER_METHODS, *USUAL)
        for item in items
    ]
    kind, items = plan.stacks
    found += [
        Case(f"{kind}-{frames}", item, sigma, method)
        for frames in plan.stack_frames
        for sigma in plan.stack_sigmas
        for method in STACK_METHODS
        for item in items
        if not (method == "sr-ksvd" and frames > 2)
        if not (method == "paper" and sigma not in PAPER_SIGMAS)
    ]
    # Without noise the denoiser in front does nothing: that is the method without it.
    return [case for case in found if not ("+" in case.method and case.sigma == 0)]


def compute(plan: Plan) -> Outcome:
    outcome = run_cases(
        NAME, cases(plan), data=plan.data, results=plan.results, workers=plan.workers
    )
    groups = {
        "pairs": plan.truth_pairs[0],
        "triples": plan.triples[0],
        "stacks": [f"{plan.stacks[0]}-{frames}" for frames in plan.stack_frames],
        "pair_items": plan.truth_pairs[1],
        "triple_items": plan.triples[1],
        "stack_items": plan.stacks[1],
    }
    save_rows(plan.results / f"{NAME}.json", outcome, form=plan.form, groups=groups)
    return outcome


def draw(results: Path, out: Path) -> list[Path]:
    """Draw PSNR and SSIM of the simulated stacks over σ, one column for each K."""
    from experiments.drawing import METRIC_NAMES, draw_lines, panels, save
    from experiments.statistics import pick

    content = json.loads((results / f"{NAME}.json").read_text("utf-8"))
    stacks, items = content["groups"]["stacks"], content["groups"]["stack_items"]
    chosen = [row for row in pick(content["rows"]) if row["case"]["item"] in items]
    figure, axes = panels(2, len(stacks), sharex=True, sharey="row")
    for column, dataset in enumerate(stacks):
        for row, metric in enumerate(("psnr", "ssim")):
            draw_lines(axes[row, column], pick(chosen, dataset=dataset), "sigma", metric)
            axes[row, 0].set_ylabel(METRIC_NAMES[metric])
        axes[0, column].set_title(f"K = {dataset.partition('-')[2]} frames")
        axes[1, column].set_xlabel("noise σ (grey levels)")
    save(figure, axes[0, 0], out / f"{NAME}.svg")
    return [out / f"{NAME}.svg"]


def _is_thinned(method: str, sigma: float) -> bool:
    """Whether a method is slow enough to run on every third pair only."""
    return method == ("sr-ksvd" if sigma == 0 else "paper")


if __name__ == "__main__":
    main_of(compute, draw, __doc__)
