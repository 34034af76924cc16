"""A world of made focus stacks to learn from; needs torch, the extra ``gpu``.

Scenes are made on the fly, in batches, on the device that the photographs lie on:

- `sources` has sharp pictures, photographs or drawn; `drawing` the outlines of things;
- `lens` says how a lens spreads light that comes from other depths;
- `layered`, `specimens` and `pairs` are scenes of cameras, of microscopes, and of collections;
- `aligning` makes frames differ, and aligns them again;
- `camera` makes files of light, by way of a `sensor`.
"""

from cofuse.learning.world.camera import Scenes
from cofuse.learning.world.chance import WorldSettings
from cofuse.learning.world.making import World

__all__ = ["Scenes", "World", "WorldSettings"]
