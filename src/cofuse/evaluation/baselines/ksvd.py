"""Dictionaries for synthesis sparse coding, learned by K-SVD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.sparse_coding import batch_omp, finite_matrix, jit
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent

__all__ = ["LearnedDictionary", "learn_dictionary"]

Array = NDArray[Any]
Floats = NDArray[np.float32]

#: Atoms are redrawn when used by fewer signals, or closer to an earlier atom than this cosine.
_LEAST_USE = 4
_MOST_COHERENCE = 0.99
#: Rounds over which learning must have gained something.
_PATIENCE = 10


@dataclass(frozen=True, eq=False)
class LearnedDictionary:
    """What `learn_dictionary` found.

    Attributes
    ----------
    dictionary
        Atoms of unit length in columns, shape (m, atoms), float32.
    trace
        History of ``rms_error`` (of one entry of a signal, after coding) and of ``replaced``
        atoms, one value a round.
    """

    dictionary: Floats
    trace: SolverTrace


def learn_dictionary(
    patches: Array,
    *,
    atoms: int = 256,
    sparsity: int = 6,
    rounds: int = 40,
    least_gain: float = 1e-5,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> LearnedDictionary:
    r"""Learn a dictionary by K-SVD (Aharon, Elad and Bruckstein, 2006).

    .. math:: \min_{D, \Gamma} \|Y - D\Gamma\|_F^2 \quad\text{subject to}\quad
              \|\gamma_i\|_0 \le T,\ \|d_j\|_2 = 1

    Every round codes all signals by pursuit, then updates one atom after the other together with
    its coefficients g, over the signals that use it and with E their error without that atom:
    ``d ← E g / ‖E g‖, g ← Eᵀ d``. This is the approximate K-SVD of Rubinstein, Zibulevsky and
    Elad (2008): one power iteration in place of the singular value decomposition. Atoms that
    hardly any signal uses, or that repeat an earlier one, become the worst coded signals.

    Parameters
    ----------
    patches
        Training signals Y in columns, shape (m, N), as they shall be coded: mean-free, say.
    atoms
        Number of atoms; at most the number of signals that are not zero.
    sparsity
        T, the atoms of one signal.
    rounds, least_gain
        Learning ends after so many rounds, or once ten of them have lowered the error by less
        than this part of it and redrawn no atom.
    seed
        Decides the signals taken as first atoms and the order of the updates.
    progress
        Told of every round.
    """
    signals = finite_matrix(patches, "patches")
    useful = np.flatnonzero(np.linalg.norm(signals, axis=0) > 0)
    if not (1 <= sparsity <= len(signals) and atoms >= 1 and rounds >= 1):
        raise CofuseError(
            f"{atoms} atoms, {sparsity} of {len(signals)} a signal and {rounds} rounds were asked "
            "for; expected at least 1 of each and no more atoms a signal than it has numbers"
        )
    if len(useful) < atoms:
        raise CofuseError(f"{len(useful)} signals that are not zero cannot teach {atoms} atoms")
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(signals.T)
    dictionary = _unit(signals[:, rng.choice(useful, atoms, replace=False)])
    errors: list[float] = []
    replaced: list[float] = []
    reason = f"did all {rounds} rounds"
    for done in range(rounds):
        codes = batch_omp(signals, dictionary, max_atoms=sparsity)
        residual = rows - np.asarray((codes.T @ dictionary.T), np.float32)
        errors.append(float(np.sqrt(np.mean(residual.astype(np.float64) ** 2))))
        by_atom = codes.tocsr()
        learned = np.ascontiguousarray(dictionary.T)
        order = rng.permutation(atoms)
        _update_atoms(learned, by_atom.indptr, by_atom.indices, by_atom.data, order, residual)
        dictionary = np.ascontiguousarray(learned.T)
        poor = _poor_atoms(dictionary, np.diff(by_atom.indptr))
        replaced.append(float(len(poor)))
        worst = useful[np.argsort(-np.linalg.norm(residual[useful], axis=1), kind="stable")]
        dictionary[:, poor] = _unit(signals[:, worst[: len(poor)]])
        progress(Progress("learn dictionary", done + 1, rounds))
        # The pursuit is greedy: single rounds may raise the error and learning still go on.
        gain = errors[-1 - _PATIENCE] - errors[-1] if done >= _PATIENCE else np.inf
        if gain <= least_gain * errors[-1] and not any(replaced[-_PATIENCE:]):
            reason = f"{_PATIENCE} rounds lowered the error by less than {least_gain:g} of it"
            break
    history = {"rms_error": tuple(errors), "replaced": tuple(replaced)}
    converged = not reason.startswith("did all")
    return LearnedDictionary(
        dictionary, SolverTrace("K-SVD", len(errors), converged, reason, history)
    )


def _unit(columns: Floats) -> Floats:
    """Scale columns to unit length."""
    return np.asarray(columns / np.linalg.norm(columns, axis=0), np.float32)


def _poor_atoms(dictionary: Floats, uses: Array) -> NDArray[np.intp]:
    """Indices of the atoms that are hardly used or close to an earlier one."""
    cosines = np.abs(np.triu(dictionary.T @ dictionary, k=1))
    return np.flatnonzero((uses < _LEAST_USE) | (cosines.max(axis=0) > _MOST_COHERENCE))


@jit
def _update_atoms(dictionary, starts, users, values, order, residual):  # type: ignore[no-untyped-def]
    """One pass of approximate K-SVD over atoms in rows; keeps ``residual`` = Y − DΓ up to date."""
    m = dictionary.shape[1]
    updated = np.zeros(m, np.float32)
    for atom in order:
        old = dictionary[atom]
        power = np.float32(0)
        updated[:] = np.float32(0)
        for place in range(starts[atom], starts[atom + 1]):
            value = values[place]
            power += value * value
            error = residual[users[place]]
            for i in range(m):
                updated[i] += value * error[i]
        length = np.float32(0)
        for i in range(m):
            updated[i] += power * old[i]
        for i in range(m):
            length += updated[i] * updated[i]
        if length <= 0:
            continue
        updated *= np.float32(1) / np.sqrt(length)
        for place in range(starts[atom], starts[atom + 1]):
            value = values[place]
            error = residual[users[place]]
            fresh = np.float32(0)
            for i in range(m):
                error[i] += value * old[i]
            for i in range(m):
                fresh += error[i] * updated[i]
            for i in range(m):
                error[i] -= fresh * updated[i]
            values[place] = fresh
        old[:] = updated
