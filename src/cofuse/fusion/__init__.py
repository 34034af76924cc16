"""From a stack to one sharp, clean picture: `fuse`, the presets, and one file for each of them."""

from cofuse.fusion.fusing import fuse
from cofuse.fusion.presets import PRESETS, FusionSettings

__all__ = ["PRESETS", "FusionSettings", "fuse"]
