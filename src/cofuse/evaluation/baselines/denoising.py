"""Denoisers of one grey plane, to run before or after a fusion that knows nothing of noise.

Each is ``(levels, sigma) -> levels``: float32 grey levels (white at 255) of shape (H, W), white
Gaussian noise of standard deviation ``sigma`` > 0 grey levels. `denoise_picture` takes them to RGB.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.images import Levels, from_opponent, to_opponent
from cofuse.progress import SolverTrace

PlaneDenoiser = Callable[[Levels, float], Levels]

_TV_MOST_ITERATIONS = 2000


def denoise_tv(levels: Levels, sigma: float) -> Levels:
    """Total variation denoising (Rudin, Osher, Fatemi 1992), its weight growing as σ^(4/3)."""
    # On twelve training pictures σ = 5, 10, 15, 25 want weights of 0.43, 0.56, 0.65, 0.77 σ.
    return solve_tv(levels, 0.26 * sigma ** (4 / 3))[0]


def solve_tv(
    levels: Levels, weight: float, *, tolerance: float = 0.25
) -> tuple[Levels, SolverTrace]:
    r"""Minimise ``½‖x − y‖² + weight · TV(x)`` by fast gradient projection (Beck, Teboulle 2009).

    TV is the isotropic one, ``Σ |∇x|`` with forward differences. The dual variable p has one
    vector of length at most ``weight`` a pixel, :math:`x = y - \nabla^T p`, and the duality gap

    .. math:: \sum \mathrm{weight} \cdot |\nabla x| - \langle \nabla x, p \rangle
              \;\ge\; \tfrac12 \|x - x^\star\|^2

    bounds the distance from the minimiser: the iteration stops as soon as it proves a
    root-mean-square error of at most ``tolerance`` grey levels. In float32 an error
    below about ``0.001 · weight`` cannot be proven; after 2000 iterations it gives up.

    Returns the solution and, in ``trace.history["error bound"]``, that proven error.
    """
    y = np.asarray(levels, dtype=np.float32)
    weight = float(weight)
    p = np.zeros((2, *y.shape), dtype=np.float32)
    q, slope = p.copy(), np.empty_like(p)
    momentum, bounds = 1.0, []
    for iteration in range(_TV_MOST_ITERATIONS + 1):
        if iteration % 10 == 0:
            _differences(y - _adjoint(p), slope)
            # Both terms are summed pixel by pixel, where none is negative: nothing cancels.
            gap = weight * np.hypot(slope[0], slope[1]) - (slope * p).sum(axis=0)
            bounds.append(float(np.sqrt(2.0 * max(gap.mean(dtype=np.float64), 0.0))))
            if bounds[-1] <= tolerance:
                break
        # p⁺ = project(q + ∇(y − ∇ᵀq)/8), where 8 bounds ‖∇‖²; then Nesterov's momentum.
        _differences(y - _adjoint(q), slope)
        slope /= 8.0
        slope += q
        length = np.hypot(slope[0], slope[1])
        slope *= weight / np.maximum(length, weight)
        following = 0.5 + np.sqrt(0.25 + momentum**2)
        np.subtract(slope, p, out=q)
        q *= (momentum - 1.0) / following
        q += slope
        p, slope, momentum = slope, p, following
    converged = bounds[-1] <= tolerance
    reason = "error proven to be below the tolerance" if converged else "out of iterations"
    trace = SolverTrace(
        solver="FGP",
        iterations=iteration,
        converged=converged,
        reason=reason,
        history={"error bound": tuple(bounds)},
    )
    return y - _adjoint(p), trace


def denoise_nlm(levels: Levels, sigma: float) -> Levels:
    """Non-local means (Buades, Coll, Morel 2005) in scikit-image's fast form, given the noise."""
    restoration = import_extra("skimage.restoration", "scikit-image", "non-local means")
    # The strength h is the best of 0.4 to 0.8 σ on pictures of the training set.
    clean = restoration.denoise_nl_means(
        levels, patch_size=5, patch_distance=6, h=0.7 * sigma, sigma=sigma, fast_mode=True
    )
    return np.asarray(clean, dtype=np.float32).reshape(levels.shape)


def denoise_bm3d(levels: Levels, sigma: float) -> Levels:
    """Block matching and 3-D filtering (Dabov and others 2007), by its authors' package.

    The package is licensed for non-commercial use only. It runs in threads whose order is not
    fixed: two runs may differ, as a rule by thousandths of a grey level, seldom by a tenth.
    """
    bm3d = import_extra("bm3d", "bm3d", "BM3D")
    height, width = levels.shape
    # From a picture with a side below 16 pixels the package reads past its buffers.
    missing = [(0, max(16 - side, 0)) for side in levels.shape]
    padded = np.pad(levels.astype(np.float64) / 255.0, missing, mode="symmetric")
    clean = bm3d.bm3d(padded, sigma / 255.0)
    return np.asarray(clean * 255.0, dtype=np.float32).reshape(padded.shape)[:height, :width]


DENOISERS: dict[str, PlaneDenoiser] = {"tv": denoise_tv, "nlm": denoise_nlm, "bm3d": denoise_bm3d}


def denoise_picture(levels: Levels, sigma: float, denoiser: PlaneDenoiser) -> Levels:
    """Denoise a grey picture, or the luminance and chrominance planes of an RGB one."""
    check_sigma(sigma)
    if sigma == 0:
        return levels.copy()
    planes = np.moveaxis(to_opponent(levels), -1, 0)
    clean = [denoiser(np.ascontiguousarray(plane), sigma) for plane in planes]
    return from_opponent(np.stack(clean, axis=-1))


def import_extra(module: str, package: str, purpose: str) -> ModuleType:
    """Import a package that only the extra ``bench`` installs, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as missing:
        raise CofuseError(
            f"{purpose} needs the package {package}, which is not installed; "
            "install it with: pip install 'cofuse[bench]'"
        ) from missing


def _differences(x: Levels, out: NDArray[np.float32]) -> None:
    """Write ∇x, the differences to the pixel below and to the right; zero at the far borders."""
    np.subtract(x[1:], x[:-1], out=out[0, :-1])
    out[0, -1] = 0.0
    np.subtract(x[:, 1:], x[:, :-1], out=out[1, :, :-1])
    out[1, :, -1] = 0.0


def _adjoint(p: NDArray[np.float32]) -> Levels:
    """Return ∇ᵀp; the entries of p at the far borders play no part."""
    x = np.zeros(p.shape[1:], dtype=np.float32)
    x[1:] += p[0, :-1]
    x[:-1] -= p[0, :-1]
    x[:, 1:] += p[1, :, :-1]
    x[:, :-1] -= p[1, :, :-1]
    return x
