"""The colour mosaic before a sensor, and three ways to make full colours of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cofuse.learning.world.chance import Chance

__all__ = ["DEMOSAICINGS", "Mosaic"]

#: Weights over all pixels of a colour's own, of which only every other, or every fourth, is there.
_GREEN = ((0.0, 0.25, 0.0), (0.25, 1.0, 0.25), (0.0, 0.25, 0.0))
_OTHER = ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25))

#: Malvar, He and Cutler 2004, in eighths: green at red or blue; red at green in a row of red;
#: red at green in a row of blue; red at blue.
_GRADIENTS = (
    ((0, 0, -1, 0, 0), (0, 0, 2, 0, 0), (-1, 2, 4, 2, -1), (0, 0, 2, 0, 0), (0, 0, -1, 0, 0)),
    ((0, 0, 0.5, 0, 0), (0, -1, 0, -1, 0), (-1, 4, 5, 4, -1), (0, -1, 0, -1, 0), (0, 0, 0.5, 0, 0)),
    ((0, 0, -1, 0, 0), (0, -1, 4, -1, 0), (0.5, 0, 5, 0, 0.5), (0, -1, 4, -1, 0), (0, 0, -1, 0, 0)),
    (
        (0, 0, -1.5, 0, 0),
        (0, 2, 0, 2, 0),
        (-1.5, 0, 6, 0, -1.5),
        (0, 2, 0, 2, 0),
        (0, 0, -1.5, 0, 0),
    ),
)

DEMOSAICINGS = ("bilinear", "gradients", "edges")


class Mosaic:
    """Red, green and blue pixels of a sensor of H x W, red first at some corner of 2 x 2."""

    def __init__(self, chance: Chance, side: int) -> None:
        place = torch.arange(side, device=chance.device)
        row = (place + chance.whole(0, 1)) % 2 == 0
        column = (place + chance.whole(0, 1)) % 2 == 0
        self.red = row[:, None] & column
        self.blue = ~row[:, None] & ~column
        self.green = ~(self.red | self.blue)
        #: Green pixels in rows that have red ones too.
        self.green_by_red = row[:, None] & ~column
        self.colours = torch.stack([self.red, self.green, self.blue])

    def seen(self, picture: Tensor) -> Tensor:
        """The one colour (..., H, W) that each pixel sees of a picture (..., 3, H, W)."""
        return (picture * self.colours).sum(-3)

    def developed(self, plane: Tensor, way: str) -> Tensor:
        """Full colours (..., 3, H, W) of what the pixels saw, by one of `DEMOSAICINGS`."""
        flat = plane.reshape(-1, 1, *plane.shape[-2:])
        picture = {
            "bilinear": self._bilinear,
            "gradients": self._by_gradients,
            "edges": self._along_edges,
        }[way](flat)
        return picture.view(*plane.shape[:-2], 3, *plane.shape[-2:])

    def _bilinear(self, plane: Tensor) -> Tensor:
        parts = [
            _filtered(plane * own, weights)
            for own, weights in zip(self.colours, (_OTHER, _GREEN, _OTHER), strict=True)
        ]
        return torch.cat(parts, 1)

    def _by_gradients(self, plane: Tensor) -> Tensor:
        """Means of neighbours, corrected by the second derivative of the colour that is there."""
        green, in_row, in_column, across = (_filtered(plane, weights) / 8 for weights in _GRADIENTS)
        other_green = self.green & ~self.green_by_red

        def of(own: Tensor, row: Tensor, column: Tensor) -> Tensor:
            sides = torch.where(row, in_row, torch.where(column, in_column, across))
            return torch.where(own, plane, sides)

        return torch.cat(
            [
                of(self.red, self.green_by_red, other_green),
                torch.where(self.green, plane, green),
                of(self.blue, other_green, self.green_by_red),
            ],
            1,
        )

    def _along_edges(self, plane: Tensor) -> Tensor:
        """Green along the weaker gradient, red and blue by differences from it."""
        up2, up, down, down2 = (plane.roll(shift, 2) for shift in (2, 1, -1, -2))
        left2, left, right, right2 = (plane.roll(shift, 3) for shift in (2, 1, -1, -2))
        bend_rows, bend_columns = 2 * plane - up2 - down2, 2 * plane - left2 - right2
        steep_rows = (up - down).abs() + bend_rows.abs()
        steep_columns = (left - right).abs() + bend_columns.abs()
        by_rows = (up + down) / 2 + bend_rows / 4
        by_columns = (left + right) / 2 + bend_columns / 4
        share = 0.5 + 0.5 * torch.sign(steep_columns - steep_rows)
        green = torch.where(self.green, plane, torch.lerp(by_columns, by_rows, share))
        red, blue = (
            green + _filtered((plane - green) * own, _OTHER) for own in (self.red, self.blue)
        )
        return torch.cat([red, green, blue], 1)


def _filtered(plane: Tensor, weights: tuple[tuple[float, ...], ...]) -> Tensor:
    """Correlate planes with small weights; the border is mirrored, which keeps the colours.

    In double precision: training may let convolutions of floats be rounded to 10 bits.
    """
    kernel = torch.tensor(weights, device=plane.device, dtype=torch.float64)[None, None]
    reach = kernel.shape[-1] // 2
    padded = F.pad(plane, (reach,) * 4, mode="reflect").double()
    return F.conv2d(padded, kernel).to(plane.dtype)
