"""Scenes as a microscope sees them: light through bodies, or from them, that cover nothing.

Transmitted light passes all bodies one after the other, so what each lets through multiplies;
emitted light adds. What is out of focus stays as a haze over all frames.

A body may be too thick to be all in focus: every frame then has its own detail, and a picture with
all of it would be a jumble. The truth is the frame that is liveliest at a place, not the darkest or
the brightest one. Views (B, K + 1, 3, H, W) are those of the frames and, last, of the truth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas, turned
from training.world.drawing import dots, outline, scattered, web
from training.world.frames import Plan, warped
from training.world.lens import Layer, Lens, Sweep, surface
from training.world.pictures import luminance, photograph, texture

#: Side in pixels of the box, passed twice, in which detail is compared.
_WINDOW = 13
#: Power of the energy by which frames are weighed: where one is clearly livelier it is the truth.
#: A mean of two would teach to mix frames that differ.
_POWER = 40
#: Densities of bodies and of nuclei, in red, green and blue.
_STAINS = (
    ((0.10, 0.40, 0.30), (0.9, 1.2, 0.5)),  # eosin and haematoxylin
    ((0.05, 0.35, 0.40), (0.7, 0.9, 0.3)),  # Giemsa
    ((0.30, 0.10, 0.25), (0.5, 0.8, 0.9)),  # green and brown, unstained plants
    ((0.25, 0.25, 0.25), (1.0, 1.0, 1.0)),  # none
)


def specimens(plan: Plan) -> Tensor:
    """Draw scenes of two to four sheets of bodies at their own depths."""
    canvas, torus = plan.canvas, plan.torus
    lens, sweep = _microscope(plan)
    emits = canvas.happens(0.4)
    paint = _emission if emits else canvas.pick({_cells: 0.65, _smear: 0.35})
    least, most = {_emission: (16, 120), _cells: (50, 220), _smear: (18, 90)}[paint]
    tint = torch.tensor(_STAINS, device=canvas.device)[canvas.index(len(_STAINS))]
    stains = tint[..., None, None] * canvas.log_uniform(0.15, 1.5, 2, 1, 1, 1)
    # Bodies of one kind have one size, whatever sheet they lie in.
    apart = canvas.log_number(least, most)
    sheets: list[Tensor] = []
    for _ in range(canvas.whole(1 if paint is _smear else 2, 4)):
        planes = paint(torus, stains, apart)
        slant = (surface(canvas, luminance(plan.middle(planes))) - 0.5) * canvas.uniform()
        sheet = Layer(planes, sweep.depth * (canvas.uniform() + slant))
        sheets.append(sheet.views(lens, sweep, plan.motion, sweep.depth).clamp_min(0))
    lamp = canvas.uniform(0.5, 1.05)[:, None]
    lamp = lamp * (1 + 0.06 * canvas.uniform(-1, 1, 1, 3, 1, 1))
    haze = canvas.log_uniform(0.002, 0.1)[:, None]
    together = torch.stack(sheets)
    return haze + together.sum(0) if emits else lamp * together.prod(0)


def thick(plan: Plan) -> Tensor:
    """Draw bodies of three to five sheets, each with a texture of its own, one behind the other.

    In half of them smaller bodies swim about: every frame has them elsewhere.
    """
    canvas, torus = plan.canvas, plan.torus
    lens, sweep = _microscope(plan)
    grey = luminance(photograph(torus))
    body = outline(torus, grey)
    body = torch.where(canvas.some(0.3), 1.0, body)
    stain = canvas.log_uniform(0.3, 6.0) * canvas.uniform(0.2, 1.0, 3, 1, 1)
    count, shines, swum = canvas.whole(3, 5), canvas.happens(0.3), canvas.happens(0.5)
    sheets: list[Tensor] = []
    for number in range(count + swum):
        swims = number == count
        density = _density(torus)
        bodies = dots(torus, torus.log_number(20, 120), share=0.3)
        if swims:
            density = 1.5 * density * bodies
        else:
            density = density * body + 0.3 * canvas.uniform() * bodies
        planes = stain / count**0.5 * density
        planes = 0.3 * planes if shines else torch.exp(-planes)
        slant = 0.3 * surface(canvas, plan.middle(grey))
        place = canvas.uniform() if swims else (number + canvas.uniform()) / count
        depth = sweep.depth * (place + slant)
        sheet = lens.show(planes, depth - sweep.focus).clamp_min(0)
        sheets.append(elsewhere(canvas, sheet) if swims else sheet)
    together = torch.stack(sheets)
    frames = together.sum(0) if shines else together.prod(0)
    frames = frames * canvas.uniform(0.5, 1.05)[:, None]
    return torch.cat([frames, liveliest(frames)[:, None]], 1)


def _microscope(plan: Plan) -> tuple[Lens, Sweep]:
    """Draw lenses that often resolve less than their sensors do, and their sweeps."""
    soft, largest = plan.settings.soft_specimens, plan.largest_blur
    lens = Lens(plan.torus, largest, soft=soft, gaussian=0.5, sided=0.5)
    return lens, Sweep(plan.canvas, plan.frames, largest)


def _cells(canvas: Canvas, stains: Tensor, apart: float) -> Tensor:
    """Light let through, (B, 3, N, N), by thin large cells with nuclei, folds and granules."""
    ragged = 0.1 * apart * canvas.field(max(2, round(3 * canvas.side / apart)))
    share = canvas.uniform(0.3, 0.9)
    down, right, own = scattered(canvas, apart, 6)
    across, along = turned(down, right, 2 * math.pi * own[0])
    away = torch.hypot(across * (1 + own[1]), along) + ragged
    inside = apart * (0.45 + 0.4 * own[2]) - away
    there = (own[3] < share).float()
    body = (there * (0.5 + inside / 2).clamp(0, 1) * (0.5 + own[4])).sum(1, keepdim=True)
    rim = (there * torch.exp(-((inside / 2) ** 2))).sum(1, keepdim=True)
    core = apart * (0.06 + 0.08 * own[5]) - torch.hypot(across * (1 + 0.5 * own[1]), along)
    nucleus = (there * (0.5 + core / 2).clamp(0, 1)).amax(1, keepdim=True)
    surface_of_body = 1 + canvas.uniform(high=2.0) * texture(canvas)
    granules = dots(canvas, canvas.log_number(5, 20), share=0.3)
    granules = granules * (canvas.field(4) > 0) * body.clamp(0, 1)
    folds, grains = canvas.uniform(0, 0.6, 2, 1, 1).split(1, 1)
    body = (body * surface_of_body + folds * rim + grains * granules).clamp_min(0)
    nucleus = nucleus * (0.8 + texture(canvas))
    return torch.exp(-(stains[:, 0] * body + stains[:, 1] * nucleus).clamp_min(0))


def _smear(canvas: Canvas, stains: Tensor, apart: float) -> Tensor:
    """Light let through by blood: round cells, pale in the middle, some with a large nucleus."""
    share, pallor = canvas.uniform(0.3, 1.0), canvas.uniform(0.1, 0.8)
    down, right, own = scattered(canvas, apart, 4)
    radius = apart * (0.42 + 0.1 * own[0])
    away = torch.hypot(down * (1 + 0.25 * own[1]), right)
    there = (own[2] < share).float()
    pale = pallor * torch.exp(-((away / (0.45 * radius)) ** 2))
    body = (there * (radius + 0.5 - away).clamp(0, 1) * (1 - pale)).sum(1, keepdim=True)
    lobes = torch.hypot(down + 0.3 * radius * torch.sin(right / radius * 3), right)
    nucleus = there * (own[3] > 0.93) * (0.5 + 0.7 * radius - lobes).clamp(0, 1)
    body = body * (1 + 0.3 * texture(canvas))
    density = stains[:, 0] * body + stains[:, 1] * nucleus.amax(1, keepdim=True)
    return torch.exp(-density.clamp_min(0))


def _emission(canvas: Canvas, stains: Tensor, apart: float) -> Tensor:
    """Light (B, 3, N, N) of fluorescent fibres, bodies and points on a dark ground."""
    half = canvas.log_uniform(0.3, 2.0)
    webs = [web(canvas, canvas.whole(3, 14), half) for _ in range(canvas.whole(1, 3))]
    fibres = torch.stack(webs).sum(0)
    bodies = dots(canvas, apart, share=0.7)
    points = dots(canvas, canvas.log_number(6, 24), share=0.4)
    bodies = bodies * (1 + 2 * texture(canvas)).clamp_min(0)
    weights = canvas.uniform(0, 1, 3, 1, 1) * canvas.some(0.6, 3, 1, 1)
    uneven = torch.exp(0.7 * canvas.field(3))
    light = (weights * torch.cat([fibres, bodies, points], 1)).sum(1, keepdim=True)
    light = (light + 0.1 * fibres) * uneven
    tint = torch.exp(-2 * canvas.uniform(0, 1, 3, 1, 1) * canvas.some(0.6))
    return canvas.log_uniform(0.1, 1.5) * light * tint


def elsewhere(canvas: Canvas, sheet: Tensor) -> Tensor:
    """Shift a sheet (B, K, 3, H, W) from frame to frame by whole pixels, so that it stays sharp."""
    step = canvas.log_uniform(2.0, 32.0) * canvas.normal(sheet.shape[1], 2, 1)
    shift = step.cumsum(1).round()[..., None]
    return warped(sheet, canvas.grid() + shift).clamp_min(0)


def _density(canvas: Canvas) -> Tensor:
    """How much light (B, 1, N, N) a sheet takes, from 0 to about 2."""
    if canvas.happens(0.5):
        grey = texture(canvas)
    else:
        # Granules, chloroplasts, folds: blobs and lines of about one size.
        across = canvas.log_number(2.5, 14.0)
        field = canvas.field(max(4, round(canvas.side / across)))
        grey = (3 * (1 - 2 * field.abs() if canvas.happens(0.5) else field)).sigmoid()
    mean, spread = grey.mean((2, 3), keepdim=True), grey.std((2, 3), keepdim=True)
    return (1 + canvas.log_uniform(0.3, 1.2) * (grey - mean) / spread).clamp_min(0)


def liveliest(frames: Tensor) -> Tensor:
    """Of frames (B, K, 3, H, W) the mean (B, 3, H, W), by far the most of the liveliest one."""
    light = luminance(frames.flatten(0, 1).clamp_min(0).sqrt())
    energy = (light - _smooth(light, 5)).square()
    energy = _smooth(_smooth(energy, _WINDOW), _WINDOW).view_as(frames[:, :, :1])
    share = (_POWER * (energy + 1e-9).log()).softmax(1)
    return (frames * share).sum(1)


def _smooth(planes: Tensor, side: int) -> Tensor:
    return F.avg_pool2d(F.pad(planes, (side // 2,) * 4, mode="replicate"), side, 1)
