"""What a running job shows of itself: how far it is, and a preview."""

from __future__ import annotations

import math
import time
from pathlib import Path

from cofuse.images import Pixels, Stack
from cofuse.jobs import Request
from cofuse.progress import Progress, ProgressCallback
from cofuse.web.colours import eight_bits, to_srgb
from cofuse.web.pace import Pace, expected
from cofuse.web.pyramid import encoded
from cofuse.web.worker import Report

#: Longest side of a preview in pixels, and brightness of what is not fused yet.
_LONGEST, _DIM = 1200, 0.35


class Preview:
    """A small JPEG of the result, renewed as parts of it are finished; the rest is a dim frame.

    The picture is written to ``path``, at most once in ``every`` seconds. It begins as frame
    ``index`` of ``stack``, whose colours are those of ``profile`` (ICC).
    """

    def __init__(
        self,
        path: Path,
        stack: Stack,
        index: int,
        *,
        every: float = 0.5,
        profile: bytes | None = None,
    ) -> None:
        self._to_srgb = to_srgb(profile)
        self._path, self._every, self.version = path, every, 0
        self.begin(stack, index)

    def begin(self, stack: Stack, index: int) -> None:
        """Show one frame, dim; the result will have the size of the stack's frames."""
        self.stack = stack
        self._step = math.ceil(max(stack.shape[:2]) / _LONGEST)
        self._shown = stack.to_levels(stack[index][:: self._step, :: self._step]) * _DIM
        self._write()

    def paint(self, rows: slice, columns: slice, pixels: Pixels) -> None:
        """Take a finished part of the result, in native values."""
        step = self._step
        # The first multiples of the step that lie in this part.
        top, left = -(-rows.start // step), -(-columns.start // step)
        part = pixels[top * step - rows.start :: step, left * step - columns.start :: step]
        shown = self._shown[top : top + len(part), left : left + part.shape[1]]
        shown[...] = self.stack.to_levels(part)
        self._changed = True

    def written(self) -> int:
        """Write the picture if it is time to; return its version."""
        if self._changed and time.monotonic() - self._last > self._every:
            self._write()
        return self.version

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(encoded(self._to_srgb(eight_bits(self._shown, 255.0))))
        new.replace(self._path)
        self.version += 1
        self._changed, self._last = False, time.monotonic()


def reporter(
    request: Request, preview: Preview, send: Report, *, every: float = 0.15
) -> ProgressCallback:
    """Make a progress callback that reports a stage at most once in ``every`` seconds."""
    stack = preview.stack
    left_out = {
        "hot pixels": request.reading.hot_pixels == "off",
        "align": not request.aligning.align,
        "noise": request.fusing.sigma != "auto",
        "restoration": request.fusing.sigma in ("0", "0.0") or request.fusing.denoise == 0,
        "depth": not request.maps.needs_depth,
    }
    work = expected(len(stack), stack.height * stack.width / 1e6)
    pace = Pace({stage: time for stage, time in work.items() if not left_out.get(stage)})
    last: tuple[str, float] = "", 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        share, left = pace.step(progress)
        moment = time.monotonic()
        if progress.stage == last[0] and moment - last[1] < every:
            send({})
            return
        last = progress.stage, moment
        facts = {"stage": progress.stage, "done": progress.done, "total": progress.total}
        send(facts | {"progress": share, "seconds_left": left, "preview": preview.written()})

    return report
