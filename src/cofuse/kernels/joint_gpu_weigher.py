"""The weigher of the joint model on a torch device: scores of all frames, and the stages' guides.

The whole of a region is worked on, edges repeated. Near an edge that is not the picture's the
scores are not those of the picture: the caller cuts that off, see `joint_reach`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu_fused_weigher import FusedWeigher
from cofuse.kernels.joint_gpu_layers import (
    Layer,
    compress,
    convolve,
    fused,
    mean_free,
    on_device,
)

__all__ = ["DeviceWeigher"]

Floats = NDArray[np.float32]

#: Pixels of all frames that are decoded at once: enough to fill a device, no more than it needs.
_GROUP_PIXELS = 1 << 23


class _Filters:
    """Filters on a frame and on the mean of all; energies compressed, with a bias by noise."""

    def __init__(
        self, filters: Floats, bias: Floats, unit: float, relative: Sequence[float], device: str
    ) -> None:
        free = mean_free(filters)
        self.side = int(free.shape[-1])
        self.weights = [on_device(free[:, i : i + 1], device) for i in (0, 1)]
        logs = np.log(relative)[:, None]
        self.bias = on_device(bias[0] + bias[1] * np.log(unit) + bias[2] * logs, device)

    def of_mean(self, mean: Tensor) -> Tensor:
        """The mean's part (filters, h, w) of all coefficients."""
        return self._plain(mean[None], 1)[0]

    def of_frames(self, frames: Tensor, first: int, base: Tensor) -> Tensor:
        """Compressed energies of frames from number ``first`` on."""
        squares = (self._plain(frames, 0) + base).square_()
        bias = self.bias[first : first + len(frames)]
        return (compress(squares) + bias[:, :, None, None]).relu_()

    def _plain(self, frames: Tensor, which: int) -> Tensor:
        padded = F.pad(frames[:, None], ((self.side - 1) // 2,) * 4, mode="replicate")
        return F.conv2d(padded, self.weights[which], stride=2 - self.side % 2)


class DeviceWeigher:
    """The weigher for frames of given noise.

    Parameters
    ----------
    arrays
        The model's arrays, by their names less the prefix ``weigher.``.
    unit
        The stack's noise in grey levels.
    relative
        Every frame's noise by the stack's.
    device
        Where to work.
    """

    def __init__(
        self, arrays: Mapping[str, Floats], unit: float, relative: Sequence[float], device: str
    ) -> None:
        self.levels = 1 + max(int(n.split(".")[1]) for n in arrays if n.startswith("levels."))
        noise = unit, relative, device
        self.analysis = _Filters(arrays["analysis"], arrays["analysis_bias"], *noise)
        self.detail = _Filters(arrays["detail"], arrays["detail_bias"], *noise)

        def layer(name: str, bias: str) -> Layer:
            return Layer(arrays[name + ".weight"], arrays[bias], device)

        names = [f"levels.{i}." for i in range(self.levels)]
        self.descend = [layer(n + "descend", n + "descend_bias") for n in names[1:]]
        self.own = [layer(n + "own", n + "own_bias") for n in names]
        self.smooth = [layer(n + "smooth", n + "smooth_bias") for n in names]
        self.shared = [on_device(arrays[n + "shared.weight"], device) for n in names]
        self.constant = [
            on_device(arrays[n + "own_bias"] + arrays[n + "noise_bias"] * np.log(unit), device)
            for n in names
        ]
        self.ascend = [on_device(arrays[n + "ascend.weight"], device) for n in names[:-1]]
        self.rise = layer("rise", "rise_bias")
        self.place = layer("place", "place_bias")
        self.answer = on_device(arrays["answer.weight"], device)
        self.fused = FusedWeigher(arrays, unit, relative, device)

    def scores(
        self, frames: Tensor, corner: tuple[int, int], size: tuple[int, int], *, guide: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Weigh frames (K, H, W) in units of noise, whose sides are multiples of 2^levels.

        Returns scores (K, 1 + bands, h, w) of the part of that size at a corner, and of the whole
        at half size mean and maximum of all frames' answers, which guide the stages.
        """
        if fused(frames):
            return self.fused.scores(frames, corner, size, guide=guide)
        count, height, width = frames.shape
        mean = frames.mean(0)
        features = self._features(frames, self.analysis.of_mean(mean))
        shared = [
            F.conv2d(_pooled(own)[None], weight, constant)[0]
            for own, weight, constant in zip(features, self.shared, self.constant, strict=True)
        ]
        fine_base = self.detail.of_mean(mean)
        scores = frames.new_empty((count, len(self.answer), *size))
        group = max(1, min(count, _GROUP_PIXELS // (height * width)))
        total: Tensor | None = None
        largest: Tensor | None = None
        for first in range(0, count, group):
            some = slice(first, first + group)
            answer = self._answer([own[some] for own in features], shared)
            if guide:
                # A running sum: frames come in groups, and pools of all must not need all at once.
                own_total, own_largest = answer.sum(0), answer.amax(0)
                total = own_total if total is None else total.add_(own_total)
                largest = own_largest if largest is None else torch.maximum(largest, own_largest)
            self._placed(answer, frames[some], first, fine_base, corner, scores[some])
        if total is None or largest is None:
            return scores, None
        return scores, torch.cat([total / count, largest])

    def _features(self, frames: Tensor, base: Tensor) -> list[Tensor]:
        """Features of all frames on all levels."""
        features = [self.analysis.of_frames(frames, 0, base)]
        for layer in self.descend:
            features.append(convolve(F.avg_pool2d(features[-1], 2), layer))
        return features

    def _answer(self, features: list[Tensor], shared: list[Tensor]) -> Tensor:
        """Frames' answers at half size, from the coarsest level on."""
        answer: Tensor | None = None
        for level in reversed(range(self.levels)):
            small = None if answer is None else F.conv2d(answer, self.ascend[level])
            total = convolve(features[level], self.own[level], base=shared[level], small=small)
            answer = convolve(total, self.smooth[level])
        assert answer is not None, "there is at least one level"
        return answer

    def _placed(
        self,
        answer: Tensor,
        frames: Tensor,
        first: int,
        fine_base: Tensor,
        corner: tuple[int, int],
        out: Tensor,
    ) -> None:
        """Scores at full size, from answers at half size and the frames' own detail."""
        risen = F.pixel_shuffle(convolve(answer, self.rise), 2)
        planes = torch.cat([risen, self.detail.of_frames(frames, first, fine_base)], 1)
        rows, columns = (slice(a, a + n) for a, n in zip(corner, out.shape[-2:], strict=True))
        out.copy_(F.conv2d(convolve(planes, self.place), self.answer)[..., rows, columns])


def _pooled(planes: Tensor) -> Tensor:
    """Mean and largest of all frames' planes."""
    return torch.cat([planes.mean(0), planes.amax(0)])
