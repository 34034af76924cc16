"""The steps of the reproduction: figures and table of the letter, and what goes beyond it.

Each `Step` names its cases, computes them into ``NAME.json``, and draws from that file alone.

- *figure3*, *figure4*: Q_MI and Q^AB/F over the patch size n at σ = 0 and 15, and over σ at n = 7.
- *figures12*: one scene at σ = 0 and 15, all methods, with magnified details. The figures show the
  data set's pictures and are not for committing.
- *truth*: PSNR and SSIM of MFI-WHU pairs and of simulated stacks of K frames; the Lytro triples
  (no truth: Q_MI and Q^AB/F). To bound the time, SR-KSVD without noise and `paper` with noise run
  on every third pair; on simulated stacks SR-KSVD runs for two frames only and `paper` at σ = 0 and
  15 only. Tables compare on the same pairs.
- *table1*: seconds a pair, as ratios to SR-KSVD. One process on one core runs one case after the
  other; within each pair the methods take turns, and every other repeat in reverse, so that a
  machine that slows down slows all of them. The letter does not say which stride its methods ran
  with: both of SR-KSVD and both of ours are timed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from experiments.cases import LABELS, LETTER_METHODS, Case
from experiments.pictures import noisy, scene, to_8_bit
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows
from experiments.statistics import Mean, Row, mean, pick, scores_by_item, values

__all__ = ["LETTER_SECONDS", "STEPS", "TIMED_SIGMAS", "Step", "read", "read_times"]

_USUAL = ("average", "laplacian", "gff", "focus-measure", "tv+focus-measure")
_PAIR_METHODS = ("fast", "paper", "sf-dct", "sr-ksvd", *_USUAL)
_STACK_METHODS = ("fast", "paper", "sr-ksvd", *_USUAL)
_SHOWN_METHODS = ("sf-dct", "sr-ksvd", "paper", "fast")
_TIMED_METHODS = ("sf-dct", "sr-ksvd", "sr-ksvd-dense", "paper", "paper-dense", "fast")
#: The noise levels of figures 1 and 2, of the triples and of `paper-dense`.
_TWO_SIGMAS = (0, 15)
TIMED_SIGMAS = (0, 15)

#: The letter's own seconds, on another machine, at σ = 0 and 15.
LETTER_SECONDS = {"sf-dct": (1.073, 2.179), "sr-ksvd": (4.342, 5.281), "paper": (4.567, 5.981)}

#: Magnified: left, top and side as parts of the picture's width, height and shorter side.
_DETAILS = ((0.31, 0.04, 0.19), (0.52, 0.47, 0.19))
_COLOURS = ("#ffb000", "#40c4ff")


@dataclass(frozen=True)
class Step:
    """One experiment.

    Attributes
    ----------
    name
        Stem of its JSON file.
    cases
        What to compute.
    more
        What else the file holds, of the plan and the rows computed.
    draw
        Draws figures from the content of the file into a folder.
    timed
        Whether it has the machine alone: one worker.
    """

    name: str
    cases: Callable[[Plan], list[Case]]
    more: Callable[[Plan, list[Row]], dict[str, Any]] = lambda plan, rows: {}
    draw: Callable[[dict[str, Any], Path], None] = lambda content, out: None
    timed: bool = False

    def compute(self, plan: Plan) -> Outcome:
        """Compute the cases and write the file."""
        workers = 1 if self.timed else plan.workers
        outcome = run_cases(
            self.name, self.cases(plan), data=plan.data, results=plan.results, workers=workers
        )
        path = plan.results / f"{self.name}.json"
        save_rows(path, outcome, form=plan.form, **self.more(plan, outcome.rows))
        return outcome


def read(results: Path, name: str) -> dict[str, Any]:
    """Read the file of a step."""
    content: dict[str, Any] = json.loads((results / f"{name}.json").read_text("utf-8"))
    return content


def figure3_cases(plan: Plan) -> list[Case]:
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


def figure4_cases(plan: Plan) -> list[Case]:
    """The letter's methods at every σ; the dense reading, slow with noise, at 0 and 15 only."""
    dataset, items = plan.pairs
    return [
        Case(dataset, item, sigma, method)
        for sigma in plan.sigmas
        for method in LETTER_METHODS
        for item in items
        if not (method == "paper-dense" and sigma not in _TWO_SIGMAS)
    ]


def figures12_cases(plan: Plan) -> list[Case]:
    """The scene shown, by every method, the pictures kept."""
    return [
        Case(plan.pairs[0], plan.shown, sigma, method, keep=True)
        for sigma in _TWO_SIGMAS
        for method in _SHOWN_METHODS
    ]


