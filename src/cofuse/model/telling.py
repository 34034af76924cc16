"""A law of noise in the networks' terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofuse.mixing import octaves_in_bands
from cofuse.noise import NoiseLaw

__all__ = ["FrameTold", "frames_told"]


@dataclass(frozen=True)
class FrameTold:
    """Noise of a frame's mean of channels in fine and in coarse bands.

    White is 1; it is the noise at mid-grey. ``floor`` is the share of its variance that is there
    in black.
    """

    fine: float
    coarse: float
    floor: float


def frames_told(law: NoiseLaw) -> list[FrameTold]:
    """Tell of every frame of a law."""
    levels = law.levels[:, 0] * law.at_mid_grey / 255.0
    if law.levels.shape[1] == 3:
        # The luminance plane of a law is a sum over channels by the root of their number.
        levels = levels / 3**0.5
    bands = np.sqrt(levels**2 @ octaves_in_bands().T)
    variance = float(law.model.sigma_at(127.5)) ** 2
    floor = law.model.floor**2 / variance if variance > 0 else 1.0
    return [FrameTold(float(own[0]), float(own[2]), floor) for own in bands]
