"""Depth from focus: where along the stack each place is sharpest, and how to look at it.

The pixels pass `curves` (how sharp every place is in every frame), `estimation` (the peak of that
curve), `filling` (places without one) and come out as a `Depth`; `maps` shows it.
"""

from cofuse.depth.estimation import estimate_depth
from cofuse.depth.maps import Depth, depth_colours, depth_picture, depth_preview, ply_chunks

__all__ = [
    "Depth",
    "depth_colours",
    "depth_picture",
    "depth_preview",
    "estimate_depth",
    "ply_chunks",
]
