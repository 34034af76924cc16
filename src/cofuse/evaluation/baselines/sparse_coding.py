"""Synthesis sparse coding by orthogonal matching pursuit.

A signal ``x`` is written as ``Dγ`` with few atoms (columns of D, of unit length). The pursuit
takes the atom that correlates best with the residual, fits all atoms taken so far by least
squares, and goes on until the residual is small or enough atoms are taken.

Like Batch-OMP (Rubinstein, Zibulevsky and Elad, 2008) it never multiplies the dictionary with a
residual: the Gram matrix and a growing Cholesky factor ``L`` of its part at the chosen atoms
update all correlations. Rather than solving with ``L`` in every step we keep ``Q = D_I L⁻ᵀ``, an
orthonormal basis of the chosen atoms, and ``P = QᵀD``: a new row of ``L`` is then read off ``P``,
the residual is known exactly, and the coefficients take one substitution at the very end.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images.threads import processors

__all__ = ["approximate", "batch_omp", "finite_matrix"]

Array = NDArray[Any]
Floats = NDArray[np.float32]

#: Columns handed to a thread at a time.
_CHUNK = 4096
#: An atom closer than this to the span of those taken adds nothing float32 could resolve.
_LEAST_DISTANCE = 1e-3

# No loop compiled by it both stores and sums up. Such a loop sums in another order when its arrays
# happen to lie side by side in memory, and the same call would not always give the same bits.
_jit: Callable[..., Any] = njit(
    nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "nnan"}
)


def batch_omp(
    signals: Array, dictionary: Array, *, tolerance: float = 0.0, max_atoms: int | None = None
) -> Any:
    r"""Code every column of ``signals`` with few atoms of ``dictionary``.

    .. math:: \min_\gamma \|\gamma\|_0 \quad\text{subject to}\quad
              \|x - D\gamma\|_2 \le \varepsilon,\ \|\gamma\|_0 \le T

    solved greedily. With neither limit given, all of a signal is coded.

    Parameters
    ----------
    signals
        Shape (m, N).
    dictionary
        Atoms of unit length, shape (m, atoms).
    tolerance
        ε, the length of residual at which to stop.
    max_atoms
        T, the most atoms a column may use; at most m, which is also the default.

    Returns
    -------
    scipy.sparse.csc_array
        Coefficients of shape (atoms, N), float32.
    """
    from scipy.sparse import csc_array

    chosen, values, counts, _ = _code_all(signals, dictionary, tolerance, max_atoms)
    used = np.arange(chosen.shape[1]) < counts[:, None]
    ends = np.concatenate([[0], np.cumsum(counts)])
    shape = dictionary.shape[1], signals.shape[1]
    codes = csc_array((values[used], chosen[used], ends), shape=shape)
    codes.sort_indices()
    return codes


def approximate(
    signals: Array, dictionary: Array, *, tolerance: float = 0.0, max_atoms: int | None = None
) -> tuple[Floats, Floats]:
    """Code like `batch_omp`, but return ``Dγ``, shape (m, N), and every column's ``‖γ‖₁``."""
    _, values, _, fitted = _code_all(signals, dictionary, tolerance, max_atoms)
    return fitted.T, np.abs(values).sum(axis=1)


def _code_all(
    signals: Array, dictionary: Array, tolerance: float, max_atoms: int | None
) -> tuple[Array, Floats, Array, Floats]:
    """Atoms, coefficients and their number for every signal, and its approximation, in rows."""
    signals = finite_matrix(signals, "signals")
    atoms = np.ascontiguousarray(finite_matrix(dictionary, "the dictionary"))
    if len(signals) != len(atoms):
        raise CofuseError(
            f"signals of {len(signals)} numbers cannot be coded with atoms of {len(atoms)}"
        )
    if np.abs(np.linalg.norm(atoms, axis=0) - 1.0).max(initial=0.0) > 1e-3:
        raise CofuseError("the dictionary has atoms that are not of unit length; scale them")
    if not tolerance >= 0:
        raise CofuseError(f"tolerance is {tolerance}; expected a number that is not negative")
    if max_atoms is not None and max_atoms < 1:
        raise CofuseError(f"max_atoms is {max_atoms}; expected 1 or more")
    most = min(*atoms.shape, max_atoms or len(atoms))
    # The Gram matrix is rounded once, from double: P inherits what error it has.
    gram = (atoms.T.astype(np.float64) @ atoms.astype(np.float64)).astype(np.float32)
    count = signals.shape[1]
    chosen = np.zeros((count, most), np.int32)
    values = np.zeros((count, most), np.float32)
    counts = np.zeros(count, np.int64)
    fitted = np.empty((count, len(atoms)), np.float32)

    def code(start: int) -> None:
        part = slice(start, start + _CHUNK)
        rows = np.ascontiguousarray(signals[:, part].T)
        limit = np.float32(tolerance)
        _code(rows, atoms, gram, limit, chosen[part], values[part], counts[part], fitted[part])

    with ThreadPoolExecutor(processors()) as pool:
        list(pool.map(code, range(0, count, _CHUNK)))
    return chosen, values, counts, fitted


