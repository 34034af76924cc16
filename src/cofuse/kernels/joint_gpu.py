"""The joint model on a torch device, tile by tile: frames weighed, mixed, restored.

As on the CPU every pixel is what it would be in one piece: a tile is made from as much around it as
the model looks at, and what its artificial borders spoil is cut off. Tiles are as large as the
device's memory allows; where it turns out to be less they are halved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cofuse.joint import (
    AGREEMENT_SCALES,
    BAND_WINDOWS,
    GUIDES,
    LEVEL_CHANNELS,
    REWEIGH_BEFORE,
    JointModel,
)
from cofuse.joint_noise import ModelNoise
from cofuse.kernels.gpu_frames import Conversion, Transfer
from cofuse.kernels.joint_gpu_layers import exact, on_device
from cofuse.kernels.joint_gpu_memory import free_memory, pieces, tile_side
from cofuse.kernels.joint_gpu_mixing import (
    Agreement,
    choose,
    mix,
    mix_chosen,
    smoothed,
)
from cofuse.kernels.joint_gpu_stages import DeviceMixture, DeviceStage, stage_reach
from cofuse.kernels.joint_gpu_weigher import DeviceWeigher
from cofuse.kernels.joint_reach import Reach

__all__ = ["DeviceFusion", "DeviceTile"]

Pixels = NDArray[Any]
Span = tuple[int, int]
Spans = tuple[Span, Span]
#: Reads rows and columns of one frame in native values.
PartReader = Callable[[slice, slice], Pixels]

#: Smallest side of a tile that is halved where memory is short.
_LEAST_SIDE = 64
#: Share of the free memory that the frames themselves may have.
_FRAMES_SHARE = 0.2


@dataclass(frozen=True)
class DeviceTile:
    """What the model makes of a tile, on the device; pictures are in units of noise.

    ``chosen`` is an event of CUDA: index and confidence are there before all else.
    """

    index: Tensor
    confidence: Tensor
    mixed: Tensor
    restored: Tensor | None
    chosen: Any = None


class DeviceFusion:
    """One stack on a device, and all that is the same for its tiles.

    Parameters
    ----------
    model
        The model to fuse with.
    readers
        One function a frame that reads parts of it in native values.
    shape
        Rows and columns of the frames.
    noise
        The frames' noise.
    conversion
        How native values become planes.
    restore, weigh_all
        Whether to restore the mixture, and whether to mix all frames or take the best one's pixel.
    device
        ``"cuda"``, ``"mps"``, or ``"cpu"`` for tests.
    """

    def __init__(
        self,
        model: JointModel,
        readers: Sequence[PartReader],
        shape: tuple[int, int],
        noise: ModelNoise,
        conversion: Conversion,
        *,
        restore: bool,
        weigh_all: bool,
        device: str,
    ) -> None:
        self.readers, self.shape, self.noise, self.device = readers, shape, noise, device
        self.conversion, self.weigh_all = conversion, weigh_all
        self.transfer = Transfer(device)
        self.kept: list[Tensor] | None = None
        arrays = model.part("weigher")
        self.weigher = DeviceWeigher(arrays, noise.units[0], noise.relative, device)
        self.guide = on_device(arrays["guide"], device)
        self.agreement = Agreement(model.part("agreement"), AGREEMENT_SCALES, device)
        stages = [
            noise.widened(model.part(f"stages.{i}")) for i in range(model.stages if restore else 0)
        ]
        self.stages = [DeviceStage(stage, noise.log_units, device) for stage in stages]
        self.weigh_again = weigh_all and len(readers) > 1 and len(stages) > REWEIGH_BEFORE
        self.relative = on_device(noise.relative, device)
        self.margin = sum(stage_reach(stage) for stage in stages)
        self.margin += 2 * sum(2 * (side // 2) for side in BAND_WINDOWS)
        if self.weigh_again:
            self.margin += max(sum(side // 2 for side in sides) for sides in AGREEMENT_SCALES)
        self.margin += self.margin % 2  # half-size pixels must stay in place

    @property
    def planes(self) -> int:
        """Number of planes."""
        return len(self.noise.units)

    def keep_frames(self) -> None:
        """Bring all frames to the device once, if they take no more than a share of its memory."""
        first = self._native(0, *(slice(0, n) for n in self.shape))
        if first.nbytes * len(self.readers) <= _FRAMES_SHARE * free_memory(self.device):
            rest = (
                self._native(number, *(slice(0, n) for n in self.shape))
                for number in range(1, len(self.readers))
            )
            self.kept = [first, *rest]

    def tiles(self, side: int | None = None) -> Iterator[tuple[tuple[slice, slice], DeviceTile]]:
        """Make all tiles, in the order of rows, each with where it is.

        One that does not fit the device's memory is made in four.
        """
        side = side or tile_side(
            self.shape, self.planes, len(self.readers), self.margin, self.device
        )
        waiting = list(itertools.product(*(pieces(0, n, side) for n in self.shape)))
        while waiting:
            rows, columns = waiting.pop(0)
            try:
                tile = self.piece(rows, columns)
            except torch.OutOfMemoryError:
                longest = max(rows[1] - rows[0], columns[1] - columns[0])
                if longest <= _LEAST_SIDE:
                    raise
                half = longest // 2
                smaller = itertools.product(pieces(*rows, half), pieces(*columns, half))
                waiting = [*smaller, *waiting]
                tile = None
            if tile is None:
                if self.device == "cuda":
                    torch.cuda.empty_cache()
                continue
            yield (slice(*rows), slice(*columns)), tile
            del tile

    def piece(self, rows: Span, columns: Span) -> DeviceTile:
        """Make some rows and columns of the result; they start at even ones."""
        with exact():
            made = self._around((rows, columns))
            looked = self._looked(made)
            # What is looked at begins and ends where the coarsest level's pixels do.
            size = [-(-(b - a) // _WHOLE) * _WHOLE for a, b in looked]
            frames = torch.empty((len(self.readers), self.planes, *size), device=self.device)
            for number, frame in enumerate(frames):
                self._read(number, looked, frame)
            return self._piece((rows, columns), made, looked, frames)

    def _piece(self, tile: Spans, made: Spans, looked: Spans, frames: Tensor) -> DeviceTile:
        corner = made[0][0] - looked[0][0], made[1][0] - looked[1][0]
        size = made[0][1] - made[0][0], made[1][1] - made[1][0]
        looks = frames[:, 0].contiguous()
        scores, pool = self.weigher.scores(looks, corner, size, guide=bool(self.stages))
        del looks
        if (frames.shape[2], frames.shape[3]) != size:
            rows, columns = (slice(a, a + n) for a, n in zip(corner, size, strict=True))
            frames = frames[..., rows, columns].contiguous()
        lows = smoothed(frames, BAND_WINDOWS) if self.weigh_all else [frames]
        inner = tuple(slice(a - b[0], c - b[0]) for (a, c), b in zip(tile, made, strict=True))
        whole, lead = choose(scores)
        index, confidence = whole[inner].contiguous(), lead[inner].contiguous()
        chosen = None
        if self.device == "cuda":
            chosen = torch.cuda.Event()
            chosen.record()
        if self.weigh_all:
            mixture = mix(lows, scores[:, 1:], self.relative)
        else:
            mixture = mix_chosen(frames, whole, self.relative)
        restored = None
        if pool is not None:
            half = [slice(at // 2, -(-(at + n) // 2)) for at, n in zip(corner, size, strict=True)]
            pool = pool[:, half[0], half[1]].contiguous()
            restored = self._restored(mixture, lows, scores, pool)[:, *inner]
        return DeviceTile(index, confidence, mixture.pictures[:, *inner], restored, chosen)

    def _restored(
        self, mixture: DeviceMixture, lows: list[Tensor], scores: Tensor, pool: Tensor
    ) -> Tensor:
        """Take all stages."""
        x = mixture.pictures
        for number, stage in enumerate(self.stages):
            if number == REWEIGH_BEFORE and self.weigh_again:
                corrected = self.agreement.scores(lows[0][:, 0], x[0], scores)
                mixture = mix(lows, corrected, self.relative)
                del corrected
            weight = self.guide[4 * GUIDES * number : 4 * GUIDES * (number + 1)]
            x = stage.step(x, mixture, F.conv2d(pool[None], weight)[0])
        return x

    def _read(self, number: int, spans: Spans, out: Tensor) -> None:
        """Planes of a part of a frame; what ``out`` has beyond it repeats the edges."""
        native = self._native(number, slice(*spans[0]), slice(*spans[1]))
        self.conversion.planes(native, out)

    def _native(self, number: int, rows: slice, columns: slice) -> Tensor:
        if self.kept is not None:
            return self.kept[number][rows, columns]
        part = self.conversion.host(np.asarray(self.readers[number](rows, columns)))
        return self.transfer.upload(part)

    def native(self, planes: Tensor) -> Tensor:
        """Native pixels of restored planes."""
        with exact():
            return self.conversion.native(planes)

    def _around(self, tile: Spans) -> Spans:
        rows, columns = (
            (max(a - self.margin, 0), min(b + self.margin, n))
            for (a, b), n in zip(tile, self.shape, strict=True)
        )
        return rows, columns

    def _looked(self, made: Spans) -> Spans:
        """What of the picture the scores of a part depend on, in whole pixels of all levels."""
        spans = []
        for span, length in zip(made, self.shape, strict=True):
            first, last = Reach.of(span, length, len(LEVEL_CHANNELS)).picture
            spans.append((first // _WHOLE * _WHOLE, min(-(-last // _WHOLE) * _WHOLE, length)))
        return spans[0], spans[1]


#: Pixels on the side of one of the coarsest level.
_WHOLE = 2 ** len(LEVEL_CHANNELS)
