"""Scenes of cameras, and of collections with a truth: views (B, K + 1, 3, H, W).

Views are what comes to the sensor: K frames and, last, the truth, all in focus. A camera sees
things before a ground in linear light, each blurred with its coverage. Collections are made of one
picture, blurred in a part of each frame: values of files, not light. Their masks have hard edges
and what is sharp is an exact copy; or the blur of every pixel follows a map of depth, whose steps
nothing spreads over.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas
from training.world.drawing import outline
from training.world.frames import Plan
from training.world.lens import Aperture, Layer, Lens, Sweep, blurred, surface
from training.world.pictures import drawn, ground, luminance, photograph


def photographic(plan: Plan) -> Tensor:
    """Draw scenes of a ground and some things before it."""
    canvas, settings = plan.canvas, plan.settings
    lens = Lens(
        plan.torus, plan.largest_blur, soft=settings.soft, sided=0.2, fringed=settings.fringed
    )
    sweep = Sweep(canvas, plan.frames, plan.largest_blur)
    behind = ground(plan.torus, share=settings.drawn)
    relief = luminance(plan.middle(behind)).sqrt()
    depth_behind = surface(canvas, relief) * sweep.depth
    count = canvas.whole(0, settings.objects)
    if count:
        # What lies far behind is never in focus, and as blurred in the last frame as in the first.
        far = sweep.depth + plan.largest_blur * canvas.uniform(0.3) + 0.2 * depth_behind
        depth_behind = torch.where(canvas.some(settings.far_ground), far, depth_behind)
    nearness = canvas.uniform(0, 1, count, 1, 1).sort(1, descending=True).values
    # Of things: colours times coverage, then coverage.
    things: list[Layer] = []
    for index in range(count):
        place = nearness[:, index : index + 1] * sweep.depth
        nearest = sweep.focus.gather(1, (place - sweep.focus).abs().argmin(1, True))
        place = torch.where(canvas.some(0.6), nearest, place)
        planes = _thing(plan.torus, behind)
        # Slanted, or round: its rim lies farther away than its middle.
        slant = surface(canvas, relief) - 0.5
        shape = torch.where(canvas.some(0.5), slant, 1 - plan.middle(_height(planes[:, 3:])))
        reach = sweep.depth * canvas.uniform() * canvas.some(0.7)
        # What stands near the ground keeps light from it.
        dark = canvas.uniform(high=0.8) * canvas.some(0.3)
        way = canvas.whole(-16, 16), canvas.whole(-16, 16)
        behind = behind * (1 - dark * _soft(planes[:, 3:], 3, 2, "bilinear").roll(way, (2, 3)))
        if lens.fringes is not None:
            # The coverage spreads with each colour.
            planes = torch.cat([planes, planes[:, 3:], planes[:, 3:]], 1)
        things.append(Layer(planes, place + 0.7 * reach * shape))

    farthest = sweep.depth + plan.largest_blur
    views = Layer(behind, depth_behind).views(lens, sweep, plan.motion, farthest)
    for thing in things:
        planes = thing.views(lens, sweep, plan.motion, farthest)
        views = views * (1 - planes[:, :, 3:].clamp(0, 1)) + planes[:, :, :3]
    return views.clamp_min(0)


def _thing(canvas: Canvas, behind: Tensor) -> Tensor:
    """Colours times coverage, and coverage (B, 4, N, N), of something before the ground."""
    kind = canvas.pick({"photograph": 0.5, "ground": 0.15, "plain": 0.2, "backlit": 0.15})
    colour = behind.flip(3) if kind == "ground" else ground(canvas, share=0.1)
    cover = outline(canvas, luminance(colour).sqrt())
    if kind == "plain":
        mean = colour.mean((2, 3), keepdim=True)
        colour = mean + 0.2 * (colour - mean)
    if kind == "backlit":
        colour = colour * canvas.log_uniform(0.02, 0.3)
    if canvas.happens(0.6):
        # Light from one side, or from behind: the rim is darker, or brighter.
        height = _height(cover)
        lit = torch.exp(canvas.uniform(-2.0, 1.0) * (1 - height))
        slope = height - height.roll((-9, 7), (2, 3))
        colour = colour * lit * (1 + 2 * canvas.normal() * slope).clamp(0.2, 3)
    return torch.cat([colour.clamp_min(0) * cover, cover], 1)


def _soft(cover: Tensor, box: int, times: int, mode: str) -> Tensor:
    """A soft copy of a coverage (B, 1, N, N), by boxes of ``box`` times 8 pixels."""
    small = F.avg_pool2d(cover, 8)
    for _ in range(times):
        small = F.avg_pool2d(small, box, 1, box // 2, count_include_pad=False)
    return F.interpolate(small, cover.shape[-2:], mode=mode)


def _height(cover: Tensor) -> Tensor:
    """A round body (B, 1, N, N) of height 0 to 1 over its coverage."""
    return (2 * _soft(cover, 5, 3, "bicubic") - 1).clamp(0, 1).sqrt()


def masked(plan: Plan) -> Tensor:
    """Draw frames that are each sharp in a region of their own and blurred elsewhere."""
    canvas, frames = plan.canvas, plan.frames
    picture = _picture(plan.torus)
    region = _regions(plan, picture)
    gaussian = canvas.happens(0.6)
    aperture = Aperture(plan.torus, gaussian=float(gaussian))
    # Standard deviations of 1 to 12 pixels, or discs of these radii.
    kernel = aperture.kernel(canvas.log_uniform(1.0, 12.0) * (2.0 if gaussian else 1.0))
    # Some tools blur as if it were dark beyond the border, half of whose light is lost.
    lit = plan.lit(picture) if canvas.happens(0.5) else picture
    soft, sharp = plan.middle(blurred(lit, kernel)).clamp(0, 1), plan.middle(picture)
    # In some collections every other frame is sharp there, in others one alone.
    one_blurred = frames > 2 and canvas.happens(0.3)
    number = torch.arange(frames, device=canvas.device)[:, None, None]
    mine = ((region == number) != one_blurred) | (frames == 1)
    views = torch.where(mine[:, :, None], sharp[:, None], soft[:, None])
    return torch.cat([views, sharp[:, None]], 1)


def _regions(plan: Plan, picture: Tensor) -> Tensor:
    """Number (B, 1, H, W) of the frame that is sharp at each place."""
    canvas, frames, grey = plan.canvas, plan.frames, luminance(picture)
    if frames == 2 and canvas.happens(0.7):
        mask = (plan.middle(outline(plan.torus, grey)) > 0.5).float()
    else:
        field = surface(canvas, F.avg_pool2d(plan.middle(grey), 7, 1, 3))
        rank = field.flatten(1).argsort(1).argsort(1).view_as(field)
        mask = (rank * frames).div(rank[0].numel(), rounding_mode="floor").float()
    if canvas.happens(0.15):
        block = canvas.pick({4: 1, 8: 1, 16: 1})
        mask = F.max_pool2d(mask, block, ceil_mode=True)
        mask = F.interpolate(mask, scale_factor=float(block))[..., : canvas.side, : canvas.side]
    return mask


def mapped(plan: Plan) -> Tensor:
    """Draw frames whose every pixel is blurred after its depth."""
    canvas, largest = plan.canvas, min(plan.largest_blur, 16.0)
    picture = _picture(plan.torus)
    sweep = Sweep(canvas, plan.frames, largest)
    depth = surface(canvas, luminance(plan.middle(picture)))
    for _ in range(canvas.whole(1, 3)):
        thing = plan.middle(outline(plan.torus, luminance(picture))) > 0.5
        depth = torch.where(thing, canvas.uniform() + 0.2 * depth, depth)
    if canvas.happens(0.4):
        levels = canvas.whole(2, 12)
        depth = (depth * levels).round() / levels
    lens = Lens(plan.torus, largest, gaussian=0.6)
    return Layer(picture, depth.clamp(0, 1) * sweep.depth).views(lens, sweep).clamp(0, 1)


def _picture(canvas: Canvas) -> Tensor:
    """Display values (B, 3, N, N), mostly of photographs as they are."""
    return drawn(canvas) if canvas.happens(0.1) else photograph(canvas)
