"""What noise is like: its level by band of frequency, by frame and colour, and by brightness.

A sensor counts photons, so the variance of its noise is affine in the signal: ``floor² + gain·I``.
The square-root map (Anscombe 1948; for Poisson and Gaussian noise together Starck, Murtagh and
Bijaoui 1998) gives such noise one level everywhere.

Noise that went through a mosaic, a sharpening, a resampling or a JPEG is not white. Band 0 is the
finest octave: above half of the finest frequency along either axis. Band 1 is the same of the
picture halved by averages of 2 x 2 pixels, and so on. The level of a band is that of white noise
with as much power in the band, so that white noise has one level in all bands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError
from cofuse.images import Levels

#: Number of octaves of frequency; the coarsest stands for all below it.
BANDS = 5
#: Shortest wavelength of every band, in pixels.
WAVELENGTHS = tuple(2 ** (band + 1) for band in range(BANDS))
#: Share of all frequencies that is in every band.
SHARES = np.array([0.75 / 4**band for band in range(BANDS - 1)] + [1.0 / 4 ** (BANDS - 1)])
#: Noise below this many grey levels counts as none: there texture and rounding cannot be told from
#: noise, and restoring would cost more detail than noise.
CLEAN_BELOW = 1.5

#: Noise is called coarse if its second band surely exceeds the finest by this factor.
_COARSE = 1.25
#: Largest number that a law may hold.
_LARGEST = 1e6

_FORMAT, _VERSION = "cofuse-noise", 1
_ARRAYS = ("levels", "errors", "brightness")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoiseModel:
    """Noise whose variance is ``floor² + gain·I`` at grey level I (``floor²`` below black).

    Attributes
    ----------
    floor
        Standard deviation at black, in grey levels.
    gain
        Variance that every grey level adds; 0 for white noise.
    """

    floor: float
    gain: float = 0.0

    def __post_init__(self) -> None:
        for name in ("floor", "gain"):
            if not 0 <= getattr(self, name) < np.inf:
                raise CofuseError(f"{name} is {getattr(self, name)}; expected a number, 0 or more")

    def sigma_at(self, levels: ArrayLike) -> Array:
        """Return the standard deviation of the noise at given grey levels."""
        signal = np.maximum(np.asarray(levels, np.float64), 0.0)
        return np.asarray(np.sqrt(self.floor**2 + self.gain * signal))

    @property
    def stabilised_sigma(self) -> float:
        """Standard deviation of the noise, at any brightness, after `stabilise`."""
        root, _, reach = self._map
        return 0.5 * reach * root

    def stabilise(self, levels: Levels) -> Levels:
        r"""Map grey levels so that the noise has one level; 0 stays 0 and 255 stays 255.

        With c = floor² + ⅜ gain² and κ = gain / c it is Anscombe's map, scaled:

        .. math:: 255 \, \frac{\sqrt{1 + \kappa x} - 1}{\sqrt{1 + 255 \kappa} - 1}
                  = x \, \frac{\sqrt{1 + 255 \kappa} + 1}{\sqrt{1 + \kappa x} + 1}.

        The second form has no differences of nearly equal numbers. The map of white noise is the
        identity. Below black, where no photon adds noise, the map goes on along its tangent.
        """
        if self.gain == 0:
            return levels
        _, bend, reach = self._map
        root = np.sqrt(1.0 + np.float32(bend) * np.maximum(levels, 0.0))
        return np.asarray(levels * (np.float32(reach) / (root + 1.0)), levels.dtype)

    def restore(self, stabilised: Levels) -> Levels:
        """Undo `stabilise`."""
        if self.gain == 0:
            return stabilised
        _, bend, reach = self._map
        step = stabilised / np.float32(reach)
        return np.asarray(step * (2.0 + np.float32(bend) * np.maximum(step, 0.0)), stabilised.dtype)

    def restore_mean(self, stabilised: Levels) -> Levels:
        """Undo `stabilise` for values with the noise taken out, which are means.

        The mean of square roots lies below the root of the mean. The closed form of Mäkitalo and
        Foi (2011, 2013) gives the mean back; it adds up to a quarter of the gain.
        """
        levels = self.restore(stabilised)
        if self.gain == 0:
            return levels
        # D of the papers: twice the root of counts plus ⅜ plus the floor's variance in counts.
        counts = np.maximum(levels, 0.0) / self.gain + (self._map[0] / self.gain) ** 2
        inverse = 0.5 / np.sqrt(counts)
        lift = 0.25 + 0.25 * 1.5**0.5 * inverse - 1.375 * inverse**2 + 0.625 * 1.5**0.5 * inverse**3
        return np.asarray(levels + self.gain * lift, stabilised.dtype)

    @property
    def _map(self) -> tuple[float, float, float]:
        """√c, κ and √(1 + 255 κ) + 1 of `stabilise`; the last is twice its slope at black."""
        root = float(np.hypot(self.floor, 0.375**0.5 * self.gain))
        bend = self.gain / root**2 if self.gain else 0.0
        return root, bend, float(np.sqrt(1.0 + 255.0 * bend)) + 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseLaw:
    """The noise of a stack, in 8-bit grey levels (white at 255) whatever the depth.

    Attributes
    ----------
    model
        How the noise of a channel's values grows with brightness, in a typical frame.
    levels
        Level of every band of every plane of every frame, shape (frames, planes, `BANDS`), after
        the model's map (`NoiseModel.stabilise`). Planes are those of `to_opponent`: one of grey
        frames, luminance and two chrominances of RGB.
    errors
        Standard errors of the levels, relative to them; 0 of what was given.
    brightness
        What the model was fitted to: rows of grey level, standard deviation of a channel's values
        there, and its relative error; shape (rows, 3).
    blocks
        Share of the finest detail that is missing on the 8 x 8 grid of a JPEG; 0 without a grid.
    estimated
        Whether the law was estimated from frames rather than given.
    """

    model: NoiseModel
    levels: Array
    errors: Array
    brightness: Array = field(default_factory=lambda: np.empty((0, 3)))
    blocks: float = 0.0
    estimated: bool = False

    def __post_init__(self) -> None:
        shape = self.levels.shape
        if len(shape) != 3 or not shape[0] or shape[1] not in (1, 3) or shape[2] != BANDS:
            raise _broken(f"its levels have shape {shape}, not (frames, 1 or 3 planes, {BANDS})")
        if self.errors.shape != shape or self.brightness.shape[1:] != (3,):
            raise _broken("its errors or its rows of brightness are of another shape")
        scalars = np.array([self.model.floor, self.model.gain, self.blocks])
        for numbers in (self.levels, self.errors, np.abs(self.brightness), scalars):
            if not ((numbers >= 0) & (numbers <= _LARGEST)).all():
                raise _broken(f"it holds numbers that are not from 0 to {_LARGEST:g}")

    @classmethod
    def white(cls, sigma: float, *, frames: int = 1, colour: bool = False) -> NoiseLaw:
        """Describe white noise of a given level, the same in every frame and channel."""
        shape = frames, 3 if colour else 1, BANDS
        levels, errors = np.full(shape, float(sigma)), np.zeros(shape)
        return cls(model=NoiseModel(float(sigma)), levels=levels, errors=errors)

    @property
    def by_frame(self) -> Array:
        """Standard deviation of every plane of every frame, after the map: (frames, planes)."""
        return root_mean_square(self.levels, SHARES)

    @property
    def overall(self) -> float:
        """Standard deviation of all frames and planes, after the map: their root mean square."""
        return float(root_mean_square(self.by_frame.ravel()))

    @property
    def sigma(self) -> float:
        """The noise in one number: at mid-grey where it grows with brightness."""
        return float(self.model.sigma_at(127.5)) if self.model.gain > 0 else self.overall

    @property
    def is_clean(self) -> bool:
        """Whether the noise less its errors is too little to be worth removing."""
        return replace(self, levels=self.levels * np.exp(-self.errors)).overall < CLEAN_BELOW

    @property
    def at_mid_grey(self) -> float:
        """Factor from levels after the map to those at mid-grey before it."""
        return self.sigma / self.model.stabilised_sigma if self.model.gain > 0 else 1.0

    @property
    def by_band(self) -> Array:
        """Levels of a typical frame at mid-grey: shape (planes, `BANDS`)."""
        return np.asarray(np.median(self.levels, axis=0) * self.at_mid_grey)

    @property
    def character(self) -> tuple[str, ...]:
        """What is remarkable about the noise, in words; nothing about white noise."""
        finest, second = self.by_band[0, :2]
        is_coarse = second * (1 - 2 * np.median(self.errors[:, 0, 1])) > _COARSE * finest
        words = ["coarse-grained"] * bool(is_coarse)
        words += ["growing with brightness"] * (self.model.gain > 0)
        return tuple(words + ["JPEG blocks"] * (self.blocks > 0))

    def facts(self) -> dict[str, Any]:
        """Describe the noise for reports, at mid-grey where it grows with brightness."""
        colours = ["luminance", "red against blue", "green against both"]
        return {
            "sigma": self.sigma,
            "estimated": self.estimated,
            "character": list(self.character),
            "floor": self.model.floor,
            "gain": self.model.gain,
            "blocks": self.blocks,
            "wavelengths": list(WAVELENGTHS),
            "planes": colours if self.levels.shape[1] == 3 else ["grey"],
            "by_band": self.by_band.tolist(),
            "by_band_errors": (np.median(self.errors, axis=0) * self.by_band).tolist(),
            "by_frame": (self.by_frame * self.at_mid_grey).tolist(),
            "brightness": self.brightness.tolist(),
        }

    def for_stack(self, frames: int, *, colour: bool) -> NoiseLaw:
        """Return the law for another stack of the same camera and sensitivity."""
        planes = self.levels.shape[1]
        if planes != (3 if colour else 1):
            kind = {1: "grey", 3: "RGB"}
            raise CofuseError(
                f"the noise law is one of {kind[planes]} frames, but the frames are "
                f"{kind[4 - planes]}; estimate it from frames of the same kind"
            )
        if frames == len(self.levels):
            return self
        both = np.median([self.levels, self.errors], axis=1)
        levels, errors = np.repeat(both[:, None], frames, axis=1)
        return replace(self, levels=levels, errors=errors)

    def only(self, numbers: Sequence[int]) -> NoiseLaw:
        """Return the law of the frames of these indices."""
        kept = list(numbers)
        return replace(self, levels=self.levels[kept], errors=self.errors[kept])

    def to_remove(self) -> NoiseLaw:
        """Return the law, or that of no noise if there is too little to be worth removing."""
        frames, planes, _ = self.levels.shape
        return NoiseLaw.white(0.0, frames=frames, colour=planes == 3) if self.is_clean else self

    def beyond_texture(self) -> NoiseLaw:
        """Return the law less `CLEAN_BELOW`, in variance, which may be texture and rounding."""
        share = 1.0 - (CLEAN_BELOW / max(self.overall, CLEAN_BELOW)) ** 2
        return replace(self, levels=self.levels * share**0.5)

    def to_json(self) -> str:
        """Encode as the content of a file."""
        content = {"format": _FORMAT, "version": _VERSION}
        content |= {"floor": self.model.floor, "gain": self.model.gain}
        content |= {name: getattr(self, name).tolist() for name in _ARRAYS}
        content |= {"blocks": self.blocks, "estimated": self.estimated}
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> NoiseLaw:
        """Read what `to_json` wrote."""
        try:
            content = json.loads(text)
            tag = content["format"], content["version"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CofuseError("this is no noise law; `cofuse noise` writes one") from error
        if tag != (_FORMAT, _VERSION):
            raise CofuseError(
                f"the noise law has format {tag[0]!r} version {tag[1]!r}; expected {_FORMAT} "
                f"version {_VERSION}, as `cofuse noise` writes it"
            )
        try:
            model = NoiseModel(float(content["floor"]), float(content["gain"]))
            arrays = {name: np.array(content[name], np.float64) for name in _ARRAYS}
            arrays["brightness"] = arrays["brightness"].reshape(-1, 3)
            blocks, estimated = float(content["blocks"]), bool(content["estimated"])
            return cls(model=model, **arrays, blocks=blocks, estimated=estimated)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _broken(f"{error}{' is missing' * isinstance(error, KeyError)}") from error


def _broken(reason: str) -> CofuseError:
    return CofuseError(f"the noise law cannot be used: {reason}; estimate it anew")


def root_mean_square(values: Array, weights: Array | None = None) -> Array:
    """Average along the last axis; the result for equal values is that value to the last bit."""
    largest = values.max(axis=-1)
    # In units of the largest no square overflows or vanishes.
    share = values / np.where(largest > 0, largest, 1.0)[..., None]
    return np.asarray(largest * np.sqrt(np.average(share**2, axis=-1, weights=weights)))
