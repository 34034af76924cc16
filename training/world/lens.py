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

from training.world.canvas import Canvas, middle, places
from training.world.frames import Motion


class Sweep:
    """Focus (B, K, 1, 1) of the frames, and the depth (B, 1, 1, 1) of the scene from 0.

    Half go from the nearest to the farthest place; others leave some out of focus; others are a
    part of a long sweep in fine steps, of which frames beside each other hardly differ.
    """

    def __init__(self, canvas: Canvas, frames: int, largest: float) -> None:
        """Draw sweeps over scenes of up to ``largest`` pixels of blur."""
        self.depth = largest * canvas.log_uniform(0.3, 1.0)
        whole = canvas.some(0.5)
        first = torch.where(whole, 0.0, 0.5 * canvas.uniform()) * self.depth
        last = torch.where(whole, 1.0, 0.5 + 0.5 * canvas.uniform()) * self.depth
        steps = max(frames - 1, 1)
        fine = canvas.log_uniform(0.3, 3.0) * steps
        start = canvas.uniform() * (self.depth - fine).clamp_min(0)
        is_fine = canvas.some(0.2)
        first = torch.where(is_fine, start, first)
        last = torch.where(is_fine, torch.minimum(start + fine, self.depth), last)
        number = torch.arange(frames, device=canvas.device)[:, None, None]
        place = number / steps if frames > 1 else canvas.uniform()
        uneven = 0.4 / steps * (canvas.uniform(0, 1, frames, 1, 1) - 0.5)
        focus = first + (last - first) * (place + uneven)
        # Some frames were taken twice: nothing has moved, only the noise is another.
        twice = canvas.some(0.1) & (number == canvas.index(frames)[:, None, None, None])
        focus = torch.where(twice, focus.roll(1, 1), focus)
        self.focus = focus.flip(1) if canvas.happens(0.3) else focus


def surface(canvas: Canvas, relief: Tensor) -> Tensor:
    """Depth (B, 1, H, W) from 0 to 1 of a slanted, curved, hollow, or rough surface.

    ``relief`` is a grey picture that some surfaces rise and fall with.
    """
    plane = canvas.along() * 2 / canvas.side
    kind = canvas.pick({"slant": 0.35, "curved": 0.4, "hollow": 0.15, "rough": 0.1})
    if kind == "slant":
        depth = plane + 0.2 * canvas.uniform() * canvas.field(3)
    elif kind == "curved":
        depth = canvas.field(3) + canvas.normal() * plane
    elif kind == "hollow":
        y, x = (
            place / canvas.side - 0.3 * canvas.uniform(-1)
            for place in places(canvas.side, canvas.device)
        )
        away = torch.hypot(y, x * canvas.uniform(0.5))
        depth = torch.where(canvas.some(0.5), away, -away) + 0.2 * plane
    else:
        depth = plane + 0.5 * canvas.field(canvas.whole(6, 16))
    if canvas.happens(0.4):
        depth = depth + canvas.uniform() * relief
    low, high = depth.amin((2, 3), keepdim=True), depth.amax((2, 3), keepdim=True)
    return (depth - low) / (high - low + 1e-6)


#: Radii in pixels that pictures are blurred by. Up to half a pixel nothing is seen of a blur.
_RADII = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 11.3, 16.0, 22.6, 32.0, 45.3, 64.0)


class Aperture:
    """The openings of a batch of lenses: discs, polygons, cat's eyes.

    ``gauge`` (B, 1, N, N) is the radius of the opening whose edge passes through each place of a
    torus; ``rim`` (B, 1, 1, 1) how much brighter the rim is; ``hole`` the radius of a hole in the
    middle.
    """

    def __init__(self, canvas: Canvas, *, gaussian: float) -> None:
        """Draw openings; ``gaussian`` is the share of those without an edge."""
        has_blades, blades = canvas.some(0.35), 5 + canvas.index(5)[:, None, None, None]
        turn = canvas.uniform(high=2 * math.pi)
        #: How many radii the two discs of a cat's eye are apart.
        eye = 0.5 * canvas.uniform() * canvas.some(0.3)
        self.rim = 2.0 * canvas.uniform() * canvas.some(0.35)
        self.hole = 0.45 * canvas.uniform() * canvas.some(0.08)
        self.gaussian = canvas.some(gaussian)

        place = torch.fft.fftfreq(canvas.side, 1 / canvas.side, device=canvas.device)
        away = torch.hypot(place[:, None], place)
        angle = torch.atan2(place[:, None], place) - turn
        sector = 2 * math.pi / blades
        straight = away * torch.cos(torch.remainder(angle, sector) - sector / 2)
        # As large as the disc of that radius.
        polygon = straight * torch.sqrt(torch.tan(sector / 2) * 2 / sector)
        along = (away * torch.cos(angle)).abs() * eye
        rest = 1 - eye.square()
        round_one = (along + torch.sqrt(along.square() + rest * away.square())) / rest
        # Vignetting by the barrel makes an eye smaller, it does not spread light further.
        self.gauge = torch.where(has_blades, polygon, round_one * (1 - eye).sqrt())

    def kernel(self, radius: Tensor) -> Tensor:
        """Kernels (B, L, N, N) of sum 1; radii (B or 1, L, 1, 1) below 0 lie behind the focus."""
        size = radius.abs().clamp_min(0.5)
        part = self.gauge / size
        bump = torch.where(radius >= 0, (part - 0.9) / 0.12, part / 0.45)
        edge = (size + 0.5 - self.gauge).clamp(0, 1)
        inner = (self.hole * size + 0.5 - self.gauge).clamp(0, 1) * ((size > 3) & (self.hole > 0))
        flat = (1 + self.rim * torch.exp(-bump.square())) * (edge - inner).clamp_min(0)
        kernel = torch.where(self.gaussian, torch.exp(-2 * part.square()), flat)
        kernel = torch.where(size <= 0.5, (self.gauge == 0).to(kernel.dtype), kernel)
        return kernel / kernel.sum((-1, -2), keepdim=True)


