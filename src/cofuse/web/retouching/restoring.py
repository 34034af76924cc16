"""Frames of a noisy stack, cleaned where they are painted from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofuse.fusion import fuse
from cofuse.fusion.presets import FusionSettings
from cofuse.images import PartReader, Pixels, Stack
from cofuse.sensor import NoiseLaw

__all__ = ["RestoredFrames", "restored_frames"]

#: Pixels around a part that are restored with it and then cut off.
_MARGIN = 64
#: Parts begin at multiples of this, the coarsest step of the trained model, as whole frames do.
_GRID = 32


def restored_frames(
    stack: Stack, *, noise: NoiseLaw, preset: str | FusionSettings = "auto"
) -> Stack | RestoredFrames:
    """Frames to paint from: those of a stack, restored part by part if there is noise.

    Parameters
    ----------
    stack
        The frames, aligned with the picture.
    noise
        Their noise, as `Fusion.noise` tells it.
    preset
        How each frame is restored, as in `fuse`.
    """
    if noise.overall == 0:
        return stack
    return RestoredFrames(stack, noise.for_stack(len(stack), colour=stack.is_colour), preset)


@dataclass(frozen=True)
class RestoredFrames:
    """A stack's frames, of which every part that is read is restored on its own."""

    stack: Stack
    noise: NoiseLaw
    preset: str | FusionSettings = "auto"

    def __len__(self) -> int:
        return len(self.stack)

    def part_reader(self, index: int) -> PartReader:
        """Open one frame to read restored parts of it."""
        read = self.stack.part_reader(index)

        def restored(rows: slice, columns: slice) -> Pixels:
            tall, wide = _widened(rows, self.stack.height), _widened(columns, self.stack.width)
            part = np.ascontiguousarray(read(tall, wide))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="one frame only")
                done: Any = fuse(
                    [part],
                    noise=self.noise.only([index]),
                    preset=self.preset,
                    white=self.stack.white,
                ).image
            return np.asarray(
                done[rows.start - tall.start :, columns.start - wide.start :][
                    : rows.stop - rows.start, : columns.stop - columns.start
                ]
            )

        return restored


def _widened(side: slice, size: int) -> slice:
    """Rows or columns with a margin, as far as the picture goes."""
    start = max(side.start - _MARGIN, 0) // _GRID * _GRID
    return slice(start, min(side.stop + _MARGIN, size))
