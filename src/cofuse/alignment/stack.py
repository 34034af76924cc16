"""Aligning a stack: from pairs of frames to one transform a frame.

Frames are taken outwards from the reference, each as its reduced copy. A frame is first found
from its neighbour, the one most like it in focus, and then compared, from there, with the one
before and with the reference itself. All these pairs enter one weighted least-squares problem, so
that errors do not add up along the stack. In memory are the pyramids of five frames, a thumbnail of
every frame, and the luminance of nine, for parallax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cofuse.alignment import differences
from cofuse.alignment.comparison import Pyramid, Values, build_pyramid
from cofuse.alignment.pair import Match, find_match, register
from cofuse.alignment.transforms import (
    MODELS,
    Alignment,
    Matrix,
    Model,
    Transform,
    centred,
    corners,
    shift_by,
    tangents,
)
from cofuse.arguments import check, check_callback, check_number
from cofuse.errors import CofuseError
from cofuse.images import Stack
from cofuse.progress import Progress, ProgressCallback, silent

OnFailure = Literal["stop", "leave-out"]
#: Indices of two frames, and the match from the first to the second.
_Pair = tuple[int, int, Match]

#: A frame that moves by no more than its expected error times this factor, and no more than
#: this many pixels, does not move.
_STILL_ERRORS, _STILL_LIMIT = 2.5, 0.5
#: A shift this close to whole pixels is one: nothing needs to be interpolated.
_WHOLE = 0.05
#: Largest change of scale between two frames that a lens makes.
_LEAST_SCALE, _MOST_SCALE = 0.8, 1.25
#: Part of the diagonal by which a corner may move at most.
_MOST_MOVED = 0.5
#: Pixels by which two ways to the same frame may differ, at the finest level.
_CONSISTENT = 3.0
#: Error, in pixels, below which no pair is trusted.
_LEAST_SPREAD = 0.02


def align_stack(
    stack: Stack | Sequence[ArrayLike],
    *,
    model: Model = "similarity",
    reference: int | None = None,
    on_failure: OnFailure = "stop",
    match_exposure: bool = True,
    parallax: bool = True,
    still: float = 0.2,
    progress: ProgressCallback = silent,
) -> Alignment:
    """Find how the frames of a stack lie upon each other.

    Parameters
    ----------
    stack
        A `Stack`, or arrays as `Stack.from_arrays` takes them, in the order of their focus.
    model
        What may differ between frames: "translation", "similarity" (shift, rotation and the
        scale that focusing changes), "affine" or "homography".
    reference
        Index of the frame that stays as it is; default the middle one.
    on_failure
        What to do with a frame that cannot be aligned: "stop" with an error that names it, or
        "leave-out" and say so in the result.
    match_exposure
        Whether to find the gains that give all frames one brightness and white balance: those of
        the reference, but darker where a frame's highlights would be clipped otherwise.
    parallax
        Whether to look for parallax, which no transform of the whole undoes, and have frames bent
        where there is much of it.
    still
        Frames whose corners move by no more than this many pixels (or by no more than the
        estimate is uncertain) are not moved at all: their pixels stay untouched.
    progress
        Called after every frame.
    """
    stack = Stack.of(stack)
    check("model", model, f"one of {', '.join(MODELS)}", MODELS.__contains__)
    check("on_failure", on_failure, "'stop' or 'leave-out'", ("stop", "leave-out").__contains__)
    check("still", still, "a number of pixels from 0 up", lambda pixels: pixels >= 0)
    check_callback("progress", progress)
    count = len(stack)
    middle = count // 2 if reference is None else reference
    check_number("reference", middle, 0, count - 1, whole=True)
    size = (stack.height, stack.width)
    found = partial(Alignment, names=stack.names, size=size, model=model, reference=middle)
    gains: tuple[tuple[float, ...], ...] = ((1.0,) * (3 if stack.is_colour else 1),) * count
    if count == 1:
        return found(transforms=(Transform(np.eye(3)),), gains=gains)
    tested = differences.frames_to_test(count, middle) if parallax else ()
    thumbnails: dict[int, differences.Thumbnail] = {}
    pictures: dict[int, Values] = {}

    def read(index: int) -> Pyramid:
        """Build the pyramid of a frame, and what brightness and parallax are found from."""
        reduced = stack.reduced(index)
        thumbnails[index] = differences.thumbnail(reduced, stack)
        if index in tested:
            pictures[index] = differences.small(reduced.pixels, stack)
        return build_pyramid(reduced.pixels, stack)

    walk = _Walk(stack, model, middle, on_failure)
    walk.run(read, progress)
    if len(walk.found) == 1:
        raise CofuseError(
            f"no frame could be aligned to the reference {stack.names[middle]}; choose another "
            f"reference, or fuse without aligning"
        )
    solved = _solve(walk.pairs, middle, size)
    transforms = tuple(
        _settle(*solved[k], model, size, still) if k in solved else None for k in range(count)
    )
    if match_exposure:
        gains = differences.gains_of(thumbnails, transforms, middle, size, stack.ceiling)
    bent = parallax and differences.shows_parallax(pictures, transforms, middle, size)
    return found(transforms=transforms, gains=gains, left_out=walk.left_out, parallax=bent)


@dataclass
class _Walk:
    """Compares frames outwards from the reference; only the pictures still needed stay."""

    stack: Stack
    model: Model
    reference: int
    on_failure: OnFailure
    #: Matrix of every frame that has a place, reference to frame.
    found: dict[int, Matrix] = field(default_factory=dict)
    pairs: list[_Pair] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)

    def run(self, read: Callable[[int], Pyramid], progress: ProgressCallback) -> None:
        """Find the place of every frame, or why it has none; on each side the nearest first."""
        names, reference, count = self.stack.names, self.reference, len(self.stack)
        self.found[reference] = np.eye(3)
        sides = range(reference + 1, count), range(reference - 1, -1, -1)
        # While one frame is compared the next is made ready.
        with self.stack.ahead(read, [reference, *sides[0], *sides[1]], most=1) as pictures:
            start = next(pictures)
            if start.is_flat:
                raise CofuseError(
                    f"the reference {names[reference]} shows no detail to align to; choose "
                    "another reference"
                )
            progress(Progress("align", 1, count))
            for side in sides:
                # The last frame, the one before it, the reference.
                near = [(reference, start)]
                for index, picture in zip(side, pictures, strict=False):
                    reason = self._place(index, picture, near)
                    if reason is None:
                        near = [(index, picture), *near[:-1][:1], (reference, start)]
                    elif self.on_failure == "stop":
                        raise CofuseError(
                            f"{names[index]} cannot be aligned: {reason}; leave such frames out, "
                            "remove it from the stack, or fuse without aligning"
                        )
                    else:
                        self.left_out[index] = reason
                    progress(Progress("align", len(self.found) + len(self.left_out), count))

    def _place(self, index: int, picture: Pyramid, near: list[tuple[int, Pyramid]]) -> str | None:
        """Find a frame from the nearest one that it resembles; or say why it has no place."""
        if picture.is_flat:
            return "it shows no detail"
        limit, reasons = _CONSISTENT / picture.to_finest[0, 0], []
        for n, (other, seen) in enumerate(near):
            step = register(seen, picture, self.model)
            found = step.matrix @ self.found[other]
            reason = step.doubt or self._implausible(step.matrix, found)
            if reason is None:
                self.pairs.append((other, index, step))
                self.found[index] = found
                for further, there in near[n + 1 :]:
                    # A pair whose transform is nearly known counts unless it says something else.
                    start = found @ np.linalg.inv(self.found[further])
                    again = find_match(there, picture, self.model, start)
                    apart = Transform(again.matrix @ np.linalg.inv(start))
                    if again.doubt is None and apart.corner_displacement(picture.shape) < limit:
                        self.pairs.append((further, index, again))
                return None
            reasons.append(f"{reason} (compared with {self.stack.names[other]})")
        return reasons[0]

    def _implausible(self, step: Matrix, found: Matrix) -> str | None:
        """Say why no lens makes a step between frames, and the place found by it; or nothing."""
        for matrix in (step, found):
            scales = np.linalg.svd(matrix[:2, :2], compute_uv=False)
            plausible = scales.min() >= _LEAST_SCALE and scales.max() <= _MOST_SCALE
            if np.linalg.det(matrix) <= 0 or not plausible:
                return f"the transform found is implausible: scale {scales[0]:.2f}"
        height, width = self.stack.height, self.stack.width
        moved = Transform(found).corner_displacement((height, width))
        if moved > _MOST_MOVED * np.hypot(height, width):
            return f"the transform found is implausible: it moves a corner by {moved:.0f} pixels"
        return None


def _solve(
    pairs: list[_Pair], reference: int, size: tuple[int, int]
) -> dict[int, tuple[Matrix, float]]:
    """Find one matrix a frame, and its expected error in pixels, from all pairs at once.

    With T_r = 1 for the reference r, minimise sum w_ab |T_b - T_ab T_a|² over all pairs (a, b):
    a linear problem, whose solution is of the pairs' model but for what they disagree in.
    """
    frames = [reference, *sorted({second for _, second, _ in pairs})]
    place = {frame: slice(3 * n, 3 * n + 3) for n, frame in enumerate(frames)}
    unit = centred(size)
    normal = np.zeros((3 * len(frames), 3 * len(frames)))
    for first, second, match in pairs:
        weight = 1.0 / (match.spread**2 + _LEAST_SPREAD**2)
        step = np.linalg.inv(unit) @ match.matrix @ unit
        terms = ((place[first], -step), (place[second], np.eye(3)))
        for (row, left), (column, right) in product(terms, terms):
            normal[row, column] += weight * left.T @ right
    # The reference, which comes first, is known.
    solution = np.linalg.solve(normal[3:, 3:], -normal[3:, :3])
    spreads = np.sqrt(np.diag(np.linalg.inv(normal[3:, 3:])))
    solved = {reference: (np.eye(3), 0.0)}
    for n, frame in enumerate(frames[1:]):
        found = unit @ solution[3 * n : 3 * n + 3] @ np.linalg.inv(unit)
        solved[frame] = (found, float(spreads[3 * n]))
    return solved


def _settle(
    matrix: Matrix, spread: float, model: Model, size: tuple[int, int], still: float
) -> Transform:
    """Make a transform of a matrix and its expected error, in pixels.

    Where it moves nothing, or by whole pixels, it does so exactly.
    """
    # The nearest matrix of the model; its directions are orthogonal.
    directions = tangents(model).reshape(-1, 9)
    apart = (matrix / matrix[2, 2] - np.eye(3)).ravel()
    along = directions @ apart / np.square(directions).sum(axis=1)
    found = Transform(np.eye(3) + (along @ directions).reshape(3, 3))
    still = max(still, min(_STILL_ERRORS * spread, _STILL_LIMIT))
    if found.corner_displacement(size) <= still:
        return Transform(np.eye(3))
    there = found(corners(size))
    shift = Transform(shift_by(*np.rint(np.mean(there - corners(size), axis=0))))
    return shift if np.abs(there - shift(corners(size))).max() <= _WHOLE else found
