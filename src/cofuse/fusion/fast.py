"""The weights of `fast`: at every pixel the frame with the most activity under an operator.

Activity is averaged over a window, at every other pixel, after the noise in each coefficient was
taken off. The frame that is chosen has weight 1; along borders of the choice each band is blended
as widely as its finest detail is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.fusion.mixing import Choice, choose
from cofuse.images import LUMINANCE_WEIGHTS, Levels, Stack, luminance, to_opponent
from cofuse.images.pixels import REACH, WINDOWS, blurred
from cofuse.images.tiles import MULTIPLE, Tile, map_ahead, parts_of, relative
from cofuse.operators import AnalysisOperator
from cofuse.sensor import NoiseLaw
from cofuse.sensor.bands import octaves_in_filters

#: Distance in pixels of the patches whose activity is compared.
_STEP = 2
#: Threshold of coefficients in standard deviations of the noise in them.
_THRESHOLD = 3.0
#: Sides of the boxes, each passed twice, that blend the choice in each band: as wide as the finest
#: detail in it. The finest band is not blended, lest it be averaged away where the choice changes
#: from pixel to pixel.
_BLENDS = (1, *WINDOWS)
#: Side in pixels of the parts of a tile.
_PART = 256
#: Bytes for a pixel of a tile that choosing takes.
_BYTES = 250


class ActivityWeigher:
    """Weighs frames by their activity.

    Parameters
    ----------
    operator
        The analysis operator Ω.
    window
        Side in pixels over which activity is averaged.
    law
        The noise of the frames.
    """

    side = 1024

    def __init__(self, operator: AnalysisOperator, window: int, law: NoiseLaw) -> None:
        self.operator = operator
        #: The window in patches, an odd number.
        self.patches = window // _STEP | 1
        reach = operator.patch_size + _STEP * self.patches + 2 * (max(_BLENDS) // 2)
        self.halo = -(-reach // MULTIPLE) * MULTIPLE
        levels = law.levels * law.at_mid_grey
        if levels.shape[1] == 3:
            # The noise of a luminance, from that of orthonormal planes.
            parts = to_opponent(np.array([[LUMINANCE_WEIGHTS]]))[0, 0]
            levels = np.sqrt(np.einsum("p,fpb->fb", parts**2, levels**2))[:, None]
        noise = np.sqrt(levels[:, 0] ** 2 @ _octaves(operator).T)
        #: What is taken off the coefficients of each frame.
        self.thresholds = [_THRESHOLD * own if own.any() else None for own in noise]

    def look(self, stack: Stack, tile: Tile) -> Chosen:
        """Choose a frame at every pixel of a tile and its halo."""

        def activity(number: int) -> Levels:
            light = luminance(stack.part_levels(number, tile.around))
            return self.activity(light, self.thresholds[number])

        choice = choose(map_ahead(activity, range(len(stack)), pixels=tile.pixels))
        return Chosen(tile, (stack.height, stack.width), choice)

    def activity(self, light: Levels, thresholds: NDArray[np.float64] | None) -> Levels:
        """Activity around every pixel of a luminance (H, W)."""
        values = self.operator.activity(light, step=_STEP, thresholds=thresholds)
        mean = blurred(values, self.patches)
        # A patch stands at its centre; beyond the outermost ones their activity is repeated.
        back = -(self.operator.patch_size - 1) / 2 / _STEP
        place = np.array([[1 / _STEP, 0, back], [0, 1 / _STEP, back]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = light.shape[1], light.shape[0]
        border = cv2.BORDER_REPLICATE
        large = cv2.warpAffine(mean, place, size, flags=flags, borderMode=border)
        return np.asarray(large, np.float32)


@lru_cache(maxsize=4)  # spectra of all filters take longer than to fuse a small pair
def _octaves(operator: AnalysisOperator) -> NDArray[np.float64]:
    return octaves_in_filters(operator.filters)


@dataclass(frozen=True)
class Chosen:
    """The frame chosen at every pixel of a tile and its halo; parts have sides of ``part``."""

    tile: Tile
    shape: tuple[int, int]
    choice: Choice
    part: int = _PART

    def parts(self) -> Iterable[tuple[Tile, list[int]]]:
        """Cut the tile into parts, each with the frames that are chosen in it or near it."""
        for part in parts_of(self.tile, self.part, self.shape, REACH):
            chosen = self.choice.index[relative(part.around, self.tile.around)]
            yield part, np.unique(chosen).tolist()

    def weigh(self, part: Tile, frames: dict[int, Levels]) -> Levels:
        """Blend the choice, band by band."""
        chosen = self.choice.index[relative(part.around, self.tile.around)]
        weights = []
        for number in frames:
            mine = (chosen == number).astype(np.float32)
            weights.append([blurred(blurred(mine, side), side)[part.within] for side in _BLENDS])
        return np.array(weights, np.float32)

    def confidence(self, part: Tile, weights: Levels) -> Levels:
        """How much more activity the chosen frame has than the next."""
        return self.choice.confidence[relative(part.here, self.tile.around)]


def working_bytes(shape: tuple[int, int]) -> int:
    """Bytes that choosing and mixing in a tile take."""
    side = ActivityWeigher.side + 128
    return _BYTES * math.prod(min(side, length) for length in shape)
