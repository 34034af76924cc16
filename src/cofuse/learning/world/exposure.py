"""Frames of different brightness and colour, and what an aligner makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cofuse.learning.world.chance import Chance
from cofuse.learning.world.drawing import places

__all__ = ["Exposure", "vignette"]

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
        most = chance.pick(flicker=0.5, gains=0.5)
        # Two frames may be twice as far apart.
        stops = (0.04 if most == "flicker" else 0.15) * chance.uniform(batch, 1, 1, 1, 1)
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
