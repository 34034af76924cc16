"""What noise is like: its level by band of frequency, by frame and colour, and by brightness.

Noise that went through a mosaic, a sharpening, a resampling or a JPEG is not white: its bands of
frequency have levels of their own. Band 0 is the finest octave, what a picture shows of more than
half of its finest frequency along either axis; band 1 is the same of the picture halved by
averages of 2 x 2 pixels, and so on. A band's level is that of the white noise that would put as
much into it, so that of white noise all bands agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.noise.brightness import NoiseModel

__all__ = ["BANDS", "CLEAN_BELOW", "SHARES", "NoiseLaw"]

#: Octaves of frequency that are told apart; the coarsest stands for all below it.
BANDS = 5
#: Part of all frequencies that a band holds.
SHARES = np.array([0.75 / 4**band for band in range(BANDS - 1)] + [1.0 / 4 ** (BANDS - 1)])
#: Noise below this many grey levels counts as none: there texture and rounding cannot be told from
#: noise, and restoring would cost more detail than noise.
CLEAN_BELOW = 1.5

_FORMAT, _VERSION = "cofuse-noise", 1

Array = NDArray[np.float64]


def _no_rows() -> Array:
    return np.empty((0, 3))


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """The noise of a stack, in 8-bit grey levels (white at 255) whatever the depth.

    Attributes
    ----------
    model
        How the noise of a channel's values grows with brightness, in a typical frame.
    levels
        Level of every band of every plane of every frame, shape (frames, planes, `BANDS`), after
        the model's map, which leaves noise that does not grow as it is. Planes are those of
        `to_opponent`: one of grey frames, luminance and two chrominances of RGB.
    errors
        Standard errors of the levels, relative to them; 0 of what was given.
    brightness
        What the model was fitted to: rows of grey level, standard deviation of a channel's values
        there, and its relative error.
    blocks
        Part of the finest detail that is missing on a grid of 8 x 8 pixels, as a JPEG rounds it
        away; 0 where there is no such grid.
    estimated
        Whether all this was estimated from frames rather than given.
    """

    model: NoiseModel
    levels: Array
    errors: Array
    brightness: Array = field(default_factory=_no_rows)
    blocks: float = 0.0
    estimated: bool = False

    @classmethod
    def white(cls, sigma: float, *, frames: int = 1, colour: bool = False) -> NoiseLaw:
        """Describe white noise of a given level, the same in every frame and channel."""
        shape = frames, 3 if colour else 1, BANDS
        return cls(NoiseModel(float(sigma)), np.full(shape, float(sigma)), np.zeros(shape))

    @property
    def by_frame(self) -> Array:
        """Standard deviation of every plane of every frame, after the map: (frames, planes)."""
        return np.asarray(np.sqrt(self.levels**2 @ SHARES))

    @property
    def overall(self) -> float:
        """Standard deviation of all frames and planes, after the map: their root mean square."""
        return float(np.sqrt(np.mean(self.by_frame**2)))

    @property
    def sigma(self) -> float:
        """The noise in one number: at mid-grey where it grows with brightness."""
        return float(self.model.sigma_at(127.5)) if self.model.gain > 0 else self.overall

    @property
    def is_clean(self) -> bool:
        """Whether there is too little noise to be worth removing."""
        return self.overall < CLEAN_BELOW

    @property
    def by_band(self) -> Array:
        """Levels of a typical frame at mid-grey: shape (planes, `BANDS`)."""
        scale = self.model.sigma_at(127.5) / self.model.stabilised_sigma if self.model.gain else 1.0
        return np.asarray(np.median(self.levels, axis=0) * scale)

    def for_stack(self, frames: int, *, colour: bool) -> NoiseLaw:
        """Use the law of one stack for another of the same camera and sensitivity."""
        planes = self.levels.shape[1]
        if planes != (3 if colour else 1):
            kind = {1: "grey", 3: "RGB"}
            raise CofuseError(
                f"the noise law is one of {kind[planes]} frames, but the frames are "
                f"{kind[4 - planes]}; estimate it from frames of the same kind"
            )
        if frames == len(self.levels):
            return self
        levels, errors = (
            np.repeat(np.median(a, axis=0)[None], frames, axis=0)
            for a in (self.levels, self.errors)
        )
        return NoiseLaw(self.model, levels, errors, self.brightness, self.blocks, self.estimated)

    def to_json(self) -> str:
        """Encode as the content of a file."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "floor": self.model.floor,
            "gain": self.model.gain,
            "levels": self.levels.tolist(),
            "errors": self.errors.tolist(),
            "brightness": self.brightness.tolist(),
            "blocks": self.blocks,
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> NoiseLaw:
        """Read what `to_json` wrote."""
        try:
            content = json.loads(text)
            tag = content["format"], content["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise CofuseError("this is no noise law; `cofuse noise` writes one") from error
        if tag != (_FORMAT, _VERSION):
            raise CofuseError(
                f"the noise law has format {tag[0]} version {tag[1]}; expected {_FORMAT} version "
                f"{_VERSION}"
            )
        return _checked(content)


def _checked(content: Mapping[str, Any]) -> NoiseLaw:
    """Make a law of a file's content, which may hold anything."""
    try:
        levels, errors = (_numbers(content[name], 3) for name in ("levels", "errors"))
        brightness = _numbers(content["brightness"], 2) if content["brightness"] else _no_rows()
        blocks = float(content["blocks"])
        model = NoiseModel(float(content["floor"]), float(content["gain"]))
    except CofuseError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise CofuseError(f"the noise law is damaged: {error}") from error
    if (
        levels.shape != errors.shape
        or levels.shape[1] not in (1, 3)
        or levels.shape[2] != BANDS
        or brightness.shape[1] != 3
    ):
        raise CofuseError(
            f"the noise law holds levels of shape {levels.shape} and errors of shape "
            f"{errors.shape}; expected frames, 1 or 3 planes and {BANDS} bands in both"
        )
    return NoiseLaw(model, levels, errors, brightness, blocks, estimated=True)


def _numbers(values: ArrayLike, dimensions: int) -> Array:
    """Check that values are numbers from 0 on, in as many dimensions and not empty."""
    array = np.asarray(values, np.float64)
    if array.ndim != dimensions or not array.size or not (array >= 0).all():
        raise CofuseError("the noise law is damaged: expected numbers from 0 on")
    if not np.isfinite(array).all():
        raise CofuseError("the noise law is damaged: it holds infinite values")
    return array
