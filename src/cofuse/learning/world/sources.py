"""Sharp pictures to make scenes of: photographs, and things drawn that photographs lack."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance
from cofuse.learning.world.drawing import dots, glyphs, hairs, places, scattered, turned, web
from cofuse.learning.world.sensor import STANDARD


def luminance(picture: Tensor) -> Tensor:
    """Grey (..., 1, H, W) of colours (..., 3, H, W)."""
    red, green, blue = picture.split(1, -3)
    return 0.299 * red + 0.587 * green + 0.114 * blue


class Sources:
    """Draws sharp pictures (B, 3, N, N) from photographs (P, 3, H, W) of bytes."""

    def __init__(self, photos: Tensor, chance: Chance) -> None:
        self.photos = photos
        self.chance = chance

    def photograph(self, batch: int, side: int, scale: float) -> Tensor:
        """Display values of crops, mirrored and turned; ``scale`` below 1 makes them smaller."""
        chance = self.chance
        height, width = self.photos.shape[-2:]
        cut = max(8, min(round(side / scale), height, width))
        number = chance.index(len(self.photos), batch)[:, None, None]
        steps = torch.arange(cut, device=chance.device)
        rows = chance.index(height - cut + 1, batch, 1) + steps
        columns = chance.index(width - cut + 1, batch, 1) + steps
        crop = self.photos[number, :, rows[:, :, None], columns[:, None]]
        picture = crop.permute(0, 3, 1, 2).float() / 255
        if cut != side:
            picture = F.interpolate(
                picture, (side, side), mode="bicubic", antialias=cut > side, align_corners=False
            ).clamp(0, 1)
        if chance.happens(0.5):
            picture = picture.flip(3)
        if chance.happens(0.5):
            picture = picture.transpose(2, 3)
        return picture.contiguous()

    def scale(self) -> float:
        """A scale to take photographs at: mostly sharp, at times with more pixels than detail."""
        kind = self.chance.pick(sharp=0.6, native=0.3, soft=0.1)
        low, high = {"sharp": (0.6, 1.0), "native": (1.0, 1.7), "soft": (1.7, 5.0)}[kind]
        return self.chance.log_number(low, high)

    def ground(self, batch: int, side: int, *, drawn: float) -> Tensor:
        """Linear light of a whole picture; ``drawn`` is the share that is no photograph."""
        if self.chance.happens(drawn):
            return self._lit(self.drawn(batch, side))
        return self._lit(self.photograph(batch, side, self.scale()))

    def drawn(self, batch: int, side: int) -> Tensor:
        """Display values of a picture that is no photograph."""
        draw = {
            "page": self._page,
            "board": self._board,
            "grating": self._grating,
            "lattice": self._lattice,
            "worn": self._worn,
            "plain": self._plain,
        }
        kind = self.chance.pick(
            page=0.2, board=0.2, grating=0.06, lattice=0.06, worn=0.42, plain=0.06
        )
        return draw[kind](batch, side)

    def _lit(self, picture: Tensor) -> Tensor:
        """Vary contrast and exposure, and let lights be brighter than white."""
        chance, batch = self.chance, len(picture)
        weak = chance.log_uniform(0.06, 1.0, batch, 1, 1, 1)
        contrast = torch.where(chance.some(0.15, batch, 1, 1, 1), weak, 1.0)
        mean = picture.mean((2, 3), keepdim=True)
        light = STANDARD.light((mean + contrast * (picture - mean)).clamp(0, 1))
        dim = torch.where(chance.some(0.15, batch, 1, 1, 1), 3.0, 0.5)
        light = light * torch.exp2(-dim * chance.uniform(batch, 1, 1, 1))
        if chance.happens(0.3):
            bright = (picture.amax(1, keepdim=True) - 0.8).clamp_min(0) * 5
            light = light * (1 + 6 * chance.uniform(batch, 1, 1, 1) * bright.square())
        if chance.happens(0.25):
            light = light + self._glints(batch, picture.shape[-1])
        return light

    def _glints(self, batch: int, side: int) -> Tensor:
        """Specular points, far brighter than white: blurred, they show the aperture."""
        chance = self.chance
        points = dots(chance, batch, side, chance.log_number(12, 90), share=0.15, largest=2.0)
        small = points * chance.log_uniform(1.0, 15.0, batch, 1, 1)
        tint = chance.uniform(batch, 3, 1, 1, low=0.6, high=1.0)
        near = (chance.field(batch, 3, side) > 0.3).float()
        return (small * near)[:, None] * tint

    def _tint(self, batch: int, low: float, high: float, colourful: float = 0.2) -> Tensor:
        """Display colours (B, 3, 1, 1) of some lightness."""
        chance = self.chance
        grey = chance.uniform(batch, 1, 1, 1, low=low, high=high)
        return (grey + colourful * (chance.uniform(batch, 3, 1, 1) - 0.5)).clamp(0, 1)

    def _plain(self, batch: int, side: int) -> Tensor:
        """Nothing but a gradient: the empty ground behind many subjects."""
        slow = self.chance.field(batch, 2, side)[:, None]
        return (self._tint(batch, 0.05, 0.95) + 0.06 * slow).clamp(0, 1)

    def _worn(self, batch: int, side: int) -> Tensor:
        """A plain surface with dust, specks, scratches, threads: weak detail, far apart."""
        chance = self.chance
        picture = self._plain(batch, side)
        grain = luminance(self.photograph(batch, side, self.scale()))
        grain = grain - grain.mean((2, 3), keepdim=True)
        picture = picture + chance.log_uniform(0.01, 0.15, batch, 1, 1, 1) * grain
        for _ in range(chance.whole(1, 3)):
            specks = dots(chance, batch, side, chance.log_number(8, 60), share=0.5)[:, None]
            strength = chance.log_uniform(0.05, 1.0, batch, 1, 1, 1)
            picture = torch.lerp(picture, self._tint(batch, 0, 1), strength * specks)
        half = chance.log_uniform(0.25, 1.0, batch, 1, 1)
        lines = web(chance, batch, side, chance.whole(3, 10), half)
        lines = torch.maximum(lines, hairs(chance, batch, side, chance.whole(1, 8)))
        strength = chance.log_uniform(0.03, 0.6, batch, 1, 1, 1)
        return torch.lerp(picture, self._tint(batch, 0, 1), strength * lines[:, None]).clamp(0, 1)

    def _page(self, batch: int, side: int) -> Tensor:
        """Print on paper, or light letters on something dark."""
        chance = self.chance
        ink = glyphs(chance, batch, side, chance.log_number(7, 60))
        paper = self._tint(batch, 0.6, 0.98) + 0.02 * chance.field(batch, 60, side)[:, None]
        dark = self._tint(batch, 0.02, 0.3)
        picture = torch.lerp(paper, dark, ink[:, None])
        return (1 - picture if chance.happens(0.3) else picture).clamp(0, 1)

    def _grating(self, batch: int, side: int) -> Tensor:
        """Stripes of one width, or of widths that change: cloth, blinds, combs."""
        chance = self.chance
        y, x = places(side, chance.device)
        _, along = turned(y, x, chance.uniform(batch, 1, 1, high=math.pi))
        along = along + side / 20 * chance.field(batch, 2, side)
        apart = chance.log_uniform(2.5, 30.0, batch, 1, 1)
        hard = chance.log_uniform(1.0, 8.0, batch, 1, 1)
        wave = torch.tanh(hard * torch.cos(2 * math.pi * along / apart)) / torch.tanh(hard)
        share = 0.5 + 0.5 * wave[:, None]
        return torch.lerp(self._tint(batch, 0, 0.7), self._tint(batch, 0.3, 1), share)

    def _lattice(self, batch: int, side: int) -> Tensor:
        """Dots in rows: halftone, facets of an eye, holes of a sieve."""
        chance = self.chance
        picture = self._plain(batch, side)
        apart = chance.log_number(4, 24)
        radius = apart * chance.uniform(batch, 1, 1, 1, low=0.2, high=0.45)
        down, right, own = scattered(chance, batch, side, apart, 1, chance.number(0, 0.2))
        dot = (radius + 0.5 - torch.hypot(down, right)).clamp(0, 1)
        cover = (dot * (0.7 + 0.3 * own[0])).amax(1)[:, None]
        return torch.lerp(picture, self._tint(batch, 0, 1, 0.5), cover)

    def _board(self, batch: int, side: int) -> Tensor:
        """A circuit board: tracks, pads with gloss, chips, white letters."""
        chance = self.chance
        green = torch.tensor([0.1, 0.3, 0.15], device=chance.device).view(1, 3, 1, 1)
        plain = torch.where(chance.some(0.6, batch, 1, 1, 1), green, self._tint(batch, 0.05, 0.4))
        picture = plain + 0.02 * chance.field(batch, 40, side)[:, None]
        apart = chance.log_number(12, 48)
        half = apart * chance.uniform(batch, 1, 1, 1, low=0.05, high=0.2)
        down, right, own = scattered(chance, batch, side, apart, 3, 0.0)
        # A track leaves its cell to the middle of the next: it goes on there or ends.
        upright = own[0] < 0.5
        along, across = torch.where(upright, down, right), torch.where(upright, right, down)
        length = apart * (0.5 + 0.5 * (own[1] < 0.6))
        track = (half + 0.5 - across.abs()).clamp(0, 1) * (length - along.abs()).clamp(0, 1)
        track = (track * (own[2] < 0.5)).amax(1)[:, None]
        picture = torch.lerp(picture, plain * 1.5 + 0.05, track)
        away = torch.hypot(down, right)
        pad = (0.3 * apart + 0.5 - away).clamp(0, 1) * (own[2] > 0.8)
        hole = (0.14 * apart + 0.5 - away).clamp(0, 1)
        # Pads do not reach each other, so their sum is that of one.
        shine = (pad * (0.8 + right / apart) * (1 - 0.9 * hole)).sum(1)[:, None]
        pad = pad.sum(1)[:, None]
        picture = picture * (1 - pad) + self._tint(batch, 0.5, 0.9) * shine
        chip = (chance.field(batch, 2, side) > 0.9).float()[:, None]
        picture = torch.lerp(picture, self._tint(batch, 0.05, 0.2), chip)
        letters = glyphs(chance, batch, side, chance.log_number(10, 40))
        printed = letters * (chance.field(batch, 3, side) > 0.2)
        return torch.lerp(picture, self._tint(batch, 0.75, 0.98), printed[:, None]).clamp(0, 1)
