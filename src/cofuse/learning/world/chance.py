"""Chance: how often things happen in the world, random numbers, and sizes of pictures.

What chooses a path through the code is decided by NumPy's generator, so that no decision waits for
the device. What differs between the pictures of a batch is drawn on the device, as tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class WorldSettings:
    """Probabilities, of a batch unless they are said to be a picture's."""

    # Kinds of scenes: weights that need not add up to 1.
    photographic: float = 0.5  #: Things before a ground, in linear light: what a camera sees.
    specimens: float = 0.2  #: Bodies under a microscope: as common, but with fewer surprises.
    #: Bodies too thick to be all in focus. Without them networks learn from specimens that what is
    #: darkest is right, and mix the darkest parts of all frames.
    thick: float = 0.15
    #: Regions cut by hard masks, as public collections are made. Nothing else teaches weights that
    #: are exact to the pixel.
    masked: float = 0.25
    mapped: float = 0.12  #: Pictures blurred by a map of depth: the other way of collections.

    # What is seen, and through which lens.
    drawn: float = 0.2  #: Drawn grounds: print, boards, worn surfaces are rare in photographs.
    objects: int = 3  #: Largest number of things before the ground; each costs as much as it.
    far_ground: float = 0.35  #: Of scenes with things: a ground that is never in focus.
    largest_blur: float = 64.0  #: Radius in pixels; beyond, only a gradient would be left.
    soft: float = 0.25  #: Pictures soft even in focus: standard deviation 0.4 to 4 pixels.
    soft_specimens: float = 0.6  #: The same of microscopes, whose pixels outnumber their detail.
    fringed: float = 0.25  #: Photographic scenes through a lens whose colours focus apart.

    # How frames differ.
    moved: float = 0.45  #: Frames that do not lie on each other: hand-held, breathing, parallax.
    resampled: float = 0.6  #: Of moved frames, those that an aligner has resampled.
    unsteady: float = 0.4  #: Frames of different brightness or colour.
    corrected: float = 0.7  #: Of these, those whose brightness the aligner has matched.
    repeated: float = 0.03  #: A frame that is there twice, noise and all.

    # Noise and files.
    grey: float = 0.25  #: Grey pictures.
    noiseless: float = 0.15  #: Pictures without noise: rendered, or means of many exposures.
    quiet: float = 0.15  #: Pictures with less than half a grey level: rounding is as large.
    loudest: float = 35.0  #: Largest noise level in grey levels; octaves from 0.5 on are as likely.
    plain: float = 0.15  #: White noise and nothing else, as in most comparisons.
    jpeg: float = 0.45  #: Frames that were stored as JPEG.


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
        whole = math.ceil(side / (knots + 1) * (knots + 3))
        field = F.interpolate(grid, (whole, whole), mode="bicubic", align_corners=True)
        return 1.4 * middle(field[:, 0], side)


def middle(planes: Tensor, side: int) -> Tensor:
    """Take the middle (..., side, side) of larger square planes."""
    start = (planes.shape[-1] - side) // 2
    return planes[..., start : start + side, start : start + side]


@dataclass(frozen=True)
class Canvas:
    """Sizes in pixels of a batch while it is made.

    Light is spread on a square of side ``torus``; frames have the ``side`` of its middle. In the
    end a part of side ``size`` is cut out of them, whose first pixel is (``top``, ``left``).
    """

    size: int
    side: int
    torus: int
    largest_blur: float
    top: int
    left: int

    @staticmethod
    def draw(chance: Chance, size: int, largest_blur: float) -> Canvas:
        """Draw the largest blur of a batch, each octave as likely, and where the cut begins."""
        largest = chance.log_number(min(10.0, largest_blur), largest_blur)
        # Margins: frames move by less than 8 pixels, and a JPEG's blocks of 8 begin anywhere.
        side = size + 24
        # Light from farther beyond the border than this comes from the other side: still light.
        torus = 32 * math.ceil((side + 1.6 * largest) / 32)
        return Canvas(size, side, torus, largest, 8 + chance.whole(0, 7), 8 + chance.whole(0, 7))

    def middle(self, planes: Tensor) -> Tensor:
        """Take the part (..., side, side) of planes as large as the torus."""
        return middle(planes, self.side)

    def cut(self, planes: Tensor) -> Tensor:
        """Take the part (..., size, size) that is asked for, of planes (..., side, side)."""
        rows, columns = (slice(start, start + self.size) for start in (self.top, self.left))
        return planes[..., rows, columns]

    def lit(self, planes: Tensor) -> Tensor:
        """Darken planes as large as the torus but for the part that is cut out in the end."""
        lit = torch.zeros_like(planes)
        self.cut(self.middle(lit))[:] = self.cut(self.middle(planes))
        return lit
