"""From a stack to one sharp, clean picture: `fuse`, the presets, and one file for each of them."""

from cofuse.fusion.fusing import fuse
from cofuse.fusion.presets import PRESETS, AutoSettings, FastSettings, FusionSettings, PaperSettings

__all__ = [
    "PRESETS",
    "AutoSettings",
    "FastSettings",
    "FusionSettings",
    "PaperSettings",
    "fuse",
]
