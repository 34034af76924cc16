"""The dictionaries of SR-KSVD that come with the package, learned by K-SVD.

``python -m experiments.ksvd FOLDER OUT`` learns them anew from the PNG pictures in FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import __version__, read_image
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.sr_ksvd import SHIPPED_PATCH_SIZES, code_signals
from cofuse.progress import SolverTrace

Array = NDArray[Any]
Floats = NDArray[np.float32]

#: Atoms are redrawn when used by fewer signals, or closer to an earlier atom than this cosine.
_LEAST_USE = 4
_MOST_COHERENCE = 0.99
#: Rounds over which learning must have gained something.
_PATIENCE = 10
#: How the shipped dictionaries are learned. Patches of less contrast (standard deviation in grey
#: levels) are left out: what is flat needs no atom.
_LEARNING = {"atoms": 256, "sparsity": 6, "rounds": 50, "seed": 0}
_TRAINING_PATCHES = 50_000
_LEAST_CONTRAST = 2.0


def learn_dictionary(
    patches: Array,
    *,
    atoms: int = 256,
    sparsity: int = 6,
    rounds: int = 40,
    least_gain: float = 1e-5,
    seed: int = 0,
) -> tuple[Floats, SolverTrace]:
    r"""Learn a dictionary by K-SVD (Aharon, Elad and Bruckstein, 2006).

    .. math:: \min_{D, \Gamma} \|Y - D\Gamma\|_F^2 \quad\text{subject to}\quad
              \|\gamma_i\|_0 \le T,\ \|d_j\|_2 = 1

    Every round codes all signals by pursuit, then updates one atom after the other together with
    its coefficients g, over the signals that use it and with E their error without that atom:
    ``d ← E g / ‖E g‖, g ← Eᵀ d``. This is the approximate K-SVD of Rubinstein, Zibulevsky and
    Elad (2008): one power iteration in place of the singular value decomposition. Atoms that
    hardly any signal uses, or that repeat an earlier one, become the worst coded signals.

    Signals Y are rows, shape (N, m), coded by T = ``sparsity`` atoms each. Learning ends after a
    number of rounds, or once ten of them have lowered the error by less than ``least_gain`` of it
    and redrawn no atom. The dictionary has shape (m, atoms), float32; the trace has the history
    of ``rms_error``, of one entry of a signal after coding, and of ``replaced`` atoms.
    """
    signals = np.asarray(patches, np.float32)
    useful = np.flatnonzero(np.linalg.norm(signals, axis=1) > 0)
    if len(useful) < atoms:
        raise CofuseError(f"{len(useful)} signals that are not zero cannot teach {atoms} atoms")
    rng = np.random.default_rng(seed)
    dictionary = _unit(signals[rng.choice(useful, atoms, replace=False)].T)
    errors: list[float] = []
    replaced: list[float] = []
    reason = f"did all {rounds} rounds"
    for done in range(rounds):
        codes = dense_codes(signals, dictionary, max_atoms=sparsity)
        uses = np.count_nonzero(codes, axis=0)
        residual = signals - codes @ dictionary.T
        errors.append(float(np.sqrt(np.mean(residual.astype(np.float64) ** 2))))
        update_atoms(dictionary, codes, residual, rng.permutation(atoms))
        poor = _poor_atoms(dictionary, uses)
        replaced.append(float(len(poor)))
        worst = useful[np.argsort(-np.linalg.norm(residual[useful], axis=1), kind="stable")]
        dictionary[:, poor] = _unit(signals[worst[: len(poor)]].T)
        # The pursuit is greedy: single rounds may raise the error and learning still go on.
        gain = errors[-1 - _PATIENCE] - errors[-1] if done >= _PATIENCE else np.inf
        if gain <= least_gain * errors[-1] and not any(replaced[-_PATIENCE:]):
            reason = f"{_PATIENCE} rounds lowered the error by less than {least_gain:g} of it"
            break
    history = {"rms_error": tuple(errors), "replaced": tuple(replaced)}
    converged = not reason.startswith("did all")
    return dictionary, SolverTrace(
        solver="K-SVD", iterations=len(errors), converged=converged, reason=reason, history=history
    )


def dense_codes(signals: Array, dictionary: Array, **limits: Any) -> Floats:
    """Code signals in rows; return all coefficients, shape (N, atoms)."""
    coded = code_signals(signals, dictionary, **limits)
    codes = np.zeros((len(signals), dictionary.shape[1]), np.float32)
    signal, place = np.nonzero(coded.values)
    codes[signal, coded.atoms[signal, place]] = coded.values[signal, place]
    return codes


def _unit(columns: Floats) -> Floats:
    """Scale columns to unit length."""
    return np.asarray(columns / np.linalg.norm(columns, axis=0), np.float32)


def _poor_atoms(dictionary: Floats, uses: Array) -> NDArray[np.intp]:
    """Indices of the atoms that are hardly used or close to an earlier one."""
    cosines = np.abs(np.triu(dictionary.T @ dictionary, k=1))
    return np.flatnonzero((uses < _LEAST_USE) | (cosines.max(axis=0) > _MOST_COHERENCE))


def update_atoms(dictionary: Floats, codes: Floats, residual: Floats, order: Array) -> None:
    """One pass of approximate K-SVD over atoms; keeps ``residual`` = Y − ΓDᵀ up to date."""
    for atom in order:
        users = np.flatnonzero(codes[:, atom])
        values = codes[users, atom]
        error = residual[users] + np.outer(values, dictionary[:, atom])
        updated = values @ error
        length = np.linalg.norm(updated)
        if length == 0:
            continue
        dictionary[:, atom] = updated / length
        codes[users, atom] = values = error @ dictionary[:, atom]
        residual[users] = error - np.outer(values, dictionary[:, atom])


def learn_shipped_dictionaries(
    folder: Path,
    out: Path,
    *,
    sizes: Sequence[int] = SHIPPED_PATCH_SIZES,
    learning: dict[str, int] = _LEARNING,
    count: int = _TRAINING_PATCHES,
) -> None:
    """Learn one dictionary a patch size from the PNG pictures in ``folder``.

    The files ``ksvd-5.npz`` … in ``out`` hold the atoms and, as a JSON text, how they came about.
    """
    paths = sorted(Path(folder).glob("*.png"))
    if not paths:
        raise CofuseError(f"there are no PNG pictures in {folder}")
    pictures = [read_image(path) for path in paths]
    for n in sizes:
        patches = _training_patches(pictures, n, count, learning["seed"])
        dictionary, trace = learn_dictionary(patches, **learning)
        header = {
            "format": "cofuse-dictionary",
            "version": 1,
            "name": f"ksvd-{n}",
            "provenance": {
                "learned_by": f"cofuse {__version__}, K-SVD",
                "pictures": f"{len(paths)} grey pictures, {paths[0].name} to {paths[-1].name}",
                "patches": len(patches),
                "least_contrast": _LEAST_CONTRAST,
                **learning,
                "rms_error": round(trace.last("rms_error"), 4),
                "stopped": trace.reason,
            },
        }
        Path(out).mkdir(parents=True, exist_ok=True)
        text = np.array(json.dumps(header, sort_keys=True))
        with (Path(out) / f"ksvd-{n}.npz").open("wb") as file:
            np.savez(file, header=text, dictionary=dictionary)


def _training_patches(pictures: Sequence[Array], n: int, count: int, seed: int) -> Floats:
    """Draw mean-free patches (N, m), equally many from each picture, flat ones left out."""
    rng = np.random.default_rng(seed)
    drawn = []
    for picture in pictures:
        windows = np.lib.stride_tricks.sliding_window_view(picture, (n, n))
        share = -(-count // len(pictures))
        y, x = (rng.integers(side, size=4 * share) for side in windows.shape[:2])
        patches = windows[y, x].reshape(-1, n * n).astype(np.float32)
        drawn.append(patches[patches.std(axis=1) >= _LEAST_CONTRAST][:share])
    chosen = np.concatenate(drawn)
    return chosen - chosen.mean(axis=1, keepdims=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m experiments.ksvd FOLDER OUT")
    learn_shipped_dictionaries(Path(sys.argv[1]), Path(sys.argv[2]))