def blurred(planes: Tensor, kernel: Tensor) -> Tensor:
    """Blur planes (B, C, N, N) on a torus by one kernel each, (B, 1, N, N)."""
    spectrum = torch.fft.rfft2(planes) * torch.fft.rfft2(kernel)
    return torch.fft.irfft2(spectrum, s=planes.shape[-2:])


class Lens:
    """Spectra of an aperture's kernels for all radii up to a largest, at one size of canvas.

    A ``sided`` lens spreads light otherwise in front of the focus than behind it, and radii have
    signs. ``fringes`` (B, 6, 1, 1), if any, is added to the radii of each plane, red, green, blue
    and the coverage that spreads with them: a lens that is not corrected for colours has a focus
    for each.
    """

    def __init__(
        self,
        canvas: Canvas,
        largest: float,
        *,
        soft: float = 0.0,
        gaussian: float = 0.25,
        sided: float = 0.0,
        fringed: float = 0.0,
    ) -> None:
        """Draw lenses, with the probabilities of being soft in focus, Gaussian, and so on."""
        self.fringes: Tensor | None = None
        if canvas.happens(fringed):
            red, blue = canvas.uniform(-1.5, 1.5, 2, 1, 1).split(1, 1)
            self.fringes = torch.cat([red, 0 * red, blue] * 2, 1)
        aperture = Aperture(canvas, gaussian=gaussian)
        #: Standard deviation in pixels of a Gaussian that blurs even what is in focus.
        softness = canvas.log_uniform(0.4, 4.0) * canvas.some(soft)
        self.sided = canvas.happens(sided)
        radii = [radius for radius in _RADII if radius < largest * 1.42]
        if self.sided:
            radii = [-radius for radius in reversed(radii)] + radii
        self.radii = torch.tensor(radii, device=canvas.device)
        y = torch.fft.fftfreq(canvas.side, device=canvas.device)[:, None]
        x = torch.fft.rfftfreq(canvas.side, device=canvas.device)
        spread = 2 * (math.pi * softness).square()
        sharpness = torch.exp(-spread * (y.square() + x.square()))
        self.spectra = torch.fft.rfft2(aperture.kernel(self.radii[:, None, None])) * sharpness

    def show(self, planes: Tensor, radius: Tensor) -> Tensor:
        """Blur planes (B, C, N, N) by radii (B, K, H, W); return their middle (B, K, C, H, W)."""
        count = planes.shape[1]
        spectrum = torch.fft.rfft2(planes)[:, None] * self.spectra[:, :, None]
        ladder = middle(torch.fft.irfft2(spectrum, s=planes.shape[-2:]), radius.shape[-1])
        radius = radius[:, :, None]
        if self.fringes is not None:
            radius = radius + self.fringes[:, None, :count]
        radius = radius if self.sided else radius.abs()
        below = torch.bucketize(radius.contiguous(), self.radii[1:-1], right=True)
        square = self.radii * self.radii.abs()
        low, high = square[below], square[below + 1]
        share = ((radius * radius.abs() - low) / (high - low)).clamp(0, 1)
        under, over = (
            ladder.gather(1, step.expand(-1, -1, count, -1, -1)) for step in (below, below + 1)
        )
        return torch.lerp(under, over, share)


@dataclass(frozen=True)
class Layer:
    """Planes (B, C, N, N) of light, or of what a body lets through, at depths (B, 1, H, W)."""

    planes: Tensor
    depth: Tensor

    def views(
        self, lens: Lens, sweep: Sweep, motion: Motion | None = None, farthest: Tensor | None = None
    ) -> Tensor:
        """Show the layer in all frames and, last, in the truth: (B, K + 1, C, H, W).

        The truth shows every place as the frame does that blurs it least, and where that frame
        does. ``farthest`` (B, 1, 1, 1) is the depth of a `Motion`'s 1.
        """
        apart = self.depth - sweep.focus
        least = apart.abs().argmin(1, keepdim=True)
        views = lens.show(self.planes, torch.cat([apart, apart.gather(1, least)], 1))
        if motion is None:
            return views
        part = self.depth / farthest
        moved = motion.seen(views[:, :-1], part)
        return torch.cat([moved, motion.at_its_best(views[:, -1:], part, least)], 1)
