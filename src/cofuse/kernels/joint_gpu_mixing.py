"""Choosing, mixing and weighing again the joint model's frames on a torch device.

Frames are (K, planes, H, W), scores (K, 1 + bands, H, W).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import (
    box,
    box_weights,
    compress,
    fused,
    on_device,
    packed,
)
from cofuse.kernels.joint_gpu_stages import DeviceMixture

__all__ = ["Agreement", "choose", "mix", "mix_chosen", "smoothed"]

Floats = NDArray[np.float32]
Scales = Sequence[tuple[int, int]]

_LEAST_SCORE = -1e30
_LEAST_POWER = 1e-6
#: A picture's detail is what a mean over the first window lacks, measured over the second.
_DETAIL_WINDOWS = 5, 9
_LEAST_DETAIL = 0.3
#: Bands that the fused kernel mixes.
_FUSED_BANDS = 3
#: Hidden numbers that the fused kernel takes.
_MOST_HIDDEN = 16


def choose(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Best frame of every pixel by the first score, and the lead of its softmax probability.

    Of equals the earlier is chosen. The index is uint8, or int16 for more than 256 frames.
    """
    if fused(scores):
        from cofuse.kernels import gpu_triton_mixing

        return gpu_triton_mixing.choose(scores)
    shape = scores.shape[-2:]
    best, second = scores.new_full((2, *shape), _LEAST_SCORE)
    total = scores.new_zeros(shape)
    kind = torch.uint8 if len(scores) <= 256 else torch.int16
    index = torch.zeros(shape, dtype=kind, device=scores.device)
    for frame, own in enumerate(scores):
        value = own[0]
        better = value > best
        less = torch.exp(-(value - best).abs())
        total = torch.where(better, total * less + 1.0, total + less)
        second = torch.where(better, best, torch.maximum(second, value))
        index.masked_fill_(better, frame)
        best = torch.maximum(best, value)
    return index, (1.0 - torch.exp(second - best)) / total


