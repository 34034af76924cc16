"""Learning to weigh frames: stacks, their weights, and the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.images.tiles import MULTIPLE
from cofuse.model.network import Networks, amplitude, fine_detail
from cofuse.model.tiling import LEAST_SHARE
from training.bands import mixed, noise_inputs, noise_levels, psnr, split
from training.world.camera import Scenes
from training.world.canvas import Canvas
from training.world.making import World

#: Part of the noise left in a mixture that counts: the rest is what restoring takes out of it.
_NOISE_COUNTS = 0.12
#: Share of the coarse weights' own loss: they must leave no frame out that matters.
_COARSE_COUNTS = 0.3
#: Share of the error in detail, relative to the detail around it.
_DETAIL_COUNTS = 0.3
#: Share of detail that is missing: the mean of a sharp frame and a soft one is not halfway right.
_LOST_COUNTS = 2.0
#: Detail, 0 to 1, that is added to what errors are relative to, so that faint detail counts less.
_FAINT = 0.006
#: Squared errors below this, 0.4 grey levels, are as good as none.
_SMALL_ERROR = 3e-6
#: How often a part of a picture alone is weighed, and its least side in pixels.
_SMALL, _SMALLEST = 0.35, 16


def weights_of(
    networks: Networks, frames: Tensor, levels: Tensor, floor: Tensor
) -> tuple[Tensor, Tensor]:
    """Weigh frames (B, K, 3, H, W): coarse and exact weights (B, K, bands, H, W) of sum 1."""
    count, (height, width) = frames.shape[1], frames.shape[3:]

    def of_stacks(planes: Tensor) -> Tensor:
        return planes.unflatten(0, (-1, count))

    def of_frames(planes: Tensor) -> Tensor:
        return planes.repeat_interleave(count, 0)

    def pooled(planes: Tensor) -> tuple[Tensor, Tensor]:
        every = of_stacks(planes)
        return every.mean(1), every.amax(1)

    light = frames.mean(2).flatten(0, 1)[:, None] - 0.5
    with torch.autocast(light.device.type, enabled=False):
        # Rounded to eight bits, faint detail beside brightness would be lost.
        planes, small = networks.filter(_beyond(light))
        (mean, largest), (mean_light, _) = pooled(planes), pooled(small)
        beside = networks.compare(mean, largest, mean_light, floor[:, None])
        noise = noise_inputs(levels)
        beside_frames = map(of_frames, (largest, *beside))
        features = networks.look(networks.relate(planes, small, *beside_frames, noise))
    shares_of = networks.share(*(torch.cat(pooled(feature), 1) for feature in features))
    rows, columns = (-(-length // 4) for length in light.shape[2:])
    scored = networks.weigh(*features, *map(of_frames, shares_of))
    scores, context = (made[..., :rows, :columns] for made in scored)
    coarse = of_stacks(scores.float()).softmax(1)
    sharing = _larger(shares(coarse))[..., :height, :width]
    detail = fine_detail(light)
    mixture = (sharing * of_stacks(light)).sum(1)
    strength = amplitude((sharing * of_stacks(detail.abs())).sum(1))
    lights = _padded(torch.cat([light, of_frames(mixture)], 1))
    details = _padded(torch.cat([detail, of_frames(strength)], 1))
    exact = networks.border(lights, details, scores, context)[..., :height, :width]
    weights = of_stacks(exact.float()).masked_fill(sharing <= 0, -1e4).softmax(1)
    return _larger(coarse)[..., :height, :width], weights


def shares(coarse: Tensor) -> Tensor:
    """Shares (B, K, 1, h, w) in the mixture to look at, of coarse weights (B, K, bands, h, w).

    Roots of weights: a frame is seen well before it is the best.
    """
    weight = coarse.mean(2, keepdim=True)
    seen = weight.sqrt() * (weight > LEAST_SHARE * weight.amax(1, keepdim=True))
    return seen / seen.sum(1, keepdim=True)


def _beyond(light: Tensor) -> Tensor:
    """Mirror planes (N, 1, H, W) beyond their last row and column, as the program does."""
    for axis in (2, 3):
        length = light.shape[axis]
        place = torch.arange(length + 2 * MULTIPLE + -length % MULTIPLE, device=light.device)
        place = place % (2 * length)  # what is mirrored may be mirrored again
        light = light.index_select(axis, torch.minimum(place, 2 * length - 1 - place))
    return light


def _padded(planes: Tensor) -> Tensor:
    """Lengthen planes (N, C, H, W) by zeros to multiples of 4."""
    down, right = (-length % 4 for length in planes.shape[2:])
    return F.pad(planes, (0, right, 0, down))


def _larger(planes: Tensor) -> Tensor:
    """Enlarge planes (B, K, C, h, w) four times."""
    flat = F.interpolate(planes.flatten(0, 1), scale_factor=4.0, mode="bilinear")
    return flat.unflatten(0, planes.shape[:2])


@dataclass(frozen=True)
class Stacks:
    """Scenes, and the levels (B, K, octaves) of their noise."""

    scenes: Scenes
    levels: Tensor

    @staticmethod
    def draw(world: World, batch: int, frames: int, size: int) -> Stacks:
        """Draw stacks and estimate their noise."""
        scenes = world.draw(batch, frames, size)
        noise = scenes.frames - scenes.clean
        canvas = world.canvas.sized(batch, size)
        return Stacks(scenes, noise_levels(canvas, noise, scenes.clean, scenes.floor))

    def parts(self, canvas: Canvas) -> Iterator[Stacks]:
        """Use stacks twice, each time in two parts, flipped and cut.

        A few rows and columns are cut off because sides need not be multiples of what the networks
        see as one, and most of some pictures, for small ones are weighed like parts of large ones.
        """
        s = self.scenes
        for part in (slice(0, None, 2), slice(1, None, 2)) * 2:
            planes = flipped_alike(canvas, (s.frames[part], s.clean[part], s.truth[part]))
            sides = [length - canvas.whole(0, 3) for length in planes[0].shape[-2:]]
            if canvas.happens(_SMALL):
                sides = [round(canvas.log_number(_SMALLEST, side)) for side in sides]
            frames, clean, truth = (plane[..., -sides[0] :, -sides[1] :] for plane in planes)
            yield Stacks(Scenes(frames, clean, truth, s.floor[part]), self.levels[part])

    def loss(self, networks: Networks) -> Tensor:
        """Loss of the mixtures with the weights that networks give."""
        s = self.scenes
        with torch.autocast(s.frames.device.type, torch.bfloat16, enabled=s.frames.is_cuda):
            coarse, weights = weights_of(networks, s.frames, self.levels, s.floor)
        return mixing_loss(s, coarse, weights)

    def psnr(self, networks: Networks) -> float:
        """Peak signal to noise ratio in dB of the mixtures, without their noise."""
        s = self.scenes
        _, weights = weights_of(networks, s.frames, self.levels, s.floor)
        return psnr(torch.stack(mixed(split(s.clean.flatten(0, 1)), weights)).sum(0), s.truth)


def flipped_alike(canvas: Canvas, planes: Iterable[Tensor]) -> list[Tensor]:
    """Flip and transpose planes (..., H, W) at random, all the same way."""
    flips = [axis for axis in (-1, -2) if canvas.happens(0.5)]
    flipped = [plane.flip(flips) for plane in planes]
    if canvas.happens(0.5):
        return [plane.transpose(-1, -2).contiguous() for plane in flipped]
    return flipped


def mixing_loss(scenes: Scenes, coarse: Tensor, exact: Tensor) -> Tensor:
    """Loss of mixtures: error in all, noise left in them, and error in detail."""
    clean = split(scenes.clean.flatten(0, 1))
    noise = split((scenes.frames - scenes.clean).mean(2, keepdim=True).flatten(0, 1))
    true = split(scenes.truth)
    total = torch.zeros((), device=coarse.device)
    for weights, counts in ((exact, 1.0), (coarse, _COARSE_COUNTS)):
        bands = mixed(clean, weights)
        error = (torch.stack(bands).sum(0) - scenes.truth).square().mean((1, 2, 3))
        remains = torch.stack(mixed(noise, weights)).sum(0).square().mean((1, 2, 3))
        loss = torch.log(error + _NOISE_COUNTS * remains + _SMALL_ERROR).mean()
        for ours, theirs in zip(bands[:-1], true[:-1], strict=True):
            off, left, there = (
                F.avg_pool2d(planes.abs().mean(1, keepdim=True), 9, 4)
                for planes in (ours - theirs, ours, theirs)
            )
            counted = _DETAIL_COUNTS * off + _LOST_COUNTS * (there - left).clamp_min(0)
            loss = loss + (counted / (there + _FAINT)).mean()
        total = total + counts * loss
    return total
