"""Defocus stacks made on the fly, in batches, from sharp pictures.

The scenes are those of `cofuse.simulation` (layers and coverage blurred by a disc, laid over each
other back to front) with more variety: outlines that follow the picture's content, wide blur,
Gaussian kernels, masks with hard edges and no spread, blur that runs into a black surround at the
picture's border, frames a little shifted or brighter than the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["SceneMaker", "Scenes"]

#: Pixels around the picture that blur may reach into; with 180-pixel pictures 224 transform fast.
_MARGIN = 22
#: Quantisation of luminance at quality 50 (ITU-T T.81, Annex K).
_JPEG_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)


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
        """Make a batch of stacks, cut to ``side`` pixels at a random place of the picture."""
        scene, texture = self.take_pictures(batch), self.take_pictures(batch)
        hard = self.chance(0.45)
        scenes = self.masked(scene, frames) if hard else self.layered(scene, texture, frames)
        height, width = scene.shape[1:]
        top, left = self.cut_at(height - side), self.cut_at(width - side)
        if frames == 1:
            # A single frame has nothing to be fused with; blur in it is not to be undone.
            scenes = Scenes(scenes.truth[:, None], scenes.truth, torch.zeros_like(scenes.radius))
        stacks = scenes.frames
        if frames > 1 and self.chance(0.15):
            stacks = self.misaligned(stacks)
        if frames > 2 and self.chance(0.2):
            stacks = self.with_passer_by(stacks, texture)
        if frames > 1 and self.chance(0.15):
            stacks = stacks * (1.0 + 0.06 * (self.uniform(batch, frames, 1, 1) - 0.5))

        def cut(values: Tensor) -> Tensor:
            return values[..., top : top + side, left : left + side].contiguous()

        return Scenes(cut(stacks), cut(scenes.truth), cut(scenes.radius))

    def cut_at(self, spare: int) -> int:
        """Where a cut starts: often at a border, for borders are seldom met otherwise."""
        return self.whole(0, 1) * spare if self.chance(0.6) else self.whole(0, spare)

    def take_pictures(self, batch: int) -> Tensor:
        """Pick pictures; mirror, turn, enlarge them and lower their contrast."""
        index = torch.randint(
            len(self.pictures), (batch,), generator=self.generator, device=self.device
        )
        picked = self.pictures[index]
        if self.chance(0.4):
            height, width = picked.shape[1:]
            zoom = self.number(1.15, 2.0)
            rows, columns = round(height / zoom), round(width / zoom)
            top, left = self.whole(0, height - rows), self.whole(0, width - columns)
            part = picked[:, None, top : top + rows, left : left + columns]
            picked = F.interpolate(part, (height, width), mode="bicubic", align_corners=False)[:, 0]
            picked = picked.clamp(0.0, 255.0)
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
        return torch.where(self.uniform(batch, 1) < 0.7, snapped, depth)

    def blur_radius(self, batch: int) -> Tensor:
        """Largest blur radius of each stack, 1.5 to 16 pixels, small ones as likely as large."""
        return torch.exp(self.uniform(batch, 1, 1) * math.log(16.0 / 1.5)) * 1.5

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
        truth, radius = colours[0], radii[:, 0, :, None, None].expand(-1, -1, height, width)
        view: Tensor | None = None
        kernels = self.kernels(radii, height, width)
        for index, (alpha, colour) in enumerate(zip(alphas, colours, strict=True)):
            cover = blur(surround(alpha), kernels[:, index])
            paint = blur(surround(alpha * colour), kernels[:, index])
            view = paint if view is None else view * (1.0 - cover) + paint
            truth = truth * (1.0 - alpha) + colour * alpha
            mine = radii[:, index, :, None, None]
            radius = torch.where(alpha[:, None] > 0.5, mine, radius)
        assert view is not None
        return Scenes(inside(view), truth, radius)

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
        """Shift every frame by up to 0.7 pixels."""
        batch, count, height, width = frames.shape
        shift = 1.4 * (self.uniform(batch, count, 2, 1, 1) - 0.5)
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

    def compressed(self, frames: Tensor) -> Tensor:
        """Write and read frames as JPEG of some quality, the blocks starting anywhere."""
        height, width = frames.shape[-2:]
        top, left = self.whole(0, 7), self.whole(0, 7)
        flat = frames.reshape(-1, 1, height, width) - 128.0
        flat = F.pad(flat, (left, -(left + width) % 8, top, -(top + height) % 8), mode="replicate")
        rows, columns = flat.shape[-2] // 8, flat.shape[-1] // 8
        blocks = flat.view(-1, rows, 8, columns, 8)
        dct = cosines(8, self.device)
        coefficients = torch.einsum("ui,nrics,vs->nrucv", dct, blocks, dct)
        # Qualities from 60 to 98 by the usual rule.
        steps = torch.tensor(_JPEG_STEPS, device=self.device).float()
        scale = 2.0 - self.number(60.0, 98.0) / 50.0
        steps = (steps * scale).round().clamp_min(1.0)[:, None, :]
        coefficients = (coefficients / steps).round() * steps
        blocks = torch.einsum("ui,nrucv,vs->nrics", dct, coefficients, dct)
        whole = (blocks.reshape(flat.shape) + 128.0).round().clamp(0.0, 255.0)
        return whole[..., top : top + height, left : left + width].reshape(frames.shape)

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
        """The coverage of an object: wavy, or cut from a fine field; its rim one pixel soft."""
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
        return torch.where(self.uniform(batch, 1, 1) < 0.7, star, cut)

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


def cosines(side: int, device: torch.device) -> Tensor:
    """The orthonormal DCT as a matrix."""
    steps = torch.arange(side, device=device)
    matrix = torch.cos(math.pi * torch.outer(steps, 2 * steps + 1) / (2 * side))
    return F.normalize(matrix, dim=1)
