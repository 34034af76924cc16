"""SR-KSVD: fusion by sparse coding of sliding patches over a learned dictionary.

After Yang and Li, *Multifocus image fusion and restoration with sparse representation* (IEEE
Trans. Instrumentation and Measurement, 2010). Every patch of every frame loses its mean and is
coded by orthogonal matching pursuit over one dictionary. At each place the frame whose
coefficients have the largest ℓ₁ norm gives its coefficients and its mean, and the patches that
overlap are averaged. With noise the pursuit stops at the noise's length, which restores the
picture on the way.

What the paper leaves open, and what we do:

- *Residual at σ = 0.* A length of 0.1 grey levels a patch, the value in circulation for 8-bit
  pictures: the chosen patch is represented all but exactly.
- *Colour.* The luminance decides; then the three channels of the chosen patch are coded one by one.
- *More than two frames.* The largest norm of all; a tie goes to the earliest frame.
- *Borders.* With a stride, the last row and column of patches that fit are always taken.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images import LUMINANCE_WEIGHTS, Fusion, Levels, Stack, luminance
from cofuse.operators.patches import add_patches, patch_positions, take_patches
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = [
    "SHIPPED_PATCH_SIZES",
    "fuse_sr_ksvd",
    "learn_shipped_dictionaries",
    "load_dictionary",
]

#: Sides of the patches for which a learned dictionary comes with the package.
SHIPPED_PATCH_SIZES = (5, 6, 7, 8, 9)

Array = NDArray[Any]
Floats = NDArray[np.float32]

_FORMAT = "cofuse-dictionary"
_FORMAT_VERSION = 1
#: Patches in memory at a time; taller pictures are coded in bands, each reading the frames anew.
_BAND_BYTES = 256 << 20
#: How the shipped dictionaries are learned. Patches of less contrast (standard deviation in grey
#: levels) are left out: what is flat needs no atom.
_LEARNING = {"atoms": 256, "sparsity": 6, "rounds": 50, "seed": 0}
_TRAINING_PATCHES = 50_000
_LEAST_CONTRAST = 2.0


def fuse_sr_ksvd(
    stack: Stack,
    *,
    sigma: float = 0.0,
    patch_size: int = 7,
    stride: int = 1,
    dictionary: Array | None = None,
    tolerance: float = 0.1,
    noise_gain: float = 1.15,
    progress: ProgressCallback = silent,
) -> Fusion:
    r"""Fuse a stack by the max-ℓ₁ rule on sparse coefficients.

    .. math:: \gamma_k = \arg\min \|\gamma\|_0 \ \text{s.t.}\
              \|x_k - \bar x_k - D\gamma\|_2 \le \varepsilon, \qquad
              k^* = \arg\max_k \|\gamma_k\|_1, \qquad \hat x = D\gamma_{k^*} + \bar x_{k^*}

    with ε = ``tolerance`` or, if that is larger, C σ √m with C = ``noise_gain`` and m the pixels
    of a patch (for the luminance of colour frames, the σ that its weights leave).

    Parameters
    ----------
    stack
        One frame or more, grey or RGB, any dtype.
    sigma
        Noise level in 8-bit grey levels.
    patch_size, stride
        Side n of the patches and the step between them, in pixels.
    dictionary
        Atoms of unit length, shape (n², atoms); default the shipped one for this patch size.
    tolerance
        Length of the residual of a noise-free patch, in grey levels.
    noise_gain
        C, how far above the noise's expected length the pursuit stops.
    progress
        Told of every band of patch rows that is done; smaller pictures are a single band.

    Returns
    -------
    Fusion
        Its ``source_map`` names, for every pixel, the frame chosen by the patch whose centre is
        nearest.
    """
    began = time.perf_counter()
    n = patch_size
    for name, value in (("sigma", sigma), ("tolerance", tolerance), ("noise_gain", noise_gain)):
        if not (np.isfinite(value) and value >= 0):
            raise CofuseError(f"{name} is {value}; expected a number from 0 up")
    atoms = load_dictionary(n) if dictionary is None else np.asarray(dictionary, np.float32)
    if atoms.ndim != 2 or len(atoms) != n * n:
        raise CofuseError(
            f"the dictionary has shape {atoms.shape}; patches of {n}x{n} need {n * n} rows"
        )
    if min(stack.height, stack.width) < n:
        raise CofuseError(
            f"the frames are {stack.width}x{stack.height} px, smaller than a patch of {n}x{n}"
        )
    ys, xs = patch_positions(stack.shape, n, stride)
    channels = 3 if stack.is_colour else 1
    limits = [max(tolerance, noise_gain * s * n) for s in (sigma, sigma * _luminance_gain(stack))]
    choice = np.zeros((len(ys), len(xs)), np.min_scalar_type(len(stack) - 1))
    total = np.zeros((channels + 1, stack.height, stack.width), np.float32)
    band = max(1, _BAND_BYTES // (4 * n * n * len(xs) * (1 + 2 * channels)))
    for top in range(0, len(ys), band):
        positions = ys[top : top + band], xs
        patches, chosen = _choose(stack, atoms, positions, limits)
        choice[top : top + band] = chosen.reshape(-1, len(xs))
        ones = np.broadcast_to(np.float32(1), patches[0].shape)
        for plane, rows in zip(total, (*patches, ones), strict=True):
            plane += add_patches(rows.T, plane.shape, positions)
        progress(Progress("fuse", min(top + band, len(ys)), len(ys)))
    levels = np.moveaxis(total[:-1] / total[-1], 0, -1).reshape(stack.shape)
    near = np.ix_(_nearest(ys, n, stack.height), _nearest(xs, n, stack.width))
    return Fusion(
        image=stack.from_levels(levels),
        source_map=choice[near],
        sigma=float(sigma),
        seconds={"fuse": time.perf_counter() - began},
    )


def load_dictionary(patch_size: int) -> Floats:
    """Load the shipped dictionary for patches of n × n pixels, shape (n², 256)."""
    if patch_size not in SHIPPED_PATCH_SIZES:
        raise CofuseError(
            f"no dictionary is shipped for patches of {patch_size}x{patch_size}; expected a side "
            f"of {', '.join(map(str, SHIPPED_PATCH_SIZES))}, or pass a dictionary"
        )
    shipped = resources.files("cofuse").joinpath("data", "dictionaries", f"ksvd-{patch_size}.npz")
    with resources.as_file(shipped) as path, np.load(path, allow_pickle=False) as archive:
        return np.asarray(archive["dictionary"], np.float32)


def learn_shipped_dictionaries(
    folder: Path, out: Path, *, sizes: Sequence[int] = SHIPPED_PATCH_SIZES
) -> None:
    """Learn the dictionaries of the package from the PNG pictures in ``folder``.

    The files ``ksvd-5.npz`` … in ``out`` hold the atoms and, as a JSON text, how they came about.
    ``python -m cofuse.evaluation.baselines.sr_ksvd FOLDER OUT`` does the same.
    """
    import cv2

    from cofuse import __version__
    from cofuse.evaluation.baselines.ksvd import learn_dictionary

    paths = sorted(Path(folder).glob("*.png"))
    if not paths:
        raise CofuseError(f"there are no PNG pictures in {folder}")
    pictures = [np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)) for path in paths]
    for n in sizes:
        patches = _training_patches(pictures, n)
        learned = learn_dictionary(patches, **_LEARNING)  # type: ignore[arg-type]
        provenance = {
            "learned_by": f"cofuse {__version__}, K-SVD",
            "pictures": f"{len(paths)} grey pictures, {paths[0].name} to {paths[-1].name}",
            "patches": patches.shape[1],
            "least_contrast": _LEAST_CONTRAST,
            **_LEARNING,
            "rms_error": round(learned.trace.last("rms_error"), 4),
            "stopped": learned.trace.reason,
        }
        Path(out).mkdir(parents=True, exist_ok=True)
        _write_dictionary(Path(out) / f"ksvd-{n}.npz", learned.dictionary, provenance)


def _choose(
    stack: Stack, atoms: Floats, positions: tuple[Array, Array], limits: Sequence[float]
) -> tuple[Floats, Array]:
    """Coded patches in rows, (channels, N, m), of the best frames, and which frames those are."""
    from cofuse.evaluation.baselines.sparse_coding import approximate

    def take(levels: Levels) -> Floats:
        return take_patches(levels, round(len(atoms) ** 0.5), positions).T

    def code(patches: Floats, limit: float) -> tuple[Floats, Floats]:
        means = patches.mean(axis=1, keepdims=True)
        fitted, norms = approximate((patches - means).T, atoms, tolerance=limit)
        return fitted.T + means, norms

    channels = 3 if stack.is_colour else 1
    best = np.full(len(positions[0]) * len(positions[1]), -1.0, np.float32)
    choice = np.zeros(len(best), np.intp)
    kept = np.empty((channels, len(best), len(atoms)), np.float32)
    for k in range(len(stack)):
        levels = stack.to_levels(stack[k])
        coded, norms = code(take(luminance(levels)), limits[1])
        better = norms > best
        best[better] = norms[better]
        choice[better] = k
        for c in range(channels):
            kept[c, better] = (take(levels[..., c]) if stack.is_colour else coded)[better]
    if stack.is_colour:
        for c in range(channels):
            kept[c] = code(kept[c], limits[0])[0]
    return kept, choice


def _luminance_gain(stack: Stack) -> float:
    """Noise of the luminance for unit noise in every channel."""
    return float(np.linalg.norm(LUMINANCE_WEIGHTS)) if stack.is_colour else 1.0


def _nearest(starts: Array, n: int, length: int) -> Array:
    """For every pixel of a side, the patch whose centre is nearest (of two, the first)."""
    centres = starts + (n - 1) / 2
    return np.searchsorted((centres[:-1] + centres[1:]) / 2, np.arange(length))


def _training_patches(pictures: Sequence[Array], n: int) -> Floats:
    """Draw mean-free patches (m, N), equally many from each picture, flat ones left out."""
    rng = np.random.default_rng(_LEARNING["seed"])
    drawn = []
    for picture in pictures:
        windows = np.lib.stride_tricks.sliding_window_view(picture, (n, n))
        count = -(-_TRAINING_PATCHES // len(pictures))
        y, x = (rng.integers(side, size=4 * count) for side in windows.shape[:2])
        patches = windows[y, x].reshape(-1, n * n).astype(np.float32)
        drawn.append(patches[patches.std(axis=1) >= _LEAST_CONTRAST][:count])
    chosen = np.concatenate(drawn)
    return np.ascontiguousarray((chosen - chosen.mean(axis=1, keepdims=True)).T)


def _write_dictionary(path: Path, dictionary: Floats, provenance: Mapping[str, Any]) -> None:
    """Write one dictionary to one file: an array and a JSON text, no pickle."""
    header = {
        "format": _FORMAT,
        "version": _FORMAT_VERSION,
        "name": path.stem,
        "provenance": dict(provenance),
    }
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header, sort_keys=True)), dictionary=dictionary)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m cofuse.evaluation.baselines.sr_ksvd FOLDER OUT")
    learn_shipped_dictionaries(Path(sys.argv[1]), Path(sys.argv[2]))
