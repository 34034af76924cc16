"""Frames that differ in place and brightness, and what an aligner makes of them.

A frame sees the scene from elsewhere: breathing changes the scale, a hand the place, and near
things shift against far ones. The aligner undoes scale and shift by resampling the frame, noise
and all; what it leaves is a residue of some tenths of a pixel to some pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance
from cofuse.learning.world.drawing import places

#: Largest shift that resampling undoes, in pixels: less than the margin of a canvas.
_MOST_MOVED = 5.0
#: Largest residue of an alignment, about, in pixels.
_LARGEST_RESIDUE = 2.0


@dataclass(frozen=True)
class Motion:
    """How B x K frames lie; the reference's numbers are all 0.

    ``zoom`` (B, K) and ``shift`` (B, K, 2) were undone by resampling; ``residue`` (B, K, 2, H, W)
    was not, nor was ``parallax`` (B, K, 2), pixels from the nearest to the farthest.
    """

    zoom: Tensor
    shift: Tensor
    residue: Tensor
    parallax: Tensor
    resampled: bool

    @staticmethod
    def draw(
        chance: Chance, reference: Tensor, frames: int, side: int, *, resampled: bool
    ) -> Motion:
        """Draw the motion of frames about each picture's reference (B,)."""
        batch = len(reference)
        size = chance.log_number(0.1, _LARGEST_RESIDUE)
        moves = (torch.arange(frames, device=chance.device) != reference[:, None]).float()
        amount = size * chance.uniform(batch, 1) * moves
        y, x = places(side, chance.device)
        scale = chance.normal(batch * frames, 1, 1, 1) * 2 / side
        turn = chance.normal(batch * frames, 1, 1, 1) / side
        centre = 0.5 * side * chance.normal(batch * frames, 2, 1, 1)
        y, x = y + centre[:, :1], x + centre[:, 1:]
        field = torch.cat([scale * x - turn * y, scale * y + turn * x], 1)
        local = chance.field(2 * batch * frames, chance.whole(2, 5), side)
        field = 0.3 * field + 0.5 * local.view_as(field) * chance.number(0, 1)
        field = field + 0.4 * chance.normal(batch * frames, 2, 1, 1)
        field = field.view(batch, frames, 2, side, side) * amount[..., None, None, None]
        undone = moves * float(resampled)
        return Motion(
            zoom=2 * _MOST_MOVED / side * chance.uniform(batch, frames, low=-1) * undone,
            shift=chance.uniform(batch, frames, 2, low=-1) * undone[..., None],
            residue=field,
            parallax=chance.normal(batch, frames, 2) * amount[..., None],
            resampled=resampled,
        )

    def seen(self, planes: Tensor, depth: Tensor) -> Tensor:
        """What sensors see of planes (B, K, C, H, W) at depths (B, H, W), 0 to 1."""
        y, x = places(planes.shape[-1], planes.device)
        left, zoom = self._left(depth), 1 + self.zoom[..., None, None]
        down = (y - self.shift[:, :, 1, None, None]) / zoom + left[:, :, 1]
        right = (x - self.shift[:, :, 0, None, None]) / zoom + left[:, :, 0]
        return warped(planes, right, down)

    def at_its_best(self, planes: Tensor, depth: Tensor, least: Tensor) -> Tensor:
        """Move planes (B, 1, C, H, W) of the truth to where the frames ``least`` show them.

        Nothing but a frame has the detail of a place, and where that lies after alignment it
        stays. Were the truth elsewhere, a blur of all frames would be nearest to it.
        """
        y, x = places(planes.shape[-1], planes.device)
        left = self._left(depth).gather(1, least[:, :, None].expand(-1, -1, 2, -1, -1))
        return warped(planes, x + left[:, :, 0], y + left[:, :, 1])

    def _left(self, depth: Tensor) -> Tensor:
        """Pixels right and down, (B, K, 2, H, W), that alignment leaves at depths (B, H, W)."""
        return self.residue + self.parallax[..., None, None] * (depth[:, None, None] - 0.5)

    def aligned(self, frames: Tensor) -> Tensor:
        """Resample frames (B, K, C, H, W) as an aligner does."""
        if not self.resampled:
            return frames
        y, x = places(frames.shape[-1], frames.device)
        zoom = 1 + self.zoom[..., None, None]
        shift = self.shift[..., None, None]
        moved = warped(frames, x * zoom + shift[:, :, 0], y * zoom + shift[:, :, 1])
        # The reference is not resampled; bicubic weights at whole pixels are 1 but for rounding.
        still = (self.zoom == 0)[..., None, None, None]
        return torch.where(still, frames, moved)


