"""Many metrics at once: which to run, on pictures of any bit depth, and ranks by them.

The metrics against the sources are defined on 8-bit grey pictures: pictures of other depths are
brought to that, each by its own white. The metrics with truth see the picture itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.metrics import METRICS, to_grey
from cofuse.images import Stack
from cofuse.images.white import white_of_type

__all__ = [
    "CLEAN",
    "choose_metrics",
    "higher_is_better",
    "rank",
    "score",
    "score_columns",
    "to_scored_grey",
]

Pixels = NDArray[Any]

#: Ending of the score against the clean sources, where it stands beside the one against the noisy.
CLEAN = "_clean"


def choose_metrics(wanted: Sequence[str], *, sources: bool, truth: bool) -> tuple[str, ...]:
    """Settle which metrics to run.

    Parameters
    ----------
    wanted
        Names of `METRICS`; empty, or with ``all`` among them, for every metric that is possible.
    sources, truth
        What there is to compare with.

    Returns
    -------
    tuple of str
        Names in the order of `METRICS`, or in the order asked for.
    """
    possible = [name for name, m in METRICS.items() if (truth if m.needs_truth else sources)]
    for name in [name for name in wanted if name != "all"]:
        if name not in METRICS:
            raise CofuseError(f"no metric {name!r}; expected all, or of {', '.join(METRICS)}")
        if name not in possible:
            missing = "truth" if METRICS[name].needs_truth else "sources"
            raise CofuseError(f"{name} compares with the {missing}, and none was given")
    if not possible:
        raise CofuseError("neither sources nor a truth were given; there is nothing to score by")
    return tuple(possible if not wanted or "all" in wanted else dict.fromkeys(wanted))


def score_columns(metrics: Sequence[str], *, clean: bool) -> tuple[str, ...]:
    """Name the scores `score` returns: with ``clean`` sources two for each metric of sources."""
    columns = []
    for name in metrics:
        columns.append(name)
        if clean and not METRICS[name].needs_truth:
            columns.append(name + CLEAN)
    return tuple(columns)


def higher_is_better(column: str) -> bool:
    """Say which way a score of `score` is read."""
    return METRICS[column.removesuffix(CLEAN)].higher_is_better


def score(
    picture: Pixels,
    *,
    metrics: Sequence[str],
    sources: Sequence[Pixels] = (),
    clean_sources: Sequence[Pixels] = (),
    truth: Pixels | None = None,
    white: float | None = None,
) -> dict[str, float]:
    """Score one picture.

    Parameters
    ----------
    picture
        Shape (H, W) or (H, W, 3); uint8, uint16, float32 or float64.
    metrics
        Names of `METRICS`.
    sources, clean_sources, truth
        What to compare with, of the same height and width; each may have a depth of its own.
        Many pictures are scored faster against sources already turned by `to_scored_grey`.
    white
        Value of white in all pictures that do not have 8 bits; by default 65535, or 1.0 for floats.

    Returns
    -------
    dict
        One value a name of `score_columns`, in that order.
    """
    greys: dict[str, list[Pixels]] = {}
    if any(not METRICS[name].needs_truth for name in metrics):
        grey = to_scored_grey(picture, white=white)
        for ending, given in (("", sources), (CLEAN, clean_sources)):
            if ending == "" or len(given):
                greys[ending] = [to_scored_grey(source, white=white) for source in given]
    scores = {}
    for name in metrics:
        metric = METRICS[name]
        if not metric.needs_truth:
            for ending, some in greys.items():
                scores[name + ending] = metric.function(some, grey)
        elif truth is None:
            raise CofuseError(f"{name} compares with the truth, and none was given")
        else:
            scores[name] = _score_with_truth(metric.function, picture, truth, white)
    return scores


def rank(values: Mapping[str, float], *, higher_is_better: bool) -> dict[str, int]:
    """Rank by value, 1 for the best; equals share the better rank, and NaN comes last."""
    sign = 1.0 if higher_is_better else -1.0
    merits = {key: -math.inf if math.isnan(v) else sign * v for key, v in values.items()}
    return {key: 1 + sum(o > merit for o in merits.values()) for key, merit in merits.items()}


def to_scored_grey(picture: Pixels, *, white: float | None = None) -> Pixels:
    """Turn a picture of any depth into the 8-bit grey the published scores are computed on."""
    if picture.dtype == np.uint8:
        return to_grey(picture)
    levels = np.clip(picture * (255.0 / _white(picture, white)), 0.0, 255.0)
    if levels.ndim == 3:
        return to_grey(levels)
    return np.floor(levels + 0.5).astype(np.uint8)


def _score_with_truth(
    function: Callable[..., float], picture: Pixels, truth: Pixels, white: float | None
) -> float:
    """Compare native values; pictures of two depths, and nothing else, are scaled first."""
    if picture.dtype == truth.dtype:
        return function(picture, truth, white=_white(truth, white))
    pair = [p * (255.0 / _white(p, white)) for p in (picture, truth)]
    return function(*pair, white=255.0)


def _white(picture: Pixels, white: float | None) -> float:
    """Value of white in a picture; 8 bits leave no doubt."""
    if picture.dtype == np.uint8:
        return 255.0
    if white is None and picture.dtype == np.uint16:
        # Pictures are compared on one scale, which is not what each of them shows.
        return white_of_type(picture.dtype)
    return Stack.from_arrays([picture], white=white, names=["the picture"]).white
