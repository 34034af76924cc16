"""Frames: their sizes, how they differ in place and brightness, and what an aligner makes of them.

A frame sees the scene from elsewhere: breathing changes the scale, a hand the place, and near
things shift against far ones. The aligner undoes scale and shift by resampling the frame, noise
and all; what it leaves is a residue of some tenths of a pixel to some pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from training.world.canvas import Canvas, WorldSettings, middle, places

#: Largest shift that resampling undoes, in pixels: less than the margin of a plan.
_MOST_MOVED = 5.0
#: Largest residue of an alignment, about, in pixels.
_LARGEST_RESIDUE = 2.0
#: Part of white from which on the aligner leads a highlight back to its own value.
_HIGHLIGHT = 0.9


class Plan:
    """A batch of stacks while it is made: settings, number of frames, largest blur and sizes.

    Pictures are drawn on ``torus``, where light is spread; frames have the size of ``canvas``, its
    middle. In the end a part of them is cut out. ``motion`` is that of the frames, if any.
    """

    def __init__(self, canvas: Canvas, settings: WorldSettings, frames: int) -> None:
        """Draw the largest blur of a batch, each octave as likely, and where the cut begins."""
        largest_blur = settings.largest_blur
        self.settings, self.frames, self._size = settings, frames, canvas.side
        self.motion: Motion | None = None
        self.largest_blur = canvas.log_number(min(10.0, largest_blur), largest_blur)
        # Margins: frames move by less than 8 pixels, and a JPEG's blocks of 8 begin anywhere.
        side = canvas.side + 24
        # Light from farther beyond the border than this comes from the other side: still light.
        torus = 32 * math.ceil((side + 1.6 * self.largest_blur) / 32)
        self.canvas, self.torus = (canvas.sized(canvas.batch, each) for each in (side, torus))
        self._first = 8 + canvas.whole(0, 7), 8 + canvas.whole(0, 7)

    def middle(self, planes: Tensor) -> Tensor:
        """Take the part of planes as large as the torus that frames show."""
        return middle(planes, self.canvas.side)

    def cut(self, planes: Tensor) -> Tensor:
        """Take the part of planes as large as frames that is wanted in the end."""
        rows, columns = (slice(first, first + self._size) for first in self._first)
        return planes[..., rows, columns]

    def lit(self, planes: Tensor) -> Tensor:
        """Darken planes as large as the torus but for the part that is cut out in the end."""
        lit = torch.zeros_like(planes)
        self.cut(self.middle(lit))[:] = self.cut(self.middle(planes))
        return lit


class Motion:
    """How B x K frames lie about each picture's reference (B,), whose numbers are all 0.

    ``zoom`` (B, K, 1, 1, 1) and ``shift`` (B, K, 2, 1, 1), right and down, were undone by
    resampling; ``residue`` (B, K, 2, H, W) was not, nor was ``parallax`` (B, K, 2, 1, 1), pixels
    from the nearest to the farthest.
    """

    def __init__(self, canvas: Canvas, reference: Tensor, frames: int, *, resampled: bool) -> None:
        self.grid, self.resampled = canvas.grid(), resampled
        size = canvas.log_number(0.1, _LARGEST_RESIDUE)
        moves = torch.arange(frames, device=canvas.device) != reference[:, None]
        moves = moves[..., None, None, None]
        amount = size * canvas.uniform()[:, None] * moves
        scale = canvas.normal(frames, 1, 1, 1) * 2 / canvas.side
        turn = canvas.normal(frames, 1, 1, 1) / canvas.side
        from_centre = self.grid + 0.5 * canvas.side * canvas.normal(frames, 2, 1, 1).flip(2)
        right, down = from_centre.split(1, 2)
        whole = scale * from_centre + turn * torch.cat([-down, right], 2)
        local = canvas.field(canvas.whole(2, 5), 2 * frames).view_as(whole)
        residue = 0.3 * whole + 0.5 * local * canvas.number(0, 1)
        self.residue = (residue + 0.4 * canvas.normal(frames, 2, 1, 1)) * amount
        undone = moves * resampled
        zoom = 2 * _MOST_MOVED / canvas.side * canvas.uniform(-1, 1, frames, 1, 1, 1)
        self.zoom = zoom * undone
        self.shift = canvas.uniform(-1, 1, frames, 2, 1, 1) * undone
        self.parallax = canvas.normal(frames, 2, 1, 1) * amount

    def seen(self, planes: Tensor, depth: Tensor) -> Tensor:
        """What sensors see of planes (B, K, C, H, W) at depths (B, 1, H, W), 0 to 1."""
        return warped(planes, (self.grid - self.shift) / (1 + self.zoom) + self._left(depth))

    def at_its_best(self, planes: Tensor, depth: Tensor, least: Tensor) -> Tensor:
        """Move planes (B, 1, C, H, W) of the truth to where the frames ``least`` show them.

        Nothing but a frame has the detail of a place, and where that lies after alignment it
        stays. Were the truth elsewhere, a blur of all frames would be nearest to it.
        """
        number = least[:, :, None].expand(-1, -1, 2, -1, -1)
        return warped(planes, self.grid + self._left(depth).gather(1, number))

    def _left(self, depth: Tensor) -> Tensor:
        """Pixels right and down, (B, K, 2, H, W), that alignment leaves at depths (B, 1, H, W)."""
        return self.residue + self.parallax * (depth[:, None] - 0.5)

    def aligned(self, frames: Tensor) -> Tensor:
        """Resample frames (B, K, C, H, W) as an aligner does."""
        if not self.resampled:
            return frames
        moved = warped(frames, self.grid * (1 + self.zoom) + self.shift)
        # The reference is not resampled; bicubic weights at whole pixels are 1 but for rounding.
        return torch.where(self.zoom == 0, frames, moved)


def warped(planes: Tensor, grid: Tensor) -> Tensor:
    """Sample planes (B, K, C, H, W) at (B, K, 2, H, W): pixels right and down of the middle."""
    moved = F.grid_sample(
        planes.flatten(0, 1),
        grid.movedim(2, -1).flatten(0, 1) / (planes.shape[-1] / 2),
        mode="bicubic",
        padding_mode="reflection",
        align_corners=False,
    )
    return moved.view_as(planes)


def vignette(canvas: Canvas) -> Tensor:
    """Light (B, 1, H, W) that falls off from somewhere, for the picture may be a part of one."""
    y, x = (
        place / canvas.side - canvas.uniform(-1) for place in places(canvas.side, canvas.device)
    )
    return 1 / (1 + 0.35 * canvas.uniform() * (y.square() + x.square())).square()


class Exposure:
    """``gain`` (B, K, 3, h, w), the light of frames in parts of the reference's (B,)."""

    def __init__(self, canvas: Canvas, reference: Tensor, frames: int) -> None:
        """Draw a flicker of some per cent, or gains of up to 30; casts; light that wanders."""
        # Two frames may be twice as far apart.
        most = 0.04 if canvas.happens(0.5) else 0.15
        log_gain = most * canvas.uniform()[:, None] * canvas.uniform(-1, 1, frames, 1, 1, 1)
        cast = 0.06 * canvas.uniform() * canvas.some(0.5)
        log_gain = log_gain + cast[:, None] * canvas.uniform(-1, 1, frames, 3, 1, 1)
        if canvas.happens(0.3):
            slow = canvas.field(2, frames)
            log_gain = log_gain + (0.1 * canvas.uniform() * slow)[:, :, None]
        self._own = torch.arange(canvas.batch, device=canvas.device), reference
        self.gain = torch.exp(log_gain - log_gain[self._own][:, None])

    def lit(self, views: Tensor, *, matched: bool) -> Tensor:
        """Light views (B, K + 1, 3, H, W): frames, and the truth as they are once ``matched``.

        Frames that will not be matched have a truth that is as bright as their mean.
        """
        mean = self.gain.mean(1, keepdim=True)
        return views * torch.cat([self.gain, torch.ones_like(mean) if matched else mean], 1)

    def corrected(self, canvas: Canvas, frames: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Make frames (B, K, 3, H, W) as bright as the reference, by a gain of every channel.

        Highlights, which may have been clipped, fade to their own value.
        """
        means = clean.mean((-1, -2), keepdim=True) + 1e-3
        error = 1 + 0.01 * canvas.normal(frames.shape[1], 1, 1, 1)
        error[self._own] = 1
        gain = means[self._own][:, None] / means * error
        values = torch.stack([frames, clean])
        darkest = values.amin(3, keepdim=True)
        fade = ((darkest - _HIGHLIGHT) / (1 - _HIGHLIGHT)).clamp(0, 1)
        fade = fade * fade * (3 - 2 * fade)
        frames, clean = (values * (gain + (1 - gain).clamp_min(0) * fade)).clamp(0, 1)
        return frames, clean
