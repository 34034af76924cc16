"""The learned model: networks that weigh the frames of a stack, and what runs them.

`network` defines them in torch, once; `saving` writes them as files, which `runtime` runs without
torch. `telling` says what they are told of the noise, `weighing` what frames weigh in a tile.
"""
