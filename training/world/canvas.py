"""How often things happen in the made world, and canvases: random numbers of a size."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_Thing = TypeVar("_Thing")


@dataclass(frozen=True, kw_only=True)
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
    vignetted: float = 0.4  #: Scenes of cameras and microscopes whose light falls off.

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


class Canvas:
    """A batch of square pictures to draw: how many, of which side, and all that is random in them.

    What chooses a path through the code comes from NumPy's generator, so that no decision waits for
    the device. What differs between the pictures of a batch is drawn on the device: tensors of
    shape (B, ...), by default (B, 1, 1, 1), one number for each picture.
    """

    def __init__(self, photos: Tensor, seed: int, *, batch: int = 1, side: int = 1) -> None:
        self.photos, self.device = photos, photos.device
        self.host = np.random.default_rng(seed)
        self.generator = torch.Generator(photos.device).manual_seed(seed)
        self.batch, self.side = batch, side

    def sized(self, batch: int, side: int) -> Self:
        """Return a canvas for another batch that shares photographs and random generators."""
        other = copy.copy(self)
        other.batch, other.side = batch, side
        return other

    def happens(self, probability: float) -> bool:
        """Decide for the batch."""
        return bool(self.host.random() < probability)

    def number(self, low: float, high: float) -> float:
        """Draw one number for the batch."""
        return float(self.host.uniform(low, high))

    def log_number(self, low: float, high: float) -> float:
        """Draw one number for the batch, each octave as likely as the next."""
        return math.exp(self.number(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        """Draw one whole number for the batch, ``high`` included."""
        return int(self.host.integers(low, high + 1))

    def pick(self, odds: Mapping[_Thing, float]) -> _Thing:
        """Choose one thing for the batch, by their odds, which need not add up to 1."""
        shares = np.array(list(odds.values()))
        return list(odds)[self.host.choice(len(shares), p=shares / shares.sum())]

    def uniform(self, low: float = 0.0, high: float = 1.0, *shape: int) -> Tensor:
        """Draw numbers from ``low`` to ``high``."""
        shape = self.batch, *(shape or (1, 1, 1))
        return low + (high - low) * torch.rand(shape, generator=self.generator, device=self.device)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Draw numbers from ``low`` to ``high``, each octave as likely as the next."""
        return torch.exp(self.uniform(math.log(low), math.log(high), *shape))

    def normal(self, *shape: int) -> Tensor:
        """Draw Gaussian numbers."""
        shape = self.batch, *(shape or (1, 1, 1))
        return torch.randn(shape, generator=self.generator, device=self.device)

    def some(self, probability: float, *shape: int) -> Tensor:
        """Decide for each: true with this probability."""
        return self.uniform(0, 1, *shape) < probability

    def index(self, count: int) -> Tensor:
        """Draw the number (B,) of one of ``count`` things for each picture."""
        return torch.randint(count, (self.batch,), generator=self.generator, device=self.device)

    def field(self, knots: int, planes: int = 1) -> Tensor:
        """Draw smooth fields (B, planes, N, N), unit variance, about ``knots`` bumps a side."""
        # Knots beyond the border: a spline swings more weakly at its ends.
        grid = self.normal(planes, knots + 4, knots + 4)
        whole = math.ceil(self.side / (knots + 1) * (knots + 3))
        field = F.interpolate(grid, (whole, whole), mode="bicubic", align_corners=True)
        return 1.4 * middle(field, self.side)

    def grid(self) -> Tensor:
        """Pixels right and down (2, N, N) from the middle."""
        y, x = places(self.side, self.device)
        return torch.stack(torch.broadcast_tensors(x, y))

    def along(self) -> Tensor:
        """Pixels (B, 1, N, N) from the middle in a direction that each picture has of its own."""
        return turned(*places(self.side, self.device), self.uniform(high=2 * math.pi))[1]


def middle(planes: Tensor, side: int) -> Tensor:
    """Take the middle (..., side, side) of larger square planes."""
    start = (planes.shape[-1] - side) // 2
    return planes[..., start : start + side, start : start + side]


def places(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows (N, 1) and columns (1, N) in pixels from the middle."""
    place = torch.arange(side, device=device) - (side - 1) / 2
    return place[:, None], place[None]


def turned(down: Tensor, right: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates across and along the direction ``turn``, in radians from the right."""
    across = down * torch.cos(turn) - right * torch.sin(turn)
    return across, right * torch.cos(turn) + down * torch.sin(turn)
