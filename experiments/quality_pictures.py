"""The worst parts of results as pictures, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import write_image
from experiments.pictures import to_8_bit
from experiments.quality_methods import Denoised
from experiments.quality_scores import WINDOW
from experiments.quality_trials import Record, Trial, fused_picture

__all__ = ["save_worst", "worst_trials"]

Picture = NDArray[Any]

_ZOOM, _GAP = 4, 8
_MOST = 4
#: How much the difference is amplified around mid-grey.
_DIFFERENCE_GAIN = 4.0


def save_worst(
    name: str, records: Mapping[Trial, Record], data: Path | None, output: Path
) -> list[Path]:
    """Save the windows with the largest error of `auto`, four a table.

    Side by side: the truth, the result, their difference (amplified four times), and the frame
    that comes nearest to the truth there.
    """
    folder = output / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for rank, trial in enumerate(worst_trials(records), 1):
        scores = records[trial]["scores"]
        given = trial.situation(data)
        picture, _ = fused_picture(trial.method, given, Denoised(None))
        top, left = int(scores["worst_top"]), int(scores["worst_left"])
        window = np.s_[top : top + WINDOW, left : left + WINDOW]
        truth = given.truth[window].astype(np.float32)
        result = picture[window].astype(np.float32)
        frames = [given.stack.to_levels(frame)[window] for frame in given.stack]
        nearest = min(frames, key=lambda frame: float(np.mean((frame - truth) ** 2)))
        strip = _strip([truth, result, 128.0 + _DIFFERENCE_GAIN * (result - truth), nearest])
        file = folder / f"{name}-{rank}-{_file_name(trial)}.png"
        saved.append(write_image(file, strip, overwrite=True))
    return saved


def worst_trials(records: Mapping[Trial, Record]) -> list[Trial]:
    """Name the trials of `auto` whose worst windows are the worst, one a scene at most."""
    ours = [
        trial
        for trial, record in records.items()
        if trial.method == "auto" and "worst" in record.get("scores", {})
    ]
    ours.sort(key=lambda trial: records[trial]["scores"]["worst"], reverse=True)
    by_scene: dict[tuple[str, int], Trial] = {}
    for trial in ours:
        by_scene.setdefault((trial.dataset, trial.item), trial)
    return list(by_scene.values())[:_MOST]


def _strip(panels: list[Picture]) -> Picture:
    """Put panels in a row, magnified."""
    large = [to_8_bit(panel).repeat(_ZOOM, axis=0).repeat(_ZOOM, axis=1) for panel in panels]
    bar = np.full((large[0].shape[0], _GAP, *large[0].shape[2:]), 255, np.uint8)
    row = [part for panel in large for part in (panel, bar)][:-1]
    return np.concatenate(row, axis=1)


def _file_name(trial: Trial) -> str:
    parts = [trial.dataset, str(trial.item), f"sigma{trial.sigma:g}"]
    parts += [trial.noise] if trial.noise != "white" else []
    parts += [trial.change] if trial.change else []
    return "-".join(parts).replace(" ", "_").replace("%", "percent")
