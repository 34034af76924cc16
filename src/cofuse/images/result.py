"""`Fusion`, the picture that comes out, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.images.pixels import Pixels
from cofuse.progress import SolverTrace


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """The fused picture and how it came about.

    Attributes
    ----------
    image
        The all-in-focus picture, in the dtype, range and shape of the frames.
    source_map
        For every pixel the index (from 0) of the frame chosen there, shape (H, W).
    confidence
        How clear that choice was: 0 for a tie of the two best frames, towards 1 where the best
        one has all the activity, shape (H, W). Methods that choose no frame (an average, say)
        have neither map.
    sigma, sigma_estimated
        Noise level in 8-bit grey levels, at mid-grey where it grows with brightness and 0 where
        there is too little to remove; whether it was estimated from the frames rather than given.
    trace, seconds
        What each iterative solver did, and the wall time, by stage.
    device
        Where the frames were fused: ``"cpu"``, ``"cuda"`` or ``"mps"``.
    noise
        All that was found or given of the noise, a `NoiseLaw`; None of methods that ask for less.
    """

    image: Pixels
    source_map: NDArray[np.unsignedinteger[Any]] | None = None
    confidence: NDArray[np.float32] | None = None
    sigma: float = 0.0
    sigma_estimated: bool = False
    trace: dict[str, SolverTrace] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = "cpu"
    noise: Any = None  # the room of the noise knows this one
