"""Chance: how often things happen in the world, random numbers, and sizes of pictures.

What chooses a path through the code is decided by NumPy's generator, so that no decision waits for
the device; what differs between the pictures of a batch is drawn there, as tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Canvas", "Chance", "WorldSettings"]


@dataclass(frozen=True)
class WorldSettings:
    """Probabilities of a batch, unless they are said to be a picture's.

    The first five are weights of the kinds of scenes; they need not add up to 1.
    """

    #: Layers before a slanted ground, in linear light: what a camera sees, so half of all.
    photographic: float = 0.5
    #: Bodies in transmitted or emitted light: as many real stacks come from microscopes as from
    #: lenses, but with fewer surprises.
    specimens: float = 0.2
    #: Bodies that are not all in focus anywhere: without them networks learn from specimens that
    #: what is darkest is right, and mix the darkest parts of all frames.
    thick: float = 0.15
    #: Regions cut by hard masks, as collections with a truth are made. Their borders want weights
    #: that are exact to the pixel, which nothing else teaches.
    masked: float = 0.25
    #: Pictures blurred pixel by pixel after a map of depth: the other way to make collections.
    mapped: float = 0.12
    #: Scenes whose ground is drawn: print, boards, worn surfaces are rare among photographs and
    #: common in stacks.
    drawn: float = 0.2
    #: Objects before the ground, at the most; each costs as much as the ground.
    objects: int = 3
    #: Grounds far behind all that is ever in focus, of photographic scenes with objects.
    far_ground: float = 0.35
    #: Largest radius of a blur, pixels; a macro lens easily has more, but then nothing is left
    #: that could be told from a gradient.
    largest_blur: float = 64.0
    #: Scenes, of a picture, that even in focus are soft; 0.4 to 4 pixels standard deviation.
    soft: float = 0.25
    #: The same of microscopes, which have more pixels than their light can resolve.
    soft_specimens: float = 0.6
    #: Photographic scenes through a lens whose colours do not focus together.
    fringed: float = 0.25
    #: Frames that do not lie on each other: hand-held, breathing, parallax.
    moved: float = 0.45
    #: Of moved frames, those that an aligner has resampled.
    resampled: float = 0.6
    #: Frames of different brightness or colour.
    unsteady: float = 0.4
    #: Of these, those whose brightness the aligner has matched.
    corrected: float = 0.7
    #: A frame that is there twice, noise and all; copies are left out before, as far as exact.
    repeated: float = 0.03
    #: Grey pictures.
    grey: float = 0.25
    #: Pictures, each for itself, without noise: rendered ones, and means of many exposures.
    noiseless: float = 0.15
    #: Pictures with less than half a grey level of noise, where rounding is as large.
    quiet: float = 0.15
    #: Largest standard deviation of the noise, of a picture, in grey levels; each octave from half
    #: a level on is as likely.
    loudest: float = 35.0
    #: Batches with white noise and nothing else done to them: what most comparisons are made with.
    plain: float = 0.15
    #: Frames that were stored as JPEG.
    jpeg: float = 0.45


class Chance:
    """A source of randomness that a seed makes repeatable."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.host = np.random.default_rng(seed)
        self.generator = torch.Generator(device).manual_seed(seed)

    def happens(self, probability: float) -> bool:
        """Decide for the batch."""
        return bool(self.host.random() < probability)

    def number(self, low: float, high: float) -> float:
        """Draw one number for the batch."""
        return float(self.host.uniform(low, high))

    def log_number(self, low: float, high: float) -> float:
        """Draw one number for the batch, each octave as likely as the next."""
        return float(np.exp(self.host.uniform(math.log(low), math.log(high))))

    def whole(self, low: int, high: int) -> int:
        """Draw one whole number for the batch, ``high`` included."""
        return int(self.host.integers(low, high + 1))

    def pick(self, **weights: float) -> str:
        """Choose one of the names for the batch, by their weights."""
        shares = np.array(list(weights.values()))
        return str(self.host.choice(list(weights), p=shares / shares.sum()))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Draw numbers from ``low`` to ``high``."""
        drawn = torch.rand(*shape, generator=self.generator, device=self.device)
        return low + (high - low) * drawn

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw numbers from ``low`` to ``high``, each octave as likely as the next."""
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def normal(self, *shape: int) -> Tensor:
        """Draw Gaussian numbers."""
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def some(self, probability: float, *shape: int) -> Tensor:
        """Decide for each: true with this probability."""
        return self.uniform(*shape) < probability

    def index(self, count: int, *shape: int) -> Tensor:
        """Draw numbers of one of ``count`` things."""
        return torch.randint(count, shape, generator=self.generator, device=self.device)

    def field(self, batch: int, knots: int, side: int) -> Tensor:
        """Draw smooth fields (B, H, W) of about unit variance with ``knots`` bumps a side."""
        # Knots beyond the border: a spline swings more weakly at its ends.
        grid = self.normal(batch, 1, knots + 4, knots + 4)
        apart = side / (knots + 1)
        whole = math.ceil(apart * (knots + 3))
        field = F.interpolate(grid, (whole, whole), mode="bicubic", align_corners=True)
        start = (whole - side) // 2
        return 1.4 * field[:, 0, start : start + side, start : start + side]


#: Pixels around the part that is cut out in the end, at least on one side and in all: frames are
#: moved by less than the first, and the blocks of a JPEG begin anywhere.
_LEAST_MARGIN, _SPARE = 8, 24


@dataclass(frozen=True)
class Canvas:
    """Sides in pixels: ``size`` asked for, ``side`` of frames while they are made, ``torus``."""

    size: int
    side: int
    torus: int
    largest_blur: float
    top: int
    left: int

    @staticmethod
    def draw(chance: Chance, size: int, largest_blur: float) -> Canvas:
        """Draw the largest blur of a batch, small ones as likely, and where the cut begins."""
        largest = chance.log_number(min(10.0, largest_blur), largest_blur)
        side = size + _SPARE
        # Light from farther beyond the border than this comes from the other side: still light.
        torus = 32 * math.ceil((side + 1.6 * largest) / 32)
        top, left = (_LEAST_MARGIN + chance.whole(0, 7) for _ in range(2))
        return Canvas(size, side, torus, largest, top, left)

    def middle(self, planes: Tensor) -> Tensor:
        """The part (..., side, side) of planes as large as the torus."""
        start = (self.torus - self.side) // 2
        return planes[..., start : start + self.side, start : start + self.side]

    def cut(self, planes: Tensor) -> Tensor:
        """The part (..., size, size) that is asked for, of planes (..., side, side)."""
        rows, columns = (slice(start, start + self.size) for start in (self.top, self.left))
        return planes[..., rows, columns].contiguous()

    def lit(self, planes: Tensor) -> Tensor:
        """Planes as large as the torus, dark but for the part that is cut out in the end."""
        start = (self.torus - self.side) // 2
        dark = planes.new_zeros(planes.shape)
        rows, columns = (
            slice(start + first, start + first + self.size) for first in (self.top, self.left)
        )
        dark[..., rows, columns] = planes[..., rows, columns]
        return dark
