"""Learn a full operator by alternation: code every patch, then renew every row.

Taken literally the alternation collapses: all rows become one vector, because a row that is
orthogonal to every patch costs nothing. Three things keep the rows apart, all of them the rank
condition of the model taken seriously; the first alone already prevents the total collapse:

* patches and rows live in the mean-free space, so the constant vector is no candidate;
* a patch's co-support is not "where the thresholded coefficient is zero" but its smallest
  coefficients whose rows have rank m − r, so rows compete for patches;
* a row that comes within ``max_coherence`` of an earlier one, or that too few patches use, is
  redrawn as the vector orthogonal to randomly drawn patches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check, check_callback, check_number
from cofuse.errors import CofuseError
from cofuse.operators import AnalysisOperator, coherence
from cofuse.operators.cosparse import CosparseCode, cosparse_code
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent

__all__ = ["LearnedOperator", "LearningSettings", "learn_operator"]

Array = NDArray[np.float64]

#: A row used by fewer patches than this share of the average row's is redrawn.
_LEAST_USAGE = 0.1


#: Largest numbers that still come to an end: all patches are coded with all rows in every round.
_MOST = {"rows": 4096, "rounds": 10_000, "coding_iterations": 10_000}


@dataclass(frozen=True)
class LearningSettings:
    """Choices of the learner; the letter gives patch size, rows and patches, the rest is ours.

    Attributes
    ----------
    rows
        h, the number of filters, up to 4096.
    subspace_dimension
        r: a patch's co-support has rank m − r. Default: 3/7 of m, 21 for patches of 7 × 7.
    noise
        Length of the white noise added to every unit-length patch.
    weight
        λ of the cosparse coding.
    rounds
        Rounds of coding and row renewal.
    coding_iterations
        ADMM iterations a round; every round goes on where the last one stopped.
    max_coherence
        Largest allowed |cos| between two rows.
    seed
        Seed of the noise, of the initial operator and of redrawn rows.
    """

    rows: int = 64
    subspace_dimension: int | None = None
    noise: float = 0.1
    weight: float = 0.003
    rounds: int = 30
    coding_iterations: int = 10
    max_coherence: float = 0.97
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            check_number(name, getattr(self, name), 1, most, whole=True)
        if self.subspace_dimension is not None:
            check_number("subspace_dimension", self.subspace_dimension, whole=True)
        check_number("seed", self.seed, 0, whole=True)
        for name in ("noise", "weight", "max_coherence"):
            check_number(name, getattr(self, name), 0)

    def rank(self, pixels: int) -> int:
        """Rank m − r of the co-supports of patches with m ``pixels``."""
        if self.subspace_dimension is None:
            return pixels - round(3 * pixels / 7)
        return pixels - self.subspace_dimension


@dataclass(frozen=True)
class LearnedOperator:
    """An operator and the course of its learning, one value a round in the trace's history."""

    operator: AnalysisOperator
    trace: SolverTrace


def learn_operator(
    patches: Array,
    settings: LearningSettings | None = None,
    *,
    name: str = "learned",
    provenance: dict[str, Any] | None = None,
    progress: ProgressCallback = silent,
) -> LearnedOperator:
    """Learn h rows from normalised patches in the columns of ``patches``, shape (m, N)."""
    settings = settings or LearningSettings()
    check_patches(patches, settings, provenance, progress)
    rng = np.random.default_rng(settings.seed)
    noisy = add_noise(patches, settings.noise, rng)
    rows = np.array([draw_row(noisy, rng) for _ in range(settings.rows)])
    course = Course(settings.rounds, progress)
    code: CosparseCode | None = None
    for _ in range(settings.rounds):
        code = cosparse_code(
            noisy,
            AnalysisOperator(rows),
            weight=settings.weight,
            max_iterations=settings.coding_iterations,
            start=code,
        )
        cosupport = select(rows @ code.patches, rows, settings.rank(len(patches)))
        for j in range(settings.rows):
            rows[j] = same_sign(least_excited(noisy[:, cosupport[j]]), rows[j])
        usage = cosupport.sum(axis=1)
        redrawn = redraw(rows, usage, settings.max_coherence, lambda: draw_row(noisy, rng))
        share = usage / patches.shape[1]
        course.note(objective(code, noisy, rows, settings.weight), rows, share, redrawn)
    operator = AnalysisOperator(
        rows, name, {**(provenance or {}), "kind": "full", "settings": asdict(settings)}
    )
    return LearnedOperator(operator, course.trace("alternating row updates"))


def add_noise(patches: Array, length: float, rng: np.random.Generator) -> Array:
    """Add white, mean-free noise of the given mean length to every patch."""
    noise = rng.normal(scale=length * len(patches) ** -0.5, size=patches.shape)
    return np.asarray(patches + noise - noise.mean(axis=0))


