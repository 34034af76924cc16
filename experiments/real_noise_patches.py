"""The noise of real stacks, measured in patches that show nothing else.

``real_noise_patches.json`` names them by stack: two neighbouring frames (from 0), top, left and
side in pixels. They were picked by eye: out of focus, equally blurred in both frames, neither black
nor white. They lie on a grid of 16 pixels, so that halving pairs the same pixels as in the whole
frame: the bands of JPEG's chrominance depend on that. No estimator has a part in what is measured
there:

difference
    of the two frames, less a plane, over √2. What both frames share, such as a sensor's fixed
    pattern, does not count.
single
    each frame less a polynomial of order 3. What little the patch shows counts as noise.

Both are upper bounds of the coarse bands of luminance where frames breathe and the patch shows
something after all, as in bands 3 and 4 of `bowl` and at the mid-greys of `beetle`.

``python -m experiments.noise_laws --data DIR --real`` prints both, and `estimate_noise` of the
whole stack beside them: of its frames as they are, and aligned.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import Stack, align_stack, aligned, read_stack
from cofuse.alignment.warping import common_area
from cofuse.images import to_opponent
from cofuse.sensor.brightness import NoiseModel
from cofuse.sensor.law import BANDS, NoiseLaw
from experiments.noise_tables import markdown
from experiments.noise_truth import band_energies, rms

__all__ = ["Patch", "patch_levels", "patches_by_stack", "real_report"]

Array = NDArray[Any]

Estimator = Callable[[Stack], NoiseLaw]

_TABLE = Path(__file__).with_suffix(".json")
_NO_MAP = NoiseModel(0.0)


@dataclass(frozen=True)
class Patch:
    """A square of two neighbouring frames."""

    first: int
    second: int
    top: int
    left: int
    side: int

    def cut(self, frame: Array) -> Array:
        """Return the square of one of the frames."""
        return frame[self.top : self.top + self.side, self.left : self.left + self.side]


def patch_levels(stack: Stack, patch: Patch, model: NoiseModel = _NO_MAP) -> tuple[Array, Array]:
    """Measure a patch after a model's map.

    Returns
    -------
    tuple of ndarray
        Levels of the difference and of the single frames (their root mean square), both of shape
        (planes, bands); NaN of bands that are too coarse for the patch.
    """
    first, second = (
        to_opponent(model.stabilise(stack.to_levels(patch.cut(stack[index]))))
        for index in (patch.first, patch.second)
    )
    difference = _levels(_detrended(second - first, order=1)) / 2**0.5
    single = [_levels(_detrended(frame, order=3)) for frame in (first, second)]
    return difference, np.sqrt(np.mean(np.square(single), axis=0))


def patches_by_stack() -> dict[str, list[Patch]]:
    """Read the table of patches."""
    content = json.loads(_TABLE.read_text("utf-8"))
    return {name: [Patch(*row) for row in rows] for name, rows in content.items()}


def real_report(data: Path, estimate: Estimator) -> str:
    """Measure the patches of every stack and hold estimated laws against them."""
    parts = []
    for name, patches in patches_by_stack().items():
        stack = read_stack(data / "real" / name)
        parts.append(f"# {name}: {len(stack)} frames, {len(patches)} patches\n")
        law = estimate(stack)
        parts.append(_patch_table(law, stack, patches))
        parts.append(_law_table("as they are", law, stack, patches))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            moved, places = _aligned(stack, patches)
        parts.append(_law_table("aligned", estimate(moved), moved, places))
    return "\n".join(parts)


def _levels(planes: Array) -> Array:
    return np.stack([rms(energy) for energy in band_energies(planes)], axis=1)


def _detrended(planes: Array, *, order: int) -> Array:
    """Take out of every plane the polynomial of an order that fits it best."""
    y, x = (
        axis.ravel() for axis in np.meshgrid(*(np.linspace(-1, 1, n) for n in planes.shape[:2]))
    )
    powers = [(i, j) for i in range(order + 1) for j in range(order + 1 - i)]
    design = np.stack([x**i * y**j for i, j in powers], axis=1)
    values = planes.reshape(-1, planes.shape[2]).astype(np.float64)
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return np.asarray((values - fitted).reshape(planes.shape))


def _patch_table(law: NoiseLaw, stack: Stack, patches: list[Patch]) -> str:
    """List what the difference shows in every patch, without any map.

    The standard deviation of a channel's values is what a law's model says of a grey level.
    """
    body = []
    for patch in patches:
        first, second = (
            np.atleast_3d(stack.to_levels(patch.cut(stack[index])))
            for index in (patch.first, patch.second)
        )
        sigma = np.std(_detrended(second - first, order=1)) / 2**0.5
        told = law.model.sigma_at(first.mean())
        where = f"{patch.first} and {patch.second}, {patch.top}, {patch.left}, {patch.side}"
        cells = [f"{first.mean():.0f}", f"{sigma:.2f}", f"{told:.2f}"]
        planes = [_figures(plane) for plane in patch_levels(stack, patch)[0]]
        body.append([where, *cells, *planes])
    header = ["frames, top, left, side", "grey level", "σ of a channel", "estimate of σ there"]
    header += [f"{name}, bands 0 to 4" for name in _plane_names(stack)]
    return markdown("Noise of each patch by its difference", header, body)


def _law_table(title: str, law: NoiseLaw, stack: Stack, patches: list[Patch]) -> str:
    """Compare the law of a stack with its patches, all of them after the law's map."""
    measured = [patch_levels(stack, patch, law.model) for patch in patches]
    difference, single = (np.stack(levels) for levels in zip(*measured, strict=True))
    told = np.stack([np.sqrt(np.mean(law.levels[[p.first, p.second]] ** 2, 0)) for p in patches])
    body = []
    for plane, name in enumerate(_plane_names(stack)):
        for band in range(BANDS):
            cells = [levels[:, plane, band] for levels in (difference, single, told)]
            ratio = told[:, plane, band] / difference[:, plane, band]
            if np.isnan(ratio).all():
                continue
            figures = [*(_spread(cell[~np.isnan(ratio)]) for cell in cells), _spread(ratio)]
            error = np.median(law.errors[:, plane, band])
            body.append([name, str(band), *figures, f"{100 * error:.0f} %"])
    sizes = f"{len(patches)} patches, floor {law.model.floor:.2f}, gain {law.model.gain:.3f}"
    header = ["plane", "band", "difference", "single", "estimate", "estimate / difference"]
    title = f"Frames {title}: {sizes}, σ {law.sigma:.2f}; medians (quartiles) after the map"
    return markdown(title, [*header, "the law's own error"], body)


