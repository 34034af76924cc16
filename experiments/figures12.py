"""Fig. 1 and 2 of the letter: one scene at σ = 0 and σ = 15, all methods, with magnified details.

``python -m experiments.figures12 --data DIR`` computes ``figures12.json`` with the pictures beside
it and draws both figures. They show the data set's pictures and are not for committing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from experiments.cases import Case
from experiments.command import main_of
from experiments.methods import LABELS
from experiments.pictures import noisy, scene, to_8_bit
from experiments.plan import Plan
from experiments.runner import Outcome, run_cases, save_rows

NAME = "figures12"
SIGMAS = (0, 15)
METHODS = ("sf-dct", "sr-ksvd", "paper", "fast")

#: Magnified: left, top and side as parts of the picture's width, height and shorter side.
DETAILS = ((0.31, 0.04, 0.19), (0.52, 0.47, 0.19))
_COLOURS = ("#ffb000", "#40c4ff")


def cases(plan: Plan) -> list[Case]:
    """The scene shown, by every method, the pictures kept."""
    dataset = plan.pairs[0]
    return [
        Case(dataset, plan.shown, sigma, method, keep=True)
        for sigma in SIGMAS
        for method in METHODS
    ]


def compute(plan: Plan) -> Outcome:
    """Fuse the scene, and put sources and results side by side under ``results/figures12``."""
    wanted = cases(plan)
    outcome = run_cases(NAME, wanted, data=plan.data, results=plan.results, workers=plan.workers)
    folder, kept = plan.results / NAME, plan.results / "cases"
    folder.mkdir(parents=True, exist_ok=True)
    clean = scene(plan.data, plan.pairs[0], plan.shown).frames
    shown: dict[str, list[dict[str, Any]]] = {}
    for sigma in SIGMAS:
        stack = noisy(clean, sigma, seed=plan.shown)
        entries = [(f"source {name}", to_8_bit(f)) for name, f in zip("AB", stack, strict=False)]
        for row in outcome.rows:
            if row["case"]["sigma"] == sigma and "error" not in row:
                picture = cv2.imread(str(kept / row["picture"]), cv2.IMREAD_GRAYSCALE)
                entries.append((LABELS[row["case"]["method"]], picture))
        shown[str(sigma)] = []
        for index, (title, picture) in enumerate(entries):
            file = f"sigma{sigma}-{index}.png"
            cv2.imwrite(str(folder / file), picture)
            shown[str(sigma)].append({"title": title, "file": f"{NAME}/{file}"})
    save_rows(plan.results / f"{NAME}.json", outcome, form=plan.form, shown=shown)
    return outcome


def draw(results: Path, out: Path) -> list[Path]:
    """Draw one figure a noise level from the JSON and its pictures."""
    from experiments.drawing import panels, plt

    shown = json.loads((results / f"{NAME}.json").read_text("utf-8"))["shown"]
    paths = []
    for number, (_, entries) in enumerate(shown.items(), start=1):
        figure, axes = panels(2, len(entries), gridspec_kw={"height_ratios": [2.1, 1.0]})
        figure.set_size_inches(2.3 * len(entries), 3.75)
        for column, entry in enumerate(entries):
            picture = cv2.imread(str(results / entry["file"]), cv2.IMREAD_GRAYSCALE)
            _show(axes[0, column], picture)
            axes[0, column].set_title(entry["title"])
            crops = []
            for (x, y, side), colour in zip(_boxes(picture), _COLOURS, strict=True):
                box = plt.Rectangle((x, y), side, side, fill=False, edgecolor=colour, linewidth=1.5)
                axes[0, column].add_patch(box)
                crops.append(picture[y : y + side, x : x + side])
            gap = np.full((len(crops[0]), 4), 255, np.uint8)
            _show(axes[1, column], np.hstack([crops[0], gap, crops[1]]))
            for start, colour in zip((0, len(crops[0]) + 4), _COLOURS, strict=True):
                axes[1, column].add_patch(
                    plt.Rectangle(
                        (start - 0.5, -0.5),
                        len(crops[0]),
                        len(crops[0]),
                        fill=False,
                        edgecolor=colour,
                        linewidth=2.5,
                    )
                )
        out.mkdir(parents=True, exist_ok=True)
        paths.append(out / f"figure{number}.png")
        figure.savefig(paths[-1], dpi=150)
        plt.close(figure)
    return paths


def _boxes(picture: Any) -> list[tuple[int, int, int]]:
    """Turn the details into pixels: left, top and side."""
    height, width = picture.shape
    return [
        (round(x * width), round(y * height), round(side * min(height, width)))
        for x, y, side in DETAILS
    ]


def _show(axes: Any, picture: Any) -> None:
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()


if __name__ == "__main__":
    main_of(compute, draw, __doc__)
