"""Learn a separable operator A ⊗ B by the same alternation, one factor's rows at a time.

A patch X (n × n) has the coefficients ``A X Bᵀ``. With B fixed, row a_i is renewed as the mean-free
vector with the least energy of ``⟨a_i, X b_j⟩`` over all patches and all j for which the product
(i, j) is in the patch's co-support; then B likewise with A fixed. The first row of either factor is
the constant and stays.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.learning.alternating import (
    Course,
    LearnedOperator,
    LearningSettings,
    add_noise,
    check_patches,
    draw_row,
    least_excited,
    objective,
    redraw,
    same_sign,
    select,
)
from cofuse.operators import AnalysisOperator
from cofuse.operators.cosparse import CosparseCode, cosparse_code
from cofuse.progress import ProgressCallback, silent

__all__ = ["learn_separable_operator"]

Array = NDArray[np.float64]


def learn_separable_operator(
    patches: Array,
    settings: LearningSettings | None = None,
    *,
    name: str = "learned",
    provenance: dict[str, Any] | None = None,
    progress: ProgressCallback = silent,
) -> LearnedOperator:
    """Learn two factors of √h × n (8 × 7 for 64 rows) from normalised patches, shape (m, N)."""
    settings = settings or LearningSettings()
    check_patches(patches, settings, provenance, progress)
    n, side = round(len(patches) ** 0.5), round(settings.rows**0.5)
    if side * side != settings.rows:
        raise CofuseError(
            f"{settings.rows} rows make no two equal factors; ask for a square number such as 64"
        )
    rng = np.random.default_rng(settings.seed)
    noisy = add_noise(patches, settings.noise, rng)
    squares = noisy.reshape(n, n, -1)
    constant = np.full(n, n**-0.5)
    factors = tuple(
        np.array([constant, *(draw_row(lines, rng) for _ in range(side - 1))])
        for lines in (squares.reshape(n, -1), squares.swapaxes(0, 1).reshape(n, -1))
    )
    course = Course(settings.rounds, progress)
    code: CosparseCode | None = None
    for _ in range(settings.rounds):
        operator = AnalysisOperator.from_factors(*factors, name=name)
        code = cosparse_code(
            noisy,
            operator,
            weight=settings.weight,
            max_iterations=settings.coding_iterations,
            start=code,
        )
        redrawn = 0
        for place in (0, 1):
            rows = AnalysisOperator.from_factors(*factors, name=name).rows
            cosupport = select(rows @ code.patches, rows, settings.rank(len(patches)))
            redrawn += _renew(factors, place, squares, cosupport, settings.max_coherence, rng)
        rows = AnalysisOperator.from_factors(*factors, name=name).rows
        usage = cosupport.mean(axis=1)
        course.note(objective(code, noisy, rows, settings.weight), rows, usage, redrawn)
    operator = AnalysisOperator.from_factors(
        *factors,
        name=name,
        provenance={**(provenance or {}), "kind": "separable", "settings": asdict(settings)},
    )
    return LearnedOperator(operator, course.trace("alternating factor updates"))


def _renew(
    factors: tuple[Array, ...],
    place: int,
    squares: Array,
    cosupport: NDArray[np.bool_],
    max_coherence: float,
    rng: np.random.Generator,
) -> int:
    """Renew, in place, all rows but the first of one factor; return how many were redrawn."""
    factor, other = factors[place], factors[1 - place]
    # Give the product of the constants, which is no row of Ω, a place to index by (i, j).
    nowhere = np.zeros((1, cosupport.shape[1]), np.bool_)
    table = np.concatenate([nowhere, cosupport]).reshape(len(factors[0]), len(factors[1]), -1)
    if place == 0:
        lines = np.einsum("yxp,jx->jyp", squares, other)
    else:
        lines = np.einsum("yxp,jy->jxp", squares, other)
        table = table.swapaxes(0, 1)
    usage = table.sum(axis=(1, 2))
    for i in range(1, len(factor)):
        used = [lines[j][:, table[i, j]] for j in range(len(other))]
        factor[i] = same_sign(least_excited(np.concatenate(used, axis=1)), factor[i])
    usage[0] = usage.mean()  # the constant row stays, however little it is used
    pool = lines.swapaxes(0, 1).reshape(factor.shape[1], -1)
    return redraw(factor, usage, max_coherence, lambda: draw_row(pool, rng))
