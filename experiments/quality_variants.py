"""Variants of `auto` for the table of ablations. Add yours here: nothing else is computed again."""

from __future__ import annotations

from typing import Any

__all__ = ["VARIANTS"]

#: Keywords of `AutoSettings`, laid over those of the preset `auto`, or of `fuse`, by name. The
#: table holds each variant, told σ, against `auto`.
VARIANTS: dict[str, dict[str, Any]] = {
    "mixed, not restored": {"denoise": 0.0},
    "fast: choice by separable-7": {"method": "shrinkage", "operator": "separable-7"},
    "fast: choice by full-7": {"method": "shrinkage", "operator": "full-7"},
}
