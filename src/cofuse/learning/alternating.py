"""Learn an operator by alternation: code every patch, then renew every row.

Taken literally the alternation collapses: all rows become one vector, because a row that is
orthogonal to every patch costs nothing. Three things keep the rows apart; the first alone prevents
the total collapse:

* patches and rows are mean-free, so the constant vector is no candidate;
* a patch's co-support is its smallest coefficients whose rows have rank m − r, and not all that a
  threshold sets to zero, so rows compete for patches;
* a row that comes within ``max_coherence`` of an earlier one, or that too few patches use, is
  redrawn as the vector orthogonal to randomly drawn patches.

A separable operator A ⊗ B, whose coefficients of a patch X (n × n) are ``A X Bᵀ``, is learned one
factor at a time. With B fixed, row a_i is renewed as the mean-free vector with the least energy of
``⟨a_i, X b_j⟩`` over all patches and all j for which the product (i, j) is in the patch's
co-support; then B likewise. The first row of either factor is the constant and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check, check_callback, check_number
from cofuse.errors import CofuseError
from cofuse.operators import AnalysisOperator, coherence
from cofuse.operators.cosparse import CosparseCode, cosparse_code, select_cosupport
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent

Array = NDArray[np.float64]
#: A renewed operator, the co-supports (h, N) it was renewed by, and how many rows were redrawn.
_Renewed = tuple[AnalysisOperator, NDArray[np.bool_], int]
_Renew = Callable[[AnalysisOperator, Array], _Renewed]


@dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """Choices of the learner.

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
        # All patches are coded with all rows in every round: larger numbers would never end.
        for name, most in (("rows", 4096), ("rounds", 10_000), ("coding_iterations", 10_000)):
            check_number(name, getattr(self, name), 1, most, whole=True)
        if self.subspace_dimension is not None:
            check_number("subspace_dimension", self.subspace_dimension, whole=True)
        check_number("seed", self.seed, 0, whole=True)
        for name in ("noise", "weight", "max_coherence"):
            check_number(name, getattr(self, name), 0)

    def rank(self, pixels: int) -> int:
        """Rank m − r of the co-supports of patches with m ``pixels``."""
        dimension = self.subspace_dimension
        return pixels - (round(3 * pixels / 7) if dimension is None else dimension)


@dataclass(frozen=True, kw_only=True)
class LearnedOperator:
    """An operator and the course of its learning, one value a round in the trace's history."""

    operator: AnalysisOperator
    trace: SolverTrace


def learn_operator(
    patches: Array,
    settings: LearningSettings | None = None,
    *,
    separable: bool = False,
    name: str = "learned",
    provenance: dict[str, Any] | None = None,
    progress: ProgressCallback = silent,
) -> LearnedOperator:
    """Learn h rows from normalised patches in the columns of ``patches``, shape (m, N).

    A ``separable`` operator has two factors of √h × n (8 × 7 for 64 rows). A run whose last round
    redrew nothing has settled.
    """
    settings = settings or LearningSettings()
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
    rng = np.random.default_rng(settings.seed)
    # White and mean-free, of the given mean length.
    noise = rng.normal(scale=settings.noise * m**-0.5, size=patches.shape)
    noisy = np.asarray(patches + noise - noise.mean(axis=0))
    operator, renew = (_of_factors if separable else _of_rows)(noisy, settings, rng)
    history: list[dict[str, float]] = []
    code: CosparseCode | None = None
    redrawn = 0
    for done in range(1, settings.rounds + 1):
        code = cosparse_code(
            noisy,
            operator,
            weight=settings.weight,
            max_iterations=settings.coding_iterations,
            start=code,
        )
        operator, cosupport, redrawn = renew(operator, code.patches)
        # Mean over the patches of ½‖x − y‖² + λ‖Ωx‖₁.
        fit = 0.5 * ((code.patches - noisy) ** 2).sum()
        objective = fit + settings.weight * np.abs(operator.rows @ code.patches).sum()
        measured = {
            "objective": float(objective / count),
            "coherence": coherence(operator.rows),
            "least usage": float(cosupport.mean(axis=1).min()),
            "rank": float(np.linalg.matrix_rank(operator.rows)),
            "redrawn": float(redrawn),
        }
        history.append(measured)
        progress(Progress("learning", done, settings.rounds))
    trace = SolverTrace(
        solver=f"alternating {'factor' if separable else 'row'} updates",
        iterations=settings.rounds,
        converged=redrawn == 0,
        reason=f"{settings.rounds} rounds done, {redrawn} rows redrawn in the last",
        history={name: tuple(row[name] for row in history) for name in history[0]},
    )
    kind = "separable" if separable else "full"
    made = {**(provenance or {}), "kind": kind, "settings": asdict(settings)}
    return LearnedOperator(operator=replace(operator, name=name, provenance=made), trace=trace)


