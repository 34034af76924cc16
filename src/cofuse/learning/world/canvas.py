"""Sizes: of what is blurred, of what a camera takes, and of what is cut out of that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from cofuse.learning.world.chance import Chance

__all__ = ["Canvas"]

#: Pixels that pictures are larger than what is cut out in the end: frames are moved by less than
#: the least margin, and the blocks of a JPEG begin anywhere.
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
