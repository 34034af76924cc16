"""Plane transforms between frames, and the alignment of a stack: one transform a frame.

Pixel coordinates are (x, y): x counts columns, y rows, and whole numbers are the *centres* of
pixels, so a picture of W columns spans x from -0.5 to W - 0.5. A `Transform` takes coordinates of
the reference frame to those of another frame: the frame is brought into place by looking up, for
every pixel of the reference, the frame's value at the transformed coordinates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError

#: translation: shift; similarity: and rotation and scale (focus breathing); affine: and shear;
#: homography: and perspective.
Model = Literal["translation", "similarity", "affine", "homography"]
MODELS: tuple[Model, ...] = get_args(Model)

Matrix = NDArray[np.float64]

_FORMAT, _VERSION = "cofuse alignment", 1


@dataclass(frozen=True, eq=False)
class Transform:
    """A 3 × 3 matrix in homogeneous pixel coordinates, reference to frame.

    The matrix is scaled so that its last entry is 1, and it cannot be written to.
    """

    matrix: Matrix

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float64)
        fits = matrix.shape == (3, 3) and np.isfinite(matrix).all() and matrix[2, 2] != 0
        if not fits or np.linalg.det(matrix) == 0:
            raise CofuseError(
                "a transform is a 3x3 matrix of finite numbers, the last not 0, that does not "
                f"flatten the picture; got shape {matrix.shape}: {matrix.tolist()}"
            )
        matrix /= matrix[2, 2]
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transform) and np.array_equal(self.matrix, other.matrix)

    @property
    def whole_shift(self) -> tuple[int, int] | None:
        """The shift (x, y) where the transform is exactly one by whole pixels, else None."""
        shift = np.rint(self.matrix[:2, 2])
        whole = np.array_equal(self.matrix, shift_by(*shift))
        return (int(shift[0]), int(shift[1])) if whole else None

    def __call__(self, points: ArrayLike) -> Matrix:
        """Transform points of shape (..., 2), given and returned as (x, y)."""
        image = np.asarray(points, np.float64) @ self.matrix[:, :2].T + self.matrix[:, 2]
        return np.asarray(image[..., :2] / image[..., 2:])

    def corner_displacement(self, shape: tuple[int, ...]) -> float:
        """Return how far, in pixels, the corner of a picture that moves most is moved."""
        points = corners(shape)
        return float(np.hypot(*(self(points) - points).T).max())


def corners(shape: tuple[int, ...]) -> Matrix:
    """Return the centres of the four corner pixels as (x, y), in the order around the picture."""
    right, bottom = shape[1] - 1.0, shape[0] - 1.0
    return np.array([[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]])


def shift_by(x: float, y: float) -> Matrix:
    """Return the matrix of a shift."""
    return np.array([[1.0, 0, x], [0, 1.0, y], [0, 0, 1.0]])


def centred(shape: tuple[int, ...]) -> Matrix:
    """Return the matrix to pixels from units of half the diagonal about the centre.

    In these units all entries of a matrix move points alike.
    """
    half = np.hypot(shape[0], shape[1]) / 2
    return np.array([[half, 0, (shape[1] - 1) / 2], [0, half, (shape[0] - 1) / 2], [0, 0, 1.0]])


def to_reduced(size: tuple[int, ...], reduced: tuple[int, ...]) -> Matrix:
    """Return the matrix from pixels of a (height, width) to those of a copy reduced to another."""
    x, y = reduced[1] / size[1], reduced[0] / size[0]
    return np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5], [0, 0, 1.0]])


def homogeneous(h: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix times points (x, y, 1), given as (2, N): homogeneous, (3, N)."""
    # Not by `@`: products of float32 matrices are rounded differently on every processor.
    return np.asarray(h[:, :1] * points[0] + h[:, 1:2] * points[1] + h[:, 2:])


def tangents(model: Model) -> NDArray[Any]:
    """Return the directions in which a matrix of the model may leave the identity, (P, 3, 3)."""
    a, b, x, c, d, y, p, q, _ = np.eye(9).reshape(9, 3, 3)  # a single 1 each, row by row
    directions = {
        "translation": [x, y],
        "similarity": [x, y, a + d, c - b],
        "affine": [x, y, a, b, c, d],
        "homography": [x, y, a, b, c, d, p, q],
    }
    return np.stack(directions[model])


