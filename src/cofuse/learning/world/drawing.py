"""Coverage of things that stand before others: maps (B, N, N) from 0 to 1 with a rim of a pixel."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance


def places(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows (N, 1) and columns (1, N) in pixels from the middle."""
    place = torch.arange(side, device=device) - (side - 1) / 2
    return place[:, None], place[None]


def turned(down: Tensor, right: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Turn coordinates: what lies in the direction ``turn``, radians from the right, is along."""
    across = down * torch.cos(turn) - right * torch.sin(turn)
    return across, right * torch.cos(turn) + down * torch.sin(turn)


def coverage(field: Tensor) -> Tensor:
    """Where a field (B, H, W) is above 0, with a rim of about a pixel."""
    return (0.5 + field / (_slope(field) + 1e-6)).clamp(0, 1)


def _slope(field: Tensor) -> Tensor:
    """Steepness of a field (B, H, W), a pixel."""
    padded = F.pad(field[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    return torch.hypot(down, across) / 2


def outline(chance: Chance, batch: int, side: int, silhouette: Tensor) -> Tensor:
    """One thing of some size: lump, star, bristly body, side, hole, hairs, bars, silhouette.

    ``silhouette`` is the grey picture (B, N, N) that shapes of nature are cut from.
    """
    kind = chance.pick(
        lump=0.12,
        star=0.15,
        half=0.2,
        hole=0.05,
        hairs=0.17,
        bristly=0.12,
        silhouette=0.17,
        bars=0.03,
    )
    y, x = places(side, chance.device)
    if kind == "lump":
        bumps = chance.whole(2, 5)
        field = chance.field(batch, bumps, side) + 0.3 * chance.field(batch, 4 * bumps, side)
        return coverage(field - chance.uniform(batch, 1, 1, high=1.2))
    if kind == "star":
        return star(chance, batch, side)
    if kind == "bristly":
        return bristly(chance, batch, side, chance.whole(4, 16))
    if kind == "hole":
        return 1 - star(chance, batch, side)
    if kind == "half":
        _, along = turned(y, x, chance.uniform(batch, 1, 1, high=2 * math.pi))
        rough = 8 * chance.uniform(batch, 1, 1) ** 3 * chance.field(batch, side // 12, side)
        wave = 0.1 * side * chance.uniform(batch, 1, 1) ** 2 * chance.field(batch, 3, side)
        return coverage(along + rough + wave + 0.3 * side * chance.uniform(batch, 1, 1, low=-1))
    if kind == "silhouette":
        grey = F.avg_pool2d(silhouette[:, None], 3, 1, 1)[:, 0]
        middle = grey.flatten(1).median(1).values[:, None, None]
        sign = torch.where(chance.some(0.5, batch, 1, 1), 1.0, -1.0)
        return coverage(sign * (grey - middle) + 0.05 * chance.field(batch, 3, side))
    if kind == "bars":
        _, along = turned(y, x, chance.uniform(batch, 1, 1, high=math.pi))
        warp = 0.03 * side * chance.field(batch, 3, side)
        apart = chance.log_uniform(12.0, 80.0, batch, 1, 1)
        wave = torch.cos(2 * math.pi * (along + warp) / apart)
        return coverage(wave - chance.uniform(batch, 1, 1, low=0.2, high=0.95))
    body = coverage(chance.field(batch, 3, side) - 1.0 - chance.uniform(batch, 1, 1))
    thin = hairs(chance, batch, side, chance.whole(1, 14))
    return torch.maximum(thin, body) if chance.happens(0.5) else thin


def star(chance: Chance, batch: int, side: int) -> Tensor:
    """One compact thing with a wavy rim, somewhere."""
    y, x = places(side, chance.device)
    y, x = (p - 0.35 * side * chance.uniform(batch, 1, 1, low=-1) for p in (y, x))
    return _wavy(chance, y, x, side * chance.uniform(batch, 1, 1, low=0.05, high=0.35))


def _wavy(chance: Chance, y: Tensor, x: Tensor, size: Tensor) -> Tensor:
    """A disc of this radius (B, 1, 1) whose rim has waves."""
    angle = torch.atan2(y, x)[:, None]
    waves = torch.arange(2, 7, device=chance.device).view(1, -1, 1, 1)
    swing = chance.uniform(len(size), 5, 1, 1, low=-0.9, high=0.9) / waves
    phase = chance.uniform(len(size), 5, 1, 1, high=2 * math.pi)
    radius = 1 + (swing * torch.cos(waves * angle + phase)).sum(1)
    return coverage(size * radius - torch.hypot(y, x))


def bristly(chance: Chance, batch: int, side: int, count: int) -> Tensor:
    """A body that bristles or legs grow out of."""
    y, x = places(side, chance.device)
    down, right = (0.5 * side * chance.uniform(batch, 1, 1, low=-1) for _ in range(2))
    size = side * chance.uniform(batch, 1, 1, low=0.04, high=0.35)
    body = _wavy(chance, y - down, x - right, size)
    way = chance.uniform(batch, 1, 1, 1, high=2 * math.pi)
    way = way + chance.uniform(batch, 1, 1, 1, high=math.pi) * chance.uniform(
        batch, count, 1, 1, low=-1
    )
    row = down[:, None] + 0.6 * size[:, None] * torch.sin(way)
    column = right[:, None] + 0.6 * size[:, None] * torch.cos(way)
    turn = way + 0.3 * chance.normal(batch, count, 1, 1)
    return torch.maximum(body, _lines(chance, y - row, x - column, turn, side))


def hairs(chance: Chance, batch: int, side: int, count: int) -> Tensor:
    """Hairs, stalks, scratches: bent lines that taper, half a pixel to some pixels wide."""
    y, x = places(side, chance.device)
    one, each = (batch, 1, 1, 1), (batch, count, 1, 1)
    # They point much the same way, or all ways.
    turn = chance.uniform(*one, high=2 * math.pi)
    turn = turn + chance.uniform(*one) ** 2 * math.pi * chance.uniform(*each, low=-1)
    down = y - 0.6 * side * chance.uniform(*each, low=-1)
    right = x - 0.6 * side * chance.uniform(*each, low=-1)
    return _lines(chance, down, right, turn, side)


def _lines(chance: Chance, down: Tensor, right: Tensor, turn: Tensor, side: int) -> Tensor:
    """Lines from where ``down`` and ``right`` (B, L, N, N) are 0 towards ``turn`` (B, L, 1, 1)."""
    one, each = (len(turn), 1, 1, 1), turn.shape
    across, along = turned(down, right, turn)
    length = side * chance.log_uniform(0.15, 1.5, *each)
    part = (along / length).clamp(0, 1)
    bend = 0.25 * length * chance.normal(*each)
    sway = 0.02 * length * chance.normal(*each)
    path = bend * part.square() + sway * torch.sin(6 * part)
    slope = (2 * bend * part + 6 * sway * torch.cos(6 * part)) / length
    away = (across - path).abs() / torch.sqrt(1 + slope.square())
    # Those of one thing are alike.
    half = chance.log_uniform(0.35, 4.0, *one) * chance.log_uniform(0.6, 1.6, *each)
    half = half * (1 - chance.uniform(*each, low=0.2, high=0.95) * part)
    ends = (0.5 + along).clamp(0, 1) * (0.5 + length - along).clamp(0, 1)
    line = torch.minimum((half + 0.5 - away).clamp(0, 1), 2 * half)
    return (line * ends).amax(1)


def web(chance: Chance, batch: int, side: int, bumps: int, half: Tensor) -> Tensor:
    """Fibres, cracks, threads: level lines of a field, ``half`` (B, 1, 1) a width, that end."""
    field = chance.field(batch, bumps, side) + 0.2 * chance.field(batch, 3 * bumps, side)
    away = field.abs() / (_slope(field) + 1e-3)
    ends = (2 * chance.field(batch, 2 * bumps, side) + 0.5).clamp(0, 1)
    return torch.minimum((half + 0.5 - away).clamp(0, 1), 2 * half) * ends


def scattered(
    chance: Chance, batch: int, side: int, apart: float, numbers: int, jitter: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """One thing in every cell of a turned lattice of cells ``apart`` pixels wide.

    Things may reach one cell beyond their own, so nine are near a pixel: how many pixels down and
    right (B, 9, N, N) of each it lies, and ``numbers`` uniform numbers (…, B, 9, N, N) of each.
    """
    y, x = places(side, chance.device)
    turn = torch.tensor(chance.number(0, 2 * math.pi), dtype=torch.float64)
    down, right = (p / apart for p in turned(y, x, turn))
    cells = math.ceil(side * 1.42 / apart) + 4
    table = chance.uniform(numbers + 2, batch, cells, cells)
    about = torch.arange(9, device=chance.device).view(9, 1, 1)
    row, column = down.floor() + about // 3 - 1, right.floor() + about % 3 - 1
    own = table[:, :, row.long() + cells // 2, column.long() + cells // 2]
    down = down - row - 0.5 - jitter * (own[0] - 0.5)
    right = right - column - 0.5 - jitter * (own[1] - 0.5)
    return down * apart, right * apart, own[2:]


def dots(
    chance: Chance, batch: int, side: int, apart: float, *, share: float, largest: float = 64.0
) -> Tensor:
    """Dust, granules, droplets: round or longish things in a share of the cells."""
    flatness = chance.uniform(batch, 1, 1, 1)
    down, right, own = scattered(chance, batch, side, apart, 4)
    across, along = turned(down, right, 2 * math.pi * own[0])
    away = torch.hypot(across * (1 + 2 * flatness * own[1]), along)
    radius = (0.5 * apart * own[2] ** 3).clamp(0.3, largest)
    dot = torch.minimum((radius + 0.5 - away).clamp(0, 1), (3 * radius.square()).clamp_max(1))
    return (dot * (own[3] < share)).amax(1)


def glyphs(chance: Chance, batch: int, side: int, height: float) -> Tensor:
    """Lines of letters that no alphabet has, ``height`` pixels high."""
    y, x = places(side, chance.device)
    turn = chance.number(-0.1, 0.1) if chance.happens(0.6) else chance.number(0, 2 * math.pi)
    down, right = turned(y, x, torch.tensor(turn, dtype=torch.float64))
    down, right = down / (1.6 * height), right / (0.8 * height)
    cells = math.ceil(side * 1.42 / (0.8 * height)) + 4
    table = chance.uniform(batch, 17, cells, cells)
    own = table[:, :, down.floor().long() + cells // 2, right.floor().long() + cells // 2]
    v = (down - down.floor()) * 1.6 * height
    u = (right - right.floor()) * 0.8 * height
    half = height * chance.uniform(batch, 1, 1, low=0.04, high=0.09)
    away = torch.full((batch, side, side), 1e3, device=chance.device)
    for stroke in range(4):
        # From one of the 3 x 3 corners and middles of the letter's box to another.
        ends = (own[:, 4 * stroke : 4 * stroke + 4] * 3).floor() / 2
        y0, y1 = (height * (0.2 + ends[:, i]) for i in (0, 1))
        x0, x1 = (height * (0.12 + 0.5 * ends[:, i]) for i in (2, 3))
        dy, dx = y1 - y0, x1 - x0
        part = ((v - y0) * dy + (u - x0) * dx) / (dy.square() + dx.square() + 1e-3)
        part = part.clamp(0, 1)
        away = torch.minimum(away, torch.hypot(v - y0 - part * dy, u - x0 - part * dx))
    letter = torch.minimum((half + 0.5 - away).clamp(0, 1), 2 * half)
    return letter * (own[:, 16] < 0.85)
