"""Sharp pictures (B, 3, N, N) to make scenes of: photographs, and what photographs lack, drawn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas
from training.world.drawing import dots, glyphs, hairs, scattered, web
from training.world.sensor import STANDARD


def luminance(picture: Tensor) -> Tensor:
    """Grey (..., 1, H, W) of colours (..., 3, H, W)."""
    red, green, blue = picture.split(1, -3)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def photograph(canvas: Canvas, scale: float | None = None) -> Tensor:
    """Display values of crops, mirrored and turned; ``scale`` below 1 makes them smaller.

    Without a scale they are mostly sharp, and at times have more pixels than detail.
    """
    if scale is None:
        scale = canvas.log_number(*canvas.pick({(0.6, 1.0): 0.6, (1.0, 1.7): 0.3, (1.7, 5.0): 0.1}))
    height, width = canvas.photos.shape[-2:]
    cut = max(8, min(round(canvas.side / scale), height, width))
    number = canvas.index(len(canvas.photos))[:, None, None]
    steps = torch.arange(cut, device=canvas.device)
    rows = canvas.index(height - cut + 1)[:, None, None] + steps[:, None]
    columns = canvas.index(width - cut + 1)[:, None, None] + steps
    picture = canvas.photos[number, :, rows, columns].permute(0, 3, 1, 2).float() / 255
    if cut != canvas.side:
        size = canvas.side, canvas.side
        antialias = cut > canvas.side
        picture = F.interpolate(picture, size, mode="bicubic", antialias=antialias).clamp(0, 1)
    if canvas.happens(0.5):
        picture = picture.flip(3)
    if canvas.happens(0.5):
        picture = picture.transpose(2, 3)
    return picture.contiguous()


def texture(canvas: Canvas) -> Tensor:
    """A grey photograph (B, 1, N, N) about 0."""
    grey = luminance(photograph(canvas))
    return grey - grey.mean((2, 3), keepdim=True)


def ground(canvas: Canvas, *, share: float) -> Tensor:
    """Linear light of a whole picture; a ``share`` of them are drawn.

    Contrast and exposure vary, and lights may be brighter than white.
    """
    picture = drawn(canvas) if canvas.happens(share) else photograph(canvas)
    weak = canvas.log_uniform(0.06, 1.0)
    contrast = torch.where(canvas.some(0.15), weak, 1.0)
    mean = picture.mean((2, 3), keepdim=True)
    light = STANDARD.light((mean + contrast * (picture - mean)).clamp(0, 1))
    light = light * torch.exp2(-torch.where(canvas.some(0.15), 3.0, 0.5) * canvas.uniform())
    if canvas.happens(0.3):
        bright = (picture.amax(1, keepdim=True) - 0.8).clamp_min(0) * 5
        light = light * (1 + 6 * canvas.uniform() * bright.square())
    if canvas.happens(0.25):
        # Specular points, far brighter than white: blurred, they show the aperture.
        points = dots(canvas, canvas.log_number(12, 90), share=0.15, largest=2.0)
        points = points * canvas.log_uniform(1.0, 15.0)
        tint = canvas.uniform(0.6, 1.0, 3, 1, 1)
        light = light + points * (canvas.field(3) > 0.3) * tint
    return light


def drawn(canvas: Canvas) -> Tensor:
    """Display values of a picture that is no photograph."""
    odds = {_page: 0.2, _board: 0.2, _grating: 0.06, _lattice: 0.06, _worn: 0.42, _plain: 0.06}
    return canvas.pick(odds)(canvas).clamp(0, 1)


def _tint(canvas: Canvas, low: float, high: float, colourful: float = 0.2) -> Tensor:
    """Display colours (B, 3, 1, 1) of some lightness."""
    grey = canvas.uniform(low, high)
    return (grey + colourful * (canvas.uniform(0, 1, 3, 1, 1) - 0.5)).clamp(0, 1)


def _plain(canvas: Canvas) -> Tensor:
    """Nothing but a gradient: the empty ground behind many subjects."""
    slow = 0.06 * canvas.field(2)
    return (_tint(canvas, 0.05, 0.95) + slow).clamp(0, 1)


def _worn(canvas: Canvas) -> Tensor:
    """A plain surface with dust, specks, scratches, threads: weak detail, far apart."""
    picture = _plain(canvas)
    grain = texture(canvas)
    picture = picture + canvas.log_uniform(0.01, 0.15) * grain
    for _ in range(canvas.whole(1, 3)):
        specks = dots(canvas, canvas.log_number(8, 60), share=0.5)
        strength = canvas.log_uniform(0.05, 1.0)
        picture = torch.lerp(picture, _tint(canvas, 0, 1), strength * specks)
    half = canvas.log_uniform(0.25, 1.0)
    lines = web(canvas, canvas.whole(3, 10), half)
    lines = torch.maximum(lines, hairs(canvas, canvas.whole(1, 8)))
    strength = canvas.log_uniform(0.03, 0.6)
    return torch.lerp(picture, _tint(canvas, 0, 1), strength * lines)


def _page(canvas: Canvas) -> Tensor:
    """Print on paper, or light letters on something dark."""
    ink = glyphs(canvas, canvas.log_number(7, 60))
    paper = _tint(canvas, 0.6, 0.98) + 0.02 * canvas.field(60)
    picture = torch.lerp(paper, _tint(canvas, 0.02, 0.3), ink)
    return 1 - picture if canvas.happens(0.3) else picture


def _grating(canvas: Canvas) -> Tensor:
    """Stripes of one width, or of widths that change: cloth, blinds, combs."""
    along = canvas.along() + canvas.side / 20 * canvas.field(2)
    apart = canvas.log_uniform(2.5, 30.0)
    hard = canvas.log_uniform(1.0, 8.0)
    wave = torch.tanh(hard * torch.cos(2 * torch.pi * along / apart)) / torch.tanh(hard)
    return torch.lerp(_tint(canvas, 0, 0.7), _tint(canvas, 0.3, 1), 0.5 + 0.5 * wave)


def _lattice(canvas: Canvas) -> Tensor:
    """Dots in rows: halftone, facets of an eye, holes of a sieve."""
    picture = _plain(canvas)
    apart = canvas.log_number(4, 24)
    radius = apart * canvas.uniform(0.2, 0.45)
    down, right, own = scattered(canvas, apart, 1, canvas.number(0, 0.2))
    dot = (radius + 0.5 - torch.hypot(down, right)).clamp(0, 1)
    cover = (dot * (0.7 + 0.3 * own[0])).amax(1, keepdim=True)
    return torch.lerp(picture, _tint(canvas, 0, 1, 0.5), cover)


def _board(canvas: Canvas) -> Tensor:
    """A circuit board: tracks, pads with gloss, chips, white letters."""
    green = torch.tensor([0.1, 0.3, 0.15], device=canvas.device).view(3, 1, 1)
    plain = torch.where(canvas.some(0.6), green, _tint(canvas, 0.05, 0.4))
    picture = plain + 0.02 * canvas.field(40)
    apart = canvas.log_number(12, 48)
    half = apart * canvas.uniform(0.05, 0.2)
    down, right, own = scattered(canvas, apart, 3, 0.0)
    # A track leaves its cell to the middle of the next: it goes on there or ends.
    upright = own[0] < 0.5
    along, across = torch.where(upright, down, right), torch.where(upright, right, down)
    length = apart * (0.5 + 0.5 * (own[1] < 0.6))
    track = (half + 0.5 - across.abs()).clamp(0, 1) * (length - along.abs()).clamp(0, 1)
    track = (track * (own[2] < 0.5)).amax(1, keepdim=True)
    picture = torch.lerp(picture, plain * 1.5 + 0.05, track)
    away = torch.hypot(down, right)
    pad = (0.3 * apart + 0.5 - away).clamp(0, 1) * (own[2] > 0.8)
    hole = (0.14 * apart + 0.5 - away).clamp(0, 1)
    # Pads do not reach each other, so their sum is that of one.
    shine = (pad * (0.8 + right / apart) * (1 - 0.9 * hole)).sum(1, keepdim=True)
    picture = picture * (1 - pad.sum(1, keepdim=True)) + _tint(canvas, 0.5, 0.9) * shine
    chip = (canvas.field(2) > 0.9).float()
    picture = torch.lerp(picture, _tint(canvas, 0.05, 0.2), chip)
    letters = glyphs(canvas, canvas.log_number(10, 40))
    printed = letters * (canvas.field(3) > 0.2)
    return torch.lerp(picture, _tint(canvas, 0.75, 0.98), printed)
