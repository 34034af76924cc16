"""Variants of `auto` for the table of ablations. Add yours here: nothing else is computed again."""

from __future__ import annotations

from typing import Any

__all__ = ["VARIANTS"]

#: The preset `fast`: choice by an operator's activity, restoration by shrinkage.
_FAST = {"method": "shrinkage", "smallest_region": 0.02, "seam": 5}

#: Keywords of `FusionSettings`, laid over those of the preset `auto`, or of `fuse`, by name. The
#: table holds each variant, told σ, against `auto`.
VARIANTS: dict[str, dict[str, Any]] = {
    "only the chosen frame": {"weights": "chosen"},
    "plain copies along borders": {"seam": 1},
    "no clean-up of the choice": {"smallest_region": 0.0},
    "fast: choice by separable-7": {**_FAST, "operator": "separable-7"},
    "fast: choice by full-7": {**_FAST, "operator": "full-7"},
}
