"""Which frames take part: no copies of others, none of quite another brightness.

A copy tells nothing that its original does not, not even about the noise, which is the same. A
frame of another brightness nearly everywhere shows another scene or none, as with a closed shutter
or a flash that failed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from cofuse.images import Levels, Stack

#: Thumbnails of fewer pixels say nothing about half a picture.
_FEWEST = 16
#: A frame shows another scene if over half of the picture it differs from the median of all by
#: more than this share of it and this many grey levels: exposures that are matched or flicker
#: differ by less, and so do the surroundings of blurred outlines.
_SHARE, _LEVELS = 0.25, 8.0


def distinct_frames(stack: Stack) -> list[int]:
    """Find the numbers of the frames to be fused; those of other brightness are warned of."""
    if len(stack) == 1:
        return [0]
    with stack.ahead(stack.thumbnail) as coming:
        thumbnails = list(coming)
    kept: list[int] = []
    # The reference comes first: of it and its copies it is the one that stays.
    for number in sorted(range(len(stack)), key=lambda number: number != stack.reference):
        alike = (k for k in kept if np.array_equal(thumbnails[number], thumbnails[k]))
        if not any(np.array_equal(stack[number], stack[k]) for k in alike):
            kept.append(number)
    kept.sort()
    others = _of_other_brightness([thumbnails[number] for number in kept])
    for place in others:
        warnings.warn(
            f"{stack.names[kept[place]]} differs from the other frames in brightness nearly "
            "everywhere; it is left out",
            stacklevel=2,
        )
    return [number for place, number in enumerate(kept) if place not in others]


def _of_other_brightness(thumbnails: Sequence[Levels]) -> list[int]:
    """Numbers of those unlike the median of all over half of the picture.

    Of two nobody knows which is the odd one, and of all, as in a row of exposures, none is.
    """
    if len(thumbnails) < 3 or thumbnails[0].size < _FEWEST:
        return []
    usual = np.median(thumbnails, axis=0)
    allowed = _SHARE * np.abs(usual) + _LEVELS
    odd = [float(np.median(np.abs(own - usual) / allowed)) > 1.0 for own in thumbnails]
    return [] if all(odd) else [number for number, is_odd in enumerate(odd) if is_odd]
