"""What a step of training is: some stacks, and how far the networks are off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.training.told import (
    frames_told,
    mixed,
    noise_levels,
    split,
)
from cofuse.learning.world import Scenes, World
from cofuse.mixing import MIXED_BANDS
from cofuse.model.network import Networks

__all__ = [
    "Stacks",
    "drawn",
    "turned",
    "weighing_loss",
    "weights_of",
]

#: Part of the noise left in a mixture that counts: the rest is what restoring takes out of it.
_NOISE_COUNTS = 0.25
#: How much detail counts that is not as in the truth, by how much of it is around.
_DETAIL_COUNTS = 0.3
#: Detail, 0 to 1, below which a difference no longer counts the more the fainter it is.
_FAINT = 0.006
#: Squared errors below this, 0.4 grey levels, are as good as none.
_SMALL_ERROR = 3e-6


def weights_of(
    networks: Networks, frames: Tensor, levels: Tensor, floor: Tensor, reference: Tensor
) -> Tensor:
    """Weigh frames (B, K, 3, H, W): (B, K, bands, H, W), adding up to 1 over the frames."""
    batch, count = frames.shape[:2]
    folded, *features = networks.look(*frames_told(frames, levels, floor, reference))
    pooled = []
    for feature in features:
        of_stack = feature.view(batch, count, *feature.shape[1:])
        pooled.append(torch.cat([of_stack.mean(1), of_stack.amax(1)], 1))
    shared = [
        plane[:, None].expand(-1, count, -1, -1, -1).flatten(0, 1)
        for plane in networks.share(*pooled)
    ]
    scores = networks.weigh(folded, *features, *shared)
    return scores.float().view(batch, count, MIXED_BANDS, *scores.shape[2:]).softmax(1)


@dataclass(frozen=True)
class Stacks:
    """Scenes, and the levels of their noise."""

    scenes: Scenes
    levels: Tensor


def drawn(world: World, batch: int, frames: int, size: int) -> Stacks:
    """Draw stacks, and tell what an estimate would say of their noise."""
    scenes = world.draw(batch, frames, size)
    noise = scenes.frames - scenes.clean
    return Stacks(scenes, noise_levels(world.chance, noise, scenes.clean, scenes.floor))


def turned(stacks: Stacks, world: World, parts: int) -> Iterator[Stacks]:
    """Use stacks twice, in parts, flipped and turned: drawing them takes longer than a step."""
    for _ in range(2):
        for part in range(parts):
            flips = [axis for axis in (-1, -2) if world.chance.happens(0.5)]
            swap = world.chance.happens(0.5)

            def laid(
                planes: Tensor, flips: list[int] = flips, swap: bool = swap, part: int = part
            ) -> Tensor:
                planes = planes[part::parts]
                planes = planes.flip(flips) if flips else planes
                return planes.transpose(-1, -2) if swap else planes

            s = stacks.scenes
            scenes = replace(
                s,
                frames=laid(s.frames),
                clean=laid(s.clean),
                truth=laid(s.truth),
                reference=s.reference[part::parts],
                floor=s.floor[part::parts],
            )
            yield Stacks(scenes, stacks.levels[part::parts])


def weighing_loss(networks: Networks, stacks: Stacks) -> Tensor:
    """How far mixtures are off: in detail, in all, and in the noise left in them."""
    s = stacks.scenes
    with torch.autocast(s.frames.device.type, torch.bfloat16, enabled=s.frames.is_cuda):
        weights = weights_of(networks, s.frames, stacks.levels, s.floor, s.reference)
    bands = mixed(s.clean, weights)
    noise = sum(mixed(s.frames - s.clean, weights))
    error = (sum(bands) - s.truth).square().mean((1, 2, 3))
    assert isinstance(noise, Tensor)
    error = error + _NOISE_COUNTS * noise.square().mean((1, 2, 3))
    loss = torch.log(error + _SMALL_ERROR).mean()
    for ours, true in zip(bands[:-1], split(s.truth)[:-1], strict=True):
        off = F.avg_pool2d((ours - true).abs().mean(1, keepdim=True), 9, 4)
        there = F.avg_pool2d(true.abs().mean(1, keepdim=True), 9, 4)
        loss = loss + _DETAIL_COUNTS * (off / (there + _FAINT)).mean()
    return loss
