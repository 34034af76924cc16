"""A world of made focus stacks to learn from; needs torch.

Scenes are made on the fly, in batches, on the device that the photographs lie on:

- `making` has the `World` that draws them;
- `canvas` draws random numbers; its `WorldSettings` say how often what happens;
- `pictures` are sharp, photographs or drawn; `drawing` has the outlines of things;
- `lens` says how a lens spreads light that comes from other depths;
- `scenes` are those of cameras and of collections, `specimens` those of microscopes;
- `frames` differ in place and brightness, and are aligned again;
- `camera` makes files of light, by way of a `sensor` and of `jpeg`.
"""
