"""The joint model in torch, for training: frames and their noise in, one restored picture out.

`cofuse.joint` holds its sizes and files; `cofuse.kernels` runs it without this module, in NumPy
(`joint_reference`), compiled and on devices, and tests hold all of them together.

The model has two parts. The *weigher* looks at the analysis coefficients of every frame beside
those of their mean, on five scales, and gives every pixel of every frame one score for being the
sharp one and one for each of three bands of frequency. The frames are mixed band by band with
these scores, so that everything in which they agree is averaged. The *stages* then descend an
unrolled analysis-operator energy with a flexible penalty,

    x ← x − Ω_tᵀ φ_t(Ω_t x) − β_t (x − y),    φ(u) = A u Σ_j a_j / (1 + (u/b_j)²),

where y is the mixture and A and b depend on the noise that the mixture has left in it. Half way,
the frames are weighed again by how well they agree with the picture so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cofuse.joint import (
    AGREEMENT_SCALES,
    BAND_WINDOWS,
    BANDS,
    DETAIL_CHANNELS,
    DETAIL_FILTERS,
    GUIDES,
    LEVEL_CHANNELS,
    PENALTIES,
    REWEIGH_BEFORE,
)

__all__ = ["JointNetwork", "Mixture", "Output"]


@dataclass
class Mixture:
    """Frames mixed: the picture, and log noise (of the stack's) in its finest and coarsest band."""

    picture: Tensor
    fine: Tensor
    coarse: Tensor


@dataclass
class Output:
    """What the network makes of a stack: scores (B, K, H, W), pictures (B, H, W) in grey levels."""

    choice: Tensor
    mixed: Tensor
    restored: Tensor


def box(values: Tensor, side: int) -> Tensor:
    """Window means of the last two axes, borders mirrored."""
    reach = side // 2
    flat = F.pad(values.reshape(-1, 1, *values.shape[-2:]), (reach,) * 4, mode="reflect")
    rows = F.avg_pool2d(flat, (side, 1), 1)
    return F.avg_pool2d(rows, (1, side), 1).reshape(values.shape)


def compress(squares: Tensor) -> Tensor:
    """Tame energies over many magnitudes, as a logarithm would: 2 (1 + q)^(1/8) − 2."""
    return 2.0 * (1.0 + squares).sqrt().sqrt().sqrt() - 2.0


def mean_free(filters: Tensor) -> Tensor:
    """Take the mean out of every filter."""
    return filters - filters.mean((-2, -1), keepdim=True)


class Convolution(nn.Module):
    """A convolution whose border repeats the outermost values."""

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(outputs, inputs, side, side) * math.sqrt(1.0 / (inputs * side * side))
        )
        self.reach = side // 2

    def forward(self, x: Tensor) -> Tensor:
        if self.reach:
            x = F.pad(x, (self.reach,) * 4, mode="replicate")
        return F.conv2d(x, self.weight)


class Level(nn.Module):
    """One scale of the weigher: how it is made from the finer one, and how it answers."""

    def __init__(self, finer: int | None, channels: int, coarser: int | None) -> None:
        super().__init__()
        self.descend = Convolution(finer, channels, 3) if finer else None
        self.descend_bias = nn.Parameter(torch.zeros(channels))
        self.own = Convolution(channels, channels, 3)
        self.shared = Convolution(2 * channels, channels, 1)
        self.ascend = Convolution(coarser, channels, 1) if coarser else None
        self.smooth = Convolution(channels, channels, 3)
        self.own_bias = nn.Parameter(torch.zeros(channels))
        self.noise_bias = nn.Parameter(torch.zeros(channels))
        self.smooth_bias = nn.Parameter(torch.zeros(channels))


def _per_channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


