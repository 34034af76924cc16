"""The methods of the experiments by name, each with all its settings spelled out."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cofuse import PRESETS, Fusion, Stack, fuse
from cofuse.evaluation.baselines import resolve_method

__all__ = ["LABELS", "LETTER_METHODS", "OURS", "RIVALS", "run_method", "settings_of"]

#: The letter's comparison: its two rivals, its own method read in two ways, and our `fast`.
RIVALS = ("sf-dct", "sr-ksvd")
OURS = ("paper", "paper-dense", "fast")
LETTER_METHODS = RIVALS + OURS

#: How the methods are called in figures and tables.
LABELS = {
    "sf-dct": "SF-DCT",
    "sr-ksvd": "SR-KSVD (stride 2)",
    "sr-ksvd-dense": "SR-KSVD (stride 1)",
    "paper": "paper (stride n − 1)",
    "paper-dense": "paper (stride 1)",
    "fast": "fast",
    "average": "average",
    "laplacian": "Laplacian pyramid",
    "gff": "GFF",
    "focus-measure": "focus measure",
    "tv+focus-measure": "TV, then focus measure",
}


def settings_of(method: str, n: int) -> dict[str, Any]:
    """Spell out the settings of a method for patches (or blocks) of n × n pixels."""
    letter = replace(PRESETS["paper"], operator=f"full-{n}")
    match method:
        case "sf-dct":
            return {"block_size": n}
        case "sr-ksvd":
            return {"patch_size": n, "stride": 2}
        case "sr-ksvd-dense":
            return {"patch_size": n, "stride": 1}
        case "paper":
            return asdict(replace(letter, stride=n - 1))
        case "paper-dense":
            return asdict(replace(letter, stride=1))
        case "fast":
            preset = PRESETS["fast"]
            return asdict(preset if n == 7 else replace(preset, operator=f"full-{n}"))
    resolve_method(method)  # refuses an unknown name
    return {}


def run_method(method: str, settings: dict[str, Any], stack: Stack, sigma: float) -> Fusion:
    """Fuse a stack whose noise level is known."""
    if method in OURS:
        preset = replace(PRESETS[method.removesuffix("-dense")], **settings)
        return fuse(stack, sigma=sigma, preset=preset)
    return resolve_method(method.removesuffix("-dense"))(stack, sigma=sigma, **settings)
