"""SR-KSVD: fusion by sparse coding of sliding patches over a learned dictionary.

After Yang and Li, *Multifocus image fusion and restoration with sparse representation* (IEEE
Trans. Instrumentation and Measurement, 2010). What the paper leaves open, and what we do:

- *Residual at σ = 0.* A length of 0.1 grey levels a patch, the usual value for 8-bit pictures.
- *Colour.* The luminance decides; then the three channels of the chosen patch are coded one by one.
- *More than two frames.* The largest norm of all; a tie goes to the earliest frame.
- *Borders.* With a stride, the last row and column of patches that fit are always taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.images import LUMINANCE_WEIGHTS, Fusion, Levels, Stack, luminance
from cofuse.images.tiles import processors
from cofuse.operators.patches import add_patches, patch_positions, take_patches

#: Sides of the patches for which a learned dictionary comes with the package.
_DICTIONARIES = Path(__file__).parents[2] / "data" / "dictionaries"
SHIPPED_PATCH_SIZES = (5, 6, 7, 8, 9)
#: Signals coded together: their codes stay in a processor's cache.
_CHUNK = 512

Array = NDArray[Any]
Floats = NDArray[np.float32]


def fuse_sr_ksvd(
    stack: Stack,
    *,
    sigma: float = 0.0,
    patch_size: int = 7,
    stride: int = 1,
    band_bytes: int = 256 << 20,
) -> Fusion:
    r"""Code every mean-free patch of every frame; the largest ℓ₁ norm wins, overlaps are averaged.

    .. math:: \gamma_k = \arg\min \|\gamma\|_0 \ \text{s.t.}\
              \|x_k - \bar x_k - D\gamma\|_2 \le \varepsilon, \qquad
              k^* = \arg\max_k \|\gamma_k\|_1, \qquad \hat x = D\gamma_{k^*} + \bar x_{k^*}

    with ε = 0.1 or, if that is larger, 1.15 σ √m with m the pixels of a patch (for the luminance
    of colour frames, the σ that its weights leave): stopping at the noise's length restores.

    Parameters
    ----------
    stack, sigma
        One frame or more, grey or RGB, any dtype; noise level in 8-bit grey levels.
    patch_size, stride
        Side n of the patches and the step between them, in pixels.
    band_bytes
        Memory for patches; a picture that has more is coded in bands of rows, each of which reads
        the frames anew.

    Returns
    -------
    Fusion
        With the frame chosen by the patch whose centre is nearest to each pixel as source map.
    """
    n = patch_size
    check_sigma(sigma)
    atoms = load_dictionary(n)
    ys, xs = patch_positions(stack.shape, n, stride)
    channels, gain = (3, np.linalg.norm(LUMINANCE_WEIGHTS)) if stack.is_colour else (1, 1.0)
    limits = [max(0.1, 1.15 * s * n) for s in (sigma, sigma * float(gain))]
    choice = np.zeros((len(ys), len(xs)), np.min_scalar_type(len(stack) - 1))
    total = np.zeros((channels + 1, stack.height, stack.width), np.float32)
    band = max(1, band_bytes // (4 * n * n * len(xs) * (1 + 2 * channels)))
    for top in range(0, len(ys), band):
        positions = ys[top : top + band], xs
        patches, chosen = _choose(stack, atoms, positions, limits)
        choice[top : top + band] = chosen.reshape(-1, len(xs))
        ones = np.broadcast_to(np.float32(1), patches[0].shape)
        for plane, rows in zip(total, (*patches, ones), strict=True):
            plane += add_patches(rows.T, plane.shape, positions)
    levels = np.moveaxis(total[:-1] / total[-1], 0, -1).reshape(stack.shape)
    near = np.ix_(_nearest(ys, n, stack.height), _nearest(xs, n, stack.width))
    return Fusion(image=stack.from_levels(levels), source_map=choice[near], sigma=float(sigma))


def load_dictionary(patch_size: int) -> Floats:
    """Load the dictionary that comes for patches of n × n pixels, shape (n², 256)."""
    if patch_size not in SHIPPED_PATCH_SIZES:
        raise CofuseError(
            f"no dictionary is shipped for patches of {patch_size}x{patch_size}; expected a side "
            f"of {', '.join(map(str, SHIPPED_PATCH_SIZES))}"
        )
    with np.load(_DICTIONARIES / f"ksvd-{patch_size}.npz") as archive:
        return np.asarray(archive["dictionary"], np.float32)


class Codes(NamedTuple):
    """Sparse codes of N signals.

    ``atoms`` and ``values``, shape (N, T), name the atoms of every signal and their coefficients,
    0 where it uses fewer; ``fitted``, shape (N, m), are the signals made of them.
    """

    atoms: NDArray[np.intp]
    values: Floats
    fitted: Floats


def code_signals(
    signals: Array, dictionary: Array, *, tolerance: float = 0.0, max_atoms: int | None = None
) -> Codes:
    r"""Code every row x of ``signals`` (N, m) with few unit atoms of ``dictionary`` (m, atoms).

    .. math:: \min_\gamma \|\gamma\|_0 \quad\text{subject to}\quad
              \|x - D\gamma\|_2 \le \varepsilon,\ \|\gamma\|_0 \le T

    By orthogonal matching pursuit: take the atom that correlates best with the residual, fit all
    atoms taken so far by least squares, and go on until the residual is as short as ``tolerance``,
    ε, or ``max_atoms``, T, are taken, at most m.
    """
    signals, atoms = np.asarray(signals, np.float32), np.asarray(dictionary, np.float32)
    most = min(*atoms.shape, max_atoms or len(atoms))
    parts = [signals[k : k + _CHUNK] for k in range(0, max(len(signals), 1), _CHUNK)]
    with ThreadPoolExecutor(processors()) as pool:
        coded = pool.map(lambda part: _pursue(part, atoms, tolerance, most), parts)
        return Codes(*(np.concatenate(arrays) for arrays in zip(*coded, strict=True)))


def _pursue(signals: Floats, atoms: Floats, tolerance: float, most: int) -> Codes:
    """Code a batch of signals, with an orthonormal basis Q of the atoms taken for each.

    With the chosen atoms D_I = QU, U upper triangular, the fit is QQᵀx and its coefficients
    solve Uγ = Qᵀx.
    """
    count, m = signals.shape
    chosen = np.zeros((count, most), np.intp)
    lengths = np.zeros((count, most), np.float32)
    upper = np.tile(np.eye(most, dtype=np.float32), (count, 1, 1))
    residual = signals.copy()
    least = 1e-6 * np.linalg.norm(signals, axis=1)
    # Signals that want more atoms, in the order of `basis`.
    rows = np.flatnonzero(np.linalg.norm(signals, axis=1) > tolerance)
    basis = np.empty((len(rows), 0, m), np.float32)
    for step in range(most):
        if not len(rows):
            break
        left = residual[rows]
        correlation = np.abs(left @ atoms)
        best = correlation.argmax(axis=1)
        direction = atoms.T[best]
        shares = (basis @ direction[..., None])[..., 0]
        direction -= (shares[:, None] @ basis)[:, 0]
        distance = np.linalg.norm(direction, axis=1)
        peak = correlation[np.arange(len(rows)), best]
        # Closer to the span of the atoms taken, an atom adds nothing that float32 could resolve.
        helps = (peak > least[rows]) & (distance >= 1e-3)
        distance[~helps] = 1.0
        direction *= (helps / distance)[:, None]
        length = np.einsum("nm,nm->n", direction, left)
        left -= length[:, None] * direction
        chosen[rows, step], lengths[rows, step], residual[rows] = best, length, left
        upper[rows, :step, step], upper[rows, step, step] = shares, distance
        basis = np.concatenate([basis, direction[:, None]], axis=1)
        wanting = helps & (np.linalg.norm(left, axis=1) > tolerance)
        if not wanting.all():
            rows, basis = rows[wanting], basis[wanting]
    values = np.zeros_like(lengths)
    for k in np.flatnonzero(lengths.any(axis=0))[::-1]:
        rest = np.einsum("nj,nj->n", upper[:, k, k + 1 :], values[:, k + 1 :])
        values[:, k] = (lengths[:, k] - rest) / upper[:, k, k]
    return Codes(chosen, values, signals - residual)


def _choose(
    stack: Stack, atoms: Floats, positions: tuple[Array, Array], limits: Sequence[float]
) -> tuple[Floats, Array]:
    """Coded patches in rows, (channels, N, m), of the best frames, and which frames those are."""

    def take(levels: Levels) -> Floats:
        return take_patches(levels, round(len(atoms) ** 0.5), positions).T

    def code(patches: Floats, limit: float) -> tuple[Floats, Floats]:
        means = patches.mean(axis=1, keepdims=True)
        codes = code_signals(patches - means, atoms, tolerance=limit)
        return codes.fitted + means, np.abs(codes.values).sum(axis=1)

    count = len(positions[0]) * len(positions[1])
    best, choice = np.full(count, -1.0, np.float32), np.zeros(count, np.intp)
    chosen = np.empty((3 if stack.is_colour else 1, count, len(atoms)), np.float32)
    for k in range(len(stack)):
        levels = stack.to_levels(stack[k])
        coded, norms = code(take(luminance(levels)), limits[1])
        better = norms > best
        best[better], choice[better] = norms[better], k
        for c, plane in enumerate(chosen):
            plane[better] = (take(levels[..., c]) if stack.is_colour else coded)[better]
    if stack.is_colour:
        for plane in chosen:
            plane[:] = code(plane, limits[0])[0]
    return chosen, choice


def _nearest(starts: Array, n: int, length: int) -> Array:
    """For every pixel of a side, the patch whose centre is nearest (of two, the first)."""
    centres = starts + (n - 1) / 2
    return np.searchsorted((centres[:-1] + centres[1:]) / 2, np.arange(length))