class Weigher(nn.Module):
    """Scores of every frame at every pixel: one for the choice and one a band."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        first = LEVEL_CHANNELS[0]
        self.analysis = nn.Parameter(torch.randn(first, 2, 8, 8) / 8.0)
        self.analysis_bias = nn.Parameter(torch.zeros(3, first))
        pairs = zip(
            (None, *LEVEL_CHANNELS[:-1]), LEVEL_CHANNELS, (*LEVEL_CHANNELS[1:], None), strict=True
        )
        self.levels = nn.ModuleList(Level(*sizes) for sizes in pairs)
        self.rise = Convolution(first, 4 * DETAIL_CHANNELS, 3)
        self.rise_bias = nn.Parameter(torch.zeros(4 * DETAIL_CHANNELS))
        self.detail = nn.Parameter(torch.randn(DETAIL_FILTERS, 2, 5, 5) / 5.0)
        self.detail_bias = nn.Parameter(torch.zeros(3, DETAIL_FILTERS))
        self.place = Convolution(DETAIL_CHANNELS + DETAIL_FILTERS, DETAIL_CHANNELS, 3)
        self.place_bias = nn.Parameter(torch.zeros(DETAIL_CHANNELS))
        self.answer = Convolution(DETAIL_CHANNELS, 1 + BANDS, 1)
        self.guide = nn.Parameter(torch.zeros(4 * GUIDES * stages, 2 * first, 1, 1))

    def forward(self, frames: Tensor, unit: Tensor, relative: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh frames (B, K, H, W) in units of noise.

        Returns scores (B, K, 1 + bands, H, W) and the stages' guides (B, stages, guides, H, W).
        """
        batch, count, height, width = frames.shape
        rows, columns = -height % 32, -width % 32
        padded = F.pad(frames, (0, columns, 0, rows), mode="replicate")
        pairs = torch.stack([padded, padded.mean(1, keepdim=True).expand_as(padded)], 2)
        pairs = pairs.flatten(0, 1)
        log_unit = unit.log().view(-1, 1).expand(batch, count).reshape(-1, 1)
        log_relative = relative.log().reshape(-1, 1)

        def analyse(filters: Tensor, bias: Tensor, reach: int, stride: int) -> Tensor:
            signal = F.pad(pairs, (reach,) * 4, mode="replicate")
            squares = F.conv2d(signal, mean_free(filters), stride=stride).square()
            shift = bias[0] + bias[1] * log_unit + bias[2] * log_relative
            return F.relu(compress(squares) + shift[..., None, None])

        features = [analyse(self.analysis, self.analysis_bias, 3, 2)]
        for level in self.levels[1:]:
            finer = F.avg_pool2d(features[-1], 2)
            features.append(F.relu(level.descend(finer) + _per_channel(level.descend_bias)))
        answer: Tensor | None = None
        for level, own in zip(reversed(self.levels), reversed(features), strict=True):
            frames_apart = own.view(batch, count, *own.shape[1:])
            pooled = torch.cat([frames_apart.mean(1), frames_apart.amax(1)], 1)
            shared = level.shared(pooled)[:, None].expand(-1, count, -1, -1, -1).flatten(0, 1)
            total = level.own(own) + shared + _per_channel(level.own_bias)
            total = total + (level.noise_bias * log_unit)[..., None, None]
            if answer is not None:
                total = total + F.interpolate(
                    level.ascend(answer), scale_factor=2, mode="bilinear", align_corners=False
                )
            smooth = level.smooth(F.relu(total)) + _per_channel(level.smooth_bias)
            answer = F.relu(smooth)
        assert answer is not None
        risen = F.relu(self.rise(answer) + _per_channel(self.rise_bias))
        detail = analyse(self.detail, self.detail_bias, 2, 1)
        placed = self.place(torch.cat([F.pixel_shuffle(risen, 2), detail], 1))
        placed = F.relu(placed + _per_channel(self.place_bias))
        scores = self.answer(placed)[..., :height, :width]
        frames_apart = answer.view(batch, count, *answer.shape[1:])
        pooled = torch.cat([frames_apart.mean(1), frames_apart.amax(1)], 1)
        guides = F.pixel_shuffle(F.conv2d(pooled, self.guide), 2)[..., :height, :width]
        return (
            scores.reshape(batch, count, 1 + BANDS, height, width),
            guides.reshape(batch, -1, GUIDES, height, width),
        )


