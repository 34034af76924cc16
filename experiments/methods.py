"""The methods of the experiments by name, and the denoised frames that several of them share.

A method's name says how it is run:

* ``auto``, ``fast``, ``paper``: told σ; ``paper-dense``: patches at stride 1; ``auto?``, ``fast?``:
  by default, so that σ is estimated and frames are aligned where they do not lie right;
* ``sr-ksvd`` at stride 2, ``sr-ksvd-dense`` at stride 1; any other baseline; all told σ;
* ``bm3d+gff``, ``bm3d+fast``: every frame denoised, then fused as if it were clean;
* ``gff+nlm``, ``auto+nlm``: fused as if clean, then denoised; ``nlm`` works on luminance and
  chrominance planes, ``colour-nlm`` compares RGB patches, ``nlm?`` is told the noise measured on
  the fused picture in place of that of a frame;
* ``reference``: the frame that others are aligned to; ``bm3d of truth``: one noisy picture of the
  truth denoised, what no stack is needed for.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import PRESETS, CofuseError, Fusion, Stack, fuse
from cofuse.evaluation.baselines import DENOISERS, METHODS
from cofuse.evaluation.baselines.denoising import denoise_picture
from cofuse.sensor import noise_level
from experiments.pictures import Situation

Levels = NDArray[np.float32]
OURS = ("auto", "auto?", "fast", "fast?", "paper", "paper-dense")

#: Strength of colour non-local means in units of σ: best of 0.3 to 0.9 on MFI-WHU truths that
#: tuning may see. On those pictures it is 1.4 to 2 dB below NLM plane by plane.
_COLOUR_NLM_STRENGTH = 0.6

#: How the methods are called in figures and tables; in tables of quality presets are told from
#: rivals by quotes.
LABELS = {
    "auto": "`auto`",
    "auto?": "`auto`, σ estimated",
    "fast": "`fast`",
    "fast?": "`fast`",
    "paper": "`paper`",
    "paper-dense": "`paper`, stride 1",
    "reference": "reference frame alone",
    "average": "average",
    "laplacian": "Laplacian pyramid",
    "gff": "GFF",
    "dwt": "DWT",
    "dct-variance": "DCT variance",
    "focus-measure": "focus measure",
    "sf-dct": "SF-DCT",
    "sr-ksvd": "SR-KSVD (stride 2)",
    "sr-ksvd-dense": "SR-KSVD (stride 1)",
    "bm3d": "BM3D",
    "bm3d of truth": "BM3D of the noisy truth",
    "tv": "TV",
    "nlm": "NLM",
    "nlm?": "NLM, σ measured",
    "colour-nlm": "colour NLM",
}


def label(method: str) -> str:
    """Name a method in a table."""
    return ", then ".join(LABELS.get(part, part) for part in method.split("+"))


def uses_ours(method: str) -> bool:
    """Whether a method runs through the code of our own."""
    return method in OURS or not PRESETS.keys().isdisjoint(method.split("+")) or "?" in method


def uses_rivals(method: str) -> bool:
    """Whether a method runs through the baselines."""
    return method not in OURS


class Denoised:
    """Denoised frames, kept in files named by what went in: methods that denoise alike share."""

    def __init__(self, folder: Path | None, version: str = "") -> None:
        self.folder, self.version = folder, version

    def __call__(self, levels: Levels, sigma: float, denoiser: str) -> Levels:
        """Denoise a grey or RGB picture, or read what was denoised before."""
        if self.folder is None or denoiser != "bm3d":  # the others are faster than a disk is large
            return _denoise(levels, sigma, denoiser)
        name = hashlib.sha256(np.ascontiguousarray(levels).tobytes())
        name.update(f"{levels.shape} {sigma} {denoiser} {self.version}".encode())
        path = self.folder / f"{name.hexdigest()[:24]}.npy"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}")  # two workers may be at the same frame
            with partial.open("wb") as file:
                np.save(file, _denoise(levels, sigma, denoiser))
            partial.replace(path)
        return np.asarray(np.load(path), np.float32)


def run_method(method: str, n: int, given: Situation, denoised: Denoised) -> Fusion:
    """Run a method, with patches or blocks of n × n pixels if n is not 0, on a situation."""
    stack, sigma = given.stack, given.sigma
    match method.split("+"):
        case ["auto?"] | ["fast?"]:
            preset = method.removesuffix("?")
            if given.unaligned:
                return fuse(given.unaligned, preset=preset, align=True)
            return fuse(stack, preset=preset)
        case [name] if name in OURS:
            preset = replace(PRESETS[name.removesuffix("-dense")], **_settings(name, n))
            return fuse(stack, sigma=sigma, preset=preset)
        case ["reference"]:
            return Fusion(image=stack[len(stack) // 2])
        case ["bm3d of truth"]:
            if given.noisy_truth is None:
                raise CofuseError("there is no truth to denoise")
            return Fusion(image=denoised(given.noisy_truth, sigma, "bm3d"))
        case [denoiser, choice] if denoiser in DENOISERS:
            frames = [denoised(stack.to_levels(f), sigma, denoiser) for f in stack]
            return _fuse_clean(choice, Stack.from_arrays(frames, white=255.0))
        case [choice, denoiser]:
            levels = Stack.from_arrays([stack.to_levels(f) for f in stack], white=255.0)
            fused = _fuse_clean(choice, levels).image
            if denoiser.endswith("?"):
                planes = np.moveaxis(np.atleast_3d(fused).astype(np.float32), -1, 0)
                sigma = float(np.sqrt(np.mean([noise_level(plane) ** 2 for plane in planes])))
            return Fusion(image=denoised(fused, sigma, denoiser.removesuffix("?")), sigma=sigma)
    rival = METHODS[method.removesuffix("-dense")]
    return rival(stack, sigma=sigma, **_settings(method, n))


def _settings(method: str, n: int) -> dict[str, Any]:
    """Spell out the settings of a method for patches (or blocks) of n × n pixels."""
    match method:
        case "sf-dct" if n:
            return {"block_size": n}
        case "sr-ksvd" | "sr-ksvd-dense":
            return {"patch_size": n or 7, "stride": 2 if method == "sr-ksvd" else 1}
        case "paper" | "paper-dense":
            side = n or 7
            return {"operator": f"full-{side}", "stride": side - 1 if method == "paper" else 1}
        case "fast" if n not in (0, 7):
            return {"operator": f"full-{n}"}
    return {}


def _fuse_clean(choice: str, stack: Stack) -> Fusion:
    """Fuse frames as if they were clean."""
    return fuse(stack, sigma=0.0, preset=choice) if choice in PRESETS else METHODS[choice](stack)


def _denoise(levels: Levels, sigma: float, denoiser: str) -> Levels:
    if denoiser == "colour-nlm":  # as scikit-image does it when told the channels and σ
        from skimage.restoration import denoise_nl_means

        strength, more = _COLOUR_NLM_STRENGTH * sigma, {"fast_mode": True, "channel_axis": -1}
        clean = denoise_nl_means(
            levels, patch_size=5, patch_distance=6, h=strength, sigma=sigma, **more
        )
        return np.asarray(clean, np.float32)
    if denoiser == "bm3d" and levels.ndim == 3:
        # Alike blocks are looked for in luminance alone: up to 0.4 dB above plane by plane.
        import bm3d

        return np.asarray(255.0 * bm3d.bm3d_rgb(levels / 255.0, sigma / 255.0), np.float32)
    return denoise_picture(levels, sigma, DENOISERS[denoiser])