def finite_matrix(matrix: Array, name: str) -> Floats:
    """Return a matrix of finite float32, or refuse it."""
    result = np.asarray(matrix, np.float32)
    if result.ndim != 2 or result.shape[0] < 1 or not np.isfinite(result).all():
        raise CofuseError(f"{name}: expected a matrix of finite numbers, got shape {result.shape}")
    return result


@_jit
def _pursue(x, dictionary, gram, limit, state):  # type: ignore[no-untyped-def]
    """Choose atoms for one signal; fills the state and returns their number."""
    basis, products, factor, residual, direction, correlation, lengths, chosen = state
    m, atoms = dictionary.shape
    correlation[:] = np.float32(0)
    energy = np.float32(0)
    for i in range(m):
        residual[i] = x[i]
        energy += x[i] * x[i]
        row = dictionary[i]
        for a in range(atoms):
            correlation[a] += x[i] * row[a]
    smallest = np.float32(1e-6) * np.sqrt(energy)
    count = 0
    while count < chosen.shape[0] and energy > limit * limit:
        # First the maximum, then its place: only a plain maximum is vectorised.
        peak = np.float32(0)
        for a in range(atoms):
            peak = max(peak, abs(correlation[a]))
        if peak <= smallest:
            break
        new = 0
        while abs(correlation[new]) != peak and new < atoms - 1:
            new += 1
        for i in range(m):
            direction[i] = dictionary[i, new]
        for j in range(count):
            weight = products[j, new]
            factor[count, j] = weight
            known = basis[j]
            for i in range(m):
                direction[i] -= weight * known[i]
        distance = np.float32(0)
        for i in range(m):
            distance += direction[i] * direction[i]
        distance = np.sqrt(distance)
        if distance < np.float32(_LEAST_DISTANCE):
            break
        factor[count, count] = distance
        inverse = np.float32(1) / distance
        length = np.float32(0)
        added = basis[count]
        for i in range(m):
            added[i] = direction[i] * inverse
        for i in range(m):
            length += added[i] * residual[i]
        for i in range(m):
            residual[i] -= length * added[i]
        energy = np.float32(0)
        for i in range(m):
            energy += residual[i] * residual[i]
        lengths[count] = length
        chosen[count] = new
        _project(products, factor[count], count, gram[new], inverse)
        row = products[count]
        for a in range(atoms):
            correlation[a] -= length * row[a]
        count += 1
        for j in range(count):
            correlation[chosen[j]] = np.float32(0)  # orthogonal to the residual but for rounding
    return count


@_jit
def _project(products, weights, count, start, inverse):  # type: ignore[no-untyped-def]
    """products[count] = (start − Σ_j weights_j · products_j) · inverse, four rows at a time."""
    target = products[count]
    atoms = target.shape[0]
    for a in range(atoms):
        target[a] = start[a]
    whole = count - count % 4
    for j in range(0, whole, 4):
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        p0, p1, p2, p3 = products[j], products[j + 1], products[j + 2], products[j + 3]
        for a in range(atoms):
            target[a] -= (w0 * p0[a] + w1 * p1[a]) + (w2 * p2[a] + w3 * p3[a])
    for j in range(whole, count):
        weight = weights[j]
        row = products[j]
        for a in range(atoms):
            target[a] -= weight * row[a]
    for a in range(atoms):
        target[a] *= inverse


@_jit
def _solve(factor, lengths, count, values):  # type: ignore[no-untyped-def]
    """Solve Lᵀ·values = lengths by back substitution."""
    for i in range(count - 1, -1, -1):
        value = lengths[i]
        for j in range(i + 1, count):
            value -= factor[j, i] * values[j]
        values[i] = value / factor[i, i]


@_jit
def _code(signals, dictionary, gram, limit, chosen, values, counts, fitted):  # type: ignore[no-untyped-def]
    """Atoms, coefficients, their number and the approximation of every row of ``signals``."""
    m, atoms = dictionary.shape
    most = chosen.shape[1]
    state = (
        np.zeros((most, m), np.float32),
        np.zeros((most, atoms), np.float32),
        np.zeros((most, most), np.float32),
        np.zeros(m, np.float32),
        np.zeros(m, np.float32),
        np.zeros(atoms, np.float32),
        np.zeros(most, np.float32),
        np.zeros(most, np.int32),
    )
    for n in range(signals.shape[0]):
        count = _pursue(signals[n], dictionary, gram, limit, state)
        _solve(state[2], state[6], count, values[n])
        chosen[n, :count] = state[7][:count]
        counts[n] = count
        for i in range(m):
            fitted[n, i] = signals[n, i] - state[3][i]
