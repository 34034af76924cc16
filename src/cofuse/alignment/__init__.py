"""Alignment: transforms between frames, warping, the common area, brightness matching."""

from cofuse.alignment.stack import align_stack
from cofuse.alignment.transforms import (
    Alignment,
    Transform,
    alignment_from_json,
    alignment_to_json,
)
from cofuse.alignment.warping import aligned

__all__ = [
    "Alignment",
    "Transform",
    "align_stack",
    "aligned",
    "alignment_from_json",
    "alignment_to_json",
]
