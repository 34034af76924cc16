"""A small picture of what is fused so far, renewed while the work goes on."""

from __future__ import annotations

import math
import time
from pathlib import Path

from cofuse.images import Pixels, Stack
from cofuse.web.pyramid import eight_bits, encoded

__all__ = ["Preview"]

_LONGEST = 1200
#: Brightness of what is not fused yet.
_DIM = 0.35
_RENEW_EVERY = 0.5


class Preview:
    """Parts of the result as they come, over a dim frame, in a JPEG that is written anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: Stack | None = None
        self._step, self._changed, self._last = 1, False, 0.0
        self.version = 0

    def begin(self, stack: Stack, index: int) -> None:
        """Show one frame, dim; what comes is of the size of these frames."""
        self._stack = stack
        self._step = max(1, math.ceil(max(stack.shape[:2]) / _LONGEST))
        self._shown = stack.to_levels(stack[index][:: self._step, :: self._step]) * _DIM
        self._write()

    def paint(self, rows: slice, columns: slice, pixels: Pixels) -> None:
        """Take a finished part of the result, in native values."""
        step, stack = self._step, self._stack
        assert stack is not None, "parts come after the beginning"
        # Of every step-th row and column, those that lie in this part.
        top, left = -(-rows.start // step), -(-columns.start // step)
        part = pixels[top * step - rows.start :: step, left * step - columns.start :: step]
        self._shown[top : top + len(part), left : left + part.shape[1]] = stack.to_levels(part)
        self._changed = True

    def written(self) -> int:
        """Write the picture if it is time to; return its version."""
        if self._changed and time.monotonic() - self._last > _RENEW_EVERY:
            self._write()
        return self.version

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(encoded(eight_bits(self._shown, 255.0)))
        new.replace(self._path)
        self.version += 1
        self._changed, self._last = False, time.monotonic()
