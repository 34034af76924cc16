"""Depth from focus: at which frame each place is sharpest, and how to show it.

`curves` measures how sharp every place is in every frame and finds the peaks. `estimation` joins
the peaks of several scales into one map, and `filling` fills the places that have no clear peak.
`maps` shows the resulting `Depth`.
"""

from cofuse.depth.estimation import estimate_depth
from cofuse.depth.maps import Depth, depth_picture, depth_preview, ply_chunks

__all__ = ["Depth", "depth_picture", "depth_preview", "estimate_depth", "ply_chunks"]