class Agreement(nn.Module):
    """Corrections of the bands' scores from how well each frame agrees with the picture so far."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        measures = len(AGREEMENT_SCALES) + 1
        self.hidden = Convolution(1 + BANDS + 2 * measures, hidden, 1)
        self.hidden_bias = nn.Parameter(torch.zeros(hidden))
        self.correction = nn.Parameter(torch.zeros(BANDS, hidden, 1, 1))

    def forward(self, frames: Tensor, picture: Tensor, scores: Tensor) -> Tensor:
        residual = picture[:, None] - frames
        measures = []
        for smooth, window in AGREEMENT_SCALES:
            low = box(residual, smooth) if smooth > 1 else residual
            measures.append(compress(box(low * low, window) * smooth**2))
        # How much of the picture's detail a frame lacks: above 0 it is blurrier, below sharper.
        detail = (picture - box(picture, 5))[:, None]
        measures.append(box(residual * detail, 9) / (box(detail * detail, 9) + 0.3))
        absolute = torch.stack(measures, 2)
        relative = absolute - absolute.mean(1, keepdim=True)
        inputs = torch.cat([scores, absolute, relative], 2).flatten(0, 1)
        hidden = F.relu(self.hidden(inputs) + _per_channel(self.hidden_bias))
        return F.conv2d(hidden, self.correction).view(*scores.shape[:2], BANDS, *scores.shape[3:])


class Bank(nn.Module):
    """An analysis operator with the slope of its penalty."""

    def __init__(self, filters: int, side: int = 7) -> None:
        super().__init__()
        basis = torch.cos(
            math.pi * torch.outer(torch.arange(side), 2 * torch.arange(side) + 1) / (2 * side)
        )
        basis = F.normalize(basis, dim=1)
        rows = torch.kron(basis, basis)
        order = torch.arange(side)[:, None] + torch.arange(side)
        rows = rows[order.flatten().argsort(stable=True)][1 : filters + 1]
        rows = torch.cat([rows, 0.1 * torch.randn(filters - len(rows), side * side)])
        self.filters = nn.Parameter(F.normalize(rows, dim=1).view(filters, 1, side, side))
        strength = 0.02 * torch.tensor([1.0, 0.5, 0.25, 0.1])[:PENALTIES, None]
        self.strength = nn.Parameter(strength.repeat(1, filters))
        self.strength_noise = nn.Parameter(torch.zeros(PENALTIES, filters))
        width = torch.tensor([1.0, 3.0, 8.0, 20.0])[:PENALTIES, None].log()
        self.width = nn.Parameter(width.repeat(1, filters))
        self.width_noise = nn.Parameter(torch.zeros(PENALTIES, filters))

    def forward(self, x: Tensor, tall: Tensor, narrow: Tensor, log_unit: Tensor) -> Tensor:
        """The pull Ωᵀ φ(Ω x) on pictures (B, H, W), borders mirrored."""
        filters = mean_free(self.filters)
        reach = filters.shape[-1] // 2
        tall, narrow = (
            F.pad(values[:, None], (reach,) * 4, mode="reflect") for values in (tall, narrow)
        )
        u = F.conv2d(F.pad(x[:, None], (2 * reach,) * 4, mode="reflect"), filters)
        log_unit = log_unit.view(-1, 1, 1, 1)
        strength = self.strength[:, None, :, None, None] * torch.exp(
            self.strength_noise[:, None, :, None, None] * log_unit
        )
        inverse_width = torch.exp(
            -2.0 * self.width[:, None, :, None, None]
            - 2.0 * self.width_noise[:, None, :, None, None] * log_unit
        )
        slope = penalty_slope(u, tall, narrow, strength, inverse_width)
        pull = F.conv_transpose2d(slope, filters)
        return pull[:, 0, 2 * reach : -2 * reach, 2 * reach : -2 * reach]


class Stage(nn.Module):
    """One unrolled step: a fine bank on the picture, a coarse one on the picture at half size."""

    def __init__(self, filters: int, coarse_filters: int) -> None:
        super().__init__()
        self.fine = Bank(filters)
        self.coarse = Bank(coarse_filters) if coarse_filters else None
        # Exponents of the noise left by the mixture in its finest and coarsest band.
        self.strength_left = nn.Parameter(torch.zeros(2))
        self.width_left = nn.Parameter(torch.tensor([1.0, 0.0]))
        self.fidelity = nn.Parameter(torch.tensor([-1.0, 0.0, 0.0, 0.0]))

    def forward(self, x: Tensor, mixture: Mixture, log_unit: Tensor, guides: Tensor) -> Tensor:
        """Take one step; pictures are (B, H, W) in units of noise, ``log_unit`` (B,)."""
        fine, coarse = mixture.fine, mixture.coarse
        guides = guides.clamp(-4.0, 4.0)
        tall = self.strength_left[0] * fine + self.strength_left[1] * coarse + guides[:, 0]
        narrow = guides[:, 1] - self.width_left[0] * fine - self.width_left[1] * coarse
        f = self.fidelity
        log_fidelity = f[0] + f[1] * log_unit.view(-1, 1, 1) + f[2] * fine + f[3] * coarse
        step = torch.exp(log_fidelity + guides[:, 2]) * (x - mixture.picture)
        step = step + self.fine(x, tall.exp(), narrow.exp(), log_unit)
        if self.coarse is not None:
            small = (halve(values) for values in (x, tall, narrow))
            x_small, tall, narrow = small
            pull = self.coarse(x_small, tall.exp(), narrow.exp(), log_unit)
            height, width = x.shape[-2:]
            step = (
                step
                + F.interpolate(
                    pull[:, None], scale_factor=2, mode="bilinear", align_corners=False
                )[:, 0, :height, :width]
            )
        return x - step


def halve(picture: Tensor) -> Tensor:
    """Halve the size with the weights 1 3 3 1, the counterpart of doubling it linearly."""
    rows, columns = picture.shape[-2] % 2, picture.shape[-1] % 2
    padded = F.pad(picture[:, None], (1, 1 + columns, 1, 1 + rows), mode="replicate")
    weights = picture.new_tensor([1.0, 3.0, 3.0, 1.0]) / 8.0
    return F.conv2d(padded, torch.outer(weights, weights)[None, None], stride=2)[:, 0]


def penalty_slope(
    u: Tensor, tall: Tensor, narrow: Tensor, strength: Tensor, inverse_width: Tensor
) -> Tensor:
    """φ(u), the slope of a sum of log penalties; ``strength`` etc. are (J, B or 1, h, 1, 1)."""
    squares = (u * narrow) ** 2
    total = strength[0] / (1.0 + squares * inverse_width[0])
    for j in range(1, len(strength)):
        total = total + strength[j] / (1.0 + squares * inverse_width[j])
    return tall * u * total


class JointNetwork(nn.Module):
    """Weigher, stages and the second weighing."""

    def __init__(self, stages: int = 5, filters: int = 64, coarse_filters: int = 24) -> None:
        super().__init__()
        self.weigher = Weigher(stages)
        self.agreement = Agreement()
        self.stages = nn.ModuleList(Stage(filters, coarse_filters) for _ in range(stages))

    def forward(self, frames: Tensor, sigma: Tensor, *, restore: bool = True) -> Output:
        """Fuse frames (B, K, H, W) in grey levels whose noise has ``sigma`` (B, K)."""
        floor = sigma.clamp_min(1.0)
        unit = floor.square().mean(1).sqrt()
        relative = floor / unit[:, None]
        frames = frames / unit.view(-1, 1, 1, 1)
        scores, guides = self.weigher(frames, unit, relative)
        bands = split_bands(frames)
        logits = scores[:, :, 1:]
        mixture = mix(bands, logits, relative)
        scale = unit.view(-1, 1, 1)
        mixed = x = mixture.picture
        if restore:
            log_unit = torch.log(unit / 20.0)
            for index, stage in enumerate(self.stages):
                if index == REWEIGH_BEFORE and frames.shape[1] > 1:
                    mixture = mix(bands, logits + self.agreement(frames, x, scores), relative)
                x = stage(x, mixture, log_unit, guides[:, index])
        return Output(scores[:, :, 0], mixed * scale, x * scale)


def split_bands(frames: Tensor) -> list[Tensor]:
    """Split frames into bands of frequency that add up to them, finest first."""
    bands, rest = [], frames
    for side in BAND_WINDOWS:
        low = box(box(rest, side), side)
        bands.append(rest - low)
        rest = low
    return [*bands, rest]


def mix(bands: list[Tensor], logits: Tensor, relative: Tensor) -> Mixture:
    """Mix frames band by band; ``logits`` (B, K, bands, H, W)."""
    weights = torch.softmax(logits, 1)
    picture = sum((weights[:, :, i] * band).sum(1) for i, band in enumerate(bands))
    assert isinstance(picture, Tensor)
    noise = relative[..., None, None, None]
    left = 0.5 * torch.log(((weights * noise) ** 2).sum(1) + 1e-6)
    return Mixture(picture, left[:, 0], left[:, -1])