def _aligned(stack: Stack, patches: list[Patch]) -> tuple[Stack, list[Patch]]:
    """Align a stack, and find the patches that are whole in it."""
    found = align_stack(stack)
    moved = aligned(stack, found)
    if moved is stack:
        return stack, patches
    top, _, left, _ = common_area([t for t in found.transforms if t is not None], found.size)
    kept = []
    for patch in patches:
        transform = found.transforms[patch.first]
        assert transform is not None  # or aligning would have stopped
        x, y = transform.invert()((patch.left, patch.top)).round().astype(int).tolist()
        place = Patch(patch.first, patch.second, y - top, x - left, patch.side)
        fits = place.top + place.side <= moved.height and place.left + place.side <= moved.width
        if fits and min(place.top, place.left) >= 0:
            kept.append(place)
    return Stack.from_arrays(list(moved), white=moved.white), kept


def _plane_names(stack: Stack) -> list[str]:
    return ["luminance", "red-blue", "green-magenta"] if stack.is_colour else ["grey"]


def _figures(levels: Array) -> str:
    return " ".join(f"{level:.2f}" for level in levels if not np.isnan(level))


def _spread(values: Array) -> str:
    low, median, high = np.nanquantile(values, (0.25, 0.5, 0.75))
    return f"{median:.2f} ({low:.2f}–{high:.2f})"
