"""Analysis operators: the matrix Ω whose zeros name the subspace a sharp patch lies in.

Every row of Ω is a small filter of unit length and zero mean. On a patch ``x`` of n × n pixels,
read row by row into a vector of m = n² numbers, ``Ωx`` are its analysis coefficients.

A *separable* operator is a Kronecker product A ⊗ B: a patch X becomes ``A X Bᵀ``. The first row of
either factor is constant and the others have zero mean, so all products but the first are
mean-free; the first is the patch's mean and no row of Ω. Two factors of 8 × 7 make 63 rows.
"""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from cofuse.arguments import check_path
from cofuse.errors import CofuseError
from cofuse.operators.patches import patch_positions

Array = NDArray[Any]

#: The operators that come with the package, by name.
SHIPPED_OPERATORS = ("full-5", "full-6", "full-7", "full-8", "full-9", "separable-7")

#: Kinds that are made for any patch side: orthonormal cosines (n² − 1 rows), cosines of one
#: frequency more ((n + 1)² − 1), and differences of neighbours (2n(n − 1)).
_BUILT_IN = ("dct", "overcomplete-dct", "differences")

_FORMAT, _FORMAT_VERSION = "cofuse-operator", 1
_TOLERANCE, _LARGEST_SIDE = 1e-6, 32
#: Patch rows and columns whose coefficients are computed at a time: few enough for the cache, and
#: for matrix products that are not spread over threads, which would wait more than work.
_BLOCK = 8, 512


