r"""The networks, defined once; needs torch, the extra ``gpu``.

Five small networks weigh the frames of a stack.

- `Filter` passes learned analysis filters over a frame, and keeps a quarter of its size.
- `Look` sees what is filtered of a frame beside the mean and the maximum of all.
- `Share` sees mean and maximum of these features over all frames, whatever their number and order.
- `Weigh` scores one frame in every band, from its features and what is shared: coarsely.
- `Border` looks at a frame in full size, beside the mixture by these coarse weights, and only
  where it has any: it makes the scores exact to the pixel.

A sixth, `Restore`, takes out of a picture the noise that it is told of.

Luminance is the mean of the channels, values are from 0 to 1, sides are multiples of `MULTIPLE`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cofuse.images.pixels import MIXED_BANDS

__all__ = [
    "CONTEXT",
    "FEATURES",
    "FILTERED",
    "TOLD",
    "Networks",
    "Restore",
    "amplitude",
    "fine_detail",
]

#: Planes that filters make at a quarter of the size.
_FILTERS = 32
#: These, and the luminance.
FILTERED = _FILTERS + 1
#: Channels of the features at 1/4, 1/8 and 1/16 of the size.
FEATURES = (32, 48, 96)
#: Planes that `Weigh` makes: scores of the bands, and what else `Border` may want to know.
CONTEXT = 32
#: Numbers told of a frame: noise in fine and in coarse bands, floor of the noise.
TOLD = 3
#: Detail weaker than a grey level is not blown up.
_FAINT = 0.004
#: Channels of `Border` at half the size.
_NEAR = 32
#: Channels of `Restore` at 1/2, 1/4 and 1/8 of the size.
_RESTORING = (32, 64, 128)


def _box(planes: Tensor, side: int) -> Tensor:
    reach = side // 2
    return F.avg_pool2d(F.pad(planes, (reach,) * 4, mode="replicate"), side, 1)


def fine_detail(luminance: Tensor) -> Tensor:
    """Detail of a few pixels in planes (N, 1, H, W)."""
    return luminance - _box(luminance, 5)


def amplitude(detail: Tensor) -> Tensor:
    """How strong detail (N, 1, H, W) is around a place."""
    return _box(detail, 9)


def _conv(inputs: int, outputs: int, *, side: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, side, stride, (side - 1) // 2)


def _larger(planes: Tensor, mode: str = "bilinear") -> Tensor:
    if mode == "nearest":
        return F.interpolate(planes, scale_factor=2.0, mode=mode)
    return F.interpolate(planes, scale_factor=2.0, mode=mode, align_corners=False)


class Filter(nn.Module):
    """Learned filters of a luminance (N, 1, H, W), and the luminance: (N, `FILTERED`, H/4, W/4)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 6, 2, 2)
        self.second = _conv(16, _FILTERS, stride=2)
        with torch.no_grad():
            # Most begin as filters of detail, strong enough to be seen beside brightness.
            kernels = self.first.weight
            kernels[4:] = 6 * (kernels[4:] - kernels[4:].mean((1, 2, 3), keepdim=True))

    def forward(self, frame: Tensor) -> Tensor:
        """Filter a frame."""
        planes = F.relu(self.second(F.relu(self.first(frame - 0.5))))
        return torch.cat([planes, F.avg_pool2d(frame, 4)], 1)


class Look(nn.Module):
    """Features of a frame at three sizes."""

    def __init__(self) -> None:
        super().__init__()
        before = (3 * _FILTERS + 4, *FEATURES[:-1])
        self.into = nn.ModuleList(
            _conv(a, b, side=1 if i == 0 else 3, stride=1 if i == 0 else 2)
            for i, (a, b) in enumerate(zip(before, FEATURES, strict=True))
        )
        self.more = nn.ModuleList(_conv(n, n) for n in FEATURES)

    def forward(self, own: Tensor, stack: Tensor, told: Tensor) -> tuple[Tensor, ...]:
        """Look at what is filtered of frames beside mean and maximum, (N, 2 `FILTERED`, …).

        ``told`` is (N, `TOLD`).
        """
        planes, light = own[:, :_FILTERS], own[:, _FILTERS:]
        mean, mean_light = stack[:, :_FILTERS], stack[:, _FILTERS:FILTERED]
        largest = stack[:, FILTERED:-1]
        told = told[:, :, None, None]
        floor = told[:, 2:]
        growth = (floor + (1 - floor) * 2 * mean_light.clamp_min(0)).clamp_min(0).sqrt()
        x = torch.cat(
            [
                planes,
                0.3 * planes / (mean + 2 * _FAINT),
                light - 0.5,
                4 * (light - mean_light),
                20 * told[:, :2] * growth,
                4 * (planes - largest) / (largest + 2 * _FAINT),
            ],
            1,
        )
        features = []
        for into, more in zip(self.into, self.more, strict=True):
            x = F.relu(into(x))
            x = x + F.relu(more(x))
            features.append(x)
        return tuple(features)


