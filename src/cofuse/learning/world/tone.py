r"""Light and the values that files hold: tone curves and their inverse.

A curve is a power with a straight toe, bent about mid-grey for contrast,

.. math:: y = \frac{(x + t)^{1/\gamma} - t^{1/\gamma}}{(1 + t)^{1/\gamma} - t^{1/\gamma}},
   \quad d = y - c \frac{\sin 2 \pi y}{2 \pi}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cofuse.learning.world.chance import Chance

__all__ = ["STANDARD", "Tone"]

#: Where the power goes over into its toe: as of sRGB, whose steepest slope is 12.9.
_TOE = 0.003


@dataclass(frozen=True)
class Tone:
    """Tone curves; numbers, or tensors that broadcast against pictures."""

    gamma: Tensor | float = 2.2
    contrast: Tensor | float = 0.0

    @staticmethod
    def draw(chance: Chance, *shape: int) -> Tone:
        """Draw curves as cameras have them: about sRGB, half of them with more contrast."""
        contrast = 0.5 * chance.uniform(*shape) * chance.some(0.5, *shape)
        return Tone(chance.uniform(*shape, low=1.8, high=2.4), contrast)

    def display(self, light: Tensor) -> Tensor:
        """Values of a file, 0 to 1, from linear light; what is brighter than 1 is clipped."""
        power = torch.as_tensor(1 / self.gamma, device=light.device)
        foot = _TOE**power
        value = ((light.clamp(0, 1) + _TOE) ** power - foot) / ((1 + _TOE) ** power - foot)
        return value - self.contrast * torch.sin(2 * math.pi * value) / (2 * math.pi)

    def light(self, value: Tensor) -> Tensor:
        """Linear light from the values of a file; of curves without contrast."""
        power = torch.as_tensor(1 / self.gamma, device=value.device)
        foot = _TOE**power
        return ((value * ((1 + _TOE) ** power - foot) + foot) ** self.gamma - _TOE).clamp_min(0)


#: The curve that photographs are taken to have.
STANDARD = Tone()
