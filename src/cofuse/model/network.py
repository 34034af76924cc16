r"""The networks, defined once; needs torch, the extra ``gpu``.

Seven small networks weigh the frames of a stack.

- `Filter` passes learned analysis filters over a frame, and keeps a quarter of its size.
- `Compare` sees mean and maximum over all frames of what is filtered, whatever their number and
  order, and says what a frame is to be compared with.
- `Relate` sees what is filtered of a frame beside that, pixel by pixel.
- `Look` makes features of it at three sizes.
- `Share` sees mean and maximum of these features over all frames.
- `Weigh` scores one frame in every band, from its features and what is shared: coarsely.
- `Border` looks at a frame in full size, beside the mixture by these coarse weights, and only
  where it has any: it makes the scores exact to the pixel.

An eighth, `Restore`, takes out of a picture the noise that it is told of.

Luminance is the mean of the channels, from -0.5 (black) to 0.5 (white); sides are multiples of
`MULTIPLE`. Between two convolutions planes are whole numbers of steps, 0 to 255, and most kernels
have 7 bits (`model.rounding`): so processors compute them two to three times as fast.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.rounding import Rounded, RoundedConv

#: Planes that filters make at a quarter of the size.
FILTERS = 32
#: Channels of the features at 1/4, 1/8 and 1/16 of the size.
FEATURES = (32, 48, 96)
#: Planes that `Weigh` makes beside the scores of the bands: what else `Border` may want to know.
CONTEXT = 32
#: Numbers told of a frame: noise in fine and in coarse bands.
TOLD = 2
#: Detail weaker than a grey level is not blown up.
_FAINT = 0.004
#: Channels of `Border` at half the size.
_NEAR = 32
#: Channels of `Restore` at 1/2, 1/4 and 1/8 of the size.
_RESTORING = (64, 128, 256)


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


def _larger(planes: Tensor) -> Tensor:
    return F.interpolate(planes, scale_factor=2.0, mode="bilinear", align_corners=False)


class Filter(nn.Module):
    """Learned filters of a luminance (N, 1, H, W): (N, `FILTERS`, H/4, W/4), and it, as small."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 6, 2, 2)
        self.second = _conv(16, FILTERS, stride=2)
        with torch.no_grad():
            # Most begin as filters of detail, strong enough to be seen beside brightness.
            kernels = self.first.weight
            kernels[4:] = 6 * (kernels[4:] - kernels[4:].mean((1, 2, 3), keepdim=True))

    def forward(self, frame: Tensor) -> tuple[Tensor, Tensor]:
        """Filter a frame."""
        planes = F.relu(self.second(F.relu(self.first(frame))))
        return planes, F.avg_pool2d(frame, 4)


