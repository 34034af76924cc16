"""The unrolled stages of the joint model on a torch device: x ← x − Σ Ωᵀφ(Ωx) − β (x − y)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import (
    enlarge,
    fused,
    halve,
    halves,
    mean_free,
    mirrored,
    on_device,
)

__all__ = ["DeviceMixture", "DeviceStage", "stage_reach"]

Floats = NDArray[np.float32]

#: Terms of a penalty that the kernels take.
_MOST_TERMS = 4
#: What the weigher tells a stage counts up to this factor of e.
_MOST_GUIDE = 4.0
#: Sides of filters that the fused kernel takes.
_FUSED_SIDES = 5, 7
#: Largest number that the fused kernel takes of a picture, and largest square of a coefficient by
#: its penalty's width.
_MOST_FUSED, _MOST_SQUARE = 30000.0, 1e11
#: Numbers that the coefficients of one band of rows may have; all at once they would not fit.
_BAND_NUMBERS = 1 << 28


@dataclass(frozen=True)
class DeviceMixture:
    """Frames mixed: pictures (planes, H, W), log noise (of the stack's) in the bands at the ends.

    ``fine`` and ``coarse`` are those of the finest and the coarsest band; planes share them.
    """

    pictures: Tensor
    fine: Tensor
    coarse: Tensor


def stage_reach(arrays: Mapping[str, Floats]) -> int:
    """How many pixels away a stage looks, an even number; as `joint_stages.stage_reach`."""
    fine, coarse = (
        2 * int(arrays[f"{bank}.filters"].shape[-1] // 2) for bank in ("fine", "coarse")
    )
    return max(fine, 2 * (coarse + 1) + 2)


class DeviceStage:
    """One stage for planes of given noise.

    Parameters
    ----------
    arrays
        The stage's arrays, by their names in the model less the prefix; widths of penalties may
        be given plane by plane.
    log_units
        Logarithm of every plane's unit of noise by 20 grey levels.
    device
        Where to work.
    """

    def __init__(
        self, arrays: Mapping[str, Floats], log_units: Sequence[float], device: str
    ) -> None:
        self.banks = [
            _Bank(
                {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)},
                log_units,
                device,
            )
            for start in ("fine.", "coarse.")
        ]
        f = arrays["fidelity"]
        left = np.stack([arrays["strength_left"], -arrays["width_left"], f[2:]])
        self.left = [[float(v) for v in row] for row in left]
        levels = [np.exp(float(f[0]) + float(f[1]) * log_unit) for log_unit in log_units]
        self.fidelity = on_device(np.reshape(levels, (-1, 1, 1)), device)
        self.packed_left = on_device(left, device)

    def step(self, pictures: Tensor, mixture: DeviceMixture, guide: Tensor) -> Tensor:
        """Take one step on planes in units of noise.

        ``guide`` (12, h, w) has half their size, four planes for one of the three that guide.
        """
        height, width = pictures.shape[1:]
        if fused(pictures) and all(bank.fits(height, width) for bank in self.banks):
            return self._fused_step(pictures, mixture, guide)
        guide = F.pixel_shuffle(guide, 2)[:, :height, :width]
        tall, narrow, faithful = (
            torch.add(told, mixture.fine, alpha=f).add_(mixture.coarse, alpha=c)
            for told, (f, c) in zip(guide.clamp(-_MOST_GUIDE, _MOST_GUIDE), self.left, strict=True)
        )
        out = torch.sub(mixture.pictures, pictures)
        out.mul_(faithful.exp_()).mul_(self.fidelity).add_(pictures)
        logs = torch.stack([tall, narrow])
        self.banks[0].pull(pictures, logs, out)
        small = halve(pictures)
        slow = torch.zeros_like(small)
        self.banks[1].pull(small, halve(logs), slow)
        return out.add_(enlarge(slow[None])[0, :, :height, :width])

    def _fused_step(self, pictures: Tensor, mixture: DeviceMixture, guide: Tensor) -> Tensor:
        from cofuse.kernels import gpu_triton

        logs = gpu_triton.prepare(
            guide, mixture.fine, mixture.coarse, self.packed_left, _MOST_GUIDE
        )
        small = gpu_triton.halve(pictures), gpu_triton.halve(logs[:2])
        slow = self.banks[1].fused_pull(*small)
        return self.banks[0].fused_pull(pictures, logs, (mixture.pictures, self.fidelity, slow))


class _Bank:
    """One bank of filters with the slope of its penalty."""

    def __init__(
        self, arrays: Mapping[str, Floats], log_units: Sequence[float], device: str
    ) -> None:
        free = mean_free(arrays["filters"])
        self.side = int(free.shape[-1])
        self.filters = on_device(free, device)
        # Rows and columns of taps, filled up with zeros.
        whole = 1 << (self.side - 1).bit_length()
        taps = np.zeros((len(free), whole, whole), np.float32)
        taps[:, : self.side, : self.side] = free[:, 0]
        there = halves(taps.reshape(len(free), -1).T, device)
        self.packed = there, there.mT.contiguous()
        numbers = [_strengths(arrays, unit, plane) for plane, unit in enumerate(log_units)]
        terms = np.stack([_terms(*both) for both in numbers])
        self.terms = on_device(terms, device)
        filled = np.zeros((*terms.shape[:2], there.shape[2]), np.float32)
        filled[..., : len(free)] = terms
        self.packed_terms = on_device(filled, device)
        # Where both sums of a quotient are infinite the slope has long been nothing. And a slope
        # a u / (1 + b u²) is at most a / 2√b: what is bent stays within the range of halves.
        widest = max(1.0, *(float(inverse.max()) for _, inverse in numbers))
        most = max(float((np.abs(a) / (2 * b**0.5)).sum(0).max()) for a, b in numbers)
        self.limits = _MOST_SQUARE / widest, 2.0 * _MOST_FUSED / max(most, 1e-3)

    def fits(self, height: int, width: int) -> bool:
        """Whether the fused kernel takes the filters, and pictures of a size or half of it."""
        return self.side in _FUSED_SIDES and min(height, width) > 8 * (self.side // 2)

    def fused_pull(
        self, x: Tensor, logs: Tensor, last: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> Tensor:
        """Make −Ωᵀφ(Ωx); see `gpu_triton.pull`."""
        from cofuse.kernels import gpu_triton

        # Differences must stay within the range of halves; nothing real goes beyond it.
        padded = gpu_triton.mirrored(x, 2 * (self.side // 2), _MOST_FUSED)
        given = self.packed, self.packed_terms, self.limits, self.side
        return gpu_triton.pull(padded, logs, *given, last)

    def pull(self, x: Tensor, logs: Tensor, out: Tensor) -> None:
        """Take Ωᵀφ(Ωx) off ``out``, borders mirrored; logs are those of tall and narrow."""
        reach = self.side // 2
        padded = mirrored(x, 2 * reach)
        tall, narrow = mirrored(logs, reach).exp_()
        planes, rows, columns = x.shape
        numbers = planes * max(self.side**2, len(self.filters)) * (columns + 2 * reach)
        step = max(1, _BAND_NUMBERS // numbers - 2 * reach)
        for top in range(0, rows, step):
            bottom = min(top + step, rows)
            self._pull_band(
                padded[:, top : bottom + 4 * reach],
                tall[top : bottom + 2 * reach],
                narrow[top : bottom + 2 * reach],
                out[:, top:bottom],
            )

    def _pull_band(self, x: Tensor, tall: Tensor, narrow: Tensor, out: Tensor) -> None:
        u = F.conv2d(x[:, None], self.filters)
        square = (u * narrow).square_()
        n0, n1, p1, p2, m0, m1, q1, q2 = self.terms[..., None, None].unbind(1)
        slope = (n0 + n1 * square) / (1.0 + square * (p1 + p2 * square))
        slope += (m0 + m1 * square) / (1.0 + square * (q1 + q2 * square))
        bent = slope.mul_(u).mul_(tall)
        # The adjoint of a correlation is one with the filters turned round.
        back = self.filters.flip(-2, -1).transpose(0, 1)
        out.sub_(F.conv2d(bent, back)[:, 0])


def _terms(strength: Floats, inverse: Floats) -> Floats:
    """Coefficients of the penalty's slope, two pairs of terms each on one denominator.

    a/(1 + b s) + c/(1 + d s) = (a + c + (a d + c b) s) / (1 + (b + d) s + b d s²)
    """
    count, h = strength.shape
    if count > _MOST_TERMS:
        raise ValueError(f"the stage kernel takes {_MOST_TERMS} terms of a penalty, not {count}")
    a, b = np.zeros((2, _MOST_TERMS, h))
    a[:count], b[:count] = strength, inverse
    pairs = [
        (a[i] + a[i + 1], a[i] * b[i + 1] + a[i + 1] * b[i], b[i] + b[i + 1], b[i] * b[i + 1])
        for i in (0, 2)
    ]
    return np.stack([*pairs[0], *pairs[1]]).astype(np.float32)


def _strengths(arrays: Mapping[str, Floats], log_unit: float, plane: int) -> tuple[Floats, Floats]:
    """Strengths and inverse squared widths (terms, filters) of a penalty."""
    strength = arrays["strength"] * np.exp(arrays["strength_noise"] * log_unit)
    width = arrays["width"]
    width = width[plane] if width.ndim == 3 else width
    inverse = np.exp(-2.0 * (width + arrays["width_noise"] * log_unit))
    return strength, inverse
