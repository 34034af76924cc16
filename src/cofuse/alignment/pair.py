"""Finding the transform between two pictures: a coarse search, then Gauss-Newton steps.

The search tries shifts (all of them, by Fourier transform) under a few rotations and scales on
the coarsest levels. The steps then minimise, level by level down to the finest,

    sum_i  rho( B(T x_i) - A(x_i) ),      T <- T exp(sum_p d_p G_p),

where A and B are the evened pictures, rho is Tukey's and G_p the directions of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse.alignment.comparison import (
    LEAST_EVIDENCE,
    Level,
    Pyramid,
    at_level,
    evidence,
    without_what_stays,
)
from cofuse.alignment.transforms import (
    Matrix,
    Model,
    Transform,
    centred,
    corners,
    homogeneous,
    shift_by,
    tangents,
)

#: Rotations in degrees and scales that the coarse search tries.
_ANGLES, _SCALES = (-4.0, -2.0, 0.0, 2.0, 4.0), (0.92, 0.96, 1.0, 1.04, 1.08)
#: How many of them are refined; correlation that makes them unnecessary.
_REFINED, _GOOD_CORRELATION = 4, 0.7
#: Correlation that pictures of one scene have at least, and the multiple of what other pictures of
#: their size reach by chance at one place: the search takes the best of many places.
_LEAST_CORRELATION, _CHANCE = 0.3, 5.0
#: Longer side of the level that is searched; part of a picture that must overlap.
_SEARCH_SIDE, _LEAST_OVERLAP = 130, 0.4
#: Points used of a level, steps per level, and the step (in pixels of the level) that ends them.
_MOST_POINTS, _MOST_STEPS, _SMALL_STEP = 60_000, 12, 0.003
#: Levels that are refined together, each weighted by the inverse variance of its residuals.
_TOGETHER = 3
#: Pixels of a level whose values are correlated: they count as one independent value.
_CORRELATED = 50.0
#: Blocks along each side of a picture: where their steps disagree, the transform is uncertain.
_BLOCKS = 8
#: Tukey's constant, in units of the robust deviation.
_TUKEY = 4.7
#: Correlation of pictures under a transform that explains nearly all of them.
_ALIKE = 0.9


@dataclass(frozen=True, kw_only=True)
class Match:
    """A transform found between two pictures.

    `matrix` takes pixel coordinates of the first frame to those of the second. `correlation` is
    that of the evened pictures where they overlap, on a level of about 260 pixels, from -1 to 1.
    `spread` is the expected error of the worst corner, in pixels of the frame. `doubt` says why the
    match cannot be right, or is None.
    """

    matrix: Matrix
    correlation: float
    spread: float
    doubt: str | None


def register(first: Pyramid, second: Pyramid, model: Model) -> Match:
    """Find the transform that takes pixels of the first picture to those of the second.

    Where the pictures differ much or the match is in doubt, all is done once more without what
    stays where it is while the scene moves. That match counts where it ends the doubt, or where it
    explains nearly all the rest.
    """
    found = find_match(first, second, model)
    if found.doubt is None and found.correlation >= _ALIKE:
        return found
    other = find_match(*without_what_stays(first, second), model)
    rescued = found.doubt is not None and other.doubt is None
    return other if rescued or other.correlation >= _ALIKE else found


def find_match(first: Pyramid, second: Pyramid, model: Model, start: Matrix | None = None) -> Match:
    """Search, refine and weigh; with a `start` only the finest levels are refined, from there."""
    coarse = first.level_within(_SEARCH_SIDE)
    matrix = _search(first, second, model, coarse) if start is None else start
    spread = math.inf
    for level in range(coarse if start is None else 0, -1, -1):
        together = range(level, min(level + _TOGETHER, len(first.levels)))
        # A level that still shows what stays would hold back one that hides it.
        hides = first.levels[level].shown is not None
        levels = [k for k in together if not hides or first.levels[k].shown is not None]
        matrix, spread = _refine(first, second, matrix, model, levels)
    correlation, chance = _correlation(first, second, matrix, max(coarse - 1, 0))
    least, doubt = max(_LEAST_CORRELATION, _CHANCE * chance), None
    if correlation < least or not math.isfinite(spread):
        doubt = (
            f"it does not resemble its neighbours: correlation {correlation:.2f}, at least "
            f"{least:.2f} expected"
        )
    elif (agreed := evidence(first, second, matrix)) < LEAST_EVIDENCE:
        doubt = (
            "its parts do not agree on one place, or it fits elsewhere as well: evidence "
            f"{agreed:.1f}, at least {LEAST_EVIDENCE} expected"
        )
    return Match(matrix=matrix, correlation=correlation, spread=spread, doubt=doubt)


def _search(first: Pyramid, second: Pyramid, model: Model, level: int) -> Matrix:
    """Refine several starts at one level; return the one of the highest correlation."""
    a, b = first.levels[level], second.levels[level]
    to_first, from_second = first.to_level(level), np.linalg.inv(second.to_level(level))

    def refined(start: Matrix) -> tuple[float, Matrix]:
        matrix, _ = _refine(first, second, start, model, [level])
        return _correlation(first, second, matrix, level)[0], matrix

    def shifted(turns: Sequence[Matrix]) -> list[tuple[float, Matrix]]:
        best = sorted(_best_shifts(a, b, turns), key=score, reverse=True)[:_REFINED]
        return [refined(from_second @ matrix @ to_first) for _, matrix in best]

    score = itemgetter(0)
    tried = [refined(np.eye(3)), *shifted([np.eye(3)])]
    if model != "translation" and max(tried, key=score)[0] <= _GOOD_CORRELATION:
        centre = ((b.values.shape[1] - 1) / 2, (b.values.shape[0] - 1) / 2)
        turns = [
            np.vstack([cv2.getRotationMatrix2D(centre, angle, scale), [0.0, 0.0, 1.0]])
            for angle, scale in product(_ANGLES, _SCALES)
        ]
        tried += shifted(turns)
    return max(tried, key=score)[1]


def _best_shifts(
    first: Level, second: Level, turns: Sequence[Matrix]
) -> Iterator[tuple[float, Matrix]]:
    """Yield of every turn (first to second) the best shift: its correlation and the matrix.

    The pictures are correlated at every shift at once, normalised over what overlaps.
    """
    size = tuple(cv2.getOptimalDFTSize(2 * side) for side in first.values.shape)
    across, flags = second.values.shape[::-1], cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP

    def spectra(values: NDArray[Any], cover: NDArray[Any]) -> list[NDArray[Any]]:
        return [np.fft.rfft2(plane, size) for plane in (values, values**2, cover)]

    value, power, cover = map(np.conj, spectra(first.values, first.cover))
    for turn in turns:
        turned = (
            cv2.warpAffine(plane, turn[:2], across, flags=flags)
            for plane in (second.values, second.cover)
        )
        other, other_power, mask = spectra(*turned)
        pairs = ((value, other), (power, mask), (cover, other_power), (cover, mask))
        common, of_first, of_second, overlap = (np.fft.irfft2(a * b, size) for a, b in pairs)
        enough = overlap > _LEAST_OVERLAP * first.cover.sum()
        scale = np.sqrt(np.maximum(of_first * of_second, 1e-12))
        score = np.where(enough, common / scale, -1.0)
        y, x = divmod(int(score.argmax()), size[1])
        best = float(score[y, x])
        # Shifts beyond half the size are those backwards.
        y -= size[0] * (y > size[0] // 2)
        x -= size[1] * (x > size[1] // 2)
        yield best, turn @ shift_by(x, y)


def _refine(
    first: Pyramid, second: Pyramid, start: Matrix, model: Model, levels: Sequence[int]
) -> tuple[Matrix, float]:
    """Take Gauss-Newton steps on some levels together; return the matrix and its spread."""
    unit = centred(first.shape)
    directions = [unit @ g @ np.linalg.inv(unit) for g in tangents(model)]
    views = [_view(first, second, directions, level) for level in levels]
    small = _SMALL_STEP * 2.0 ** min(levels) / first.to_finest[0, 0]
    at_corners = corners(first.shape)
    flow = np.stack([_flow(g, at_corners.T) for g in directions])  # (P, 2, 4)
    matrix, spread = start, math.inf
    for _ in range(_MOST_STEPS):
        normal = np.zeros((len(directions), len(directions)))
        pull = np.zeros((_BLOCKS**2, len(directions)))
        for view in views:
            both = view(matrix)
            if both is None:
                return start, math.inf
            normal, pull = normal + both[0], pull + both[1]
        normal += 1e-9 * np.trace(normal) * np.eye(len(directions))
        if np.linalg.matrix_rank(normal) < len(directions):
            return start, math.inf
        step = -np.linalg.solve(normal, pull.sum(axis=0))
        change = np.eye(3) + np.tensordot(step, directions, 1)
        matrix = matrix @ change
        matrix /= matrix[2, 2]
        inverse = np.asarray(np.linalg.inv(normal), np.float64)
        apart = pull - pull.mean(axis=0)
        covariance = inverse @ (apart.T @ apart) @ inverse
        variance = np.einsum("pic,pq,qic->c", flow, covariance, flow)
        spread = math.sqrt(max(variance.max(), 0.0))
        if np.abs(Transform(change)(at_corners) - at_corners).max() < small:
            break
    return matrix, spread


def _view(
    first: Pyramid, second: Pyramid, directions: list[Matrix], level: int
) -> Callable[[Matrix], tuple[Matrix, Matrix] | None]:
    """Compare one level of two pictures at an even grid of its points.

    The function returned gives, under a matrix, the normal matrix of a step, and what each block of
    the picture pulls; or None where too little overlaps.
    """
    a, b = first.levels[level], second.levels[level]
    stride = max(1, math.ceil(math.sqrt(a.values.size / _MOST_POINTS)))
    # Values closer than the band-pass is wide say nearly the same.
    samples = min(1.0, stride**2 / _CORRELATED)
    every = (slice(None, None, stride), slice(None, None, stride))
    shown = a.cover[every] > 0
    points = np.stack(np.nonzero(shown)[::-1]).astype(np.float32) * stride
    values, slopes = a.values[every][shown], a.slopes[:, *every][:, shown]
    to_first = first.to_level(level)
    back = np.linalg.inv(to_first)
    flow = np.stack([_flow(to_first @ g @ back, points) for g in directions])
    across, down = (
        (along * (_BLOCKS / side)).astype(np.intp)
        for along, side in zip(points, a.values.shape[::-1], strict=True)
    )
    block = down * _BLOCKS + across

    def equations(matrix: Matrix) -> tuple[Matrix, Matrix] | None:
        there = b.look_up(at_level(first, second, matrix, level), points)
        if there is None or there[0].mean() < _LEAST_OVERLAP / 2:
            return None
        inside, other, other_slopes = there
        residual = other - values[inside]
        scale = 1.4826 * float(np.median(np.abs(residual))) + 1e-4
        weight = np.maximum(1 - (residual / (_TUKEY * scale)) ** 2, 0) ** 2
        # The mean of both pictures' slopes: steps of second order, and no picture is preferred.
        mean = (slopes[:, inside] + other_slopes) / 2
        jacobian = (mean * flow[:, :, inside]).sum(axis=1)
        weighted = jacobian * weight
        variance = float((weight * residual**2).sum() / max(weight.sum(), 1e-6)) + 1e-6
        unit = samples / variance
        normal = (weighted @ jacobian.T).astype(np.float64) * unit
        pull = [np.bincount(block[inside], row * residual, _BLOCKS**2) for row in weighted]
        return normal, np.asarray(np.stack(pull, axis=1) * unit)

    return equations


def _flow(g: Matrix, points: NDArray[Any]) -> NDArray[Any]:
    """Return the velocity of points, (2, N), as they start to move along a direction."""
    moved = homogeneous(g.astype(np.float32), points)
    return np.asarray(moved[:2] - points * moved[2])


def _correlation(
    first: Pyramid, second: Pyramid, matrix: Matrix, level: int
) -> tuple[float, float]:
    """Return the correlation of the evened pictures over their overlap, and its error."""
    a = first.levels[level]
    points = np.stack(np.nonzero(a.cover)[::-1]).astype(np.float32)
    there = second.levels[level].look_up(at_level(first, second, matrix, level), points)
    if there is None or there[0].mean() < _LEAST_OVERLAP:
        return 0.0, 1.0
    one, other = a.values[a.cover > 0][there[0]], there[1]
    power = float(np.dot(one, one)) * float(np.dot(other, other))
    correlation = float(np.dot(one, other)) / math.sqrt(power) if power > 0 else 0.0
    return correlation, math.sqrt(_CORRELATED / len(one))
