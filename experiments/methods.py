"""The methods of the experiments by name, and the denoised frames that several of them share.

A method's name says how it is run:

* ``auto``, ``fast``, ``paper``: told σ; ``paper-dense``: patches at stride 1; ``auto?``, ``fast?``:
  by default, so that σ is estimated and frames are aligned where they do not lie right;
* ``sr-ksvd`` at stride 2, ``sr-ksvd-dense`` at stride 1; any other baseline; all told σ;
* ``bm3d+gff``, ``bm3d+fast``: every frame denoised, then fused as if it were clean;
* ``reference``: the frame that others are aligned to; ``bm3d of truth``: one noisy picture of the
  truth denoised, what no stack is needed for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import PRESETS, CofuseError, Fusion, Stack, fuse
from cofuse.evaluation.baselines import DENOISERS, METHODS
from cofuse.evaluation.baselines.denoising import denoise_picture
from experiments.pictures import Situation

Levels = NDArray[np.float32]
OURS = ("auto", "auto?", "fast", "fast?", "paper", "paper-dense")


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
}


def label(method: str) -> str:
    """Name a method in a table."""
    return ", then ".join(LABELS.get(part, part) for part in method.split("+"))


def uses_ours(method: str) -> bool:
    """Whether a method runs through the code of our own."""
    return method in OURS or not PRESETS.keys().isdisjoint(method.split("+"))


def denoise_frame(levels: Levels, sigma: float, denoiser: str) -> Levels:
    """Denoise a grey or RGB picture by one of the denoisers."""
    if denoiser == "bm3d" and levels.ndim == 3:
        # Alike blocks are looked for in luminance alone: up to 0.4 dB above plane by plane.
        import bm3d

        return np.asarray(255.0 * bm3d.bm3d_rgb(levels / 255.0, sigma / 255.0), np.float32)
    return denoise_picture(levels, sigma, DENOISERS[denoiser])


class Denoised:
    """Denoised frames, kept in files named by what went in: methods that denoise alike share."""

    def __init__(
        self,
        folder: Path | None,
        version: str = "",
        denoise: Callable[[Levels, float, str], Levels] = denoise_frame,
    ) -> None:
        self.folder, self.version, self.denoise = folder, version, denoise

    def __call__(self, levels: Levels, sigma: float, denoiser: str) -> Levels:
        """Denoise a grey or RGB picture, or read what was denoised before."""
        if self.folder is None or denoiser != "bm3d":  # the others are fast
            return self.denoise(levels, sigma, denoiser)
        name = hashlib.sha256(np.ascontiguousarray(levels).tobytes())
        name.update(f"{levels.shape} {sigma} {denoiser} {self.version}".encode())
        path = self.folder / f"{name.hexdigest()[:24]}.npy"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}")  # two workers may be at the same frame
            with partial.open("wb") as file:
                np.save(file, self.denoise(levels, sigma, denoiser))
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
            clean = Stack.from_arrays(frames, white=255.0)
            if choice in PRESETS:
                return fuse(clean, sigma=0.0, preset=choice)
            return METHODS[choice](clean)
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
