"""The learned model: networks that weigh the frames of a stack, and what runs them.

`network` defines them in torch, once; `saving` writes them as files, which `runtime` runs without
torch. `weighing` and `restoring` say what they do in a tile, and what they are told of the noise.
"""
