"""`fuse`: from a stack to one sharp, clean picture.

The noise level σ is always in 8-bit grey levels (0-255 scale), whatever the depth of the frames.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from cofuse.errors import CofuseError
from cofuse.images import Fusion, Stack
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.patches import patch_positions
from cofuse.progress import ProgressCallback, silent
from cofuse.settings import PRESETS, FusionSettings, resolve_preset

__all__ = ["PRESETS", "FusionSettings", "fuse"]


def fuse(
    frames: Stack | Sequence[ArrayLike],
    *,
    sigma: float | None = None,
    denoise: float = 1.0,
    preset: str | FusionSettings = "auto",
    align: bool = True,
    operator: AnalysisOperator | str | Path | None = None,
    white: float | None = None,
    progress: ProgressCallback = silent,
) -> Fusion:
    """Fuse frames focused at different distances into one sharp picture, and remove their noise.

    Parameters
    ----------
    frames
        A `Stack`, or a sequence of arrays of one shape, (H, W) or (H, W, 3), and one dtype:
        uint8, uint16, float32 or float64. They are never written to. A single frame is restored,
        with a warning.
    sigma
        Standard deviation of the noise in 8-bit grey levels (0-255 scale) whatever the depth;
        0 for clean frames, None to estimate it; ``auto`` then also finds how it grows with
        brightness and differs between frames and colours.
    denoise
        How much of the noise to take out: 1 all of it, 0 nothing, numbers between blend the two.
    preset
        ``"auto"``, ``"fast"``, ``"paper"``, or settings of your own.
    align
        Reserved for the alignment of frames; they are at present taken as aligned either way.
    operator
        An operator (or its name or file) to use in place of that of ``fast`` or ``paper``; the
        model of ``auto`` has filters of its own.
    white
        The value of white when ``frames`` are arrays; see `Stack`.
    progress
        Called with a `Progress` now and then; may raise to cancel.

    Returns
    -------
    Fusion
        Its ``image`` has the shape, dtype and range of the frames.
    """
    stack = frames if isinstance(frames, Stack) else Stack.from_arrays(frames, white=white)
    settings = resolve_preset(preset)
    if not 0 <= denoise <= 1:
        raise CofuseError(f"denoise is {denoise}; expected a number from 0 to 1")
    if sigma is not None and not 0 <= sigma < np.inf:
        raise CofuseError(f"sigma is {sigma}; expected a number of grey levels, 0 or more")
    if len(stack) == 1:
        warnings.warn("one frame only: there is nothing to fuse, it is restored", stacklevel=2)
    if settings.method == "joint":
        from cofuse.methods.joint import JointRun

        if operator is not None:
            raise CofuseError(
                "an operator was given, but the joint model has filters of its own; use operators "
                "with the preset fast or paper"
            )
        # The model looks at all frames tile by tile: each is decoded once, and kept at hand.
        with stack.kept() as kept:
            return JointRun(kept, settings, progress).fuse(sigma, denoise)
    if not isinstance(operator, AnalysisOperator):
        operator = load_operator(operator or settings.operator)
    patch_positions(stack.shape, operator.patch_size, 1)  # refuses a picture below patch size
    if settings.method == "shrinkage":
        from cofuse.methods.shrinkage import ShrinkageRun

        return ShrinkageRun(stack, settings, progress, operator=operator).fuse(sigma, denoise)
    from cofuse.methods.letter import LetterRun

    return LetterRun(stack, settings, progress, operator=operator).fuse(sigma, denoise)
