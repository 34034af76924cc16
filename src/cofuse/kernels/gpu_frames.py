"""Native pixels between host and device: pinned buffers, a copy stream, and grey levels there.

Frames travel as they are stored, uint8, uint16 or float32, and become planes on the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofuse.kernels.joint_gpu_layers import fused, on_device

__all__ = ["Conversion", "Transfer"]

Pixels = NDArray[Any]
Planes = Callable[[slice, slice], Pixels]

#: Bytes of one pinned buffer, and how many there are: some are filled while others travel.
_BUFFER_BYTES, _BUFFERS = 4 << 20, 16
#: Threads that fill buffers and empty them: one alone is slower than the way to the device.
_THREADS = 6


class Transfer:
    """Brings arrays to a device and back; on CUDA by way of pinned buffers, on a stream apart."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.stream: Any = None
        if device == "cuda":
            self.stream = torch.cuda.Stream()
            self.buffers = [
                torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=True)
                for _ in range(_BUFFERS)
            ]
            self.used: list[Any] = [None] * _BUFFERS
            self.next = 0

    def upload(self, array: Pixels) -> Tensor:
        """Bring an array to the device; work asked for from now on waits until it is there."""
        array = np.ascontiguousarray(array)
        if array.dtype == np.uint16:
            array = array.view(np.int16)  # of uint16 torch knows little; `Conversion` undoes this
        host = torch.from_numpy(array if array.flags.writeable else _writable(array))
        if self.stream is None:
            moved = host.to(self.device)
            return moved.clone() if moved is host else moved
        out = torch.empty(host.shape, dtype=host.dtype, device=self.device)
        source, target = host.view(-1).view(torch.uint8), out.view(-1).view(torch.uint8)
        # The memory may have been in use until just now.
        self.stream.wait_stream(torch.cuda.current_stream())
        waiting: list[tuple[int, int, Tensor, Future[None]]] = []

        def send() -> None:
            start, number, buffer, filled = waiting.pop(0)
            filled.result()
            with torch.cuda.stream(self.stream):
                target[start : start + len(buffer)].copy_(buffer, non_blocking=True)
                self._mark(number)

        for start in range(0, len(source), _BUFFER_BYTES):
            part = source[start : start + _BUFFER_BYTES]
            if len(waiting) == _BUFFERS // 2:
                send()
            number, buffer = self._buffer(len(part))
            waiting.append(
                (start, number, buffer, _threads().submit(np.copyto, buffer.numpy(), part.numpy()))
            )
        while waiting:
            send()
        out.record_stream(self.stream)
        torch.cuda.current_stream().wait_stream(self.stream)
        return out

    def download(self, values: Tensor, out: Pixels, after: Any = None) -> None:
        """Write a tensor to an array, part of a larger one perhaps; floats may become doubles.

        ``after`` is an event of CUDA since which the tensor is there; without it all work that was
        asked for is waited for.
        """
        if not values.is_contiguous():
            values, after = values.contiguous(), None
        if out.dtype == np.float64:
            floats = np.empty(out.shape, np.float32)
            self.download(values, floats, after)
            out[...] = floats
            return
        if self.stream is None:
            out[...] = values.cpu().numpy().view(out.dtype)
            return
        whole = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        target = torch.from_numpy(whole.view(np.uint8).reshape(-1))
        source = values.view(-1).view(torch.uint8)
        if after is None:
            self.stream.wait_stream(torch.cuda.current_stream())
        else:
            self.stream.wait_event(after)
        values.record_stream(self.stream)
        waiting: list[tuple[int, Tensor, Any]] = []
        emptied: list[Future[None]] = []

        def settle() -> None:
            start, buffer, event = waiting.pop(0)
            event.synchronize()
            part = target[start : start + len(buffer)]
            emptied.append(_threads().submit(np.copyto, part.numpy(), buffer.numpy()))

        for start in range(0, len(source), _BUFFER_BYTES):
            if len(waiting) == _BUFFERS // 2:
                settle()
            if len(emptied) == _BUFFERS // 2 - 1:
                emptied.pop(0).result()  # its buffer is the next but a few
            part = source[start : start + _BUFFER_BYTES]
            number, buffer = self._buffer(len(part))
            with torch.cuda.stream(self.stream):
                buffer.copy_(part, non_blocking=True)
                waiting.append((start, buffer, self._mark(number)))
        while waiting:
            settle()
        for last in emptied:
            last.result()
        if whole is not out:
            out[...] = whole

    def _buffer(self, size: int) -> tuple[int, Tensor]:
        """Return the next buffer with its number, once its last content has gone."""
        number = self.next
        self.next = (number + 1) % _BUFFERS
        if self.used[number] is not None:
            self.used[number].synchronize()
        return number, self.buffers[number][:size]

    def _mark(self, number: int) -> Any:
        """Return what tells when all that was asked for until now is done with a buffer."""
        event = self.used[number] = torch.cuda.Event()
        event.record()
        return event


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="cofuse-transfer")