class Share(nn.Module):
    """What the frames have in common, of mean and maximum of their features at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.of = nn.ModuleList(_conv(2 * n, n, side=1) for n in FEATURES)

    def forward(self, *pooled: Tensor) -> tuple[Tensor, ...]:
        """Take means and maxima side by side, (B, 2 C, …) at each size."""
        return tuple(of(both) for of, both in zip(self.of, pooled, strict=True))


class Weigh(nn.Module):
    """Scores of a frame's bands at a quarter of the size, then a context for `Border`."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList(_conv(n, n, side=1) for n in FEATURES)
        self.mix = nn.ModuleList(_conv(n, n) for n in FEATURES)
        self.narrow = nn.ModuleList(_conv(b, a, side=1) for a, b in pairwise(FEATURES))
        self.score = _conv(FEATURES[0], CONTEXT, side=1)

    def forward(self, *features_and_shared: Tensor) -> Tensor:
        """Score frames from what `Look` and `Share` made: (N, `CONTEXT`, H/4, W/4)."""
        sizes = len(FEATURES)
        features, shared = features_and_shared[:sizes], features_and_shared[sizes:]
        x: Tensor | None = None
        for i in reversed(range(sizes)):
            here = F.relu(self.own[i](features[i]) + shared[i])
            if x is not None:
                here = here + _larger(self.narrow[i](x))
            x = here + F.relu(self.mix[i](here))
        assert x is not None
        made: Tensor = self.score(x)
        return made


class Border(nn.Module):
    """Scores of a frame at every pixel; the weights are their softmax over all frames."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Conv2d(3, _NEAR, 6, 2, 2)
        self.context = _conv(CONTEXT, _NEAR)
        self.mix = _conv(_NEAR, _NEAR)
        self.score = _conv(_NEAR, 4 + MIXED_BANDS - 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, lights: Tensor, details: Tensor, context: Tensor) -> Tensor:
        """Score frames: (N, bands, H, W).

        ``lights`` (N, 2, H, W) are their luminance and that of the mixture by coarse weights,
        ``details`` the detail of the one and how strong it is in the other. The finest band has
        scores at every pixel, the others at every other, smoothly enlarged: weights of theirs
        that alternate would be seen.
        """
        frame, mixture = lights[:, :1], lights[:, 1:]
        relative = 0.3 * details[:, :1] / (details[:, 1:] + _FAINT)
        seen = torch.cat([frame - 0.5, 4 * (frame - mixture), relative], 1)
        x = F.relu(self.seen(seen) + _larger(self.context(context)))
        x = x + F.relu(self.mix(x))
        near, coarse = self.score(x), _larger(context[:, :MIXED_BANDS])
        finest = F.pixel_shuffle(near[:, :4] + coarse[:, :1], 2)
        return torch.cat([finest, _larger(near[:, 4:] + coarse[:, 1:])], 1)


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = _conv(channels, channels), _conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.relu(self.one(x)))


class Restore(nn.Module):
    """What a picture would be without the noise that it is told of, all colours together."""

    def __init__(self) -> None:
        super().__init__()
        sizes = _RESTORING
        self.into = _conv(12 + 2 * MIXED_BANDS, sizes[0])
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, 2) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(_conv(b, a, side=1) for a, b in pairwise(sizes))
        self.before = nn.ModuleList(nn.Sequential(_Block(n), _Block(n)) for n in sizes)
        self.after = nn.ModuleList(nn.Sequential(_Block(n), _Block(n)) for n in sizes[:-1])
        self.out = _conv(sizes[0], 12)
        nn.init.zeros_(self.out.bias)

    def forward(self, picture: Tensor, noise: Tensor) -> Tensor:
        """Restore (N, 3, H, W), told its noise (N, 2 bands, H/2, W/2): in luminance, in colours.

        Where there is none nothing is changed.
        """
        folded = F.pixel_unshuffle(picture, 2)
        x = self.into(torch.cat([folded - 0.5, 10 * noise], 1))
        kept = []
        for i, before in enumerate(self.before):
            x = before(x if i == 0 else self.down[i - 1](x))
            kept.append(x)
        for i in reversed(range(len(self.after))):
            x = self.after[i](kept[i] + _larger(self.up[i](x), "nearest"))
        strength = noise.square().sum(1, keepdim=True).sqrt()
        return picture - F.pixel_shuffle(self.out(x) * strength, 2)


class Networks(nn.Module):
    """All networks of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.look, self.share, self.weigh = Filter(), Look(), Share(), Weigh()
        self.border, self.restore = Border(), Restore()
