"""What is known about one pixel of a result, and how an operator looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.fusion.choice import window_activity
from cofuse.fusion.presets import FastSettings
from cofuse.images import Stack, luminance
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.web.pyramid import Sliceable

__all__ = ["FILTERS_SHOWN", "Firing", "PixelFacts", "operator_pictures", "pixel_facts"]

#: So many of the filters that answer most are told.
FILTERS_SHOWN = 12

#: The settings whose operator and window measure the activity.
_FAST = FastSettings()


@dataclass(frozen=True)
class Firing:
    """A filter of the operator and the size of its answer, in grey levels."""

    index: int
    strength: float


@dataclass(frozen=True)
class PixelFacts:
    """All about one pixel.

    Attributes
    ----------
    value
        Native values, one a channel.
    frame, confidence
        The frame chosen and how clear that was; None where no map was given.
    activity
        Of every frame at this place, as the preset ``fast`` measures it, in grey levels.
    depth
        Position along the stack; None where there is no depth map.
    filters
        Those of the operator of ``fast`` that answer most on the result's patch here, the largest
        first.
    """

    x: int
    y: int
    value: list[float]
    frame: int | None
    confidence: float | None
    activity: list[float]
    depth: float | None
    filters: list[Firing]


def pixel_facts(
    x: int,
    y: int,
    *,
    image: Sliceable,
    stack: Stack,
    source_map: Sliceable | None = None,
    confidence: Sliceable | None = None,
    depth: Sliceable | None = None,
    operator: AnalysisOperator | None = None,
) -> PixelFacts:
    """Gather what is known about the pixel in column ``x`` and row ``y``.

    Only a small window of every frame is read.

    Parameters
    ----------
    x, y
        Column and row, from 0.
    image
        The result, of the frames' shape and dtype.
    stack
        The frames, as they were aligned.
    source_map, confidence, depth
        Maps of the result's size, where there are any.
    operator
        What measures activity; by default the operator of the preset ``fast``.
    """
    height, width = image.shape[:2]
    if not (0 <= x < width and 0 <= y < height):
        raise CofuseError(f"there is no pixel {x}, {y} in a picture of {width}x{height}")
    if image.shape != stack.shape:
        raise CofuseError(
            f"the picture has shape {image.shape} but the frames {stack.shape}; "
            "expected the frames as they were aligned"
        )
    operator = operator or load_operator(_FAST.operator)

    def at(plane: Sliceable | None) -> Any:
        return None if plane is None else plane[y : y + 1, x : x + 1].item()

    return PixelFacts(
        x,
        y,
        image[y : y + 1, x : x + 1].ravel().tolist(),
        at(source_map),
        at(confidence),
        _activities(x, y, stack, operator),
        at(depth),
        _strongest(x, y, image, stack, operator),
    )


def operator_pictures(name: str = _FAST.operator) -> NDArray[np.uint8]:
    """Show the filters of an operator, each with its own contrast, shape (filters, side, side).

    Grey (128) is zero, black and white are minus and plus the filter's largest weight.
    """
    filters = load_operator(name).filters
    largest = np.abs(filters).max(axis=(1, 2), keepdims=True)
    return np.asarray(np.rint(127.5 + 127.5 * filters / largest), np.uint8)


def _activities(x: int, y: int, stack: Stack, operator: AnalysisOperator) -> list[float]:
    """Activity of every frame at one pixel; the same as in the map of the whole frame."""
    if min(stack.shape[:2]) < operator.patch_size:
        return [0.0] * len(stack)
    # As far as the averaging window's patches reach; at the picture's end the cut ends as well, and
    # its border is treated as the picture's own. Patches must fit in even then.
    reach = _FAST.window // 2 + operator.patch_size
    rows, columns = _around(y, reach, stack.height), _around(x, reach, stack.width)
    values = []
    for index in range(len(stack)):
        part = stack.part_reader(index)(rows, columns)
        grey = luminance(stack.to_levels(np.asarray(part)))
        activity = window_activity(grey, operator, window=_FAST.window)
        values.append(float(activity[y - rows.start, x - columns.start]))
    return values


def _strongest(
    x: int, y: int, image: Sliceable, stack: Stack, operator: AnalysisOperator
) -> list[Firing]:
    """Filters with the largest answers on the patch about a pixel, moved inside at the rim."""
    side = operator.patch_size
    if min(stack.shape[:2]) < side:
        return []
    top = min(max(y - side // 2, 0), stack.height - side)
    left = min(max(x - side // 2, 0), stack.width - side)
    part = np.asarray(image[top : top + side, left : left + side])
    patch = luminance(stack.to_levels(part))
    answers = np.abs(operator.apply(patch.reshape(-1, 1).astype(np.float64))[:, 0])
    order = np.argsort(-answers, kind="stable")[:FILTERS_SHOWN]
    return [Firing(int(index), float(answers[index])) for index in order]


def _around(place: int, reach: int, size: int) -> slice:
    """Rows or columns within ``reach`` of a place, as far as the picture goes."""
    return slice(max(place - reach, 0), min(place + reach + 1, size))
