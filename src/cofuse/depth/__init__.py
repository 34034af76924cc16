"""Depth from focus: at which frame each place is sharpest, and how to show it."""

from cofuse.depth.estimation import estimate_depth
from cofuse.depth.maps import Depth, depth_picture, depth_preview, ply_chunks

__all__ = ["Depth", "depth_picture", "depth_preview", "estimate_depth", "ply_chunks"]