def smoothed(frames: Tensor, windows: Sequence[int]) -> list[Tensor]:
    """Frames and their ever smoother versions, each (K, planes, H, W); bands are differences."""
    count, planes, height, width = frames.shape
    flat = frames.reshape(count * planes, height, width)
    result, sides = [frames], []
    for side in windows:
        sides += [side, side]
        if fused(frames) and min(height, width) > sum(n // 2 for n in sides):
            from cofuse.kernels import gpu_triton_mixing

            # Mirrored borders stay mirrored under symmetric windows: all these are one.
            weights = box_weights(tuple(sides), frames.device)
            columns = gpu_triton_mixing.blur(flat, weights, across=False)
            low = gpu_triton_mixing.blur(columns, weights, across=True)
        else:
            low = result[-1].reshape(flat.shape)
            low = box(box(low, side), side)
        result.append(low.view(frames.shape))
    return result


def mix(lows: list[Tensor], scores: Tensor, relative: Tensor) -> DeviceMixture:
    """Mix frames, `smoothed`, band by band with the scores (K, bands, H, W) of the bands."""
    if fused(scores) and len(lows) == _FUSED_BANDS:
        from cofuse.kernels import gpu_triton_mixing

        return DeviceMixture(*gpu_triton_mixing.mix(lows, scores, relative))
    peak = scores.amax(0)
    total, power = scores.new_zeros((2, *scores.shape[1:]))
    sums = scores.new_zeros((lows[0].shape[1], *scores.shape[1:]))
    for number, own in enumerate(scores):
        weight = torch.exp(own - peak)
        total += weight
        power += (weight * relative[number]) ** 2
        for band, (low, lower) in enumerate(zip_longest(lows, lows[1:])):
            part = low[number] if lower is None else low[number] - lower[number]
            sums[:, band] += weight[band] * part
    log_noise = 0.5 * torch.log(power / total**2 + _LEAST_POWER)
    return DeviceMixture((sums / total).sum(1), log_noise[0], log_noise[-1])


def mix_chosen(frames: Tensor, index: Tensor, relative: Tensor) -> DeviceMixture:
    """Mix with the whole weight of every band on one frame a pixel: no more than copying it."""
    at = index.long() & 0xFFFF
    pictures = frames.gather(0, at.expand(1, frames.shape[1], -1, -1))[0]
    left = 0.5 * torch.log(relative.square()[at] + _LEAST_POWER)
    return DeviceMixture(pictures, left, left)


class Agreement:
    """Corrections of the bands' scores by how well each frame agrees with a picture so far."""

    def __init__(self, arrays: Mapping[str, Floats], scales: Scales, device: str) -> None:
        self.scales = scales
        hidden, correction = arrays["hidden.weight"], arrays["correction"]
        self.hidden, self.correction = on_device(hidden, device), on_device(correction, device)
        self.bias = on_device(arrays["hidden_bias"], device)
        self.fits = len(hidden) <= _MOST_HIDDEN and (hidden.shape[1], len(correction)) == (12, 3)
        if self.fits:
            rows = packed(hidden[..., 0, 0].T)[:, :_MOST_HIDDEN]
            self.packed = on_device(rows, device)
            self.packed_bias = on_device(packed(arrays["hidden_bias"][None])[0], device)
            self.packed_correction = on_device(packed(correction[..., 0, 0]), device)

    def scores(self, frames: Tensor, picture: Tensor, scores: Tensor) -> Tensor:
        """Scores (K, bands, H, W) of the bands, corrected; frames (K, H, W) are single planes."""
        detail = picture - box(picture[None], _DETAIL_WINDOWS[0])[0]
        amount = box(detail[None].square(), _DETAIL_WINDOWS[1])[0] + _LEAST_DETAIL
        measures = frames.new_empty((len(frames), len(self.scales) + 1, *picture.shape))
        for frame, out in zip(frames, measures, strict=True):
            self._measure(frame, picture, detail, amount, out)
        if fused(frames) and self.fits:
            from cofuse.kernels import gpu_triton_agreement

            network = self.packed, self.packed_bias, self.packed_correction, len(self.hidden)
            return gpu_triton_agreement.correct(scores, measures, *network)
        mean = measures.mean(0)
        corrected = scores[:, 1:].clone()
        for own, absolute, out in zip(scores, measures, corrected, strict=True):
            inputs = torch.cat([own, absolute, absolute - mean])[None]
            hidden = F.conv2d(inputs, self.hidden, self.bias).relu_()
            out += F.conv2d(hidden, self.correction)[0]
        return corrected

    def _measure(
        self, frame: Tensor, picture: Tensor, detail: Tensor, amount: Tensor, out: Tensor
    ) -> None:
        if fused(frame) and self._fits(min(frame.shape)):
            from cofuse.kernels import gpu_triton_agreement

            given = frame, picture, detail, amount, self.scales, _DETAIL_WINDOWS[1]
            gpu_triton_agreement.measure(*given, out)
            return
        residual = (picture - frame)[None]
        for number, (smooth, window) in enumerate(self.scales):
            low = box(residual, smooth, square=True) if smooth > 1 else residual.square()
            out[number] = compress(box(low, window).mul_(float(smooth**2)))[0]
        # How much of the picture's detail a frame lacks: above 0 it is blurrier, below sharper.
        out[-1] = box(residual * detail, _DETAIL_WINDOWS[1])[0] / amount

    def _fits(self, least: int) -> bool:
        """Whether the fused kernel takes the scales, and pictures of that least side."""
        smooth, windows = zip(*self.scales, strict=True)
        narrow = len(smooth) == 3 and smooth[0] == 1 and windows[0] <= _DETAIL_WINDOWS[1]
        return narrow and max(smooth) <= _DETAIL_WINDOWS[1] and least > max(windows) // 2