def _of_rows(
    noisy: Array, settings: LearningSettings, rng: np.random.Generator
) -> tuple[AnalysisOperator, _Renew]:
    """Draw a full operator; renew row by row."""

    def renew(operator: AnalysisOperator, x: Array) -> _Renewed:
        rows = operator.rows.copy()
        cosupport = select_cosupport(rows @ x, rows, settings.rank(len(x)))
        for j in range(len(rows)):
            rows[j] = _renewed(noisy[:, cosupport[j]], rows[j])
        redrawn = _redraw(rows, cosupport.sum(axis=1), settings.max_coherence, noisy, rng)
        return AnalysisOperator(rows), cosupport, redrawn

    return AnalysisOperator(np.array([_drawn_row(noisy, rng) for _ in range(settings.rows)])), renew


def _of_factors(
    noisy: Array, settings: LearningSettings, rng: np.random.Generator
) -> tuple[AnalysisOperator, _Renew]:
    """Draw a separable operator; renew one factor, then the other."""
    n, side = round(len(noisy) ** 0.5), round(settings.rows**0.5)
    if side * side != settings.rows:
        raise CofuseError(
            f"{settings.rows} rows make no two equal factors; ask for a square number such as 64"
        )
    squares = noisy.reshape(n, n, -1)

    def renew(operator: AnalysisOperator, x: Array) -> _Renewed:
        redrawn = 0
        for place in (0, 1):
            assert operator.factors is not None
            rows, factors = operator.rows, [factor.copy() for factor in operator.factors]
            cosupport = select_cosupport(rows @ x, rows, settings.rank(len(x)))
            redrawn += _renew_factor(factors, place, squares, cosupport, settings, rng)
            operator = AnalysisOperator.from_factors(*factors, name="learned")
        return operator, cosupport, redrawn

    constant = np.full(n, n**-0.5)
    factors = [
        np.array([constant, *(_drawn_row(lines, rng) for _ in range(side - 1))])
        for lines in (squares.reshape(n, -1), squares.swapaxes(0, 1).reshape(n, -1))
    ]
    return AnalysisOperator.from_factors(*factors, name="learned"), renew


def _least_excited(patches: Array) -> Array:
    """Find the unit, mean-free vector with the least energy of ⟨ω, y⟩ over the patches.

    It is the left singular vector of the smallest singular value, with the constant (orthogonal
    to every patch, and no filter) pushed out of the competition.
    """
    scatter = patches @ patches.T
    constant = np.full(len(scatter), len(scatter) ** -0.5)
    scatter += (1.0 + np.trace(scatter)) * np.outer(constant, constant)
    vector = np.linalg.eigh(scatter)[1][:, 0]
    centred = vector - vector.mean()
    return np.asarray(centred / np.linalg.norm(centred))


def _renewed(patches: Array, old: Array) -> Array:
    """Renew a row from the patches that use it; it points the way the old one did."""
    # The next coding starts from the old rows' coefficients, which a flipped sign would spoil.
    vector = _least_excited(patches)
    return -vector if vector @ old < 0 else vector


def _drawn_row(patches: Array, rng: np.random.Generator) -> Array:
    """Draw the mean-free vector orthogonal to m − 2 random patches: exactly one direction."""
    chosen = rng.choice(patches.shape[1], size=len(patches) - 2, replace=False)
    return _least_excited(patches[:, chosen])


def _redraw(
    rows: Array, usage: Array, max_coherence: float, patches: Array, rng: np.random.Generator
) -> int:
    """Replace, in place, rows too close to an earlier one or too little used; count them."""
    replaced = 0
    for j in range(len(rows)):
        attempts = 0
        while attempts < 50 and (
            (j > 0 and np.abs(rows[:j] @ rows[j]).max() > max_coherence)
            or (attempts == 0 and usage[j] < 0.1 * usage.mean())
        ):
            rows[j] = _drawn_row(patches, rng)
            attempts += 1
        replaced += attempts > 0
    return replaced


def _renew_factor(
    factors: list[Array],
    place: int,
    squares: Array,
    cosupport: NDArray[np.bool_],
    settings: LearningSettings,
    rng: np.random.Generator,
) -> int:
    """Renew, in place, all rows but the first of one factor; return how many were redrawn."""
    factor, other = factors[place], factors[1 - place]
    # Give the product of the constants, which is no row of Ω, a place to index by (i, j).
    nowhere = np.zeros((1, cosupport.shape[1]), np.bool_)
    table = np.concatenate([nowhere, cosupport]).reshape(len(factors[0]), len(factors[1]), -1)
    lines = np.einsum(("yxp,jx->jyp", "yxp,jy->jxp")[place], squares, other)
    table = table.swapaxes(0, place)
    usage = table.sum(axis=(1, 2))
    for i in range(1, len(factor)):
        used = [lines[j][:, table[i, j]] for j in range(len(other))]
        factor[i] = _renewed(np.concatenate(used, axis=1), factor[i])
    usage[0] = usage.mean()  # the constant row stays, however little it is used
    pool = lines.swapaxes(0, 1).reshape(factor.shape[1], -1)
    return _redraw(factor, usage, settings.max_coherence, pool, rng)
