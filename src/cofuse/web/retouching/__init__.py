"""Painting from a frame into the fused picture, by hand and without seams.

A `Stroke` says where and from which frame (`strokes`); its pixels are blended into the picture
band by band (`blending`), tile by tile (`painting`). Noisy frames are restored by `RestoredFrames`.
"""

from cofuse.web.retouching.painting import RestoredFrames, retouch
from cofuse.web.retouching.strokes import Stroke, stroke_window

__all__ = ["RestoredFrames", "Stroke", "retouch", "stroke_window"]
