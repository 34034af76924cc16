"""Quality scores: against a known truth, and against the sources when there is none.

`METRICS` lists them all by the name of their function, with what a caller must know to run and
to rank by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cofuse.evaluation.metrics.edges import q_abf
from cofuse.evaluation.metrics.information import q_mi, q_ncie
from cofuse.evaluation.metrics.perception import q_cb, q_cv
from cofuse.evaluation.metrics.phase import q_p
from cofuse.evaluation.metrics.pictures import to_grey
from cofuse.evaluation.metrics.structure import q_e, q_s, q_w, q_y
from cofuse.evaluation.metrics.with_truth import gradient_error, psnr, ssim

__all__ = [
    "METRICS",
    "Metric",
    "gradient_error",
    "psnr",
    "q_abf",
    "q_cb",
    "q_cv",
    "q_e",
    "q_mi",
    "q_ncie",
    "q_p",
    "q_s",
    "q_w",
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
    higher_is_better: bool
    needs_truth: bool


METRICS: dict[str, Metric] = {
    "psnr": Metric(psnr, higher_is_better=True, needs_truth=True),
    "ssim": Metric(ssim, higher_is_better=True, needs_truth=True),
    "gradient_error": Metric(gradient_error, higher_is_better=False, needs_truth=True),
    "q_mi": Metric(q_mi, higher_is_better=True, needs_truth=False),
    "q_ncie": Metric(q_ncie, higher_is_better=True, needs_truth=False),
    "q_abf": Metric(q_abf, higher_is_better=True, needs_truth=False),
    "q_p": Metric(q_p, higher_is_better=True, needs_truth=False),
    "q_s": Metric(q_s, higher_is_better=True, needs_truth=False),
    "q_w": Metric(q_w, higher_is_better=True, needs_truth=False),
    "q_e": Metric(q_e, higher_is_better=True, needs_truth=False),
    "q_y": Metric(q_y, higher_is_better=True, needs_truth=False),
    "q_cb": Metric(q_cb, higher_is_better=True, needs_truth=False),
    "q_cv": Metric(q_cv, higher_is_better=False, needs_truth=False),
}
