r"""The networks, defined once; needs torch, the extra ``gpu``.

Three small networks weigh the frames of a stack.

- `Look` sees one frame at a time, beside what all of them are on the average, at four sizes.
- `Share` sees mean and maximum of these features over all frames, whatever their number and order.
- `Weigh` scores one frame at every pixel of every band, from its features and what is shared.

Luminance is the mean of the channels, values are from 0 to 1, sides are multiples of `MULTIPLE`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cofuse.mixing import MIXED_BANDS

__all__ = ["FEATURES", "FOLDED", "TOLD", "Networks", "amplitude", "fine_detail"]

#: Channels of the features at 1/2, 1/4, 1/8 and 1/16 of the size.
FEATURES = (32, 48, 64, 96)
#: Numbers told of a frame: noise in fine and in coarse bands, floor of the noise, whether the
#: frame is the reference, and whether there is any.
TOLD = 5
#: Planes at full size that are folded to half of it: the frame, the frame less the mean of all,
#: its fine detail by that of all, and the frame less the reference.
_SEEN = 4
FOLDED = 4 * _SEEN
#: Detail weaker than a grey level is not blown up.
_FAINT = 0.004


def _box(planes: Tensor, side: int) -> Tensor:
    reach = side // 2
    return F.avg_pool2d(F.pad(planes, (reach,) * 4, mode="replicate"), side, 1)


def fine_detail(luminance: Tensor) -> Tensor:
    """Detail of a few pixels in planes (N, 1, H, W)."""
    return luminance - _box(luminance, 5)


def amplitude(detail: Tensor) -> Tensor:
    """How strong the detail of frames (B, K, H, W) is around a place, on the average: (B, 1, …)."""
    return _box(detail.abs().mean(1, keepdim=True), 9)


def _conv(inputs: int, outputs: int, *, side: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, side, stride, side // 2)


def _larger(planes: Tensor) -> Tensor:
    return F.interpolate(planes, scale_factor=2.0, mode="bilinear", align_corners=False)


class Look(nn.Module):
    """Features of a frame at four sizes, and the folded planes that they are made of."""

    def __init__(self) -> None:
        super().__init__()
        before = (FOLDED + 4, *FEATURES[:-1])
        self.into = nn.ModuleList(
            _conv(a, b, stride=1 if i == 0 else 2)
            for i, (a, b) in enumerate(zip(before, FEATURES, strict=True))
        )
        self.more = nn.ModuleList(_conv(n, n) for n in FEATURES)

    def forward(self, frame: Tensor, stack: Tensor, told: Tensor) -> tuple[Tensor, ...]:
        """Look at luminances (N, 1, H, W) beside mean, amplitude and reference (N, 3, H, W).

        ``told`` is (N, `TOLD`). What stands for the reference is of no matter where there is none.
        """
        mean, strength, reference = stack[:, :1], stack[:, 1:2], stack[:, 2:]
        told = told[:, :, None, None]
        floor, is_it, is_any = told[:, 2:3], told[:, 3:4], told[:, 4:5]
        detail = 0.3 * fine_detail(frame) / (strength + _FAINT)
        seen = torch.cat([frame - 0.5, frame - mean, detail, (frame - reference) * is_any], 1)
        folded = F.pixel_unshuffle(seen, 2)
        light = F.avg_pool2d(mean, 2)
        growth = (floor + (1 - floor) * 2 * light.clamp_min(0)).clamp_min(0).sqrt()
        maps = [20 * told[:, :2] * growth, is_it + 0 * light, is_any + 0 * light]
        x = torch.cat([folded, *maps], 1)
        features = []
        for into, more in zip(self.into, self.more, strict=True):
            x = F.relu(into(x))
            x = x + F.relu(more(x))
            features.append(x)
        return (folded, *features)


class Share(nn.Module):
    """What the frames have in common, of mean and maximum of their features at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.of = nn.ModuleList(_conv(2 * n, n, side=1) for n in FEATURES)

    def forward(self, *pooled: Tensor) -> tuple[Tensor, ...]:
        """Take means and maxima side by side, (B, 2 C, …) at each size."""
        return tuple(of(both) for of, both in zip(self.of, pooled, strict=True))


class Weigh(nn.Module):
    """Scores of a frame; the weights are their softmax over all frames."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList(_conv(n, n, side=1) for n in FEATURES)
        self.mix = nn.ModuleList(_conv(n, n) for n in FEATURES)
        self.narrow = nn.ModuleList(_conv(b, a, side=1) for a, b in pairwise(FEATURES))
        self.border = _conv(FEATURES[0] + FOLDED, FEATURES[0])
        self.score = _conv(FEATURES[0], 4 * MIXED_BANDS)
        nn.init.zeros_(self.score.weight)

    def forward(self, folded: Tensor, *features_and_shared: Tensor) -> Tensor:
        """Score frames from what `Look` and `Share` made: (N, bands, H, W)."""
        sizes = len(FEATURES)
        features, shared = features_and_shared[:sizes], features_and_shared[sizes:]
        x: Tensor | None = None
        for i in reversed(range(sizes)):
            here = F.relu(self.own[i](features[i]) + shared[i])
            if x is not None:
                here = here + _larger(self.narrow[i](x))
            x = here + F.relu(self.mix[i](here))
        assert x is not None
        x = F.relu(self.border(torch.cat([x, folded], 1)))
        return F.pixel_shuffle(self.score(x), 2)


class Networks(nn.Module):
    """All networks of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.share, self.weigh = Look(), Share(), Weigh()
