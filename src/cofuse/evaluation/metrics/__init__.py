"""Quality scores: against a known truth, and against the sources when there is none.

Of every metric more is better. `score` runs many of them on pictures of any bit depth. The metrics
against the sources are defined on 8-bit grey pictures: pictures of other depths are brought to
that, each by its own white. The metrics with truth see the picture itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cofuse.errors import CofuseError
from cofuse.evaluation.metrics.with_truth import psnr, ssim, to_grey
from cofuse.evaluation.metrics.without_truth import q_abf, q_cb, q_mi, q_ncie, q_y
from cofuse.images import Pixels, Stack
from cofuse.images.pixels import white_of_type

__all__ = ["CLEAN", "METRICS", "WITHOUT_TRUTH", "WITH_TRUTH", "choose_metrics", "digits", "score"]
__all__ += ["psnr", "q_abf", "q_cb", "q_mi", "q_ncie", "q_y", "ssim", "to_grey", "to_scored_grey"]

#: Ending of the score against the clean sources, where it stands beside the one against the noisy.
CLEAN = "_clean"

#: Metrics by the name of their function: ``(image, truth, *, white=255.0)``,
WITH_TRUTH: dict[str, Callable[..., float]] = {"psnr": psnr, "ssim": ssim}
#: and ``(sources, fused)``.
WITHOUT_TRUTH: dict[str, Callable[..., float]] = {
    metric.__name__: metric for metric in (q_mi, q_ncie, q_abf, q_y, q_cb)
}
METRICS = (*WITH_TRUTH, *WITHOUT_TRUTH)


def choose_metrics(wanted: Sequence[str], *, sources: bool, truth: bool) -> tuple[str, ...]:
    """Return the metrics to run: the wanted names, or for none or ``all`` every possible metric.

    ``sources`` and ``truth`` say what there is to compare with.
    """
    possible = (*(WITH_TRUTH if truth else ()), *(WITHOUT_TRUTH if sources else ()))
    for name in [name for name in wanted if name != "all"]:
        if name not in METRICS:
            raise CofuseError(f"no metric {name!r}; expected all, or of {', '.join(METRICS)}")
        if name not in possible:
            missing = "truth" if name in WITH_TRUTH else "sources"
            raise CofuseError(f"{name} compares with the {missing}, and none was given")
    if not possible:
        raise CofuseError("neither sources nor a truth were given; there is nothing to score by")
    return possible if not wanted or "all" in wanted else tuple(dict.fromkeys(wanted))


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
        Names that `choose_metrics` returned.
    sources, clean_sources, truth
        What to compare with, of the same height and width; each may have a depth of its own.
        Many pictures are scored faster against sources already turned by `to_scored_grey`.
    white
        Value of white in all pictures that do not have 8 bits; by default 65535, or 1.0 for floats.

    Returns
    -------
    dict
        The scores by metric, in that order; with clean sources each metric without truth is
        followed by its score against them, NAME_clean.
    """
    given = {"": sources} | ({CLEAN: clean_sources} if len(clean_sources) else {})
    if not WITH_TRUTH.keys() >= set(metrics):
        grey = to_scored_grey(picture, white=white)
        greys = {end: [to_scored_grey(s, white=white) for s in some] for end, some in given.items()}
    scores: dict[str, float] = {}
    for name in metrics:
        if name in WITHOUT_TRUTH:
            metric = WITHOUT_TRUTH[name]
            scores |= {name + end: metric(some, grey) for end, some in greys.items()}
            continue
        assert truth is not None
        if picture.dtype == truth.dtype:
            scores[name] = WITH_TRUTH[name](picture, truth, white=_white(truth, white))
        else:  # of two depths
            scaled = (p * (255.0 / _white(p, white)) for p in (picture, truth))
            scores[name] = WITH_TRUTH[name](*scaled)
    return scores


def digits(score: str) -> int:
    """Digits of a score after the point that are worth reading."""
    return 2 if score == "psnr" else 4


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
