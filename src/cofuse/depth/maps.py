"""The noun `Depth` and its 16-bit picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError

__all__ = ["Depth", "depth_picture"]

Levels = NDArray[np.float32]


@dataclass(frozen=True)
class Depth:
    """Where along the stack every pixel is in focus.

    Attributes
    ----------
    position
        In frames, from 0 (in focus in the first) to K − 1 (in the last), with fractions, float32 of
        shape (H, W). Always finite: places without a focus of their own take their neighbours'.
    confidence
        How far the place's own frames told its position: 0 not at all (it was filled in), 1 by one
        clear peak.
    evidence
        Whether the frames differ here in detail by more than noise, 0 to 1. Where there is none,
        nothing is in focus or there is nothing to focus on. The confidence asks for more: one
        peak, and not a trace of some outline nearby.
    frames
        Number K of frames.
    z_step
        Distance between the focus planes of neighbouring frames, in any unit, negative where later
        frames are focused nearer; None if not known.
    """

    position: Levels
    confidence: Levels
    evidence: Levels
    frames: int
    z_step: float | None = None

    @property
    def z(self) -> Levels:
        """Distance from the first focus plane, in the unit of ``z_step``."""
        if self.z_step is None:
            raise CofuseError(
                "the distance between the focus planes is not known; pass z_step to estimate_depth"
            )
        return self.position * np.float32(self.z_step)


def depth_picture(depth: Depth) -> NDArray[np.uint16]:
    """Spread the positions over 16 bits: the first frame is 0, the last one 65535.

    The range is that of the frames and not of the values found, so that pictures of one stack can
    be compared: ``position = value / 65535 * (K − 1)``.
    """
    scale = np.float32(65535.0 / max(depth.frames - 1, 1))
    return np.asarray(np.rint(np.clip(depth.position * scale, 0.0, 65535.0)), np.uint16)
