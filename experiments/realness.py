"""What a fused picture lost of its frames and what it invents; no truth is needed.

*Detail* is what lies between Gaussians of 1 and 3 pixels, in luminance rounded to whole levels; its
*energy* is the mean square under a Gaussian of 4 pixels. The energy in the quietest tenth of a
frame counts as its grain.

lost
    of the places where some frame has clear detail (energy above 4 beyond its grain), the share in
    which the picture has less than half of it. Blurred islands and wrong choices raise it.
phantom
    the share of pixels whose step to the next pixel across or down is larger, by more than 4 grey
    levels, than any step that any frame has within 3 x 3 pixels. Seams, jigsaws and contour lines
    raise it. A sharp near edge before a sharp background is such a step too and is right: 0 is
    nothing to aim at.

All in grey levels, white at 255. The frames lie in place, the picture where they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.images import luminance

Picture = NDArray[Any]
Map = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: Energy that is clear detail, and the step beyond those of the frames that counts.
_CLEAR, _STEP = 4.0, 4.0
#: Part of a frame's area that is taken to show nothing but grain.
_QUIET = 0.1


@dataclass(frozen=True)
class Judgement:
    """Maps of one picture: where detail is lost, and where there is a step that no frame has."""

    lost: Mask
    phantom: Mask
    clear: Mask

    @property
    def shares(self) -> tuple[float, float]:
        """Lost and phantom, from 0 to 1."""
        return float(self.lost.sum() / max(1, self.clear.sum())), float(self.phantom.mean())


class Frames:
    """What a picture can be held against: the most that any frame shows at every place."""

    def __init__(self, frames: Iterable[Picture]) -> None:
        self.grain = np.inf
        best: Map | None = None
        largest: Map | None = None
        for frame in frames:
            power = energy(frame)
            quiet = float(np.quantile(power, _QUIET))
            self.grain = min(self.grain, quiet)
            step = np.asarray(cv2.dilate(steps(frame), np.ones((3, 3), np.uint8)), np.float32)
            best = power - quiet if best is None else np.maximum(best, power - quiet)
            largest = step if largest is None else np.maximum(largest, step)
        if best is None or largest is None:
            raise ValueError("there are no frames to judge a picture by")
        #: Energy beyond grain, and largest step near by, of the frame that has most of it.
        self.best, self.largest = best, largest

    def judge(self, picture: Picture) -> Judgement:
        """Hold a picture against the frames."""
        clear = self.best > _CLEAR
        lost = clear & (energy(picture) - self.grain < 0.5 * self.best)
        return Judgement(lost, steps(picture) - self.largest > _STEP, clear)


def energy(picture: Picture) -> Map:
    """Local energy of the detail of 2 to 8 pixels."""
    grey = np.rint(luminance(picture.astype(np.float32)))
    band = cv2.GaussianBlur(grey, (0, 0), 1.0) - cv2.GaussianBlur(grey, (0, 0), 3.0)
    return np.asarray(cv2.GaussianBlur(band * band, (0, 0), 4.0), np.float32)


def steps(picture: Picture) -> Map:
    """Largest step of every pixel but the last ones to the next across or down, in any colour."""
    values = picture.astype(np.float32).reshape(*picture.shape[:2], -1)
    across = np.abs(values[:-1, 1:] - values[:-1, :-1]).max(axis=2)
    down = np.abs(values[1:, :-1] - values[:-1, :-1]).max(axis=2)
    return np.asarray(np.maximum(across, down))
