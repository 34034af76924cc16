"""Quality scores: against a known truth, and against the sources when there is none.

`METRICS` lists them all by the name of their function, with what a caller must know to run and
to rank by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cofuse.evaluation.metrics.pictures import to_grey
from cofuse.evaluation.metrics.with_truth import gradient_error, psnr, ssim
from cofuse.evaluation.metrics.without_truth import q_abf, q_cb, q_mi, q_ncie, q_y

__all__ = [
    "METRICS",
    "Metric",
    "gradient_error",
    "psnr",
    "q_abf",
    "q_cb",
    "q_mi",
    "q_ncie",
    "q_y",
    "ssim",
    "to_grey",
]


class Metric(NamedTuple):
    """One metric: how to call it and how to read it.

    Attributes
    ----------
    function
        ``function(image, truth, *, white=255.0)`` if ``needs_truth``, else
        ``function(sources, fused)``.
    higher_is_better
        Whether a larger value is the better one.
    needs_truth
        Whether the picture is compared with a known truth rather than with its sources.
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
