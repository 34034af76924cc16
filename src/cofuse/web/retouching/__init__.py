"""Painting from a frame into the fused picture, by hand and without seams.

A `Stroke` says where and from which frame (`strokes`); its pixels are blended into the picture
frequency by frequency (`blending`), tile by tile (`painting`). Frames of noisy stacks are painted
from through `restored_frames`.
"""

from cofuse.web.retouching.painting import RestoredFrames, restored_frames, retouch
from cofuse.web.retouching.strokes import Stroke, stroke_window

__all__ = ["RestoredFrames", "Stroke", "restored_frames", "retouch", "stroke_window"]
