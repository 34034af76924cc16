"""What tells where a frame must not be used, measured on a torch device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu import DeviceFusion
from cofuse.kernels.joint_gpu_layers import exact, fused

__all__ = ["Measured", "measure_blocks"]

Blocks = NDArray[np.float32]

#: Rows of pixels that are measured at a time: whole blocks of any size in use.
_BAND = 4096


@dataclass(frozen=True)
class Measured:
    """Gradient energy and mean of every frame's blocks, and the frames of other brightness."""

    blocks: list[tuple[Blocks, Blocks]]
    others: list[int]


def measure_blocks(
    fusion: DeviceFusion, side: int, other_share: float, other_levels: float
) -> Measured:
    """Measure the blocks of every frame's first plane, in grey levels.

    The energy is that of neighbours within a block. As in `methods.fitness` the outermost blocks
    have that of the next ones: blur that ran into a black surround leaves an edge, but no detail.
    Of other brightness are frames that differ from the median of all by more than a share of it and
    some levels, in half of the blocks.
    """
    with exact():
        frames = [_measure_frame(fusion, number, side) for number in range(len(fusion.readers))]
        means = torch.stack([frame[1] for frame in frames])
        usual = _median(means)
        allowed = other_share * usual.abs() + other_levels
        apart = ((means - usual).abs() / allowed).flatten(1)
        half = apart.shape[1] // 2
        least = [apart.kthvalue(1 + n, 1).values for n in (half, (apart.shape[1] - 1) // 2)]
        others = ((least[0] + least[1]) > 2.0).nonzero()[:, 0].tolist()
        energy = (whole := torch.stack(frames))[:, 0]
        for edge, inner in ((0, 1), (-1, -2)):
            energy[:, edge] = energy[:, inner]
        for edge, inner in ((0, 1), (-1, -2)):
            energy[:, :, edge] = energy[:, :, inner]
        measured = np.empty(whole.shape, np.float32)
        fusion.transfer.download(whole, measured)
    return Measured([(own[0], own[1]) for own in measured], others)


def _median(values: Tensor) -> Tensor:
    """Median along the first axis, of an even number the mean of both in the middle."""
    ordered, count = values.sort(0).values, len(values)
    return 0.5 * (ordered[(count - 1) // 2] + ordered[count // 2])


def _measure_frame(fusion: DeviceFusion, number: int, side: int) -> Tensor:
    """Energy and mean (2, rows, columns) of a frame's blocks."""
    height, width = fusion.shape
    if fusion.kept is not None and fused(fusion.kept[number]):
        from cofuse.kernels import gpu_triton_mixing

        plane = fusion.first_plane(number, (0, height), (0, width))[0]
        return gpu_triton_mixing.block_energies(plane, 1.0 / fusion.conversion.factors[0], side)
    level = 1.0 / fusion.conversion.factors[0]
    bands = []
    for top in range(0, height, _BAND):
        rows = top, min(top + _BAND, height)
        plane = fusion.first_plane(number, rows, (0, width)).mul_(level)
        more = (0, -width % side, 0, (rows[0] - rows[1]) % side)
        bands.append(_measure(F.pad(plane, more, mode="replicate")[0], side))
    return torch.cat(bands, 1)


def _measure(plane: Tensor, side: int) -> Tensor:
    energy = plane.new_zeros(plane.shape)
    torch.sub(plane[:, 1:], plane[:, :-1], out=energy[:, :-1])
    energy.square_()[:, side - 1 :: side] = 0.0  # neighbours of two blocks
    down = (plane[1:] - plane[:-1]).square_()
    down[side - 1 :: side] = 0.0
    energy[:-1] += down
    energy *= side / (side - 1)  # a block has one difference less than pixels along a line
    return F.avg_pool2d(torch.stack([energy, plane])[None], side)[0]
