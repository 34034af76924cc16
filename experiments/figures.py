"""The figures of the report: lines of means with their intervals, and pictures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

import cv2
import matplotlib as mpl
import numpy as np

mpl.use("Agg")

import matplotlib.pyplot as plt

from experiments.letter import TWO_SIGMAS, Plan
from experiments.methods import label
from experiments.pictures import situation, to_8_bit
from experiments.statistics import Row, mean, pick, scores_by_item, values

_METRIC_NAMES = {"q_mi": "$Q_{MI}$", "q_abf": "$Q^{AB/F}$"}

#: Colours that stay apart for colour-blind readers, with a marker each.
_STYLES = {
    "sf-dct": ("#7f7f7f", "s", "--"),
    "sr-ksvd": ("#d55e00", "^", "--"),
    "paper": ("#56b4e9", "o", "-"),
    "paper-dense": ("#0072b2", "D", "-"),
    "fast": ("#009e73", "v", "-"),
}


#: The house style.
plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.8,
        "svg.hashsalt": "cofuse",
        "svg.fonttype": "path",
    }
)
#: Magnified in figures 1 and 2: left and top of squares as parts of width and height, their side
#: as a part of the shorter one, and colours.
_DETAILS, _SIDE = ((0.31, 0.04), (0.52, 0.47)), 0.19
_COLOURS = ("#ffb000", "#40c4ff")

#: Title, rows and the two scores of a column of plots.
Column = tuple[str, list[Row], tuple[str, str]]


def draw_all(plan: Plan, rows: dict[str, list[Row]], out: Path) -> None:
    """Draw every figure into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    references = [
        (f"against the {name} sources", (f"q_mi_{name}", f"q_abf_{name}"))
        for name in ("noisy", "clean")
    ]
    clean = pick(rows["figure3"], sigma=0)
    columns: list[Column] = [("σ = 0", clean, ("q_mi_clean", "q_abf_clean"))]
    noisy = pick(rows["figure3"], sigma=15)
    columns += [(f"σ = 15, {title}", noisy, scores) for title, scores in references]
    _draw(columns, "n", "patch size n", out / "figure3.svg")
    fourth = pick(rows["figure4"])
    columns = [(title, fourth, scores) for title, scores in references]
    _draw(columns, "sigma", "noise σ (grey levels)", out / "figure4.svg")
    for number, sigma in enumerate(TWO_SIGMAS, 1):
        _draw_pictures(
            plan, pick(rows["figures12"], sigma=sigma), sigma, out / f"figure{number}.png"
        )


def _panels(columns: int, **more: Any) -> tuple[Any, Any]:
    """Make a figure of two rows of plots."""
    size = (3.5 * columns + 0.3, 5.9)
    return plt.subplots(2, columns, figsize=size, squeeze=False, layout="constrained", **more)


def _draw(columns: list[Column], over: str, name: str, path: Path) -> None:
    """Draw two scores over a field of the trials, and one legend below all plots."""
    figure, axes = _panels(len(columns), sharex=True)
    for column, (title, rows, scores) in enumerate(columns):
        for row, score in enumerate(scores):
            _draw_lines(axes[row, column], rows, over, score)
            short = score.removesuffix("_clean").removesuffix("_noisy")
            axes[row, 0].set_ylabel(_METRIC_NAMES[short])
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel(name)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150, metadata={"Date": None})
    plt.close(figure)


def _draw_lines(axes: Any, rows: Sequence[Row], over: str, score: str) -> None:
    """Draw one line a method of mean scores over a field of the trials, with 95 % intervals."""
    points, methods = sorted(values(rows, over)), values(rows, "method")
    step = min((b - a for a, b in pairwise(points)), default=1)
    for index, method in enumerate(methods):
        shift = (index - (len(methods) - 1) / 2) * 0.05 * step  # so that bars do not hide bars
        means = {
            p: mean(scores_by_item(rows, score, method=method, **{over: p}).values())
            for p in points
        }
        colour, marker, line = _STYLES[method]
        # A point that was not computed breaks the line: no straight line across what is unknown.
        there = {p: (m.mean, m.half) if m.count else (nan, nan) for p, m in means.items()}
        axes.errorbar(
            [p + shift for p in there],
            [centre for centre, _ in there.values()],
            yerr=[half for _, half in there.values()],
            markersize=4.5,
            linewidth=1.4,
            elinewidth=0.8,
            capsize=2,
            color=colour,
            marker=marker,
            linestyle=line,
            label=label(method).replace("`", ""),
        )
    axes.set_xticks(points)


def _draw_pictures(plan: Plan, rows: list[Row], sigma: float, path: Path) -> None:
    """Draw sources and results at one noise level, and two details of each below them."""
    given = situation(plan.data, plan.pairs[0], plan.shown, sigma)
    entries = [(f"source {name}", to_8_bit(f)) for name, f in zip("AB", given.stack, strict=False)]
    for row in rows:
        picture = np.asarray(cv2.imread(row["picture"], cv2.IMREAD_GRAYSCALE), np.uint8)
        entries.append((label(row["trial"]["method"]).replace("`", ""), picture))
    figure, axes = _panels(len(entries), gridspec_kw={"height_ratios": [2.1, 1.0]})
    figure.set_size_inches(2.3 * len(entries), 3.75)
    for column, (title, picture) in enumerate(entries):
        height, width = picture.shape
        side = round(_SIDE * min(height, width))
        corners = [(round(x * width), round(y * height)) for x, y in _DETAILS]
        crops = [picture[y : y + side, x : x + side] for x, y in corners]
        gap = np.full((side, 4), 255, np.uint8)
        shown = (picture, np.hstack([crops[0], gap, crops[1]]))
        places = (corners, [(-0.5, -0.5), (side + 3.5, -0.5)])
        for row_, (pixels, boxes) in enumerate(zip(shown, places, strict=True)):
            panel = axes[row_, column]
            panel.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set_axis_off()
            for box, colour in zip(boxes, _COLOURS, strict=True):
                style = {"fill": False, "edgecolor": colour, "linewidth": 1.5 + row_}
                panel.add_patch(plt.Rectangle(box, side, side, **style))
        axes[0, column].set_title(title)
    figure.savefig(path, dpi=150)
    plt.close(figure)
