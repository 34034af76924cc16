"""Depth and focus, both in pixels: the radius of the blur is the depth less the focus."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cofuse.learning.world.chance import Chance
from cofuse.learning.world.drawing import places

__all__ = ["Sweep", "least_blurred", "radii", "surface"]


@dataclass(frozen=True)
class Sweep:
    """Focus (B, K) of the frames from near to far, and the depth (B,) of the scene from 0."""

    focus: Tensor
    depth: Tensor

    @staticmethod
    def draw(chance: Chance, batch: int, frames: int, largest: float) -> Sweep:
        """Draw sweeps over scenes of up to ``largest`` pixels of blur.

        Half go from the nearest to the farthest place; others leave some out of focus; others
        are a part of a long sweep in fine steps, of which frames beside each other hardly differ.
        """
        depth = largest * chance.log_uniform(0.3, 1.0, batch)
        whole = chance.some(0.5, batch)
        first = torch.where(whole, 0.0, 0.5 * chance.uniform(batch)) * depth
        last = torch.where(whole, 1.0, 0.5 + 0.5 * chance.uniform(batch)) * depth
        steps = max(frames - 1, 1)
        fine = chance.log_uniform(0.3, 3.0, batch) * steps
        start = chance.uniform(batch) * (depth - fine).clamp_min(0)
        is_fine = chance.some(0.2, batch)
        first = torch.where(is_fine, start, first)
        last = torch.where(is_fine, torch.minimum(start + fine, depth), last)
        place = torch.linspace(0, 1, frames, device=chance.device).expand(batch, -1)
        if frames == 1:
            place = chance.uniform(batch, 1)
        uneven = 0.4 / steps * (chance.uniform(batch, frames) - 0.5)
        focus = first[:, None] + (last - first)[:, None] * (place + uneven)
        # Some frames were taken twice: nothing has moved, only the noise is another.
        twice = chance.some(0.1, batch, 1) & (
            torch.arange(frames, device=chance.device) == chance.index(frames, batch, 1)
        )
        focus = torch.where(twice, focus.roll(1, 1), focus)
        return Sweep(focus.flip(1) if chance.happens(0.3) else focus, depth)

    def nearest(self, depth: Tensor) -> Tensor:
        """The focus of one of the frames that is nearest to these depths (B,)."""
        return self.focus.gather(1, (depth[:, None] - self.focus).abs().argmin(1, True))[:, 0]


def least_blurred(depth: Tensor, focus: Tensor) -> Tensor:
    """Numbers (B, 1, H, W) of the frames that blur depths (B, H, W) least."""
    return (depth[:, None] - focus[..., None, None]).abs().argmin(1, keepdim=True)


def radii(depth: Tensor, focus: Tensor, least: Tensor) -> Tensor:
    """Radii (B, K + 1, H, W), with signs, of depths (B, H, W) in all frames and in the truth.

    The truth shows every place as the frame does that blurs it least.
    """
    apart = depth[:, None] - focus[..., None, None]
    return torch.cat([apart, apart.gather(1, least)], 1)


def surface(chance: Chance, batch: int, side: int, relief: Tensor) -> Tensor:
    """Depth (B, H, W) from 0 to 1 of a slanted, curved, hollow, or rough surface.

    ``relief`` is a picture (B, H, W) that some surfaces rise and fall with.
    """
    y, x = places(side, chance.device)
    turn = chance.uniform(batch, 1, 1, high=2 * math.pi)
    plane = (x * torch.cos(turn) + y * torch.sin(turn)) * 2 / side
    kind = chance.pick(slant=0.35, curved=0.4, hollow=0.15, rough=0.1)
    if kind == "slant":
        depth = plane + 0.2 * chance.uniform(batch, 1, 1) * chance.field(batch, 3, side)
    elif kind == "curved":
        depth = chance.field(batch, 3, side) + chance.normal(batch, 1, 1) * plane
    elif kind == "hollow":
        y, x = (p - 0.3 * side * chance.uniform(batch, 1, 1, low=-1) for p in (y, x))
        away = torch.hypot(y, x * chance.uniform(batch, 1, 1, low=0.5)) / side
        depth = torch.where(chance.some(0.5, batch, 1, 1), away, -away) + 0.2 * plane
    else:
        depth = plane + 0.5 * chance.field(batch, chance.whole(6, 16), side)
    if chance.happens(0.4):
        depth = depth + chance.uniform(batch, 1, 1) * relief
    low, high = depth.amin((1, 2), keepdim=True), depth.amax((1, 2), keepdim=True)
    return (depth - low) / (high - low + 1e-6)