def truth_cases(plan: Plan) -> list[Case]:
    """Pairs with truth, triples and simulated stacks."""
    pairs, items = plan.truth_pairs
    found = [
        Case(pairs, item, sigma, method)
        for sigma in plan.truth_pair_sigmas
        for method in _PAIR_METHODS
        for item in (items[::3] if method == ("paper" if sigma else "sr-ksvd") else items)
    ]
    triples, items = plan.triples
    found += [
        Case(triples, item, sigma, method)
        for sigma in _TWO_SIGMAS
        for method in (*LETTER_METHODS, *_USUAL)
        for item in items
    ]
    kind, items = plan.stacks
    found += [
        Case(f"{kind}-{frames}", item, sigma, method)
        for frames in plan.stack_frames
        for sigma in plan.stack_sigmas
        for method in _STACK_METHODS
        for item in items
        if not (method == "sr-ksvd" and frames > 2)
        if not (method == "paper" and sigma not in _TWO_SIGMAS)
    ]
    # Without noise the denoiser in front does nothing: that is the method without it.
    return [case for case in found if not ("+" in case.method and case.sigma == 0)]


def table1_cases(plan: Plan) -> list[Case]:
    """Every method on every timed pair, taking turns."""
    return [
        Case(plan.pairs[0], item, sigma, method, repeat=repeat + 1)
        for repeat in range(plan.repeats)
        for item in plan.timed
        for sigma in TIMED_SIGMAS
        for method in _TIMED_METHODS[:: -1 if repeat % 2 else 1]
    ]


def read_times(results: Path) -> list[dict[str, Any]]:
    """Return, by method and σ, mean CPU and wall seconds and their ratios to either SR-KSVD."""
    rows = read(results, "table1")["rows"]
    table = []
    for method in _TIMED_METHODS:
        for sigma in TIMED_SIGMAS:
            times = {
                clock: mean(_by_pair(rows, clock, method, sigma).values())
                for clock in ("cpu", "wall")
            }
            ratios = {
                rival: _ratio(rows, method, rival, sigma) for rival in ("sr-ksvd", "sr-ksvd-dense")
            }
            table.append({"method": method, "sigma": sigma, **times, "ratios": ratios})
    return table


def _ratio(rows: list[Row], method: str, rival: str, sigma: float) -> Mean:
    """Mean over pairs of the ratio of CPU seconds."""
    own, other = (_by_pair(rows, "cpu", name, sigma) for name in (method, rival))
    return mean(own[pair] / other[pair] for pair in own if other.get(pair))


def _by_pair(rows: list[Row], clock: str, method: str, sigma: float) -> dict[Any, float]:
    """Seconds by pair, each the mean of its repeats: those say nothing about other pairs."""
    repeats: dict[Any, list[float]] = {}
    for key, seconds in scores_by_item(rows, clock, method=method, sigma=sigma).items():
        repeats.setdefault(key[:2], []).append(seconds)
    return {pair: mean(seconds).mean for pair, seconds in repeats.items()}


def _truth_groups(plan: Plan, rows: list[Row]) -> dict[str, Any]:
    """Name the scenes of each part of *truth*."""
    groups = {
        "pairs": plan.truth_pairs[0],
        "triples": plan.triples[0],
        "stacks": [f"{plan.stacks[0]}-{frames}" for frames in plan.stack_frames],
        "pair_items": plan.truth_pairs[1],
        "triple_items": plan.triples[1],
        "stack_items": plan.stacks[1],
    }
    return {"groups": groups}


def _shown_pictures(plan: Plan, rows: list[Row]) -> dict[str, Any]:
    """Write sources and results of figures 1 and 2 side by side; name them by noise level."""
    folder = plan.results / "figures12"
    folder.mkdir(parents=True, exist_ok=True)
    clean = scene(plan.data, plan.pairs[0], plan.shown).frames
    shown: dict[str, list[dict[str, str]]] = {}
    for sigma in _TWO_SIGMAS:
        stack = noisy(clean, sigma, seed=plan.shown)
        entries = [(f"source {name}", to_8_bit(f)) for name, f in zip("AB", stack, strict=False)]
        for row in pick(rows, sigma=sigma):
            path = plan.results / "cases" / row["picture"]
            picture = np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), np.uint8)
            entries.append((LABELS[row["case"]["method"]], picture))
        shown[str(sigma)] = []
        for index, (title, picture) in enumerate(entries):
            file = folder / f"sigma{sigma}-{index}.png"
            cv2.imwrite(str(file), picture)
            shown[str(sigma)].append({"title": title, "file": f"../figures12/{file.name}"})
    return {"shown": shown}


