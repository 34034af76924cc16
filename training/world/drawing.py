"""Coverage of things that stand before others: maps (B, 1, N, N), 0 to 1, with a rim of a pixel."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas, places, turned

#: How often which thing is outlined.
_OUTLINES = {
    "lump": 0.12,
    "star": 0.15,
    "half": 0.2,
    "hole": 0.05,
    "hairs": 0.17,
    "bristly": 0.12,
    "silhouette": 0.17,
    "bars": 0.03,
}


def coverage(field: Tensor) -> Tensor:
    """Where a field (B, 1, H, W) is above 0, with a rim of about a pixel."""
    return (0.5 + field / (_slope(field) + 1e-6)).clamp(0, 1)


def _slope(field: Tensor) -> Tensor:
    """Steepness of a field, a pixel."""
    padded = F.pad(field, (1, 1, 1, 1), mode="replicate")
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    return torch.hypot(down, across) / 2


def _stroke(half: Tensor, away: Tensor) -> Tensor:
    """A line of ``half`` a width, at a distance ``away`` from its middle; fainter below a pixel."""
    return torch.minimum((half + 0.5 - away).clamp(0, 1), 2 * half)


def outline(canvas: Canvas, silhouette: Tensor) -> Tensor:
    """One thing: a lump, star, bristly body, half-plane, hole, hairs, bars or a silhouette.

    ``silhouette`` is the grey picture (B, 1, N, N) that shapes of nature are cut from.
    """
    side = canvas.side
    kind = canvas.pick(_OUTLINES)
    if kind == "lump":
        bumps = canvas.whole(2, 5)
        field = canvas.field(bumps) + 0.3 * canvas.field(4 * bumps)
        return coverage(field - canvas.uniform(high=1.2))
    if kind == "star":
        return _star(canvas)
    if kind == "hole":
        return 1 - _star(canvas)
    if kind == "bristly":
        return _bristly(canvas, canvas.whole(4, 16))
    if kind == "half":
        along = canvas.along()
        rough = 8 * canvas.uniform() ** 3 * canvas.field(side // 12)
        wave = 0.1 * side * canvas.uniform() ** 2 * canvas.field(3)
        return coverage(along + rough + wave + 0.3 * side * canvas.uniform(-1))
    if kind == "silhouette":
        grey = F.avg_pool2d(silhouette, 3, 1, 1)
        median = grey.flatten(1).median(1).values[:, None, None, None]
        sign = torch.where(canvas.some(0.5), 1.0, -1.0)
        return coverage(sign * (grey - median) + 0.05 * canvas.field(3))
    if kind == "bars":
        along = canvas.along() + 0.03 * side * canvas.field(3)
        wave = torch.cos(2 * math.pi * along / canvas.log_uniform(12.0, 80.0))
        return coverage(wave - canvas.uniform(0.2, 0.95))
    body = coverage(canvas.field(3) - 1.0 - canvas.uniform())
    thin = hairs(canvas, canvas.whole(1, 14))
    return torch.maximum(thin, body) if canvas.happens(0.5) else thin


def _star(canvas: Canvas) -> Tensor:
    """One compact thing with a wavy rim, somewhere."""
    y, x = (
        place - 0.35 * canvas.side * canvas.uniform(-1)
        for place in places(canvas.side, canvas.device)
    )
    return _wavy(canvas, y, x, canvas.side * canvas.uniform(0.05, 0.35))


def _wavy(canvas: Canvas, y: Tensor, x: Tensor, size: Tensor) -> Tensor:
    """A disc of a radius ``size`` (B, 1, 1, 1) whose rim has waves."""
    waves = torch.arange(2, 7, device=canvas.device).view(-1, 1, 1)
    swing = canvas.uniform(-0.9, 0.9, 5, 1, 1) / waves
    phase = canvas.uniform(0, 2 * math.pi, 5, 1, 1)
    rim = swing * torch.cos(waves * torch.atan2(y, x) + phase)
    return coverage(size * (1 + rim.sum(1, keepdim=True)) - torch.hypot(y, x))


def _bristly(canvas: Canvas, count: int) -> Tensor:
    """A body that bristles or legs grow out of."""
    y, x = places(canvas.side, canvas.device)
    down, right = (0.5 * canvas.side * canvas.uniform(-1) for _ in range(2))
    size = canvas.side * canvas.uniform(0.04, 0.35)
    body = _wavy(canvas, y - down, x - right, size)
    turn = canvas.uniform(high=2 * math.pi)
    turn = turn + canvas.uniform(high=math.pi) * canvas.uniform(-1, 1, count, 1, 1)
    row, column = down + 0.6 * size * torch.sin(turn), right + 0.6 * size * torch.cos(turn)
    turn = turn + 0.3 * canvas.normal(count, 1, 1)
    return torch.maximum(body, _lines(canvas, y - row, x - column, turn))


def hairs(canvas: Canvas, count: int) -> Tensor:
    """Hairs, stalks, scratches: bent lines that taper, half a pixel to some pixels wide."""
    # They point much the same way, or all ways.
    turn = canvas.uniform(high=2 * math.pi)
    turn = turn + canvas.uniform() ** 2 * math.pi * canvas.uniform(-1, 1, count, 1, 1)
    down, right = (
        place - 0.6 * canvas.side * canvas.uniform(-1, 1, count, 1, 1)
        for place in places(canvas.side, canvas.device)
    )
    return _lines(canvas, down, right, turn)


def _lines(canvas: Canvas, down: Tensor, right: Tensor, turn: Tensor) -> Tensor:
    """Lines from where ``down`` and ``right`` (B, L, N, N) are 0 towards ``turn`` (B, L, 1, 1)."""
    each = turn.shape[1:]
    across, along = turned(down, right, turn)
    length = canvas.side * canvas.log_uniform(0.15, 1.5, *each)
    part = (along / length).clamp(0, 1)
    bend = 0.25 * length * canvas.normal(*each)
    sway = 0.02 * length * canvas.normal(*each)
    path = bend * part.square() + sway * torch.sin(6 * part)
    slope = (2 * bend * part + 6 * sway * torch.cos(6 * part)) / length
    away = (across - path).abs() / torch.sqrt(1 + slope.square())
    # Those of one thing are alike.
    half = canvas.log_uniform(0.35, 4.0) * canvas.log_uniform(0.6, 1.6, *each)
    half = half * (1 - canvas.uniform(0.2, 0.95, *each) * part)
    ends = (0.5 + along).clamp(0, 1) * (0.5 + length - along).clamp(0, 1)
    return (_stroke(half, away) * ends).amax(1, keepdim=True)


def web(canvas: Canvas, bumps: int, half: Tensor) -> Tensor:
    """Fibres, cracks, threads: level lines of a field, ``half`` a width, that end."""
    field = canvas.field(bumps) + 0.2 * canvas.field(3 * bumps)
    ends = (2 * canvas.field(2 * bumps) + 0.5).clamp(0, 1)
    return _stroke(half, field.abs() / (_slope(field) + 1e-3)) * ends


def scattered(
    canvas: Canvas, apart: float, numbers: int, jitter: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """One thing in every cell of a turned lattice of cells ``apart`` pixels wide.

    Things may reach one cell beyond their own, so nine are near a pixel: how many pixels down and
    right (B, 9, N, N) of each it lies, and ``numbers`` uniform numbers (…, B, 9, N, N) of each.
    """
    turn = torch.tensor(canvas.number(0, 2 * math.pi), dtype=torch.float64)
    down, right = (each / apart for each in turned(*places(canvas.side, canvas.device), turn))
    cells = math.ceil(canvas.side * 1.42 / apart) + 4
    table = canvas.uniform(0, 1, numbers + 2, cells, cells).transpose(0, 1)
    about = torch.arange(9, device=canvas.device).view(9, 1, 1)
    row, column = down.floor() + about // 3 - 1, right.floor() + about % 3 - 1
    own = table[:, :, row.long() + cells // 2, column.long() + cells // 2]
    down = down - row - 0.5 - jitter * (own[0] - 0.5)
    right = right - column - 0.5 - jitter * (own[1] - 0.5)
    return down * apart, right * apart, own[2:]


def dots(canvas: Canvas, apart: float, *, share: float, largest: float = 64.0) -> Tensor:
    """Dust, granules, droplets: round or longish things in a share of the cells."""
    flatness = canvas.uniform()
    down, right, own = scattered(canvas, apart, 4)
    across, along = turned(down, right, 2 * math.pi * own[0])
    away = torch.hypot(across * (1 + 2 * flatness * own[1]), along)
    radius = (0.5 * apart * own[2] ** 3).clamp(0.3, largest)
    dot = torch.minimum((radius + 0.5 - away).clamp(0, 1), (3 * radius.square()).clamp_max(1))
    return (dot * (own[3] < share)).amax(1, keepdim=True)


def glyphs(canvas: Canvas, height: float) -> Tensor:
    """Lines of letters that no alphabet has, ``height`` pixels high."""
    turn = canvas.number(-0.1, 0.1) if canvas.happens(0.6) else canvas.number(0, 2 * math.pi)
    turn_by = torch.tensor(turn, dtype=torch.float64)
    down, right = turned(*places(canvas.side, canvas.device), turn_by)
    down, right = down / (1.6 * height), right / (0.8 * height)
    cells = math.ceil(canvas.side * 1.42 / (0.8 * height)) + 4
    table = canvas.uniform(0, 1, 17, cells, cells)
    own = table[:, :, down.floor().long() + cells // 2, right.floor().long() + cells // 2]
    v = (down - down.floor()) * 1.6 * height
    u = (right - right.floor()) * 0.8 * height
    half = height * canvas.uniform(0.04, 0.09)
    away = torch.full_like(own[:, :1], 1e3)
    for stroke in own[:, :16].split(4, 1):
        # From one of the 3 x 3 corners and middles of the letter's box to another.
        ends = (stroke * 3).floor() / 2
        y0, y1 = (height * (0.2 + ends[:, i : i + 1]) for i in (0, 1))
        x0, x1 = (height * (0.12 + 0.5 * ends[:, i : i + 1]) for i in (2, 3))
        dy, dx = y1 - y0, x1 - x0
        part = ((v - y0) * dy + (u - x0) * dx) / (dy.square() + dx.square() + 1e-3)
        part = part.clamp(0, 1)
        away = torch.minimum(away, torch.hypot(v - y0 - part * dy, u - x0 - part * dx))
    return _stroke(half, away) * (own[:, 16:] < 0.85)
