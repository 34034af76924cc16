r"""Depth, focus and blur, all in pixels: the radius of the blur is the depth less the focus.

A lens focused elsewhere spreads the light of a point over the image of its aperture: a disc, a
polygon, a cat's eye near the corners of the picture. An uncorrected lens makes the rim brighter on
one side of the focus, and the middle on the other. Mirror lenses have a hole. Microscopes, and many
pictures on the web, are nearer to a Gaussian.

Where the radius changes from pixel to pixel, pictures are blurred once for each step of a ladder
of radii. Between two steps :math:`a < r < b` they are mixed,

.. math:: x_r = (1 - w) x_a + w x_b, \quad w = (r^2 - a^2) / (b^2 - a^2),

so that the spread, which grows with the square of the radius, is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cofuse.learning.world.chance import Chance, middle
from cofuse.learning.world.drawing import places, turned


@dataclass(frozen=True)
class Sweep:
    """Focus (B, K) of the frames from near to far, and the depth (B,) of the scene from 0."""

    focus: Tensor
    depth: Tensor

    @staticmethod
    def draw(chance: Chance, batch: int, frames: int, largest: float) -> Sweep:
        """Draw sweeps over scenes of up to ``largest`` pixels of blur.

        Half go from the nearest to the farthest place; others leave some out of focus; others
        are a part of a long sweep in fine steps, of which frames beside each other hardly differ.
        """
        depth = largest * chance.log_uniform(0.3, 1.0, batch)
        whole = chance.some(0.5, batch)
        first = torch.where(whole, 0.0, 0.5 * chance.uniform(batch)) * depth
        last = torch.where(whole, 1.0, 0.5 + 0.5 * chance.uniform(batch)) * depth
        steps = max(frames - 1, 1)
        fine = chance.log_uniform(0.3, 3.0, batch) * steps
        start = chance.uniform(batch) * (depth - fine).clamp_min(0)
        is_fine = chance.some(0.2, batch)
        first = torch.where(is_fine, start, first)
        last = torch.where(is_fine, torch.minimum(start + fine, depth), last)
        place = torch.linspace(0, 1, frames, device=chance.device).expand(batch, -1)
        if frames == 1:
            place = chance.uniform(batch, 1)
        uneven = 0.4 / steps * (chance.uniform(batch, frames) - 0.5)
        focus = first[:, None] + (last - first)[:, None] * (place + uneven)
        # Some frames were taken twice: nothing has moved, only the noise is another.
        twice, number = chance.some(0.1, batch, 1), torch.arange(frames, device=chance.device)
        twice = twice & (number == chance.index(frames, batch, 1))
        focus = torch.where(twice, focus.roll(1, 1), focus)
        return Sweep(focus.flip(1) if chance.happens(0.3) else focus, depth)

    def nearest(self, depth: Tensor) -> Tensor:
        """The focus of one of the frames that is nearest to these depths (B,)."""
        return self.focus.gather(1, (depth[:, None] - self.focus).abs().argmin(1, True))[:, 0]


def surface(chance: Chance, batch: int, side: int, relief: Tensor) -> Tensor:
    """Depth (B, H, W) from 0 to 1 of a slanted, curved, hollow, or rough surface.

    ``relief`` is a picture (B, H, W) that some surfaces rise and fall with.
    """
    y, x = places(side, chance.device)
    _, along = turned(y, x, chance.uniform(batch, 1, 1, high=2 * math.pi))
    plane = along * 2 / side
    kind = chance.pick(slant=0.35, curved=0.4, hollow=0.15, rough=0.1)
    if kind == "slant":
        depth = plane + 0.2 * chance.uniform(batch, 1, 1) * chance.field(batch, 3, side)
    elif kind == "curved":
        depth = chance.field(batch, 3, side) + chance.normal(batch, 1, 1) * plane
    elif kind == "hollow":
        y, x = (p - 0.3 * side * chance.uniform(batch, 1, 1, low=-1) for p in (y, x))
        away = torch.hypot(y, x * chance.uniform(batch, 1, 1, low=0.5)) / side
        depth = torch.where(chance.some(0.5, batch, 1, 1), away, -away) + 0.2 * plane
    else:
        depth = plane + 0.5 * chance.field(batch, chance.whole(6, 16), side)
    if chance.happens(0.4):
        depth = depth + chance.uniform(batch, 1, 1) * relief
    low, high = depth.amin((1, 2), keepdim=True), depth.amax((1, 2), keepdim=True)
    return (depth - low) / (high - low + 1e-6)


#: Radii in pixels that pictures are blurred by. Up to half a pixel nothing is seen of a blur.
_RADII = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 11.3, 16.0, 22.6, 32.0, 45.3, 64.0)


@dataclass(frozen=True)
class Aperture:
    """The openings of a batch of lenses; every tensor has the shape (B, 1, 1).

    ``blades`` is 0 of a round one; ``eye`` how far the two discs of a cat's eye are apart, in
    radii; ``rim`` how much brighter the rim is; ``hole`` the radius of a hole in the middle.
    """

    blades: Tensor
    turn: Tensor
    eye: Tensor
    rim: Tensor
    hole: Tensor
    gaussian: Tensor

    @staticmethod
    def draw(chance: Chance, batch: int, *, gaussian: float = 0.25) -> Aperture:
        """Draw openings; ``gaussian`` is the share of those without an edge."""
        shape = (batch, 1, 1)
        blades = torch.where(chance.some(0.35, *shape), 5 + chance.index(5, *shape), 0)
        return Aperture(
            blades=blades,
            turn=chance.uniform(*shape, high=2 * math.pi),
            eye=0.5 * chance.uniform(*shape) * chance.some(0.3, *shape),
            rim=2.0 * chance.uniform(*shape) * chance.some(0.35, *shape),
            hole=0.45 * chance.uniform(*shape) * chance.some(0.08, *shape),
            gaussian=chance.some(gaussian, *shape),
        )

    def gauge(self, side: int) -> Tensor:
        """Radius (B, N, N) of the opening whose edge passes through each place of a torus."""
        place = torch.fft.fftfreq(side, 1 / side, device=self.turn.device)
        y, x = place[:, None], place
        away, angle = torch.hypot(y, x), torch.atan2(y, x) - self.turn
        sector = 2 * math.pi / self.blades.clamp_min(3)
        straight = away * torch.cos(torch.remainder(angle, sector) - sector / 2)
        # As large as the disc of that radius.
        polygon = straight * torch.sqrt(torch.tan(sector / 2) * 2 / sector)
        along = (away * torch.cos(angle)).abs() * self.eye
        rest = 1 - self.eye.square()
        eye = (along + torch.sqrt(along.square() + rest * away.square())) / rest
        # Vignetting by the barrel makes an eye smaller, it does not spread light further.
        return torch.where(self.blades > 0, polygon, eye * (1 - self.eye).sqrt())

    def kernel(self, gauge: Tensor, radius: Tensor) -> Tensor:
        """Kernels (B, L, N, N) of sum 1; radii (B or 1, L) below 0 lie behind the focus."""
        radius, gauge = radius[..., None, None], gauge[:, None]
        rim, hole, gaussian = (part[:, None] for part in (self.rim, self.hole, self.gaussian))
        size = radius.abs().clamp_min(0.5)
        part = gauge / size
        bump = torch.where(radius >= 0, (part - 0.9) / 0.12, part / 0.45)
        edge = (size + 0.5 - gauge).clamp(0, 1)
        inner = (hole * size + 0.5 - gauge).clamp(0, 1) * ((size > 3) & (hole > 0))
        flat = (1 + rim * torch.exp(-bump.square())) * (edge - inner).clamp_min(0)
        kernel = torch.where(gaussian, torch.exp(-2 * part.square()), flat)
        kernel = torch.where(size <= 0.5, (gauge == 0).to(kernel.dtype), kernel)
        return kernel / kernel.sum((-1, -2), keepdim=True)


def blurred(planes: Tensor, kernel: Tensor) -> Tensor:
    """Blur planes (B, C, N, N) on a torus by one kernel each, (B, 1, N, N)."""
    spectrum = torch.fft.rfft2(planes) * torch.fft.rfft2(kernel)
    return torch.fft.irfft2(spectrum, s=planes.shape[-2:])


class Lens:
    """Spectra of an aperture's kernels for all radii up to a largest, at one size of canvas.

    ``softness`` is the standard deviation, (B,) in pixels, of a Gaussian that blurs even what is in
    focus. With ``sided``, kernels in front of the focus differ from those behind it, and radii
    have signs.
    """

    def __init__(
        self, aperture: Aperture, side: int, largest: float, softness: Tensor, *, sided: bool
    ) -> None:
        radii = [radius for radius in _RADII if radius < largest * 1.42]
        if sided:
            radii = [-radius for radius in reversed(radii)] + radii
        gauge = aperture.gauge(side)
        y = torch.fft.fftfreq(side, device=gauge.device)[:, None]
        x = torch.fft.rfftfreq(side, device=gauge.device)
        spread = 2 * (math.pi * softness[:, None, None]).square()
        sharpness = torch.exp(-spread * (y.square() + x.square()))
        self.sided = sided
        self.radii = torch.tensor(radii, device=gauge.device)
        self.spectra = torch.fft.rfft2(aperture.kernel(gauge, self.radii[None]))
        self.spectra *= sharpness[:, None]

    def ladder(self, planes: Tensor, side: int) -> Tensor:
        """Blur planes (B, C, N, N) by all L radii; return the middle, (B, L, C, side, side)."""
        spectrum = torch.fft.rfft2(planes)[:, None] * self.spectra[:, :, None]
        return middle(torch.fft.irfft2(spectrum, s=planes.shape[-2:]), side).contiguous()

    def between(self, ladder: Tensor, radius: Tensor, offset: Tensor | None = None) -> Tensor:
        """Mix the steps of a ladder to frames (B, K, C, H, W) with radii (B, K, H, W).

        ``offset`` (B, C or more) is added to the radii of each plane: a lens that is not corrected
        for colours has a focus for each of them.
        """
        planes = ladder.shape[2]
        radius = radius[:, :, None]
        if offset is not None:
            radius = radius + offset[:, None, :planes, None, None]
        radius = radius if self.sided else radius.abs()
        below = torch.bucketize(radius.contiguous(), self.radii[1:-1], right=True)
        square = self.radii * self.radii.abs()
        low, high = square[below], square[below + 1]
        share = ((radius * radius.abs() - low) / (high - low)).clamp(0, 1)
        under, over = (
            ladder.gather(1, step.expand(-1, -1, planes, -1, -1)) for step in (below, below + 1)
        )
        return torch.lerp(under, over, share)
