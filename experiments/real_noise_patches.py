"""The noise of real stacks, measured in patches that show nothing else.

``real_noise_patches.json`` names them by stack: two neighbouring frames (from 0), top, left and
side in pixels. They were picked by eye: out of focus, equally blurred in both frames, neither black
nor white. They lie on a grid of 16 pixels, so that halving pairs the same pixels as in the whole
frame: the bands of JPEG's chrominance depend on that.

What is measured, without any estimator, is the difference of the two frames, less a plane, over √2.
What both frames share, such as a sensor's fixed pattern, does not count. It is an upper bound of
the coarse bands of luminance where frames breathe and the patch shows something after all, as in
bands 3 and 4 of `bowl` and at the mid-greys of `beetle`.

``python -m experiments.noise_laws --data DIR --real`` prints it, and `estimate_noise` of the whole
stack beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse import Stack, read_stack
from cofuse.images import to_opponent
from cofuse.sensor.estimation import estimate_noise
from cofuse.sensor.law import BANDS, NoiseModel
from experiments.noise_truth import NO_MAP, band_energies, rms
from experiments.statistics import markdown

Array = NDArray[Any]


class Patch(NamedTuple):
    """A square of two neighbouring frames."""

    first: int
    second: int
    top: int
    left: int
    side: int

    def cut(self, frame: Array) -> Array:
        """Return the square of one of the frames."""
        return frame[self.top : self.top + self.side, self.left : self.left + self.side]


def patches_by_stack() -> dict[str, list[Patch]]:
    """Read the table of patches."""
    content = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return {name: [Patch(*row) for row in rows] for name, rows in content.items()}


def patch_levels(stack: Stack, patch: Patch, model: NoiseModel = NO_MAP) -> Array:
    """Levels of the difference after a model's map, (planes, bands); NaN where it is too small."""
    first, second = (
        to_opponent(model.stabilise(stack.to_levels(patch.cut(stack[index]))))
        for index in (patch.first, patch.second)
    )
    energies = band_energies(_less_a_plane(second - first))
    return np.stack([rms(energy) for energy in energies], axis=1) / 2**0.5


def real_report(data: Path) -> str:
    """Measure the patches of every stack and hold its estimated law against them."""
    tables = []
    for name, patches in patches_by_stack().items():
        stack = read_stack(data / "real" / name)
        law = estimate_noise(stack)
        there = np.stack([patch_levels(stack, patch, law.model) for patch in patches])
        told = np.stack(
            [np.sqrt(np.mean(law.levels[[p.first, p.second]] ** 2, 0)) for p in patches]
        )
        planes = ["luminance", "red-blue", "green-magenta"] if stack.is_colour else ["grey"]
        body = []
        for plane, band in np.ndindex(len(planes), BANDS):
            found, ours = there[:, plane, band], told[:, plane, band]
            known = ~np.isnan(found)
            if known.any():
                cells = (found[known], ours[known], ours[known] / found[known])
                error = np.median(law.errors[:, plane, band])
                body.append([planes[plane], str(band), *map(_quartiles, cells), f"{error:.0%}"])
        title = f"# {name}: {len(stack)} frames, {len(patches)} patches, σ {law.sigma:.2f}, floor "
        title += f"{law.model.floor:.2f}, gain {law.model.gain:.3f}; medians (quartiles)"
        header = ["plane", "band", "difference", "estimate", "estimate / difference"]
        tables.append(markdown(title, [*header, "the law's own error"], body))
    return "\n".join(tables)


def _less_a_plane(planes: Array) -> Array:
    """Take out of every plane of values the slope that fits it best."""
    y, x = (axis.ravel() for axis in np.indices(planes.shape[:2], float))
    design = np.stack([np.ones_like(x), x, y], axis=1)
    values = planes.reshape(len(x), -1).astype(np.float64)
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return np.asarray((values - fitted).reshape(planes.shape))


def _quartiles(values: Array) -> str:
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{median:.2f} ({low:.2f}–{high:.2f})"
