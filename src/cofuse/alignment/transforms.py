"""Plane transforms between the frames of a stack.

Pixel coordinates are (x, y): x counts columns, y rows, and whole numbers are the *centres* of
pixels, so a picture of W columns spans x from -0.5 to W - 0.5. A `Transform` takes coordinates of
the reference frame to those of another frame: the frame is brought into place by looking up, for
every pixel of the reference, the frame's value at the transformed coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError

__all__ = ["MODELS", "Model", "Transform", "corners", "tangents", "to_reduced"]

#: translation: shift; similarity: and rotation and scale (focus breathing); affine: and shear;
#: homography: and perspective.
Model = Literal["translation", "similarity", "affine", "homography"]
MODELS: tuple[Model, ...] = get_args(Model)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Transform:
    """A 3 × 3 matrix in homogeneous pixel coordinates, reference to frame, and its model.

    The matrix is scaled so that its last entry is 1, and it cannot be written to.
    """

    matrix: Floats
    model: Model = "similarity"

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, np.float64)
        if self.model not in MODELS:
            raise CofuseError(f"no transform {self.model!r}; expected one of {', '.join(MODELS)}")
        if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or matrix[2, 2] == 0:
            raise CofuseError(
                f"a transform is a 3x3 matrix of finite numbers with a last entry that is not 0; "
                f"got shape {matrix.shape}: {matrix.tolist()}"
            )
        matrix /= matrix[2, 2]
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @classmethod
    def identity(cls, model: Model = "similarity") -> Transform:
        """Return the transform that leaves every point where it is."""
        return cls(np.eye(3), model)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transform):
            return NotImplemented
        return self.model == other.model and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.model, self.matrix.tobytes()))

    @property
    def is_identity(self) -> bool:
        """Whether the matrix is the identity to the last bit."""
        return np.array_equal(self.matrix, np.eye(3))

    @property
    def whole_shift(self) -> tuple[int, int] | None:
        """The shift (x, y) where the transform is a shift by whole pixels, else None."""
        shift = self.matrix[:2, 2]
        rest = np.array_equal(self.matrix[:, :2], np.eye(3)[:, :2])
        return (int(shift[0]), int(shift[1])) if rest and (shift == np.rint(shift)).all() else None

    def __call__(self, points: ArrayLike) -> Floats:
        """Transform points of shape (..., 2), given and returned as (x, y)."""
        given = np.asarray(points, np.float64)
        image = given @ self.matrix[:, :2].T + self.matrix[:, 2]
        return np.asarray(image[..., :2] / image[..., 2:])

    def compose(self, first: Transform) -> Transform:
        """Return the transform that applies `first` and then this one."""
        model = MODELS[max(MODELS.index(self.model), MODELS.index(first.model))]
        return Transform(self.matrix @ first.matrix, model)

    def invert(self) -> Transform:
        """Return the transform that undoes this one."""
        try:
            return Transform(np.asarray(np.linalg.inv(self.matrix), np.float64), self.model)
        except np.linalg.LinAlgError as error:
            raise CofuseError(
                f"the transform {self.matrix.tolist()} cannot be undone: it flattens the picture"
            ) from error

    def corner_displacement(self, shape: tuple[int, ...]) -> float:
        """Return how far, in pixels, the corner of a picture that moves most is moved."""
        points = corners(shape)
        return float(np.hypot(*(self(points) - points).T).max())


def corners(shape: tuple[int, ...]) -> Floats:
    """Return the centres of the four corner pixels as (x, y), in the order around the picture."""
    right, bottom = shape[1] - 1.0, shape[0] - 1.0
    return np.array([[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]])


def to_reduced(size: tuple[int, ...], reduced: tuple[int, ...]) -> Floats:
    """Return the matrix from pixels of a (height, width) to those of a copy reduced to another."""
    x, y = reduced[1] / size[1], reduced[0] / size[0]
    return np.array([[x, 0, x / 2 - 0.5], [0, y, y / 2 - 0.5], [0, 0, 1.0]])


def tangents(model: Model) -> NDArray[Any]:
    """Return the directions in which a matrix of the model may leave the identity, (P, 3, 3)."""
    unit = np.zeros((3, 3, 3, 3))
    for row, column in np.ndindex(3, 3):
        unit[row, column, row, column] = 1.0
    shift = [unit[0, 2], unit[1, 2]]
    if model == "translation":
        return np.stack(shift)
    if model == "similarity":
        return np.stack([*shift, unit[0, 0] + unit[1, 1], unit[1, 0] - unit[0, 1]])
    linear = [unit[row, column] for row in range(2) for column in range(2)]
    perspective = [unit[2, 0], unit[2, 1]] if model == "homography" else []
    return np.stack([*shift, *linear, *perspective])