class Compare(nn.Module):
    """What frames are compared with: mean and maximum over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.light = nn.Conv2d(1, FEATURES[0], 1, bias=False)

    def forward(
        self, mean: Tensor, largest: Tensor, light: Tensor, floor: Tensor
    ) -> tuple[Tensor, ...]:
        """Take mean and maximum of planes, mean luminance, and the floor of the noise (N, 1).

        Returns what planes and their distances from the maximum are multiplied by, what all frames
        have in common, and how noise grows with brightness.
        """
        floor = floor[:, :, None, None]
        growth = (floor + (1 - floor) * (1 + 2 * light).clamp_min(0)).clamp_min(0).sqrt()
        relative, distance = 0.3 / (mean + 2 * _FAINT), 4 / (largest + 2 * _FAINT)
        return relative, distance, self.light(-light), growth


class Relate(nn.Module):
    """What is filtered of a frame, beside what frames are compared with: pixel by pixel."""

    def __init__(self) -> None:
        super().__init__()
        first = FEATURES[0]
        self.own = _conv(FILTERS, first, side=1)
        self.relative = nn.Conv2d(FILTERS, first, 1, bias=False)
        self.distance = nn.Conv2d(FILTERS, first, 1, bias=False)
        self.light = nn.Conv2d(1 + TOLD, first, 1, bias=False)
        self.entered = Rounded()

    def forward(
        self,
        planes: Tensor,
        light: Tensor,
        largest: Tensor,
        relative: Tensor,
        distance: Tensor,
        common: Tensor,
        growth: Tensor,
        told: Tensor,
    ) -> Tensor:
        """Relate what is filtered of frames to what `Compare` made; told is (N, `TOLD`).

        Planes are returned in steps.
        """
        x = self.own(planes) + self.relative(planes * relative)
        x = x + self.distance((planes - largest) * distance)
        x = x + self.light(torch.cat([light, 20 * told[:, :, None, None] * growth], 1))
        return self.entered.steps(F.relu(x + common))


class Look(nn.Module):
    """Features of a frame at three sizes."""

    def __init__(self, relate: Relate) -> None:
        super().__init__()
        self.entered = relate.entered
        self.into = nn.ModuleList(RoundedConv(a, b, 3, stride=2) for a, b in pairwise(FEATURES))
        self.more = nn.ModuleList(RoundedConv(n, n, 3) for n in FEATURES)
        self.features = nn.ModuleList(Rounded() for _ in FEATURES)

    def forward(self, steps: Tensor) -> tuple[Tensor, ...]:
        """Look at steps that `Relate` made; features are steps too."""
        x = self.entered.planes(steps)
        made = []
        for i, (more, features) in enumerate(zip(self.more, self.features, strict=True)):
            if i > 0:
                x = self.into[i - 1](x)
            steps = features.steps(x + more(x))
            x = features.planes(steps)
            made.append(steps)
        return tuple(made)


class Share(nn.Module):
    """What the frames have in common, of mean and maximum of their features at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.of = nn.ModuleList(_conv(2 * n, n, side=1) for n in FEATURES)
        self.shared = nn.ModuleList(Rounded(signed=True) for _ in FEATURES)

    def forward(self, *pooled: Tensor) -> tuple[Tensor, ...]:
        """Take means and maxima of steps side by side, (B, 2 C, …) at each size; return steps."""
        every = zip(self.of, self.shared, pooled, strict=True)
        return tuple(shared.steps(of(both / 256)) for of, shared, both in every)


class Weigh(nn.Module):
    """Scores of a frame's bands at a quarter of the size, and a context for `Border`."""

    def __init__(self, look: Look, share: Share) -> None:
        super().__init__()
        # What comes in are steps of what other networks made.
        self.features, self.shared = look.features, share.shared
        self.own = nn.ModuleList(RoundedConv(n, n, 1, signed=True) for n in FEATURES)
        self.both = nn.ModuleList(Rounded() for _ in FEATURES)
        self.narrow = nn.ModuleList(
            RoundedConv(b, a, 1, signed=True) for a, b in pairwise(FEATURES)
        )
        self.enlarged = nn.ModuleList(Rounded(signed=True) for _ in FEATURES[:-1])
        self.joined = nn.ModuleList(Rounded(signed=True) for _ in FEATURES[:-1])
        self.mix = nn.ModuleList(RoundedConv(n, n, 3) for n in FEATURES)
        self.mixed = nn.ModuleList(Rounded(signed=True) for _ in FEATURES)
        self.score = _conv(FEATURES[0], MIXED_BANDS, side=1)
        self.context = RoundedConv(FEATURES[0], CONTEXT, 1, signed=True)

    def forward(self, *steps: Tensor) -> tuple[Tensor, Tensor]:
        """Score frames from steps that `Look` and `Share` made; the context is in steps."""
        sizes = len(FEATURES)
        x: Tensor | None = None
        for i in reversed(range(sizes)):
            own = self.own[i](self.features[i].planes(steps[i]))
            here = self.both[i](F.relu(own + self.shared[i].planes(steps[sizes + i])))
            if x is not None:
                here = self.joined[i](here + self.enlarged[i](_larger(self.narrow[i](x))))
            x = self.mixed[i](here + self.mix[i](here))
        assert x is not None
        return self.score(x), self.context.steps(x)


