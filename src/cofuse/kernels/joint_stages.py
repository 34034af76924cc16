"""The unrolled stages of the joint model: x ← x − Σ Ωᵀφ(Ωx) − β (x − y), plane by plane.

A fine bank of filters works on the picture, a coarse one on the picture at half size. Same
functions as in `joint_reference`; a stage's arrays go by their names in the model, less the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.kernels import cpu, joint_stage_loops
from cofuse.kernels.joint_layers import enlarged

__all__ = ["Mixture", "stage", "stage_reach"]

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[np.float32]]

#: Terms of the penalty that share one division.
_MOST_TERMS = 4

#: The product of all four denominators would leave float32 when they pass 10⁹; scaling half of
#: them down moves that to 10¹⁵, which no coefficient reaches: 10⁷ widths of its term.
_SCALE = 2.0**-80

#: What the weigher tells a stage counts up to this factor of e.
_MOST_GUIDE = np.float32(4.0)


@dataclass(frozen=True)
class Mixture:
    """Frames mixed: pictures (planes, H, W), log noise (of the stack's) in the bands at the ends.

    ``fine`` and ``coarse`` are those of the finest and the coarsest band; planes share them.
    """

    pictures: Floats
    fine: Floats
    coarse: Floats


def stage_reach(arrays: Arrays) -> int:
    """How many pixels away a stage looks, an even number: half-size pixels must stay in place."""
    fine, coarse = (
        2 * int(arrays[f"{bank}.filters"].shape[-1] // 2) for bank in ("fine", "coarse")
    )
    # Enlarging takes from the next pixel at half size, halving from one pixel more at full size.
    return max(fine, 2 * (coarse + 1) + 2)


def stage(
    pictures: Floats,
    mixture: Mixture,
    log_units: Sequence[float],
    guide: Floats,
    arrays: Arrays,
) -> Floats:
    """Take one step on all planes (planes, H, W), in units of noise.

    ``log_units`` are the logarithms of the planes' units by 20 levels; ``guide`` are the weigher's
    channels for this stage, four planes of half size for each of its three guides. All planes
    share what depends on noise left and guide. Widths of penalties may be given plane by plane.
    """
    logs, small_logs = _logs(mixture, guide, arrays)
    fidelity = np.exp(logs[2])
    banks = [
        _Bank({n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}, *both)
        for start, both in (("fine.", logs[:2]), ("coarse.", small_logs))
    ]
    f = arrays["fidelity"]
    result = np.empty_like(pictures)
    for plane, (x, mixed, log_unit) in enumerate(
        zip(pictures, mixture.pictures, log_units, strict=True)
    ):
        out = result[plane]
        np.subtract(mixed, x, out=out)
        out *= fidelity
        out *= np.exp(f[0] + f[1] * np.float32(log_unit))
        out += x
        banks[0].pull(x, log_unit, plane, out)
        small = np.zeros_like(small_logs[0])
        banks[1].pull(_halved(x), log_unit, plane, small)
        enlarged(small, out)
    return result


class _Bank:
    """One bank of filters; ``tall`` and ``narrow`` are logarithms of how its slope is stretched."""

    def __init__(self, arrays: Arrays, tall: Floats, narrow: Floats) -> None:
        self.arrays = arrays
        self.side = int(arrays["filters"].shape[-1])
        self.taps, self.back = _pack(arrays["filters"])
        self.tall, self.narrow = (
            np.exp(_mirrored(plane, self.side // 2)) for plane in (tall, narrow)
        )

    def pull(self, x: Floats, log_unit: float, plane: int, out: Floats) -> None:
        """Take Ωᵀφ(Ωx) off ``out``, borders mirrored."""
        taps, back, border = self.taps, self.back, 2 * (self.side // 2)
        terms = _terms(self.arrays, log_unit, plane)
        columns = taps.shape[2] * joint_stage_loops.TAPS - self.side
        padded = _mirrored(x, border, columns)

        def work(start: int, stop: int) -> Floats:
            pull = np.zeros((stop - start + 4 * back.shape[1] - 1, x.shape[1]), np.float32)
            joint_stage_loops.stage_band(
                padded, taps, back, terms, self.tall, self.narrow, start, stop, pull
            )
            return pull

        for start, pull in cpu._over_bands(work, len(self.tall)):
            # Row y of coefficients adds to the rows from y − border on; the border's are dropped.
            first, last = start - border, min(start - border + len(pull), len(x))
            out[max(first, 0) : last] -= pull[max(-first, 0) : last - first]


def _logs(mixture: Mixture, guide: Floats, arrays: Arrays) -> tuple[Floats, list[Floats]]:
    """Logarithms of tall, narrow and fidelity; of tall and narrow also at half size."""
    weights = np.stack([arrays["strength_left"], -arrays["width_left"], arrays["fidelity"][2:]])
    fine, coarse = mixture.fine, mixture.coarse
    logs = np.empty((len(weights), *fine.shape), np.float32)
    cpu._over_bands(
        lambda start, stop: joint_stage_loops.logs(
            guide, _MOST_GUIDE, fine, coarse, weights, start, stop, logs
        ),
        len(fine),
    )
    return logs, [_halved(plane) for plane in logs[:2]]


def _halved(plane: Floats) -> Floats:
    """Halve a plane's size, the counterpart of enlarging it linearly."""
    height, width = plane.shape
    out = np.empty((-(-height // 2), -(-width // 2)), np.float32)
    cpu._over_bands(lambda start, stop: joint_stage_loops.halve(plane, start, stop, out), len(out))
    return out


def _pack(filters: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Filters (h, 1, n, n), made mean-free, as the loops take them: forwards and for the adjoint.

    Forwards: (groups of 4 filters, rows, groups of 7 taps, 4, 7). Adjoint: (filters, groups of 4
    rows, groups of 7 taps, 4, 7), mirrored along the row. Zeros fill the groups.
    """
    free = filters[:, 0] - filters[:, 0].mean((-2, -1), keepdims=True)
    h, side, _ = free.shape
    seven = joint_stage_loops.TAPS
    groups = -(-side // seven)
    whole = np.zeros((2, -(-h // 4) * 4, -(-side // 4) * 4, groups * seven), np.float32)
    whole[:, :h, :side, :side] = free, free[..., ::-1]
    taps = whole[0, :, :side].reshape(-1, 4, side, groups, seven).transpose(0, 2, 3, 1, 4)
    back = whole[1].reshape(len(whole[1]), -1, 4, groups, seven).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(taps), np.ascontiguousarray(back)


def _terms(arrays: Arrays, log_unit: float, plane: int = 0) -> Floats:
    """Coefficients of the penalty's slope, two pairs of terms each on one denominator.

    a/(1 + b s) + c/(1 + d s) = (a + c + (a d + c b) s) / (1 + (b + d) s + b d s²)
    """
    strength = arrays["strength"] * np.exp(arrays["strength_noise"] * log_unit)
    width = arrays["width"]
    width = width[plane] if width.ndim == 3 else width
    inverse = np.exp(-2.0 * (width + arrays["width_noise"] * log_unit))
    count, h = strength.shape
    if count > _MOST_TERMS:
        raise ValueError(f"the stage kernel takes {_MOST_TERMS} terms of a penalty, not {count}")
    a, b = np.zeros((2, _MOST_TERMS, -(-h // 4) * 4))
    a[:count, :h], b[:count, :h] = strength, inverse
    above = [(a[i] + a[i + 1], a[i] * b[i + 1] + a[i + 1] * b[i]) for i in (0, 2)]
    below = [(np.ones_like(a[0]), b[i] + b[i + 1], b[i] * b[i + 1]) for i in (0, 2)]
    scaled = [
        *above[0],
        *(_SCALE * v for v in above[1]),
        *below[0],
        *(_SCALE * v for v in below[1]),
    ]
    return np.ascontiguousarray(np.stack(scaled, 1), np.float32)


def _mirrored(plane: Floats, border: int, more: int = 0) -> Floats:
    """Mirror a plane at its outermost pixels; ``more`` columns of zeros follow."""
    height, width = (n + 2 * border for n in plane.shape)
    out = np.zeros((height, width + more), np.float32)
    out[:, :width] = np.pad(plane, border, mode="reflect")
    return out
