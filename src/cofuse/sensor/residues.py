"""What frames have in a block beside the scene: noise alone.

In one block and one band of frequency, frames show the same detail, each weakened by its own
defocus: it lies along one direction, or few, in the space of the frames. Noise goes every way.
The combination of neighbouring frames with the least energy is therefore free of detail: a frame
that is out of focus there by itself, the difference of two that are equally sharp, or anything
between. It is found on one half of the coefficients and measured on the other, so that what is
measured was not chosen for being small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["GROUP", "residues"]

Levels = NDArray[np.float32]

#: Most frames that are combined.
GROUP = 3


def residues(frames: Sequence[Levels]) -> tuple[Levels, Levels, Levels]:
    """Return least energies per coefficient, and energies of the other half along the same way.

    Parameters
    ----------
    frames
        Coefficients of the same blocks in every frame, in units of the frame's noise, each of
        shape (..., coefficients): two halves, of each the coarser ones first.

    Returns
    -------
    score, coarse, fine
        All of shape (2, ...): by which half the combination was found. The last two are those of
        the coarser and of the finer coefficients of the other half.
    """
    values = np.stack(frames, axis=-2)
    quarter = values.shape[-1] // 4
    parts = [values[..., k * quarter : (k + 1) * quarter] for k in range(4)]
    forms = [part @ np.swapaxes(part, -1, -2) / np.float32(quarter) for part in parts]
    score, coarse, fine = [], [], []
    for own, other in ((forms[:2], forms[2:]), (forms[2:], forms[:2])):
        both = np.asarray((own[0] + own[1]) / 2.0, np.float32)
        way = _least_way(both)
        score.append(_along(both, way))
        coarse.append(_along(other[0], way))
        fine.append(_along(other[1], way))
    return np.stack(score), np.stack(coarse), np.stack(fine)


def _along(energy: Levels, way: Levels) -> Levels:
    return np.asarray(np.einsum("...i,...ij,...j->...", way, energy, way, optimize=True))


def _least_way(energy: Levels) -> Levels:
    """Return (nearly) the direction of least energy, of unit length.

    The adjugate, the inverse but for its size, is a positive form whose largest direction it is;
    squaring it a few times leaves little of the others.
    """
    size = energy.shape[-1]
    if size == 1:
        return np.ones(energy.shape[:-1], np.float32)
    form = energy.astype(np.float64)
    if size == 2:
        adjugate = np.empty_like(form)
        adjugate[..., 0, 0], adjugate[..., 1, 1] = form[..., 1, 1], form[..., 0, 0]
        adjugate[..., 0, 1] = adjugate[..., 1, 0] = -form[..., 0, 1]
    else:
        rows = form[..., 0, :], form[..., 1, :], form[..., 2, :]
        adjugate = np.stack(
            [np.cross(rows[1], rows[2]), np.cross(rows[2], rows[0]), np.cross(rows[0], rows[1])],
            axis=-1,
        )
    for _ in range(4):
        trace = np.trace(adjugate, axis1=-2, axis2=-1)[..., None, None]
        adjugate = adjugate / np.where(trace > 0, trace, 1.0)
        adjugate = adjugate @ adjugate
    # The column of the largest diagonal element is the longest.
    column = np.diagonal(adjugate, axis1=-2, axis2=-1).argmax(axis=-1)
    way = np.take_along_axis(adjugate, column[..., None, None], axis=-1)[..., 0]
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    first = np.eye(size)[0]
    way = np.where(length > 0, way / np.where(length > 0, length, 1.0), first)
    return np.asarray(way, np.float32)
