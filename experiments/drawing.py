"""What the figures share: colours, markers, and lines of means with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from experiments.cases import LABELS
from experiments.statistics import Row, mean, scores_by_item, values

__all__ = ["draw_lines", "metric_name", "panels", "plt", "save"]

_METRIC_NAMES = {"q_mi": "$Q_{MI}$", "q_abf": "$Q^{AB/F}$", "psnr": "PSNR (dB)", "ssim": "SSIM"}

#: Colours that stay apart for colour-blind readers, with a marker each.
_STYLES = {
    "sf-dct": ("#7f7f7f", "s", "--"),
    "sr-ksvd": ("#d55e00", "^", "--"),
    "paper": ("#56b4e9", "o", "-"),
    "paper-dense": ("#0072b2", "D", "-"),
    "fast": ("#009e73", "v", "-"),
    "average": ("#7f7f7f", "x", ":"),
    "laplacian": ("#cc79a7", "P", ":"),
    "gff": ("#e69f00", "s", ":"),
    "focus-measure": ("#b8a100", "<", ":"),
    "tv+focus-measure": ("#000000", ">", "--"),
}


def metric_name(score: str) -> str:
    """Name a score, whatever its sources, on an axis."""
    return _METRIC_NAMES[score.removesuffix("_clean").removesuffix("_noisy")]


def method_style(method: str) -> dict[str, Any]:
    """Return the colour, marker and line of a method, the same in every figure."""
    colour, marker, line = _STYLES.get(method, ("#444444", ".", "-"))
    return {"color": colour, "marker": marker, "linestyle": line, "label": LABELS[method]}


def panels(rows: int, columns: int, **more: Any) -> tuple[Any, Any]:
    """Make a figure of several plots in the house style."""
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
    size = (3.5 * columns + 0.3, 2.7 * rows + 0.5)
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **more)


def draw_lines(axes: Any, rows: Sequence[Row], over: str, score: str) -> None:
    """Draw one line a method of mean scores over a field of the cases, with 95 % intervals."""
    points, methods = sorted(values(rows, over)), values(rows, "method")
    step = min((b - a for a, b in pairwise(points)), default=1)
    for index, method in enumerate(methods):
        shift = (index - (len(methods) - 1) / 2) * 0.05 * step  # so that bars do not hide bars
        means = {
            p: mean(scores_by_item(rows, score, method=method, **{over: p}).values())
            for p in points
        }
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
            **method_style(method),
        )
    axes.set_xticks(points)


def save(figure: Any, axes: Any, path: Path) -> None:
    """Put one legend below the plots and write the file."""
    lines, labels = axes.get_legend_handles_labels()
    columns = len(labels) if len(labels) <= 5 else -(-len(labels) // 2)
    figure.legend(lines, labels, loc="outside lower center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
