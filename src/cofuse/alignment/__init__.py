"""Alignment: transforms between frames, warping, the common area, brightness matching."""

from cofuse.alignment.saving import alignment_from_json, alignment_to_json
from cofuse.alignment.stack import Alignment, align_stack
from cofuse.alignment.transforms import Transform
from cofuse.alignment.warping import aligned, common_area, warp

__all__ = [
    "Alignment",
    "Transform",
    "align_stack",
    "aligned",
    "alignment_from_json",
    "alignment_to_json",
    "common_area",
    "warp",
]