@dataclass(frozen=True)
class Conversion:
    """From native pixels to planes in units of noise, and back.

    Attributes
    ----------
    white
        The value of white.
    dtype
        Kind of the native pixels.
    bend, reach
        κ and √(1 + 255 κ) + 1 of the map that makes the noise white; ``bend`` 0 for none.
    gain, root
        What the noise's variance grows by, and its root at black, of the way back.
    factors
        What every plane is multiplied by.
    opponent
        Orthonormal matrix from RGB to planes.
    """

    white: float
    dtype: np.dtype[Any]
    factors: tuple[float, ...]
    opponent: Sequence[Sequence[float]]
    bend: float = 0.0
    reach: float = 2.0
    gain: float = 0.0
    root: float = 0.0

    def host(self, part: Pixels) -> Pixels:
        """Prepare native pixels for the way: doubles become grey levels, which fit float32."""
        if self.dtype != np.float64:
            return part
        return (part * np.float32(255.0 / self.white)).astype(np.float32)

    def planes(self, native: Tensor, out: Tensor) -> Tensor:
        """Planes (planes, h, w) of uploaded pixels (H, W) or (H, W, 3), in units of noise.

        Where ``out`` has fewer planes, only the first ones are made; where it is larger than the
        pixels, their edges are repeated.
        """
        height, width = native.shape[:2]
        if fused(native) and out.is_contiguous():
            from cofuse.kernels import gpu_triton

            rows = self.opponent if native.ndim == 3 else [[1.0]]
            matrix = _matrix(tuple(map(tuple, rows)), self.factors, str(native.device))
            given = native, matrix, self._scale, self.bend, self.reach
            return gpu_triton.convert(*given, out)
        channels = native.unbind(-1) if native.ndim == 3 else (native,)
        levels = [self._stabilised(self._levels(channel)) for channel in channels]
        part = out[:, :height, :width]
        if len(levels) == 1:
            torch.mul(levels[0], self.factors[0], out=part[0])
        else:
            for row, factor, plane in zip(self.opponent, self.factors, part, strict=False):
                weights = [weight * factor for weight in row]
                torch.mul(levels[0], weights[0], out=plane)
                plane.add_(levels[1], alpha=weights[1]).add_(levels[2], alpha=weights[2])
        out[:, :height, width:] = out[:, :height, width - 1 : width]
        out[:, height:] = out[:, height - 1 : height]
        return out

    def native(self, planes: Tensor) -> Tensor:
        """Native pixels of restored planes, which are means; uint16 as int16 of the same bits."""
        if len(planes) == 1:
            levels = self._restored_mean(planes[0] / self.factors[0])
        else:
            columns = [
                sum(
                    plane * (row[channel] / factor)
                    for plane, row, factor in zip(planes, self.opponent, self.factors, strict=True)
                )
                for channel in range(3)
            ]
            levels = self._restored_mean(torch.stack(columns, -1))
        values = levels * float(np.float32(self.white / 255.0))
        if self.dtype.kind == "f":
            return values
        values = values.round_().clamp_(0, float(np.iinfo(self.dtype).max))
        if self.dtype == np.uint8:
            return values.to(torch.uint8)
        return values.to(torch.int32).to(torch.int16)

    def _levels(self, native: Tensor) -> Tensor:
        if native.dtype == torch.int16:
            native = native.to(torch.int32) & 0xFFFF
        levels = native.to(torch.float32)
        return levels if self._scale == 1.0 else levels * self._scale

    @property
    def _scale(self) -> float:
        """Grey levels of a step of uploaded pixels."""
        if self.dtype == np.float64 or (self.dtype == np.uint8 and self.white == 255.0):
            return 1.0
        return float(np.float32(255.0 / self.white))

    def _stabilised(self, levels: Tensor) -> Tensor:
        if self.bend == 0:
            return levels
        root = (1.0 + self.bend * levels.clamp_min(0.0)).sqrt_()
        return levels * (self.reach / (root + 1.0))

    def _restored_mean(self, stabilised: Tensor) -> Tensor:
        """Undo the map for means; see `NoiseModel.restore_mean`."""
        if self.bend == 0:
            return stabilised
        step = stabilised / self.reach
        levels = step * (2.0 + self.bend * step.clamp_min(0.0))
        counts = levels.clamp_min(0.0) / self.gain + (self.root / self.gain) ** 2
        inverse = 0.5 / counts.sqrt_()
        lift = 0.25 + 0.25 * 1.5**0.5 * inverse - 1.375 * inverse**2
        return levels + self.gain * (lift + 0.625 * 1.5**0.5 * inverse**3)


@cache
def _matrix(rows: tuple[tuple[float, ...], ...], factors: tuple[float, ...], device: str) -> Tensor:
    """Rows times factors, on a device."""
    return on_device(np.array(rows) * np.array(factors)[:, None], device)


def _writable(array: Pixels) -> Pixels:
    """View a read-only array as torch takes it; nothing writes to it."""
    view = array.view()
    with contextlib.suppress(ValueError):
        view.flags.writeable = True
    return view if view.flags.writeable else array.copy()