class Border(nn.Module):
    """Scores of a frame at every pixel; the weights are their softmax over all frames."""

    def __init__(self, weigh: Weigh) -> None:
        super().__init__()
        self.given = weigh.context.made
        self.seen = nn.Conv2d(3, _NEAR, 6, 2, 2)
        self.context = RoundedConv(CONTEXT, _NEAR, 3, signed=True)
        self.entered = Rounded()
        self.mix = RoundedConv(_NEAR, _NEAR, 3)
        self.mixed = Rounded()
        self.score = _conv(_NEAR, 4 + MIXED_BANDS - 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, lights: Tensor, details: Tensor, scores: Tensor, context: Tensor) -> Tensor:
        """Score frames: (N, bands, H, W).

        ``lights`` (N, 2, H, W) are their luminance and that of the mixture by coarse weights,
        ``details`` the detail of the one and how strong it is in the other. The finest band has
        scores at every pixel, the others at every other, smoothly enlarged: weights of theirs
        that alternate would be seen.
        """
        frame, mixture = lights[:, :1], lights[:, 1:]
        relative = 0.3 * details[:, :1] / (details[:, 1:] + _FAINT)
        seen = self.seen(torch.cat([frame, 4 * (frame - mixture), relative], 1))
        x = self.entered(F.relu(seen + _larger(self.context(self.given.planes(context)))))
        x = self.mixed(x + self.mix(x))
        near, coarse = self.score(x), _larger(scores)
        finest = F.pixel_shuffle(near[:, :4] + coarse[:, :1], 2)
        return torch.cat([finest, _larger(near[:, 4:] + coarse[:, 1:])], 1)


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = _conv(channels, channels), _conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.relu(self.one(x)))


class _RoundedBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = RoundedConv(channels, channels, 3)
        self.two = RoundedConv(channels, channels, 3, signed=True)
        self.sum = Rounded(signed=True)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.sum(x + self.two(self.one(x)))
        return made


class Restore(nn.Module):
    """What a picture would be without the noise that it is told of, all colours together.

    At half the size nothing is rounded: in the steps of loud noise faint noise would be lost.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = _RESTORING
        self.into = _conv(12 + 2 * MIXED_BANDS, sizes[0])
        self.entered = Rounded(signed=True)
        self.down = nn.ModuleList(
            RoundedConv(a, b, 2, stride=2, signed=True) for a, b in pairwise(sizes)
        )
        self.up = nn.ModuleList(RoundedConv(b, a, 1, signed=True) for a, b in pairwise(sizes))
        self.joined = nn.ModuleList(Rounded(signed=True) for _ in sizes[1:-1])
        self.before, self.after = (
            nn.ModuleList(
                nn.Sequential(*((_RoundedBlock if i else _Block)(n) for _ in range(2)))
                for i, n in enumerate(levels)
            )
            for levels in (sizes, sizes[:-1])
        )
        self.out = _conv(sizes[0], 12)
        nn.init.zeros_(self.out.bias)

    def forward(self, picture: Tensor, noise: Tensor) -> Tensor:
        """Restore (N, 3, H, W), told its noise (N, 2 bands, H/2, W/2): in luminance, in colours.

        Where there is none nothing is changed.
        """
        folded = F.pixel_unshuffle(picture, 2)
        x = self.before[0](self.into(torch.cat([folded - 0.5, 10 * noise], 1)))
        kept = [x]
        x = self.entered(x)
        for down, before in zip(self.down, self.before[1:], strict=True):
            x = before(down(x))
            kept.append(x)
        for i in reversed(range(len(self.up))):
            up = self.up[i]
            x = kept[i] + up.made.planes(F.interpolate(up.steps(x), scale_factor=2.0))
            x = self.after[i](self.joined[i - 1](x) if i else x)
        strength = noise.square().sum(1, keepdim=True).sqrt()
        return picture - F.pixel_shuffle(self.out(x) * strength, 2)


class Networks(nn.Module):
    """All networks of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.compare, self.relate = Filter(), Compare(), Relate()
        self.look, self.share = Look(self.relate), Share()
        self.weigh = Weigh(self.look, self.share)
        self.border, self.restore = Border(self.weigh), Restore()
