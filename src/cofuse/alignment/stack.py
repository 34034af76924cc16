"""Aligning a stack: from pairs of frames to one transform a frame.

Frames are taken outwards from the reference, each decoded once. A frame is first found from its
neighbour, the one most like it in focus, and then compared, from there, with the one before and
with the reference itself. All these pairs enter one least-squares problem, each with the weight
of what it knows, so that errors do not add up along the stack. In memory are the reduced pictures
of five frames, of two million pixels at most, a thumbnail of every frame, and half as large
pictures of nine, by which to tell whether there is parallax.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.alignment.exposure import Thumbnail, exposure_gains, largest_values, thumbnail
from cofuse.alignment.pair import Match, register
from cofuse.alignment.parallax import asked, shows_parallax, small
from cofuse.alignment.pyramid import Pyramid, build_pyramid, reduce
from cofuse.alignment.transforms import MODELS, Model, Transform, corners
from cofuse.arguments import check, check_callback, check_number
from cofuse.errors import CofuseError
from cofuse.images import Stack
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["Alignment", "OnFailure", "align_stack"]

OnFailure = Literal["stop", "leave-out"]

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

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Alignment:
    """Where every frame of a stack lies, seen from the reference frame.

    Attributes
    ----------
    names, size
        Names of all frames; their (height, width).
    model, reference
        Kind of the transforms; index of the frame that stays as it is.
    transforms
        For every frame what takes pixels of the reference to its own; None for one left out.
    gains
        Factor of every channel that gives a frame the brightness of the result, for every frame;
        all 1 where brightness was not matched. That brightness is the reference's, or less where
        highlights of another frame would be cut off for it: the reference's own factor says.
    left_out
        Index of every frame that could not be aligned, and why.
    parallax
        Whether near and far shift against each other: `aligned` then bends every frame, from its
        place under its transform, onto the reference.
    """

    names: tuple[str, ...]
    size: tuple[int, int]
    model: Model
    reference: int
    transforms: tuple[Transform | None, ...]
    gains: tuple[tuple[float, ...], ...]
    left_out: dict[int, str] = field(default_factory=dict)
    parallax: bool = False

    @property
    def kept(self) -> tuple[int, ...]:
        """Indices of the frames that were aligned."""
        return tuple(k for k, found in enumerate(self.transforms) if found is not None)

    @property
    def already_aligned(self) -> bool:
        """Whether no kept frame needs to be moved."""
        return not self.parallax and all(
            found is None or found.is_identity for found in self.transforms
        )

    @property
    def brightness(self) -> float:
        """Brightness that all frames get, as a part of the reference's own."""
        return self.gains[self.reference][0]

    @property
    def changes_nothing(self) -> bool:
        """Whether all frames are kept, none is moved and none made brighter or darker."""
        return (
            self.already_aligned
            and len(self.kept) == len(self.names)
            and all(gain == 1.0 for gains in self.gains for gain in gains)
        )

    def largest_displacement(self) -> float:
        """Return how far, in pixels, a corner of a kept frame is moved at most."""
        return max(t.corner_displacement(self.size) for t in self.transforms if t is not None)


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
        the reference, but darker where a frame's highlights would be cut off otherwise.
    parallax
        Whether to look for parallax, which no transform of the whole undoes, and have frames bent
        where there is much of it.
    still
        Frames whose corners move by no more than this many pixels (or by no more than the
        estimate is uncertain) are not moved at all: their pixels stay untouched.
    progress
        Told after every frame.
    """
    stack = Stack.of(stack)
    check("model", model, f"one of {', '.join(MODELS)}", MODELS.__contains__)
    check("on_failure", on_failure, "'stop' or 'leave-out'", ("stop", "leave-out").__contains__)
    check("still", still, "a number of pixels from 0 up", lambda pixels: pixels >= 0)
    check_callback("progress", progress)
    count = len(stack)
    middle = count // 2 if reference is None else reference
    check_number("reference", middle, whole=True)
    if not 0 <= middle < count:
        raise CofuseError(
            f"the reference is frame {middle}; the {count} frames are counted from 0 to {count - 1}"
        )
    size = (stack.height, stack.width)
    if count == 1:
        unmoved, one = Transform.identity(model), (1.0,) * (3 if stack.is_colour else 1)
        return Alignment(stack.names, size, model, 0, (unmoved,), (one,))
    ask = asked(count, middle) if parallax else frozenset[int]()
    walk = _Walk(stack, model, middle, on_failure, ask)
    with closing(walk.steps()) as steps:
        for done, _ in enumerate(steps):
            progress(Progress("align", done + 1, count))
    if len(walk.found) == 1:
        raise CofuseError(
            f"no frame could be aligned to the reference {stack.names[middle]}; choose another "
            f"reference, or fuse without aligning"
        )
    solved = _solve(walk.pairs, middle, size)
    transforms = tuple(
        _settle(solved[k], model, size, still) if k in solved else None for k in range(count)
    )
    gains = exposure_gains(
        walk.thumbnails, transforms, middle, size, stack.ceiling, match=match_exposure
    )
    bent = parallax and shows_parallax(walk.small, transforms, middle, size)
    return Alignment(stack.names, size, model, middle, transforms, gains, walk.left_out, bent)


@dataclass(frozen=True)
class _Pair:
    """What a comparison of two frames has found: pixels of `first` to pixels of `second`."""

    first: int
    second: int
    match: Match


class _Walk:
    """Compares frames outwards from the reference; keeps only the pictures still needed."""

    def __init__(
        self,
        stack: Stack,
        model: Model,
        reference: int,
        on_failure: OnFailure,
        ask: frozenset[int],
    ) -> None:
        self.stack, self.model, self.reference = stack, model, reference
        self.on_failure, self.ask = on_failure, ask
        self.found: dict[int, Matrix] = {reference: np.eye(3)}
        self.pairs: list[_Pair] = []
        self.left_out: dict[int, str] = {}
        self.thumbnails: dict[int, Thumbnail] = {}
        self.small: dict[int, NDArray[np.float32]] = {}

    def steps(self) -> Generator[None]:
        """Do the work, one frame a step."""
        after = range(self.reference + 1, len(self.stack))
        before = range(self.reference - 1, -1, -1)
        # While one frame is compared the next is made ready.
        order = [self.reference, *after, *before]
        with self.stack.ahead(self._read, order, most=1) as pictures:
            start = next(pictures)
            if start.is_flat:
                raise CofuseError(
                    f"the reference {self.stack.names[self.reference]} shows no detail to align "
                    "to; choose another reference"
                )
            yield
            yield from self._side(after, start, pictures)
            yield from self._side(before, start, pictures)

    def _side(self, side: range, start: Pyramid, pictures: Iterator[Pyramid]) -> Iterator[None]:
        """Take the frames on one side of the reference, the nearest first."""
        # The last frame, the one before it, the reference.
        near: list[tuple[int, Pyramid]] = [(self.reference, start)]
        for index, picture in zip(side, pictures, strict=False):
            reason = self._place(index, picture, near)
            if reason is None:
                near = [(index, picture), near[0], (self.reference, start)]
                near = near[:2] if near[1][0] == self.reference else near
            else:
                self._give_up(index, reason)
            yield

    def _read(self, index: int) -> Pyramid:
        frame = self.stack[index]
        reduced = reduce(frame)
        self.thumbnails[index] = thumbnail(reduced, self.stack, largest=largest_values(frame))
        if index in self.ask:
            self.small[index] = small(reduced, self.stack)
        return build_pyramid(reduced, self.stack)

    def _place(self, index: int, picture: Pyramid, near: list[tuple[int, Pyramid]]) -> str | None:
        """Find a frame from the nearest one that it resembles; or say why it has no place."""
        if picture.is_flat:
            return "it shows no detail"
        reasons = []
        for n, (other, seen) in enumerate(near):
            match = register(seen, picture, self.model)
            reason = self._doubt(match, self.found[other])
            if reason is None:
                self.pairs.append(_Pair(other, index, match))
                self.found[index] = match.matrix @ self.found[other]
                for further, picture_there in near[n + 1 :]:
                    self._compare(further, picture_there, index, picture)
                return None
            reasons.append(f"{reason} (compared with {self.stack.names[other]})")
        return reasons[0]

    def _compare(self, first: int, seen: Pyramid, second: int, picture: Pyramid) -> None:
        """Add a pair whose transform is nearly known, unless it says something else."""
        start = self.found[second] @ np.linalg.inv(self.found[first])
        match = register(seen, picture, self.model, start=start)
        apart = Transform(match.matrix, "homography").compose(
            Transform(start, "homography").invert()
        )
        limit = _CONSISTENT / picture.to_finest[0, 0]
        if match.doubt is None and apart.corner_displacement(picture.shape) < limit:
            self.pairs.append(_Pair(first, second, match))

    def _doubt(self, match: Match, before: Matrix) -> str | None:
        """Say why a match cannot be right, or nothing."""
        if match.doubt is not None:
            return match.doubt
        for matrix in (match.matrix, match.matrix @ before):
            scales = np.linalg.svd(matrix[:2, :2], compute_uv=False)
            if (
                np.linalg.det(matrix) <= 0
                or scales.max() > _MOST_SCALE
                or scales.min() < _LEAST_SCALE
            ):
                return f"the transform found is implausible: scale {scales[0]:.2f}"
        shape = self.stack.shape
        moved = Transform(match.matrix @ before, self.model).corner_displacement(shape)
        if moved > _MOST_MOVED * float(np.hypot(shape[0], shape[1])):
            return f"the transform found is implausible: it moves a corner by {moved:.0f} pixels"
        return None

    def _give_up(self, index: int, reason: str) -> None:
        if self.on_failure == "stop":
            raise CofuseError(
                f"{self.stack.names[index]} cannot be aligned: {reason}; leave such frames out, "
                "remove it from the stack, or fuse without aligning"
            )
        self.left_out[index] = reason


def _solve(
    pairs: list[_Pair], reference: int, size: tuple[int, int]
) -> dict[int, tuple[Matrix, float]]:
    """Find one matrix a frame, and its expected error in pixels, from all pairs at once.

    With T_r = 1 for the reference r, minimise sum w_ab |T_b - T_ab T_a|² over all pairs (a, b):
    a linear problem, whose solution is of the pairs' model but for what they disagree in.
    """
    frames = sorted({pair.second for pair in pairs})
    place = {frame: slice(3 * n, 3 * n + 3) for n, frame in enumerate(frames)}
    # About the centre, in units of half the diagonal, all entries count alike.
    half = np.hypot(*size) / 2
    unit = np.array([[half, 0, (size[1] - 1) / 2], [0, half, (size[0] - 1) / 2], [0, 0, 1.0]])
    normal, right = np.zeros((3 * len(frames), 3 * len(frames))), np.zeros((3 * len(frames), 3))
    for pair in pairs:
        weight = 1.0 / (pair.match.spread**2 + _LEAST_SPREAD**2)
        step = np.linalg.inv(unit) @ pair.match.matrix @ unit
        second = place[pair.second]
        normal[second, second] += weight * np.eye(3)
        if pair.first == reference:
            right[second] += weight * step
            continue
        first = place[pair.first]
        normal[first, first] += weight * step.T @ step
        normal[first, second] -= weight * step.T
        normal[second, first] -= weight * step
    solution = np.linalg.solve(normal, right)
    spreads = np.sqrt(np.diag(np.linalg.inv(normal)))
    solved = {
        k: (unit @ solution[at] @ np.linalg.inv(unit), float(spreads[at.start]))
        for k, at in place.items()
    }
    return {reference: (np.eye(3), 0.0), **solved}


def _settle(
    solved: tuple[Matrix, float], model: Model, size: tuple[int, int], still: float
) -> Transform:
    """Make a transform of a matrix; where it moves nothing, or by whole pixels, exactly so."""
    found, spread = Transform(_of_model(solved[0], model), model), solved[1]
    still = max(still, min(_STILL_ERRORS * spread, _STILL_LIMIT))
    if found.corner_displacement(size) <= still:
        return Transform.identity(model)
    whole = np.eye(3)
    whole[:2, 2] = np.rint(np.mean(found(corners(size)) - corners(size), axis=0))
    shift = Transform(whole, model)
    apart = np.abs(found(corners(size)) - shift(corners(size))).max()
    return shift if apart <= _WHOLE else found


def _of_model(matrix: Matrix, model: Model) -> Matrix:
    """Take the nearest matrix of a model."""
    matrix = matrix / matrix[2, 2]
    if model == "homography":
        return matrix
    linear = matrix[:2, :2]
    if model == "translation":
        linear = np.eye(2)
    elif model == "similarity":
        along, across = (linear[0, 0] + linear[1, 1]) / 2, (linear[1, 0] - linear[0, 1]) / 2
        linear = np.array([[along, -across], [across, along]])
    return np.vstack([np.column_stack([linear, matrix[:2, 2]]), [0.0, 0.0, 1.0]])
