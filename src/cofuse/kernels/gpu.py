"""The hot loops on a torch device: the same functions as in `reference`, on tensors.

Where a tensor lies is where the work is done; the presets that use these loops run on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import exact, on_device
from cofuse.operators import AnalysisOperator

__all__ = ["activity", "dual_step", "hard_shrinkage", "pairing", "wiener_shrinkage"]


def activity(image: Tensor, operator: AnalysisOperator, *, threshold: float = 0.0) -> Tensor:
    r"""Sum of the analysis coefficients' magnitudes at every patch, ``‖soft(Ω W_ij I, t)‖₁``."""
    with exact():
        return (_apply(image, operator).abs_() - threshold).clamp_min_(0.0).sum(0)


def dual_step(
    dual: Tensor,
    previous: Tensor,
    image: Tensor,
    operator: AnalysisOperator,
    *,
    momentum: float,
    step: float,
    limit: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One accelerated projected ascent of the dual; returns the new dual, the old, and ``Ω_Fᵀu``.

    ``u ← clip(u + momentum·(u − u_previous) + step·Ω_F x, ±limit)``
    """
    with exact():
        ahead = torch.lerp(previous, dual, 1.0 + momentum)
        new = ahead.add_(_apply(image, operator), alpha=step).clamp_(-limit, limit)
        return new, dual, _adjoint(new, operator)


def pairing(dual: Tensor, image: Tensor, operator: AnalysisOperator) -> tuple[float, float]:
    """‖Ω_F x‖₁ and ⟨Ω_F x, u⟩: what the duality gap is made of."""
    with exact():
        coefficients = _apply(image, operator)
        # Doubles where there are any: sums of millions of floats lose digits.
        kind = torch.float32 if image.device.type == "mps" else torch.float64
        norm = coefficients.abs().sum(dtype=kind)
        return float(norm), float((coefficients * dual).sum(dtype=kind))


def hard_shrinkage(image: Tensor, operator: AnalysisOperator, *, threshold: ArrayLike) -> Tensor:
    """Drop every patch's coefficients up to ``threshold``, one or a row's, and average."""
    with exact():
        u = _apply(image, operator)
        small = u.abs() <= _by_row(image, threshold)
        weights = 1.0 / (1.0 + (~small).sum(0))
        return _weighted_removal(image, u.mul_(small), weights, operator)


def wiener_shrinkage(
    image: Tensor, guide: Tensor, operator: AnalysisOperator, *, variance: ArrayLike
) -> Tensor:
    """Scale every coefficient by v² / (v² + variance), v that of ``guide``, and average.

    There is one variance, or one for every row.
    """
    with exact():
        square = _apply(guide, operator).square_()
        factors = square / (square + _by_row(image, variance))
        weights = 1.0 / (1.0 + factors.square().sum(0))
        removed = _apply(image, operator).mul_(1.0 - factors)
        return _weighted_removal(image, removed, weights, operator)


def _by_row(image: Tensor, numbers: ArrayLike) -> Tensor:
    return on_device(np.reshape(numbers, (-1, 1, 1)), str(image.device))


def _filters(image: Tensor, operator: AnalysisOperator) -> Tensor:
    return on_device(operator.filters[:, None], str(image.device))


def _apply(image: Tensor, operator: AnalysisOperator) -> Tensor:
    """Coefficient planes (h, H − n + 1, W − n + 1) of a picture."""
    return F.conv2d(image[None, None], _filters(image, operator))[0]


def _adjoint(planes: Tensor, operator: AnalysisOperator) -> Tensor:
    return F.conv_transpose2d(planes[None], _filters(planes, operator))[0, 0]


def _weighted_removal(
    image: Tensor, removed: Tensor, weights: Tensor, operator: AnalysisOperator
) -> Tensor:
    """Picture less the weighted average of what the patches that cover a pixel take away."""
    n = operator.patch_size
    ones = torch.ones((1, 1, n, n), device=image.device)
    covered = F.conv_transpose2d(weights[None, None], ones)[0, 0]
    return image - _adjoint(removed.mul_(weights), operator) / covered