@dataclass(frozen=True, kw_only=True)
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
        highlights of another frame would be clipped: see the reference's own factor.
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
        """Whether none of the aligned frames needs to be moved."""
        return not self.parallax and all(
            t is None or t.whole_shift == (0, 0) for t in self.transforms
        )

    @property
    def brightness(self) -> float:
        """Brightness that all frames get, as a part of the reference's own."""
        return self.gains[self.reference][0]

    @property
    def changes_nothing(self) -> bool:
        """Whether no frame is left out, moved, or made brighter or darker."""
        same = all(gain == 1.0 for gains in self.gains for gain in gains)
        return self.already_aligned and None not in self.transforms and same

    def largest_displacement(self) -> float:
        """Return how far, in pixels, a corner of an aligned frame is moved at most."""
        return max(t.corner_displacement(self.size) for t in self.transforms if t is not None)


def alignment_to_json(alignment: Alignment) -> str:
    """Write an alignment as text; numbers keep all their digits."""
    every = zip(alignment.names, alignment.transforms, alignment.gains, strict=True)
    frames: list[dict[str, Any]] = [
        {"name": name, "matrix": None if found is None else found.matrix.tolist(), "gains": gains}
        for name, found, gains in every
    ]
    for k, reason in alignment.left_out.items():
        frames[k]["left_out"] = reason
    text = {
        "format": _FORMAT,
        "version": _VERSION,
        "meaning": "matrix: pixel centres (x, y, 1) of the reference to those of the frame",
        "height": alignment.size[0],
        "width": alignment.size[1],
        "model": alignment.model,
        "reference": alignment.reference,
        "parallax": alignment.parallax,
        "frames": frames,
    }
    return json.dumps(text, indent=2, allow_nan=False) + "\n"


def alignment_from_json(text: str) -> Alignment:
    """Read an alignment that `alignment_to_json` wrote; `aligned` checks that it fits a stack."""
    try:
        return _alignment(json.loads(text))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as e:
        what = {KeyError: "an entry is missing: ", json.JSONDecodeError: "it is no JSON: "}
        raise CofuseError(
            f"the saved alignment cannot be used: {what.get(type(e), '')}{e}; expected the "
            "text that cofuse saved, unchanged; align the stack anew"
        ) from e


def _alignment(given: Any) -> Alignment:
    """Turn parsed JSON into an alignment, looking at every value."""
    if not isinstance(given, dict) or given.get("format") != _FORMAT:
        raise ValueError(f"it does not say that its format is {_FORMAT!r}")
    if given.get("version") != _VERSION:
        raise ValueError(
            f"it is of version {given.get('version')!r}; this program reads version {_VERSION}"
        )
    given = {"parallax": False, **given}  # files of earlier versions have no such entry
    kinds = {"height": int, "width": int, "reference": int, "parallax": bool, "frames": list}
    for name, kind in kinds.items():
        if type(given[name]) is not kind:
            raise ValueError(f"its {name} is {given[name]!r}")
    frames, model, reference = given["frames"], given["model"], given["reference"]
    if model not in MODELS:
        raise ValueError(f"no transform {model!r}; expected one of {', '.join(MODELS)}")
    if not 0 <= reference < len(frames):
        raise ValueError(f"the reference is {reference} of {len(frames)} frames, counted from 0")
    found = [frame["matrix"] for frame in frames]
    alignment = Alignment(
        names=tuple(str(frame["name"]) for frame in frames),
        size=(given["height"], given["width"]),
        model=model,
        reference=reference,
        transforms=tuple(None if matrix is None else Transform(matrix) for matrix in found),
        gains=tuple(tuple(float(gain) for gain in frame["gains"]) for frame in frames),
        left_out={
            k: str(frame["left_out"]) for k, frame in enumerate(frames) if "left_out" in frame
        },
        parallax=given["parallax"],
    )
    for name, gains in zip(alignment.names, alignment.gains, strict=True):
        if not gains or not all(0 < gain < np.inf for gain in gains):
            raise ValueError(f"the gains of {name} are {gains}")
    if alignment.transforms[reference] != Transform(np.eye(3)):
        raise ValueError("its reference frame is left out or moved")
    return alignment
