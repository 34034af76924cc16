"""Quality scores: against a known truth, and against the sources when there is none.

`METRICS` lists them by the name of their function; `score` runs many of them on pictures of any
bit depth. The metrics against the sources are defined on 8-bit grey pictures: pictures of other
depths are brought to that, each by its own white. The metrics with truth see the picture itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.metrics.with_truth import gradient_error, psnr, ssim, to_grey
from cofuse.evaluation.metrics.without_truth import q_abf, q_cb, q_mi, q_ncie, q_y
from cofuse.images import Stack
from cofuse.images.pixels import white_of_type

__all__ = ["CLEAN", "METRICS", "Metric", "choose_metrics", "higher_is_better", "rank", "score"]
__all__ += ["gradient_error", "psnr", "q_abf", "q_cb", "q_mi", "q_ncie", "q_y", "ssim"]
__all__ += ["score_columns", "to_grey", "to_scored_grey"]

Pixels = NDArray[Any]

#: Ending of the score against the clean sources, where it stands beside the one against the noisy.
CLEAN = "_clean"


class Metric(NamedTuple):
    """How to call a metric and how to read it.

    The function takes ``(image, truth, *, white=255.0)`` if it needs a truth, else
    ``(sources, fused)``.
    """

    function: Callable[..., float]
    higher_is_better: bool = True
    needs_truth: bool = False


METRICS: dict[str, Metric] = {
    "psnr": Metric(psnr, needs_truth=True),
    "ssim": Metric(ssim, needs_truth=True),
    "gradient_error": Metric(gradient_error, higher_is_better=False, needs_truth=True),
    "q_mi": Metric(q_mi),
    "q_ncie": Metric(q_ncie),
    "q_abf": Metric(q_abf),
    "q_y": Metric(q_y),
    "q_cb": Metric(q_cb),
}


def choose_metrics(wanted: Sequence[str], *, sources: bool, truth: bool) -> tuple[str, ...]:
    """Settle which metrics to run: those wanted, by name; for none or ``all``, all possible ones.

    ``sources`` and ``truth`` say what there is to compare with.
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
    endings = {True: ("",), False: ("", CLEAN) if clean else ("",)}
    return tuple(name + end for name in metrics for end in endings[METRICS[name].needs_truth])


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
    given = {"": sources} | ({CLEAN: clean_sources} if len(clean_sources) else {})
    if not all(METRICS[name].needs_truth for name in metrics):
        grey = to_scored_grey(picture, white=white)
        greys = {end: [to_scored_grey(s, white=white) for s in some] for end, some in given.items()}
    scores: dict[str, float] = {}
    for name in metrics:
        metric = METRICS[name]
        if not metric.needs_truth:
            scores |= {name + end: metric.function(some, grey) for end, some in greys.items()}
        elif truth is None:
            raise CofuseError(f"{name} compares with the truth, and none was given")
        elif picture.dtype == truth.dtype:
            scores[name] = metric.function(picture, truth, white=_white(truth, white))
        else:  # of two depths
            scaled = (p * (255.0 / _white(p, white)) for p in (picture, truth))
            scores[name] = metric.function(*scaled)
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
    return to_grey(levels) if levels.ndim == 3 else np.floor(levels + 0.5).astype(np.uint8)


def _white(picture: Pixels, white: float | None) -> float:
    """Value of white in a picture; 8 bits leave no doubt."""
    if picture.dtype == np.uint8:
        return 255.0
    if white is None and picture.dtype == np.uint16:
        # Pictures are compared on one scale, which is not what each of them shows.
        return white_of_type(picture.dtype)
    return Stack.from_arrays([picture], white=white, names=["the picture"]).white
