"""Luminance, and orthonormal planes of luminance and chrominance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LUMINANCE_WEIGHTS", "Levels", "from_opponent", "luminance", "to_opponent"]

#: Grey levels, 0 to 255 whatever the depth of the frames.
Levels = NDArray[np.float32]

#: ITU-R BT.601 weights of R, G and B, to the digits the reference metrics use.
LUMINANCE_WEIGHTS = (0.298936021293776, 0.587043074451121, 0.114020904255103)

#: Orthonormal luminance and chrominance: grey, red against blue, green against both.
_OPPONENT = np.array(
    [
        [3**-0.5, 3**-0.5, 3**-0.5],
        [2**-0.5, 0.0, -(2**-0.5)],
        [6**-0.5, -2 * 6**-0.5, 6**-0.5],
    ],
    dtype=np.float32,
)


def luminance(levels: Levels) -> Levels:
    """Weigh R, G and B to one grey picture; a grey picture is returned as it is."""
    if levels.ndim == 2:
        return levels
    return levels @ np.array(LUMINANCE_WEIGHTS, dtype=np.float32)


def to_opponent(levels: Levels) -> Levels:
    """Turn RGB into luminance and two chrominance planes, shape (H, W, 3); grey into (H, W, 1).

    The change is orthonormal: white noise keeps its level in every plane.
    """
    return levels[..., None] if levels.ndim == 2 else levels @ _OPPONENT.T


def from_opponent(planes: Levels) -> Levels:
    """Turn planes of `to_opponent` back into grey levels of RGB or grey."""
    return planes[..., 0] if planes.shape[-1] == 1 else planes @ _OPPONENT