def select(coefficients: Array, rows: Array, rank: int) -> NDArray[np.bool_]:
    """Choose the co-supports: for every patch its smallest coefficients up to ``rank``."""
    # Imported here: Numba's start-up is a cost only learners should pay.
    from cofuse.operators.cpu import select_cosupport

    return select_cosupport(coefficients, rows @ rows.T, rank)


def least_excited(patches: Array) -> Array:
    """Find the unit, mean-free vector with the least energy of ⟨ω, y⟩ over the patches.

    It is the left singular vector of the smallest singular value, with the constant (orthogonal
    to every patch, and no filter) pushed out of the competition.
    """
    scatter = patches @ patches.T
    constant = np.full(len(scatter), len(scatter) ** -0.5)
    scatter += (1.0 + np.trace(scatter)) * np.outer(constant, constant)
    vector = np.linalg.eigh(scatter)[1][:, 0]
    return unit_mean_free(vector)


def same_sign(vector: Array, old: Array) -> Array:
    """Turn a renewed row the way the old one pointed.

    A singular vector's sign is arbitrary; the coding goes on from coefficients and multipliers
    of the old rows, which a flipped sign would make the worst possible start.
    """
    return -vector if vector @ old < 0 else vector


def draw_row(patches: Array, rng: np.random.Generator) -> Array:
    """Draw the mean-free vector orthogonal to m − 2 random patches: exactly one direction."""
    chosen = patches[:, rng.choice(patches.shape[1], size=len(patches) - 2, replace=False)]
    return least_excited(chosen)


def unit_mean_free(vector: Array) -> Array:
    """Remove the mean and scale to unit length."""
    centred = vector - vector.mean()
    return np.asarray(centred / np.linalg.norm(centred))


def redraw(
    rows: Array,
    usage: NDArray[np.intp],
    max_coherence: float,
    draw: Callable[[], Array],
) -> int:
    """Replace, in place, rows too close to an earlier one or too little used; count them."""
    replaced = 0
    for j in range(len(rows)):
        attempts = 0
        while attempts < 50 and (
            (j > 0 and np.abs(rows[:j] @ rows[j]).max() > max_coherence)
            or (attempts == 0 and usage[j] < _LEAST_USAGE * usage.mean())
        ):
            rows[j] = draw()
            attempts += 1
        replaced += attempts > 0
    return replaced


def objective(code: CosparseCode, noisy: Array, rows: Array, weight: float) -> float:
    """Mean over the patches of ½‖x − y‖² + λ‖Ωx‖₁."""
    fit = 0.5 * ((code.patches - noisy) ** 2).sum()
    return float((fit + weight * np.abs(rows @ code.patches).sum()) / noisy.shape[1])


class Course:
    """Collects what a learner measures each round."""

    def __init__(self, rounds: int, progress: ProgressCallback) -> None:
        self._rounds = rounds
        self._progress = progress
        self._history: dict[str, list[float]] = {}

    def note(self, value: float, rows: Array, usage: Array, redrawn: int) -> None:
        """Record one round."""
        measured = {
            "objective": value,
            "coherence": coherence(rows),
            "least usage": float(usage.min()),
            "rank": float(np.linalg.matrix_rank(rows)),
            "redrawn": float(redrawn),
        }
        for name, number in measured.items():
            self._history.setdefault(name, []).append(number)
        done = len(self._history["objective"])
        self._progress(Progress("learning", done, self._rounds))

    def trace(self, solver: str) -> SolverTrace:
        """Close the record; a run whose last round redrew nothing has settled."""
        history = {name: tuple(values) for name, values in self._history.items()}
        redrawn = int(history["redrawn"][-1])
        reason = f"{self._rounds} rounds done, {redrawn} rows redrawn in the last"
        return SolverTrace(solver, self._rounds, redrawn == 0, reason, history)


def check_patches(
    patches: Array,
    settings: LearningSettings,
    provenance: dict[str, Any] | None,
    progress: ProgressCallback,
) -> None:
    """Refuse settings under which no operator can be learned."""
    check("patches", patches, "an array with a patch in every column", lambda p: p.ndim == 2)
    check("settings", settings, "LearningSettings", lambda s: isinstance(s, LearningSettings))
    check("provenance", provenance, "a dict", lambda p: p is None or isinstance(p, dict))
    check_callback("progress", progress)
    m, count = patches.shape
    if settings.rows < m - 1:
        raise CofuseError(
            f"{settings.rows} rows cannot span the mean-free patches of {m} pixels; ask for at "
            f"least {m - 1}"
        )
    if count < 2 * m:
        raise CofuseError(f"{count} patches are too few to learn from; give at least {2 * m}")
    if not 1 <= settings.rank(m) < m:
        raise CofuseError(
            f"the subspace dimension is {settings.subspace_dimension}; expected 1 to {m - 1}"
        )