@dataclass(frozen=True, eq=False)
class AnalysisOperator:
    """A set of unit-length, mean-free filters for patches of ``patch_size`` × ``patch_size``.

    Attributes
    ----------
    rows
        The matrix Ω, shape (h, m), float64.
    name
        What to call it in lists and reports.
    provenance
        How it came about: training set, seed, settings, version.
    factors
        A and B of a separable operator, each of shape (h₁, n); None for a full one.
    """

    rows: NDArray[np.float64]
    _: KW_ONLY
    name: str = "unnamed"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    factors: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def __post_init__(self) -> None:
        _check_rows(self.rows, self.name)
        rows = np.array(self.rows, np.float64)
        rows.setflags(write=False)
        object.__setattr__(self, "rows", rows)

    @classmethod
    def from_factors(
        cls, left: Array, right: Array, *, name: str, provenance: Mapping[str, Any] | None = None
    ) -> AnalysisOperator:
        """Build the separable operator A ⊗ B less the product of the two constant rows."""
        left, right = np.array(left, np.float64), np.array(right, np.float64)
        for factor in (left, right):
            if factor.ndim != 2 or min(factor.shape) < 2:
                raise CofuseError(f"operator {name}: a factor has shape {factor.shape}")
            # Written so that NaN is refused too.
            if not np.abs(factor[0] - factor.shape[1] ** -0.5).max() <= _TOLERANCE:
                raise CofuseError(
                    f"operator {name}: the first row of a factor is not the unit constant"
                )
            factor.setflags(write=False)
        if left.shape[1] != right.shape[1]:
            raise CofuseError(f"operator {name}: factors for patches of unequal sides")
        rows: NDArray[np.float64] = np.asarray(np.kron(left, right)[1:], np.float64)
        return cls(rows, name=name, provenance=dict(provenance or {}), factors=(left, right))

    @property
    def patch_size(self) -> int:
        """Side n of the patches, in pixels."""
        side: int = round(self.rows.shape[1] ** 0.5)
        return side

    @property
    def is_separable(self) -> bool:
        """Whether Ω is a Kronecker product of two small factors."""
        return self.factors is not None

    @property
    def filters(self) -> NDArray[np.float64]:
        """The rows as pictures, shape (h, n, n)."""
        return self.rows.reshape(-1, self.patch_size, self.patch_size)

    def apply(self, patches: Array) -> Array:
        """Ωx for patches in the columns of ``patches``, (m, N) → (h, N)."""
        return self.rows.astype(patches.dtype) @ patches

    def apply_image(self, image: Array) -> Array:
        """Coefficients of every patch of a grey picture: (H, W) → (H − n + 1, h, W − n + 1)."""
        n, filters = self.patch_size, self.filters.astype(image.dtype)
        patch_positions(image.shape, n, 1)  # refuses a picture below patch size
        columns = image.shape[1] - n + 1
        windows = sliding_window_view(image, n, axis=0).swapaxes(1, 2)
        # One column of all filters at a time: products of matrices, without copies of patches.
        made = [filters[:, :, d] @ windows[:, :, d : d + columns] for d in range(n)]
        return np.asarray(sum(made[1:], made[0]))

    def adjoint_image(self, coefficients: Array) -> Array:
        """The adjoint of `apply_image`: every coefficient adds its filter where it was taken."""
        n, filters = self.patch_size, self.filters.astype(coefficients.dtype)
        rows, _, columns = coefficients.shape
        image = np.zeros((rows + n - 1, columns + n - 1), coefficients.dtype)
        for dx in range(n):
            spread = filters[:, :, dx].T @ coefficients
            for dy in range(n):
                image[dy : dy + rows, dx : dx + columns] += spread[:, dy]
        return image

    def activity(
        self, picture: Array, *, step: int = 1, thresholds: Array | None = None
    ) -> NDArray[np.float32]:
        """Sum of the magnitudes of the coefficients of patches, ``‖Ω W_ij I‖₁``.

        A grey picture (H, W) has patches every ``step`` pixels, from the first row and column on:
        the result has shape (⌈(H − n + 1) / step⌉, ⌈(W − n + 1) / step⌉). Each row of Ω can have a
        threshold, which is subtracted from its magnitudes; negative differences count as 0.
        """
        import cv2  # takes a while to load

        n = self.patch_size
        patch_positions(picture.shape, n, 1)  # refuses a picture below patch size
        picture = np.ascontiguousarray(picture, np.float32)
        limits = np.zeros(len(self.rows)) if thresholds is None else np.asarray(thresholds)
        if self.factors is None:
            left, right = self.filters, np.eye(n)
            limits = limits[None, None, :, None]
        else:
            left, right = self.factors
            limits = np.append(0.0, limits).reshape(len(left), len(right)).T[:, None, :, None]
        left, limits = left.astype(np.float32), limits.astype(np.float32)
        # The picture filtered along its rows by B, or only shifted, and views of n rows of it, of
        # shape (planes, patch rows, n, patch columns).
        filtered = [cv2.filter2D(picture, -1, taps[None], anchor=(0, 0)) for taps in right]
        planes = np.stack([plane[:, : 1 - n : step] for plane in filtered])
        windows = sliding_window_view(planes, n, axis=1)[:, ::step].swapaxes(2, 3)
        result = np.empty(windows.shape[1::2], np.float32)
        for row, column in itertools.product(*map(range, (0, 0), result.shape, _BLOCK)):
            here = slice(row, row + _BLOCK[0]), slice(column, column + _BLOCK[1])
            some = windows[:, here[0], :, here[1]]
            if self.factors is None:
                u = np.asarray(sum(left[:, :, dx] @ some[dx] for dx in range(n)))[None]
            else:
                u = left @ some
                u[0, :, 0] = 0  # the product of the constants is no row of Ω
            magnitude = np.abs(u, out=u)
            if thresholds is not None:
                magnitude = np.maximum(magnitude - limits, 0)
            result[here] = magnitude.sum(axis=(0, 2))
        return result

    def squared_norm(self) -> float:
        """Bound ‖Ω_F‖² of the operator on every patch of a picture, by its filters' spectra.

        Filtering with all h filters has as squared norm the maximum over frequencies of Σ_j |ω̂_j|²;
        leaving patches out at the border can only lower it. This sum is a trigonometric polynomial
        of degree n − 1 in both frequencies: between N samples a side it exceeds the largest sample
        by at most the factor 1 / cos²(π (n − 1) / N).
        """
        samples = 32 * self.patch_size
        spectrum = np.fft.rfft2(self.filters, s=(samples, samples))
        largest = (np.abs(spectrum) ** 2).sum(axis=0).max()
        return float(largest / np.cos(np.pi * (self.patch_size - 1) / samples) ** 2)


def coherence(rows: Array) -> float:
    """Largest |cos| between two different rows."""
    gram = np.abs(rows @ rows.T)
    np.fill_diagonal(gram, 0.0)
    return float(gram.max())