def warped(planes: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Take planes (B, K, C, H, W) at places (B, K, H, W) in pixels from the middle."""
    grid = torch.stack(torch.broadcast_tensors(x, y), -1) / (planes.shape[-1] / 2)
    moved = F.grid_sample(
        planes.flatten(0, 1),
        grid.flatten(0, 1),
        mode="bicubic",
        padding_mode="reflection",
        align_corners=False,
    )
    return moved.view_as(planes)


#: Part of white from which on the aligner leads a highlight back to its own value.
_HIGHLIGHT = 0.9


def vignette(chance: Chance, batch: int, side: int) -> Tensor:
    """Light (B, 1, H, W) that falls off from somewhere, for the picture may be a part of one."""
    y, x = places(side, chance.device)
    y, x = (p / side - chance.uniform(batch, 1, 1, low=-1) for p in (y, x))
    fall = 0.35 * chance.uniform(batch, 1, 1) * (y.square() + x.square())
    return 1 / (1 + fall).square()[:, None]


@dataclass(frozen=True)
class Exposure:
    """Light of B x K frames in parts of the reference's, (B, K, 3, h, w)."""

    gain: Tensor
    reference: Tensor

    @staticmethod
    def draw(chance: Chance, reference: Tensor, frames: int, side: int) -> Exposure:
        """Draw a flicker of some per cent, or gains of up to 30; casts; light that wanders."""
        batch = len(reference)
        # Two frames may be twice as far apart.
        most = 0.04 if chance.happens(0.5) else 0.15
        stops = most * chance.uniform(batch, 1, 1, 1, 1)
        log_gain = stops * chance.uniform(batch, frames, 1, 1, 1, low=-1)
        cast = 0.06 * chance.uniform(batch, 1, 1, 1, 1) * chance.some(0.5, batch, 1, 1, 1, 1)
        log_gain = log_gain + cast * chance.uniform(batch, frames, 3, 1, 1, low=-1)
        if chance.happens(0.3):
            slow = chance.field(batch * frames, 2, side).view(batch, frames, 1, side, side)
            log_gain = log_gain + 0.1 * chance.uniform(batch, 1, 1, 1, 1) * slow
        own = log_gain[torch.arange(batch, device=chance.device), reference]
        return Exposure(torch.exp(log_gain - own[:, None]), reference)

    def corrected(self, chance: Chance, frames: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Make frames (B, K, 3, H, W) as bright as the reference, by a gain of every channel.

        Highlights, which may have been clipped, fade to their own value.
        """
        means = clean.mean((-1, -2), keepdim=True) + 1e-3
        rows = torch.arange(len(frames), device=frames.device)
        gain = means[rows, self.reference][:, None] / means
        others = torch.arange(frames.shape[1], device=frames.device) != self.reference[:, None]
        error = 1 + 0.01 * chance.normal(*frames.shape[:2]) * others
        gain = gain * error[..., None, None, None]

        def apply(values: Tensor) -> Tensor:
            darkest = values.amin(2, keepdim=True)
            fade = ((darkest - _HIGHLIGHT) / (1 - _HIGHLIGHT)).clamp(0, 1)
            fade = fade * fade * (3 - 2 * fade)
            return (values * (gain + (1 - gain).clamp_min(0) * fade)).clamp(0, 1)

        return apply(frames), apply(clean)
