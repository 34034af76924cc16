"""The nouns: `Stack`, the frames that go in, and `Fusion`, the picture that comes out.

Beside them what all that work on pictures need: colour planes, bands, tiles with a halo, threads,
and a place for data that do not fit into memory.
"""

from cofuse.images.pixels import (
    LUMINANCE_WEIGHTS,
    Levels,
    Pixels,
    from_opponent,
    luminance,
    to_opponent,
)
from cofuse.images.result import Fusion
from cofuse.images.stack import PartReader, Stack

__all__ = [
    "LUMINANCE_WEIGHTS",
    "Fusion",
    "Levels",
    "PartReader",
    "Pixels",
    "Stack",
    "from_opponent",
    "luminance",
    "to_opponent",
]