def load_operator(name: str | Path) -> AnalysisOperator:
    """Find an operator by its shipped name, by a built-in one such as ``dct-7``, or in a file."""
    check_path("operator", name)
    if str(name) in SHIPPED_OPERATORS:
        return _shipped(str(name))
    kind, _, side = str(name).rpartition("-")
    if kind in _BUILT_IN and side in map(str, range(2, _LARGEST_SIDE + 1)):
        return _built_in(kind, int(side))
    if not os.path.exists(name):  # noqa: PTH110 - unlike Path, says so of any name
        raise CofuseError(
            f"there is no operator or file named {name}; shipped are "
            f"{', '.join(SHIPPED_OPERATORS)}, and {'-N, '.join(_BUILT_IN)}-N are made for any "
            f"patch side N from 2 to {_LARGEST_SIDE}"
        )
    return read_operator(Path(name))


@cache
def _shipped(name: str) -> AnalysisOperator:
    return read_operator(Path(__file__).parents[1] / "data" / "operators" / f"{name}.npz")


def _built_in(kind: str, n: int) -> AnalysisOperator:
    """Build differences of neighbours, or cosines of n or n + 1 frequencies a side."""
    if kind == "differences":
        step = (np.eye(n, k=1) - np.eye(n))[:-1] / np.sqrt(2.0)
        rows = np.concatenate([np.kron(np.eye(n), step), np.kron(step, np.eye(n))])
        return AnalysisOperator(rows, name=f"{kind}-{n}")
    count = n if kind == "dct" else n + 1
    waves = np.cos(np.pi / count * np.outer(np.arange(count), np.arange(n) + 0.5))
    # Frequencies that do not fit the patch have a mean.
    waves[1:] -= waves[1:].mean(axis=1, keepdims=True)
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    return AnalysisOperator.from_factors(waves, waves, name=f"{kind}-{n}")


def operator_bytes(operator: AnalysisOperator) -> bytes:
    """Encode an operator as the content of a file: NumPy arrays and a JSON text, no pickle."""
    header = {
        "format": _FORMAT,
        "version": _FORMAT_VERSION,
        "name": operator.name,
        "provenance": dict(operator.provenance),
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header, sort_keys=True))}
    if operator.factors:
        arrays["left"], arrays["right"] = operator.factors
    else:
        arrays["rows"] = operator.rows
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_operator(path: Path) -> AnalysisOperator:
    """Read and check an operator file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays: dict[str, Array] = dict(archive)
        header = json.loads(str(arrays.pop("header")))
        tag = header["format"], header["version"]
        name = " ".join(str(header["name"]).split())
        provenance = dict(header["provenance"])
        types = {array.dtype.kind for array in arrays.values()}
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}") from error
    except Exception as error:  # a file that is none of ours can fail in any way
        raise CofuseError(
            f"{path} is no operator file ({type(error).__name__}); expected one written by "
            "cofuse learn"
        ) from error
    if tag != (_FORMAT, _FORMAT_VERSION):
        raise CofuseError(
            f"{path} has format {tag[0]} version {tag[1]}; expected {_FORMAT} version "
            f"{_FORMAT_VERSION}"
        )
    if types == {"f"} and set(arrays) == {"left", "right"}:
        return AnalysisOperator.from_factors(**arrays, name=name, provenance=provenance)
    if types == {"f"} and set(arrays) == {"rows"}:
        return AnalysisOperator(arrays["rows"], name=name, provenance=provenance)
    raise CofuseError(
        f"{path} holds {sorted(arrays)}; expected floats, as rows or as left and right"
    )


def _check_rows(rows: Array, name: str) -> None:
    """Refuse a matrix that is no operator."""
    if rows.ndim != 2 or rows.dtype.kind != "f" or not len(rows):
        fault = f"is an array of shape {rows.shape}; expected a matrix of floats"
    elif (side := round(rows.shape[1] ** 0.5)) ** 2 != rows.shape[1] or side < 2:
        fault = f"has rows of {rows.shape[1]} numbers, which fit no square patch"
    elif side > _LARGEST_SIDE:
        fault = f"is for patches of {side}x{side}; expected at most {_LARGEST_SIDE}x{_LARGEST_SIDE}"
    elif not np.isfinite(rows).all():
        fault = "holds NaN or infinite values"
    elif np.abs(np.linalg.norm(rows, axis=1) - 1.0).max() > _TOLERANCE:
        fault = "has rows that are not of unit length"
    elif np.abs(rows.mean(axis=1)).max() > _TOLERANCE:
        fault = "has rows whose mean is not zero"
    else:
        return
    raise CofuseError(f"operator {name} {fault}")
