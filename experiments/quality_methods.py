"""The methods of the quality tables by name, and the denoised frames that several of them share.

A method's name says how it is run:

* ``auto``, ``paper``: told σ; ``auto?``, ``fast?``: by default, so that σ is estimated and frames
  are aligned where they do not lie right; ``untouched``: `auto` with ``denoise=0``;
* ``reference``: the frame that others are aligned to;
* ``variant NAME``: `auto` with the keywords of that name in `VARIANTS`, told σ;
* ``bm3d+gff``, ``bm3d+fast``: every frame denoised, then fused as if it were clean;
* ``gff+nlm``, ``auto+nlm``: fused as if clean, then denoised; ``nlm`` works on luminance and
  chrominance planes, ``colour-nlm`` compares RGB patches, ``nlm?`` is told the noise measured on
  the fused picture in place of that of a frame;
* ``bm3d of truth``: one noisy picture of the truth denoised, what no stack is needed for;
* any other baseline, told σ.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import PRESETS, AutoSettings, CofuseError, Fusion, Stack, fuse
from cofuse.evaluation.baselines import DENOISERS, METHODS
from cofuse.evaluation.baselines.denoising import denoise_picture
from cofuse.sensor import noise_level
from experiments.quality_plan import VARIANTS
from experiments.quality_scenes import Situation

__all__ = ["OURS", "Denoised", "run_method", "uses_ours", "uses_rivals"]

Levels = NDArray[np.float32]
OURS = ("auto", "auto?", "fast?", "paper", "untouched")

#: Strength of colour non-local means in units of σ: best of 0.3 to 0.9 on MFI-WHU truths that
#: tuning may see. On those pictures it is 1.4 to 2 dB below NLM plane by plane.
_COLOUR_NLM_STRENGTH = 0.6


def uses_ours(method: str) -> bool:
    """Whether a method runs through the code of our own."""
    is_ours = method in (*OURS, "cost") or method.startswith("variant ")
    return is_ours or not PRESETS.keys().isdisjoint(method.split("+")) or method.endswith("?")


def uses_rivals(method: str) -> bool:
    """Whether a method runs through the baselines."""
    return method not in OURS and not method.startswith("variant ")


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


def run_method(method: str, given: Situation, denoised: Denoised) -> Fusion:
    """Run a method on a situation."""
    stack, sigma = given.stack, given.sigma
    match method.split("+"):
        case ["auto"] | ["paper"]:
            return fuse(stack, sigma=sigma, preset=method)
        case ["auto?"] | ["fast?"]:
            preset = method.removesuffix("?")
            if given.unaligned:
                return fuse(given.unaligned, preset=preset, align=True)
            return fuse(stack, preset=preset)
        case ["reference"]:
            return Fusion(image=stack[len(stack) // 2])
        case ["untouched"]:
            return fuse(stack, **_fuse_keywords({"denoise": 0.0}))
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
    if method.startswith("variant "):
        return _run_variant(VARIANTS[method.removeprefix("variant ")], stack, sigma)
    return METHODS[method](stack, sigma=sigma)


def _fuse_clean(choice: str, stack: Stack) -> Fusion:
    """Fuse frames as if they were clean."""
    if choice in PRESETS:
        return fuse(stack, sigma=0.0, preset=choice)
    return METHODS[choice](stack)


def _run_variant(given: dict[str, Any], stack: Stack, sigma: float) -> Fusion:
    """Run `auto` with settings and keywords of its own."""
    known = {field.name for field in fields(AutoSettings)}
    settings = {name: value for name, value in given.items() if name in known}
    keywords = _fuse_keywords({k: v for k, v in given.items() if k not in known})
    preset = replace(PRESETS["auto"], **settings)
    return fuse(stack, **({"sigma": sigma, "preset": preset} | keywords))


def _fuse_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords for `fuse`; refuse those it does not have."""
    for name in keywords:
        if name not in inspect.signature(fuse).parameters:
            raise CofuseError(
                f"fuse has no keyword {name!r} and AutoSettings no such setting: "
                "this version of cofuse cannot be asked for it"
            )
    return keywords


def _denoise(levels: Levels, sigma: float, denoiser: str) -> Levels:
    if denoiser == "colour-nlm":
        return _colour_nlm(levels, sigma)
    if denoiser == "bm3d" and levels.ndim == 3:
        return _colour_bm3d(levels, sigma)
    return denoise_picture(levels, sigma, DENOISERS[denoiser])


def _colour_bm3d(levels: Levels, sigma: float) -> Levels:
    """BM3D that looks for alike blocks in luminance alone: up to 0.4 dB above plane by plane."""
    import bm3d

    return np.asarray(255.0 * bm3d.bm3d_rgb(levels / 255.0, sigma / 255.0), np.float32)


def _colour_nlm(levels: Levels, sigma: float) -> Levels:
    """Non-local means on RGB patches, as scikit-image does it when told the channels and σ."""
    from skimage.restoration import denoise_nl_means

    clean = denoise_nl_means(
        levels,
        patch_size=5,
        patch_distance=6,
        h=_COLOUR_NLM_STRENGTH * sigma,
        sigma=sigma,
        fast_mode=True,
        channel_axis=-1,
    )
    return np.asarray(clean, np.float32)
