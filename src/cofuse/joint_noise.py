"""A stack's noise as the joint model takes it: units, logarithms and widths of penalties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.noise.law import BANDS
from cofuse.noise.spectrum import noise_seen

__all__ = ["COMMON_NOISE", "LEAST_NOISE", "ModelNoise"]

#: Noise below this many grey levels is taken for this many: the model was trained down to it.
LEAST_NOISE = 1.0
#: The noise, in grey levels, at which a stage's parameters hold as they stand.
COMMON_NOISE = 20.0
#: Octaves, from the finest, that a plane's unit is the root mean square of: the weigher's filters
#: hardly see more, so that grain in none of them is taken for detail.
_UNIT_BANDS = 3


@dataclass(frozen=True, eq=False)
class ModelNoise:
    """Noise relative to the stack's.

    Attributes
    ----------
    scale
        What values of every plane are divided by to be in grey levels: white is √3·255 in the
        luminance plane of colours.
    units
        The stack's noise in every plane.
    relative
        Every frame's noise by the stack's.
    bands
        Levels of every plane by its unit, shape (planes, bands).
    """

    scale: NDArray[np.float64]
    units: NDArray[np.float64]
    relative: tuple[float, ...]
    bands: NDArray[np.float64]

    @classmethod
    def of(cls, levels: ArrayLike) -> ModelNoise:
        """Take levels, shape (frames, planes, bands), or (frames, planes) of white noise."""
        given = np.asarray(levels, np.float64)
        if given.ndim == 2:
            given = np.repeat(given[..., None], BANDS, axis=-1)
        scale = np.array([math.sqrt(3.0), 1.0, 1.0] if given.shape[1] == 3 else [1.0])
        power = np.maximum(given / scale[:, None], LEAST_NOISE) ** 2
        by_frame = power[..., :_UNIT_BANDS].mean(axis=-1)
        units = np.sqrt(by_frame.mean(axis=0))
        relative = tuple((np.sqrt(by_frame[:, 0]) / units[0]).tolist())
        return cls(scale, units, relative, np.sqrt(power.mean(axis=0)) / units[:, None])

    @property
    def log_units(self) -> list[float]:
        """Logarithms of the units by 20 grey levels."""
        return [math.log(unit / COMMON_NOISE) for unit in self.units]

    def widened(self, stage: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """Return a stage's arrays, its penalties as wide as the noise that their filters see.

        The widths, logarithms, become (planes, terms, filters). A filter that sees twice the unit
        bends coefficients as the model does in a picture with twice the noise.
        """
        arrays = dict(stage)
        for bank in ("fine", "coarse"):
            filters = arrays[f"{bank}.filters"][:, 0].astype(np.float64)
            filters -= filters.mean(axis=(1, 2), keepdims=True)
            seen = [noise_seen(filters, levels, halved=bank == "coarse") for levels in self.bands]
            logs = np.log(seen).astype(np.float32)
            arrays[f"{bank}.width"] = arrays[f"{bank}.width"] + logs[:, None]
        return arrays
