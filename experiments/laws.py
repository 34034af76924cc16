"""Laws that a fusion should keep, whatever its model: how far the preset ``auto`` is from them.

Stacks made from the pictures that come with the package are mirrored, cut, or cut by one row and
column more, and what changes in the result is measured where nothing should change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse import fuse
from cofuse.evaluation.simulation import SAMPLE_NAMES, Simulation, sample_picture, simulate_stack

Picture = NDArray[Any]
Frames = Sequence[Picture]

#: Rows and columns that are cut off at each side, on no grid of the model, and those near a new
#: border that are not compared.
_CUT, _RIM = 13, 64


class Change(NamedTuple):
    """What became of a picture that should have stayed as it is, in grey levels.

    ``lost`` is by how much its PSNR fell, in dB.
    """

    rms: float
    share: float
    lost: float = 0.0


def made_scene(
    seed: int, frames: int = 5, shape: tuple[int, int] = (280, 380), sigma: float = 0.0
) -> Simulation:
    """Make a stack from a picture of the package."""
    picture = sample_picture(SAMPLE_NAMES[seed % len(SAMPLE_NAMES)])
    return simulate_stack(
        picture, frames=frames, seed=seed, shape=shape, max_radius=10, sigma=sigma
    )


def mirror(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Mirror all frames, both ways."""
    turned = _fused([np.ascontiguousarray(frame[::-1, ::-1]) for frame in frames], told)
    return _change(_fused(frames, told), turned[::-1, ::-1], truth)


def crop(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Cut off rows and columns at each side."""
    inner = np.s_[_CUT:-_CUT, _CUT:-_CUT]
    far = np.s_[_RIM:-_RIM, _RIM:-_RIM]
    whole = _fused(frames, told)[inner][far]
    part = _fused([np.ascontiguousarray(frame[inner]) for frame in frames], told)[far]
    return _change(whole, part, truth[inner][far])


def size(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Cut off one row and one column, at sizes small and large; the worst."""
    worst = Change(0.0, 0.0)
    short = min(truth.shape[:2])
    for side in (16, 24, 31, 32, 48, 63, 64, 96, 127, 128, 192, 255, 256):
        if side < short:
            large, small = (
                _fused([np.ascontiguousarray(frame[:n, :n]) for frame in frames], told)
                for n in (side + 1, side)
            )
            change = _change(large[:side, :side], small, truth[:side, :side])
            worst = Change(*map(max, worst, change))
    return worst


def _fused(frames: Frames, told: dict[str, Any]) -> Picture:
    return fuse(frames, **told).image.astype(np.float64)


def _change(before: Picture, after: Picture, truth: Picture) -> Change:
    apart = np.abs(before - after)
    wrong = [float(np.mean((picture - truth) ** 2)) for picture in (before, after)]
    # Errors below half a level do not show, and a tiny picture may have none.
    lost = 10 * float(np.log10(max(wrong[1], 0.25) / max(wrong[0], 0.25)))
    share = float(np.mean(apart > 1.0))
    return Change(float(np.sqrt(np.mean(apart**2))), share, max(0.0, lost))
