"""A world of made focus stacks to learn from; needs torch, the extra ``gpu``.

Scenes are made on the fly, in batches, on the device that the photographs lie on:

- `sources` has sharp pictures, photographs or drawn; `drawing` the outlines of things;
- `blur` and `focus` say how a lens spreads light that comes from other depths;
- `layered`, `specimens` and `pairs` are scenes of cameras, of microscopes, and of collections;
- `motion` and `exposure` make frames differ, and align them again;
- `camera` makes files of light: `noise`, `mosaic`, `tone`, `jpeg`.
"""

from cofuse.learning.world.making import Pictures, Scenes, World
from cofuse.learning.world.settings import WorldSettings

__all__ = ["Pictures", "Scenes", "World", "WorldSettings"]
