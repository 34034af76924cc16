"""Random numbers: decisions for a whole batch on the host, parameters of pictures on the device.

What chooses a path through the code is decided by NumPy's generator, so that no decision waits for
the device; what differs between the pictures of a batch is drawn there, as tensors.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Chance"]


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
        """Draw smooth fields (B, H, W) of about unit variance with so many bumps a side."""
        # Knots beyond the border: a spline swings more weakly at its ends.
        grid = self.normal(batch, 1, knots + 4, knots + 4)
        apart = side / (knots + 1)
        whole = math.ceil(apart * (knots + 3))
        field = F.interpolate(grid, (whole, whole), mode="bicubic", align_corners=True)
        start = (whole - side) // 2
        return 1.4 * field[:, 0, start : start + side, start : start + side]
