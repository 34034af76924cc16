r"""What a sensor makes of light: the colour mosaic, noise, and the tone curve.

The tone curve is a power with a straight toe, bent about mid-grey for contrast,

.. math:: y = \frac{(x + t)^{1/\gamma} - t^{1/\gamma}}{(1 + t)^{1/\gamma} - t^{1/\gamma}},
   \quad d = y - c \frac{\sin 2 \pi y}{2 \pi}.

The variance of the noise grows with the brightness :math:`y` from a floor :math:`f`,

.. math:: \sigma^2(y) = \sigma^2 (f + (1 - f) y / m),

and is :math:`\sigma^2` at mid-grey, :math:`m`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas, WorldSettings

#: Where the power goes over into its toe: as of sRGB, whose steepest slope is 12.9.
_TOE = 0.003


@dataclass(frozen=True)
class Tone:
    """Tone curves; numbers, or tensors that broadcast against pictures."""

    gamma: Tensor | float = 2.2
    contrast: Tensor | float = 0.0

    @staticmethod
    def draw(canvas: Canvas) -> Tone:
        """Draw curves as cameras have them: about sRGB, half of them with more contrast."""
        contrast = 0.5 * canvas.uniform() * canvas.some(0.5)
        return Tone(canvas.uniform(1.8, 2.4)[:, None], contrast[:, None])

    def display(self, light: Tensor) -> Tensor:
        """Values of a file, 0 to 1, from linear light; what is brighter than 1 is clipped."""
        power = torch.as_tensor(1 / self.gamma, device=light.device)
        foot = _TOE**power
        value = ((light.clamp(0, 1) + _TOE) ** power - foot) / ((1 + _TOE) ** power - foot)
        return value - self.contrast * torch.sin(2 * math.pi * value) / (2 * math.pi)

    def slope(self, light: Tensor, step: float) -> Tensor:
        """How steeply values rise with light, from a difference of two steps."""
        return (self.display(light + step) - self.display(light - step)) / (2 * step)

    def light(self, value: Tensor) -> Tensor:
        """Linear light from the values of a file; of curves without contrast."""
        power = torch.as_tensor(1 / self.gamma, device=value.device)
        foot = _TOE**power
        return ((value * ((1 + _TOE) ** power - foot) + foot) ** self.gamma - _TOE).clamp_min(0)


#: The curve that photographs are taken to have.
STANDARD = Tone()

#: Weights over all pixels of a colour's own, of which only every other, or every fourth, is there.
_GREEN = ((0.0, 0.25, 0.0), (0.25, 1.0, 0.25), (0.0, 0.25, 0.0))
_OTHER = ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25))

#: The first three rows, of five that are symmetric, of Malvar, He and Cutler 2004, in eighths:
#: green at red or blue; red at green in a row of red; the same in a row of blue; red at blue.
_GRADIENTS = (
    ((0, 0, -1, 0, 0), (0, 0, 2, 0, 0), (-1, 2, 4, 2, -1)),
    ((0, 0, 0.5, 0, 0), (0, -1, 0, -1, 0), (-1, 4, 5, 4, -1)),
    ((0, 0, -1, 0, 0), (0, -1, 4, -1, 0), (0.5, 0, 5, 0, 0.5)),
    ((0, 0, -1.5, 0, 0), (0, 2, 0, 2, 0), (-1.5, 0, 6, 0, -1.5)),
)

DEMOSAICINGS = ("bilinear", "gradients", "edges")


class Mosaic:
    """Red, green and blue pixels of a sensor of N x N, red first at some corner of 2 x 2."""

    def __init__(self, canvas: Canvas) -> None:
        place = torch.arange(canvas.side, device=canvas.device)
        row = (place + canvas.whole(0, 1))[:, None] % 2 == 0
        column = (place + canvas.whole(0, 1)) % 2 == 0
        #: Green pixels in rows that have red ones, and in rows that have blue ones.
        self.by_red, self.by_blue = row & ~column, ~row & column
        self.colours = torch.stack([row & column, self.by_red | self.by_blue, ~row & ~column])

    def seen(self, picture: Tensor) -> Tensor:
        """The one colour (..., H, W) that each pixel sees of a picture (..., 3, H, W)."""
        return (picture * self.colours).sum(-3)

    def developed(self, plane: Tensor, way: str) -> Tensor:
        """Full colours (..., 3, H, W) of what the pixels saw, by one of `DEMOSAICINGS`."""
        develop = {
            "bilinear": self._bilinear,
            "gradients": self._by_gradients,
            "edges": self._along_edges,
        }[way]
        picture = develop(plane.reshape(-1, 1, *plane.shape[-2:]))
        return picture.view(*plane.shape[:-2], 3, *plane.shape[-2:])

    def _bilinear(self, plane: Tensor) -> Tensor:
        red, green, blue = (plane * own for own in self.colours)
        return torch.cat(
            [_filtered(red, _OTHER), _filtered(green, _GREEN), _filtered(blue, _OTHER)], 1
        )

    def _by_gradients(self, plane: Tensor) -> Tensor:
        """Means of neighbours, corrected by the second derivative of the colour that is there."""
        green, in_row, in_column, across = (
            _filtered(plane, (*rows, rows[1], rows[0])) / 8 for rows in _GRADIENTS
        )
        red, green_here, blue = self.colours
        not_red = torch.where(self.by_red, in_row, torch.where(self.by_blue, in_column, across))
        not_blue = torch.where(self.by_blue, in_row, torch.where(self.by_red, in_column, across))
        return torch.cat(
            [
                torch.where(red, plane, not_red),
                torch.where(green_here, plane, green),
                torch.where(blue, plane, not_blue),
            ],
            1,
        )

    def _along_edges(self, plane: Tensor) -> Tensor:
        """Green along the weaker gradient, red and blue by differences from it."""
        made = []
        for axis in (2, 3):
            far, near, next_to, farther = (plane.roll(shift, axis) for shift in (2, 1, -1, -2))
            bend = 2 * plane - far - farther
            made += [(near - next_to).abs() + bend.abs(), (near + next_to) / 2 + bend / 4]
        steep_rows, by_rows, steep_columns, by_columns = made
        share = 0.5 + 0.5 * torch.sign(steep_columns - steep_rows)
        red, is_green, blue = self.colours
        green = torch.where(is_green, plane, torch.lerp(by_columns, by_rows, share))
        red, blue = (green + _filtered((plane - green) * own, _OTHER) for own in (red, blue))
        return torch.cat([red, green, blue], 1)


def _filtered(plane: Tensor, weights: tuple[tuple[float, ...], ...]) -> Tensor:
    """Correlate planes with small weights; the border is mirrored, which keeps the colours."""
    kernel = torch.tensor(weights, device=plane.device, dtype=torch.float64)
    return _correlated(plane, kernel, "reflect")


@dataclass(frozen=True)
class NoiseLevel:
    """Standard deviation (B, K, 1, 1, 1) at mid-grey, white is 1, and floor (B, 1, 1, 1, 1)."""

    sigma: Tensor
    floor: Tensor

    @staticmethod
    def draw(canvas: Canvas, settings: WorldSettings, frames: int) -> NoiseLevel:
        """Draw levels, often none; a third of them do not grow, others all but start at 0."""
        loud = canvas.log_uniform(0.5, settings.loudest) / 255
        quiet = 0.5 / 255 * canvas.uniform()
        share = canvas.uniform()
        sigma = torch.where(share < settings.noiseless + settings.quiet, quiet, loud)
        sigma = torch.where(share < settings.noiseless, 0.0, sigma)
        spread = 0.2 * canvas.some(0.25)
        sigma = sigma * torch.exp(spread * canvas.normal(frames, 1, 1))
        floor = canvas.uniform(0.02)
        floor = torch.where(canvas.some(0.35), 1.0, floor)
        return NoiseLevel(sigma[..., None], floor[..., None])

    def at(self, value: Tensor, middle: Tensor | float = 0.5) -> Tensor:
        """Standard deviation at values (B, K, C, H, W), whose mid-grey is ``middle``."""
        growth = self.floor + (1 - self.floor) * value.clamp_min(0) / middle
        return self.sigma * growth.sqrt()

    def floor_of(self, tone: Tone | None, middle: Tensor | float) -> Tensor:
        """Floor (B,) in the values of a file: of the line through what the tone curve leaves."""
        if tone is None:
            return self.floor.flatten()
        light = torch.linspace(0.25, 0.95, 15, device=self.floor.device).square()
        light = light.view(1, 1, 1, 1, -1)
        slope = tone.slope(light, 1e-3)
        growth = self.floor + (1 - self.floor) * light / middle
        variance = (growth * slope.square()).flatten(1)
        value = tone.display(light).expand_as(growth).flatten(1)
        from_mean = value - value.mean(1, keepdim=True)
        rise = (from_mean * variance).sum(1) / from_mean.square().sum(1)
        at_grey = variance.mean(1) + rise * (0.5 - value.mean(1))
        return (1 - 0.5 * rise / at_grey).clamp(0, 1)


def grain(canvas: Canvas, frames: int) -> Tensor:
    """Noise (B, K, 3, H, W) of unit variance that was white once, before a file was made of it."""
    side = canvas.side
    odds = {"white": 0.35, "smooth": 0.25, "mosaic": 0.15, "shrunk": 0.12, "enlarged": 0.13}
    kind = canvas.pick(odds)
    if kind == "shrunk":
        canvas = canvas.sized(canvas.batch, round(side * canvas.number(1.3, 3.0)))
    elif kind == "enlarged":
        canvas = canvas.sized(canvas.batch, round(side / canvas.number(1.2, 3.0)))
    size = canvas.side
    if kind == "mosaic" or (kind == "shrunk" and canvas.happens(0.7)):
        # Ways that are linear, so that they act on noise alone as on noise with a picture.
        way = "bilinear" if canvas.happens(0.5) else "gradients"
        noise = Mosaic(canvas).developed(canvas.normal(frames, size, size), way)
    else:
        noise = canvas.normal(frames, 3, size, size)
    if kind == "smooth":
        noise = smoothed(noise, canvas.number(0.4, 1.1))
    if size != side:
        mode = "bicubic" if canvas.happens(0.6) else "bilinear"
        noise = F.interpolate(
            noise.flatten(0, 1), (side, side), mode=mode, antialias=size > side
        ).unflatten(0, noise.shape[:2])
    if canvas.happens(0.4):
        # Chrominance is weaker or stronger than luminance, and coarser: blotches of colour.
        grey = noise.mean(2, keepdim=True)
        colour = noise - grey
        if canvas.happens(0.6):
            colour = smoothed(colour, canvas.number(0.7, 3.0))
            colour = colour * _spread(noise) / (_spread(colour) + 1e-6)
        noise = grey + canvas.log_uniform(0.1, 1.5)[:, None] * colour
    return noise / _spread(noise)


def _spread(noise: Tensor) -> Tensor:
    """Standard deviation (B, 1, 1, 1, 1) of each stack's noise about 0."""
    return noise.square().mean((1, 2, 3, 4), keepdim=True).sqrt()


def smoothed(planes: Tensor, sigma: float) -> Tensor:
    """Blur planes (..., H, W) by a Gaussian of some pixels; the border is repeated."""
    reach = max(1, round(3 * sigma))
    place = torch.arange(-reach, reach + 1, device=planes.device, dtype=torch.float64)
    weights = torch.exp(-0.5 * (place / sigma) ** 2)
    weights = weights[None] / weights.sum()
    return _correlated(_correlated(planes, weights, "replicate"), weights.T, "replicate")


def _correlated(planes: Tensor, kernel: Tensor, border: str) -> Tensor:
    """Correlate planes (..., H, W) with a kernel of odd sides."""
    down, right = (length // 2 for length in kernel.shape)
    flat = planes.reshape(-1, 1, *planes.shape[-2:])
    # In double precision: training may let convolutions of floats be rounded to 10 bits.
    flat = F.pad(flat, (right, right, down, down), mode=border).double()
    return F.conv2d(flat, kernel[None, None]).to(planes.dtype).view(planes.shape)
