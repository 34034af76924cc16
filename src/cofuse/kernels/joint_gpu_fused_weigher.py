"""The weigher by fused kernels: what `joint_gpu_weigher` does, on sheets of two halves.

Coarser levels are worked on for all frames at once, which fills a device; at full size frames come
in groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import halves, mean_free, on_device

__all__ = ["FusedWeigher"]

Floats = NDArray[np.float32]
Size = tuple[int, int]

#: Pixels of all frames that are decoded at once at full size.
_GROUP_PIXELS = 1 << 25


def _filled(count: int) -> int:
    """Channels of a sheet that holds so many."""
    return max(16, 1 << (count - 1).bit_length())


class _Bank:
    """Filters on a frame and on the mean of all, with a bias by noise."""

    def __init__(
        self,
        filters: Floats,
        bias: Floats,
        unit: float,
        relative: Sequence[float],
        device: str,
        pixels: int,
    ) -> None:
        free = mean_free(filters)
        self.count, self.side, self.pixels = len(free), int(free.shape[-1]), pixels
        self.filled = _filled(self.count * pixels) // pixels
        taps = np.zeros((2, self.side, self.side + pixels - 1, pixels, self.filled), np.float32)
        for pixel in range(pixels):
            columns = slice(pixel, pixel + self.side)
            taps[:, :, columns, pixel, : self.count] = free.transpose(1, 2, 3, 0)
        flat = taps.reshape(2, -1, pixels * self.filled)
        self.weights = [halves(part, device) for part in flat]
        logs = np.log(relative)[:, None]
        shifts = np.zeros((len(relative), pixels, self.filled))
        shifts[..., : self.count] = (bias[0] + bias[1] * np.log(unit) + bias[2] * logs)[:, None]
        self.bias = on_device(shifts.reshape(len(relative), -1), device)

    def of_mean(self, mean: Tensor, size: Size) -> Tensor:
        """The mean's part (h, w, filters) of all coefficients."""
        from cofuse.kernels import gpu_triton_weigher

        out = mean.new_empty((*size, self.filled))
        given = mean[None], self.weights[1], self.side, self.pixels
        return gpu_triton_weigher.analyse(*given, out)

    def of_frames(self, frames: Tensor, start: int, base: Tensor, out: Tensor, first: int) -> None:
        """Compressed energies of frames from number ``start`` on, from a channel of a sheet on."""
        from cofuse.kernels import gpu_triton_weigher

        bias = self.bias[start : start + len(frames)]
        given = frames, self.weights[0], self.side, self.pixels
        gpu_triton_weigher.analyse(*given, out, base, bias, first)


class _Convolution:
    """3 × 3 filters for two pixels side by side, with their bias for both."""

    def __init__(self, weight: Floats, bias: Floats, device: str, least: int = 16) -> None:
        outputs, inputs = weight.shape[:2]
        self.outputs = outputs
        filled = max(least, 1 << (outputs - 1).bit_length())
        taps = np.zeros((3, 4, _filled(inputs), 2, filled), np.float32)
        for pixel in (0, 1):
            taps[:, pixel : pixel + 3, :inputs, pixel, :outputs] = weight.transpose(2, 3, 1, 0)
        self.weight = halves(taps.reshape(3, -1, 2 * filled), device)
        both = np.zeros((2, filled), np.float32)
        both[:, :outputs] = bias
        self.bias = on_device(both.ravel(), device)


