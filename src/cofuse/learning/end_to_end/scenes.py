"""Defocus stacks made on the fly, in batches, from sharp pictures.

Three kinds of scenes: layers and their coverage, blurred and laid over each other back to front as
in `cofuse.simulation`; surfaces whose depth changes smoothly; regions cut by masks with hard edges
and no spread. Blur is up to 64 pixels wide, by discs or Gaussians, and may run into a black
surround at the picture's border. Some places are in focus in no frame: the truth there is what the
least blurred frame shows. Frames may be a little shifted, and brighter or darker than the others.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.end_to_end.jpeg import compress

__all__ = ["SceneMaker", "Scenes"]

#: Pixels around the picture that blur may reach into: the radius of the widest.
_MARGIN = 64
#: Pixels that scenes are larger than the stacks cut from them, so that cuts may lie anywhere.
_SPARE = 32
#: Blur radii between which that of a surface with smooth depth is interpolated.
_RADII = (0.0, 0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 48.0)


@dataclass
class Scenes:
    """A batch of stacks without noise (B, K, H, W), their truth and each pixel's blur radius."""

    frames: Tensor
    truth: Tensor
    radius: Tensor


class SceneMaker:
    """Draws batches of scenes from pictures (N, H, W) of grey levels."""

    def __init__(self, pictures: Tensor, *, seed: int) -> None:
        self.pictures = pictures
        self.device = pictures.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        # Choices for a whole batch are drawn on the host, where reading them costs nothing.
        self.host = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers from 0 to 1 on the device."""
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        """Gaussian numbers on the device."""
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def number(self, low: float, high: float) -> float:
        """One number for the batch."""
        return low + (high - low) * float(torch.rand((), generator=self.host))

    def whole(self, low: int, high: int) -> int:
        """One whole number, ``high`` included, for the batch."""
        return int(torch.randint(low, high + 1, (), generator=self.host))

    def chance(self, probability: float) -> bool:
        """One decision for the batch."""
        return self.number(0.0, 1.0) < probability

    def draw(self, batch: int, frames: int, *, side: int) -> Scenes:
        """Make a batch of stacks, cut to ``side`` pixels at a random place of the scene."""
        size = min(side + _SPARE, self.pictures.shape[-1])
        scene, texture = self.take_pictures(batch, size), self.take_pictures(batch, size)
        kind = self.number(0.0, 1.0)
        if kind < 0.35:
            scenes = self.masked(scene, frames)
        elif kind < 0.6:
            scenes = self.curved(scene, frames)
        else:
            scenes = self.layered(scene, texture, frames)
        top, left = self.cut_at(size - side), self.cut_at(size - side)
        if frames == 1:
            # A single frame has nothing to be fused with; blur in it is not to be undone.
            scenes = Scenes(scenes.truth[:, None], scenes.truth, torch.zeros_like(scenes.radius))
        stacks = scenes.frames
        if frames > 1 and self.chance(0.2):
            stacks = self.misaligned(stacks)
        if frames > 2 and self.chance(0.2):
            stacks = self.with_passer_by(stacks, texture)
        if frames > 1 and self.chance(0.3):
            spread = 0.2 if self.chance(0.5) else 0.06
            stacks = stacks * (1.0 + spread * (self.uniform(batch, frames, 1, 1) - 0.5))

        def cut(values: Tensor) -> Tensor:
            return values[..., top : top + side, left : left + side].contiguous()

        return Scenes(cut(stacks), cut(scenes.truth), cut(scenes.radius))

    def cut_at(self, spare: int) -> int:
        """Where a cut starts: often at a border, for borders are seldom met otherwise."""
        return self.whole(0, 1) * spare if self.chance(0.6) else self.whole(0, spare)

    def take_pictures(self, batch: int, size: int) -> Tensor:
        """Cut squares out of pictures and scale them to ``size`` pixels; mirror and turn them.

        Some are enlarged, as soft as pictures with more pixels than detail; contrast varies.
        """
        count, height, width = self.pictures.shape
        cut, enlarged = size, self.chance(0.4)
        if enlarged:
            cut = round(size / math.exp(self.number(0.1, math.log(4.0))))
        elif self.chance(0.5):
            cut = round(size * self.number(1.0, 2.0))
        cut = min(cut, height, width)
        index = torch.randint(count, (batch,), generator=self.host).tolist()
        places = [(self.whole(0, height - cut), self.whole(0, width - cut)) for _ in index]
        picked = torch.stack(
            [
                self.pictures[number, top : top + cut, left : left + cut]
                for number, (top, left) in zip(index, places, strict=True)
            ]
        )
        if cut != size:
            picked = F.interpolate(
                picked[:, None],
                (size, size),
                mode="bicubic",
                align_corners=False,
                antialias=cut > size,
            )[:, 0].clamp(0.0, 255.0)
        if self.chance(0.5):
            picked = picked.flip(2)
        if self.chance(0.5):
            picked = picked.flip(1)
        if self.chance(0.5):
            picked = picked.transpose(1, 2)
        contrast = 1.0 - 0.5 * self.uniform(batch, 1, 1) * (self.uniform(batch, 1, 1) < 0.5)
        mean = picked.mean((1, 2), keepdim=True)
        return mean + contrast * (picked - mean)

    def focus(self, batch: int, frames: int) -> Tensor:
        """Depths in focus, one a frame, (B, K)."""
        if frames == 1:
            return self.uniform(batch, 1)
        even = torch.linspace(0.0, 1.0, frames, device=self.device)
        return even + (self.uniform(batch, frames) - 0.5) * 0.3 / frames

    def depths(self, batch: int, layers: int, focus: Tensor) -> Tensor:
        """Depths of layers from back to front (B, L), often each in a plane that is in focus."""
        depth = self.uniform(batch, layers).sort(1).values
        depth = (depth - depth[:, :1]) / (depth[:, -1:] - depth[:, :1]).clamp_min(1e-3)
        nearest = (depth[:, :, None] - focus[:, None]).abs().argmin(2)
        snapped = torch.gather(focus, 1, nearest)
        depth = torch.where(self.uniform(batch, 1) < 0.7, snapped, depth)
        # The ground may lie beyond all planes of focus, and what is nearest before them.
        beyond = self.uniform(batch, 2) * (self.uniform(batch, 2) < 0.25)
        depth[:, 0] -= beyond[:, 0]
        depth[:, -1] += 0.5 * beyond[:, 1]
        return depth

    def blur_radius(self, batch: int) -> Tensor:
        """Largest blur radius of each stack, 1.5 to 64 pixels, small ones as likely as large."""
        return torch.exp(self.uniform(batch, 1, 1) * math.log(64.0 / 1.5)) * 1.5

    def layered(self, scene: Tensor, texture: Tensor, frames: int) -> Scenes:
        """Layers behind each other, each blurred with its coverage."""
        batch, height, width = scene.shape
        behind, objects = self.whole(2, max(3, min(frames, 5))), self.whole(0, 3)
        field = self.outline_field(scene)
        low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
        level = (field - low) / (high - low)
        alphas = [torch.ones_like(scene)]
        alphas += [(level >= index / behind).float() for index in range(1, behind)]
        colours = [scene] * behind
        same = (self.uniform(batch, 1, 1) < 0.3).float()
        for index in range(objects):
            alphas.append(self.blob(scene))
            other = texture.flip(-1) if index % 2 else texture
            colours.append(same * scene + (1.0 - same) * other)
        layers = behind + objects
        focus = self.focus(batch, frames)
        depth = self.depths(batch, layers, focus)
        radii = self.blur_radius(batch) * (depth[:, :, None] - focus[:, None]).abs()
        radii = radii.clamp_max(_MARGIN)
        radius = radii[:, 0, :, None, None].expand(-1, -1, height, width)
        # One frame more than there are shows every layer as the least blurred of them: the truth.
        kernels = self.kernels(torch.cat([radii, radii.amin(2, keepdim=True)], 2), height, width)
        view: Tensor | None = None
        for index, (alpha, colour) in enumerate(zip(alphas, colours, strict=True)):
            cover = blur(surround(alpha), kernels[:, index])
            paint = blur(surround(alpha * colour), kernels[:, index])
            view = paint if view is None else view * (1.0 - cover) + paint
            mine = radii[:, index, :, None, None]
            radius = torch.where(alpha[:, None] > 0.5, mine, radius)
        assert view is not None
        view = inside(view)
        return Scenes(view[:, :-1], view[:, -1], radius)

    def curved(self, scene: Tensor, frames: int) -> Scenes:
        """A surface whose depth changes smoothly, from the picture blurred by several radii."""
        batch, height, width = scene.shape
        field = self.smooth_field(batch, 2, height, width)
        field = field + self.number(0.0, 0.6) * self.smooth_field(batch, 5, height, width)
        low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
        # Wider than the planes of focus in some stacks: the ends are never in focus.
        reach = 1.0 + self.uniform(batch, 1, 1) * (self.uniform(batch, 1, 1) < 0.4)
        depth = 0.5 + reach * ((field - low) / (high - low) - 0.5)
        away = (depth[:, None] - self.focus(batch, frames)[:, :, None, None]).abs()
        # Half a step between planes of focus is not yet seen as blur.
        steps = self.blur_radius(batch)[:, None] * (away - 0.5 / max(frames - 1, 1)).clamp_min(0.0)
        radius = steps.clamp_max(_RADII[-1])
        radii = torch.tensor(_RADII, device=self.device).expand(batch, 1, -1)
        blurred = inside(blur(surround(scene), self.kernels(radii, height, width)[:, 0]))
        place = torch.zeros_like(radius)
        for near, far in itertools.pairwise(_RADII):
            place = place + ((radius - near) / (far - near)).clamp(0.0, 1.0)
        whole = place.floor().clamp_max(len(_RADII) - 2)
        share, first = place - whole, whole.long()
        view = torch.gather(blurred, 1, first) * (1.0 - share)
        view = view + torch.gather(blurred, 1, first + 1) * share
        best = radius.argmin(1, keepdim=True)
        return Scenes(view, torch.gather(view, 1, best)[:, 0], radius)

    def masked(self, scene: Tensor, frames: int) -> Scenes:
        """Regions cut by masks with hard edges, each a copy of the blurred picture."""
        batch, height, width = scene.shape
        regions = max(2, min(frames, 4))
        field = self.outline_field(scene)
        level = field.flatten(1).argsort(1).argsort(1).view_as(field) / field[0].numel()
        region = (level * regions).long().clamp_max(regions - 1)
        if self.chance(0.5):
            blob = self.blob(scene) > 0.5
            region = torch.where(blob, (region + 1) % regions, region)
        region = self.rough(region)
        focus = self.focus(batch, frames)
        depth = torch.linspace(0.0, 1.0, regions, device=self.device).expand(batch, -1)
        nearest = (depth[:, :, None] - focus[:, None]).abs().argmin(2)
        depth = torch.gather(focus, 1, nearest)
        radii = self.blur_radius(batch) * (depth[:, :, None] - focus[:, None]).abs()
        kernels = self.kernels(radii, height, width)
        dark = self.chance(0.5)
        canvas = surround(scene, dark=dark)
        # A mask may be a pixel soft; a dark surround then fades it out at the picture's border.
        soften = self.whole(0, 2) if self.chance(0.5) else 0
        view = torch.zeros(batch, frames, height, width, device=self.device)
        radius, rest = torch.zeros_like(view), torch.ones_like(scene)
        for index in reversed(range(regions)):
            mine = (region == index).float()
            if index and soften:
                mine = mean_filter(mine, 2 * soften + 1, dark=dark)
            elif not index:
                mine = rest
            rest = rest - mine
            size = radii[:, index, :, None, None]
            blurred = inside(blur(canvas, kernels[:, index]))
            # Up to half a pixel the disc is one pixel: what is in focus stays an exact copy.
            blurred = torch.where(size <= 0.5, scene[:, None], blurred)
            view = view + mine[:, None] * blurred
            radius = torch.where(mine[:, None] > 0.5, size, radius)
        return Scenes(view, scene, radius)

    def rough(self, region: Tensor) -> Tensor:
        """Masks are made by hand: some are cut in blocks, are too large, or end before the border.

        Where objects are cut out too large, the frame that shows them sharp is also right around
        them, as it is behind a lens.
        """
        height, width = region.shape[1:]
        mask = region[:, None].float()
        if self.chance(0.3):
            small = F.max_pool2d(mask, 8, ceil_mode=True)
            mask = small.repeat_interleave(8, 2).repeat_interleave(8, 3)[..., :height, :width]
        if self.chance(0.3):
            reach = self.whole(1, 4)
            mask = F.max_pool2d(mask, 2 * reach + 1, 1, reach)
        if self.chance(0.5):
            ends = [self.whole(0, 2) for _ in range(4)]
            inner = mask[..., ends[0] : height - ends[1], ends[2] : width - ends[3]]
            mask = F.pad(inner, (ends[2], ends[3], ends[0], ends[1]))
        return mask[:, 0].long()

    def with_passer_by(self, frames: Tensor, texture: Tensor) -> Tensor:
        """Let something stand in one of the frames that is in no other and not in the truth."""
        batch, count = frames.shape[:2]
        where = torch.randint(count, (batch,), generator=self.generator, device=self.device)
        seen = F.one_hot(where, count).view(batch, count, 1, 1) * self.blob(texture)[:, None]
        return frames * (1.0 - seen) + texture[:, None] * seen

    def misaligned(self, frames: Tensor) -> Tensor:
        """Shift every frame by up to a pixel."""
        batch, count, height, width = frames.shape
        shift = 2.0 * (self.uniform(batch, count, 2, 1, 1) - 0.5)
        theta = torch.zeros(batch * count, 2, 3, device=self.device)
        theta[:, 0, 0] = theta[:, 1, 1] = 1.0
        theta[:, :, 2] = shift.view(-1, 2) * torch.tensor(
            [2.0 / width, 2.0 / height], device=self.device
        )
        grid = F.affine_grid(theta, [batch * count, 1, height, width], align_corners=False)
        moved = F.grid_sample(
            frames.reshape(-1, 1, height, width),
            grid,
            mode="bicubic",
            padding_mode="reflection",
            align_corners=False,
        )
        return moved.view_as(frames)

    def grain(self, batch: int, count: int, height: int, width: int) -> Tensor:
        """Weak noise that nobody tells of, as files have it: up to 3 grey levels, often soft."""
        noise = self.normal(batch * count, 1, height, width)
        soft = F.avg_pool2d(F.avg_pool2d(noise, 2, 1), 2, 1, padding=1)
        soft = soft / soft.std((2, 3), keepdim=True)
        share = self.uniform(batch * count, 1, 1, 1)
        grain = (1.0 - share) * noise + share * soft
        grain = grain.view(batch, count, height, width)
        return 3.0 * self.uniform(batch, 1, 1, 1) * grain

    def compressed(self, frames: Tensor) -> Tensor:
        """Write and read frames as JPEG of some quality, the blocks starting anywhere."""
        corner = self.whole(0, 7), self.whole(0, 7)
        return compress(frames, self.number(60.0, 98.0), corner)

    def outline_field(self, scene: Tensor) -> Tensor:
        """A field whose level lines part the scene; in half of the batches they follow it."""
        batch, height, width = scene.shape
        field = self.smooth_field(batch, 4, height, width)
        field = field + 0.4 * self.smooth_field(batch, 9, height, width)
        if self.chance(0.5):
            coarse = F.avg_pool2d(scene[:, None], 7, 1, 3, count_include_pad=False)[:, 0]
            coarse = coarse - coarse.mean((1, 2), keepdim=True)
            coarse = coarse / (coarse.std((1, 2), keepdim=True) + 1.0)
            field = field + 1.5 * self.uniform(batch, 1, 1) * coarse
        return field

    def smooth_field(self, batch: int, knots: int, height: int, width: int) -> Tensor:
        """A smooth random field through a grid of knots."""
        grid = self.normal(batch, 1, knots, knots)
        return F.interpolate(grid, (height, width), mode="bicubic", align_corners=True)[:, 0]

    def blob(self, scene: Tensor) -> Tensor:
        """The coverage of an object, its rim a pixel soft: wavy, cut from a field, or hairs."""
        batch, height, width = scene.shape
        small = min(height, width)
        y = torch.arange(height, device=self.device).view(1, -1, 1)
        x = torch.arange(width, device=self.device).view(1, 1, -1)
        y = y - (0.1 + 0.8 * self.uniform(batch, 1, 1)) * height
        x = x - (0.1 + 0.8 * self.uniform(batch, 1, 1)) * width
        angle, radius = torch.atan2(y, x), torch.full_like(scene, 1.0)
        for waves in range(2, 7):
            swing = 0.5 * (self.uniform(batch, 1, 1) - 0.5)
            radius = radius + swing * torch.cos(
                waves * angle + 2 * math.pi * self.uniform(batch, 1, 1)
            )
        size = (0.06 + 0.3 * self.uniform(batch, 1, 1)) * small
        star = (size * radius - torch.hypot(y, x) + 0.5).clamp(0.0, 1.0)
        knots = max(6, small // 16)
        field = self.smooth_field(batch, knots, height, width)
        cut = ((field - 1.0 + 0.6 * self.uniform(batch, 1, 1)) * small / knots + 0.5).clamp(0, 1)
        half = 0.5 + 2.0 * self.uniform(batch, 1, 1)
        hairs = (half - self.smooth_field(batch, 4, height, width).abs() * small / 4).clamp(0, 1)
        kind = self.uniform(batch, 1, 1)
        return torch.where(kind < 0.55, star, torch.where(kind < 0.8, cut, hairs))

    def kernels(self, radii: Tensor, height: int, width: int) -> Tensor:
        """Spectra of discs, or in some batches Gaussians, of these radii (B, L, K)."""
        rows, columns = height + 2 * _MARGIN, width + 2 * _MARGIN
        y = torch.arange(rows, device=self.device).float()
        x = torch.arange(columns, device=self.device).float()
        away = torch.hypot(torch.minimum(y, rows - y)[:, None], torch.minimum(x, columns - x))
        radii = radii[..., None, None]
        if self.chance(0.25):
            kernel = torch.exp(-2.0 * (away / radii.clamp_min(0.1)) ** 2)
        else:
            kernel = (radii + 0.5 - away).clamp(0.0, 1.0)
        kernel = torch.where(radii <= 0.5, (away == 0).float(), kernel)
        return torch.fft.rfft2(kernel / kernel.sum((-1, -2), keepdim=True))


def surround(values: Tensor, *, dark: bool = False) -> Tensor:
    """Put a margin around pictures: mirrored, or black."""
    if dark:
        return F.pad(values, (_MARGIN,) * 4)
    return F.pad(values[:, None], (_MARGIN,) * 4, mode="reflect")[:, 0]


def mean_filter(values: Tensor, side: int, *, dark: bool) -> Tensor:
    """Window means; beyond the border there is nothing where it is dark."""
    return F.avg_pool2d(values[:, None], side, 1, side // 2, count_include_pad=dark)[:, 0]


def inside(values: Tensor) -> Tensor:
    """Take the margin off again."""
    return values[..., _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]


def blur(canvas: Tensor, kernels: Tensor) -> Tensor:
    """Blur pictures (B, H, W) by K kernels each, given as spectra."""
    return torch.fft.irfft2(torch.fft.rfft2(canvas)[:, None] * kernels, s=canvas.shape[-2:])