def _draw_figure3(content: dict[str, Any], out: Path) -> None:
    """Draw a column for each σ and, with noise, for each kind of sources."""
    columns = []
    for sigma in values(content["rows"], "sigma"):
        rows = pick(content["rows"], sigma=sigma)
        if sigma == 0:
            columns.append(("σ = 0", rows, ("q_mi_clean", "q_abf_clean")))
            continue
        for reference in ("noisy", "clean"):
            title = f"σ = {sigma:g}, against the {reference} sources"
            columns.append((title, rows, (f"q_mi_{reference}", f"q_abf_{reference}")))
    _draw(columns, "n", "patch size n", out / "figure3.svg")


def _draw_figure4(content: dict[str, Any], out: Path) -> None:
    """Draw a column for either kind of sources."""
    rows = pick(content["rows"])
    columns = [
        (f"against the {reference} sources", rows, (f"q_mi_{reference}", f"q_abf_{reference}"))
        for reference in ("noisy", "clean")
    ]
    _draw(columns, "sigma", "noise σ (grey levels)", out / "figure4.svg")


def _draw_truth(content: dict[str, Any], out: Path) -> None:
    """Draw PSNR and SSIM of the simulated stacks over σ, one column for each K."""
    groups = content["groups"]
    chosen = [row for row in pick(content["rows"]) if row["case"]["item"] in groups["stack_items"]]
    columns = [
        (f"K = {name.partition('-')[2]} frames", pick(chosen, dataset=name), ("psnr", "ssim"))
        for name in groups["stacks"]
    ]
    _draw(columns, "sigma", "noise σ (grey levels)", out / "truth.svg", sharey="row")


def _draw(
    columns: list[tuple[str, list[Row], tuple[str, str]]],
    over: str,
    label: str,
    path: Path,
    **more: Any,
) -> None:
    """Draw two scores over a field of the cases, a column for each title and its rows."""
    from experiments.drawing import draw_lines, metric_name, panels, save

    figure, axes = panels(2, len(columns), sharex=True, **more)
    for column, (title, rows, scores) in enumerate(columns):
        for row, score in enumerate(scores):
            draw_lines(axes[row, column], rows, over, score)
            axes[row, 0].set_ylabel(metric_name(score))
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel(label)
    save(figure, axes[0, 0], path)


def _draw_figures12(content: dict[str, Any], out: Path) -> None:
    """Draw one figure a noise level of the pictures beside the file."""
    from experiments.drawing import panels, plt

    for number, entries in enumerate(content["shown"].values(), start=1):
        figure, axes = panels(2, len(entries), gridspec_kw={"height_ratios": [2.1, 1.0]})
        figure.set_size_inches(2.3 * len(entries), 3.75)
        for column, entry in enumerate(entries):
            picture = cv2.imread(str(out / entry["file"]), cv2.IMREAD_GRAYSCALE)
            assert picture is not None
            height, width = picture.shape
            side = round(_DETAILS[0][2] * min(height, width))
            corners = [(round(x * width), round(y * height)) for x, y, _ in _DETAILS]
            crops = [picture[y : y + side, x : x + side] for x, y in corners]
            gap = np.full((side, 4), 255, np.uint8)
            shown = (picture, np.hstack([crops[0], gap, crops[1]]))
            places = (corners, [(-0.5, -0.5), (side + 3.5, -0.5)])
            for row, (pixels, boxes) in enumerate(zip(shown, places, strict=True)):
                axes[row, column].imshow(
                    pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest"
                )
                axes[row, column].set_axis_off()
                for box, colour in zip(boxes, _COLOURS, strict=True):
                    axes[row, column].add_patch(
                        plt.Rectangle(
                            box, side, side, fill=False, edgecolor=colour, linewidth=1.5 + row
                        )
                    )
            axes[0, column].set_title(entry["title"])
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / f"figure{number}.png", dpi=150)
        plt.close(figure)


#: In this order: what matters most and costs least comes first, the timings have the machine alone.
STEPS = (
    Step("figure4", figure4_cases, draw=_draw_figure4),
    Step("figure3", figure3_cases, draw=_draw_figure3),
    Step("figures12", figures12_cases, _shown_pictures, _draw_figures12),
    Step("truth", truth_cases, _truth_groups, _draw_truth),
    Step("table1", table1_cases, timed=True),
)