class FusedWeigher:
    """The weigher for frames of given noise; parameters are those of `DeviceWeigher`."""

    def __init__(
        self, arrays: Mapping[str, Floats], unit: float, relative: Sequence[float], device: str
    ) -> None:
        self.levels = 1 + max(int(n.split(".")[1]) for n in arrays if n.startswith("levels."))
        noise = unit, relative, device
        self.analysis = _Bank(arrays["analysis"], arrays["analysis_bias"], *noise, 1)
        self.detail = _Bank(arrays["detail"], arrays["detail_bias"], *noise, 2)

        def layer(name: str, bias: str, least: int = 16) -> _Convolution:
            return _Convolution(arrays[name + ".weight"], arrays[bias], device, least)

        names = [f"levels.{i}." for i in range(self.levels)]
        self.descend = [layer(n + "descend", n + "descend_bias") for n in names[1:]]
        self.own = [layer(n + "own", n + "own_bias") for n in names]
        self.smooth = [layer(n + "smooth", n + "smooth_bias") for n in names]
        self.shared, self.constant = [], []
        for n in names:
            matrix = arrays[n + "shared.weight"][..., 0, 0]
            pair = matrix.reshape(len(matrix), 2, -1).transpose(1, 2, 0)
            self.shared.append(halves(pair, device))
            constant = np.zeros(self.shared[-1].shape[-1], np.float32)
            bias = arrays[n + "own_bias"] + arrays[n + "noise_bias"] * np.log(unit)
            constant[: len(bias)] = bias
            self.constant.append(on_device(constant, device))
        self.ascend = [halves(arrays[n + "ascend.weight"][..., 0, 0].T, device) for n in names[:-1]]
        # Four planes become one of twice the size; the four parts of all come one after another.
        weight, bias = arrays["rise.weight"], arrays["rise_bias"]
        order = np.arange(len(weight)).reshape(-1, 4).T.ravel()
        self.rise = _Convolution(weight[order], bias[order], device)
        self.place = layer("place", "place_bias", 8)
        answer = arrays["answer.weight"][..., 0, 0]
        self.answers = len(answer)
        both = np.zeros((2, self.place.bias.numel() // 2, 2, 8), np.float32)
        for pixel in (0, 1):
            both[pixel, : answer.shape[1], pixel, : self.answers] = answer.T
        self.answer = halves(both.reshape(-1, 16), device)

    def scores(
        self, frames: Tensor, corner: Size, size: Size, *, guide: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Weigh frames, as `DeviceWeigher.scores`."""
        from cofuse.kernels import gpu_triton_points as points
        from cofuse.kernels import gpu_triton_weigher as kernels

        count, height, width = frames.shape
        padded = F.pad(frames[:, None], (kernels.FRAME_BORDER,) * 4, mode="replicate")[:, 0]
        mean = padded.mean(0)
        sizes = [(height >> i, width >> i) for i in range(1, self.levels + 1)]
        answer, features, shared = self._coarse_answer(padded, mean, sizes)
        fine_base = self.detail.of_mean(mean, (height, width))
        scores = frames.new_empty((count, self.answers, *size))
        channels = self.smooth[0].outputs
        pool = frames.new_empty((2 * channels, *sizes[0])) if guide else None
        group = max(1, min(count, _GROUP_PIXELS // (height * width)))
        for first in range(0, count, group):
            some = slice(first, min(first + group, count))
            small = None if answer is None else answer[some]
            own = self._answer(0, features[:, some], sizes[0], shared, small)
            kernels.repeat_edges(own, sizes[0][1])
            if pool is not None:
                points.pool_answers(own, pool, 1.0 / count, add=first > 0)
            planes = kernels.sheet(own.shape[1], height, width, 16, frames.device)
            given = own, sizes[0], self.rise.weight, self.rise.bias
            kernels.convolve(*given, planes, shuffle=True)
            risen = self.rise.outputs // 4
            self.detail.of_frames(padded[some], first, fine_base, planes, risen)
            kernels.repeat_edges(planes, width)
            given = planes, (height, width), self.place.weight, self.place.bias
            kernels.convolve(*given, scores[some], answer=self.answer, corner=corner)
        return scores, pool

    def _coarse_answer(
        self, padded: Tensor, mean: Tensor, sizes: list[Size]
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """What coarser levels tell the finest one; its own features, and those shared."""
        from cofuse.kernels import gpu_triton_points as points
        from cofuse.kernels import gpu_triton_weigher as kernels

        count, device = len(padded), padded.device
        own = kernels.sheet(count, *sizes[0], self.analysis.count, device)
        self.analysis.of_frames(padded, 0, self.analysis.of_mean(mean, sizes[0]), own, 0)
        kernels.repeat_edges(own, sizes[0][1])
        features = [own]
        for layer, size in zip(self.descend, sizes[1:], strict=True):
            half = kernels.sheet(count, *size, features[-1].shape[-1], device)
            points.shrink(features[-1], size, half)
            kernels.repeat_edges(half, size[1])
            own = kernels.sheet(count, *size, layer.outputs, device)
            kernels.convolve(half, size, layer.weight, layer.bias, own)
            kernels.repeat_edges(own, size[1])
            features.append(own)
        given = zip(features, sizes, self.shared, self.constant, strict=True)
        shared = [points.share(*some) for some in given]
        answer: Tensor | None = None
        for level in reversed(range(1, self.levels)):
            own = self._answer(level, features[level], sizes[level], shared[level], answer)
            answer = points.transform(own, sizes[level], self.ascend[level - 1])
        return answer, features[0], shared[0]

    def _answer(
        self, level: int, features: Tensor, size: Size, shared: Tensor, small: Tensor | None
    ) -> Tensor:
        """Frames' answers on one level; their edges are not repeated yet."""
        from cofuse.kernels import gpu_triton_weigher as kernels

        own, smooth = self.own[level], self.smooth[level]
        count, device = features.shape[1], features.device
        total = kernels.sheet(count, *size, own.outputs, device)
        kernels.convolve(features, size, own.weight, shared, total, small=small)
        kernels.repeat_edges(total, size[1])
        out = kernels.sheet(count, *size, smooth.outputs, device)
        return kernels.convolve(total, size, smooth.weight, smooth.bias, out)
