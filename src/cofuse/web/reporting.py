"""What a running job shows of itself: how far it is, how long it will take, and a preview."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from pathlib import Path

from cofuse.images import Pixels, Stack
from cofuse.jobs import Request
from cofuse.progress import Progress, ProgressCallback
from cofuse.web.colours import eight_bits, to_srgb
from cofuse.web.pyramid import encoded
from cofuse.web.worker import Report

__all__ = ["Pace", "Preview", "reporter"]

#: Share of the time that each stage takes, with five frames of 6 megapixels on two processors.
_STAGES = {
    "hot pixels": 0.01,
    "align": 0.04,
    "frames": 0.02,
    "noise": 0.02,
    "fusion": 0.5,
    "restoration": 0.2,
    "depth": 0.16,
    "writing": 0.05,
}
#: Below this share too little is measured to say the time left.
_LEAST_SHARE = 0.05

#: Longest side of a preview in pixels, and brightness of what is not fused yet.
_LONGEST, _DIM = 1200, 0.35


class Pace:
    """The share of a job that is done, which never falls, and the time left at the pace so far.

    ``left_out`` names stages that there will not be; ``clock`` returns the time in seconds.
    """

    def __init__(
        self, left_out: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stages = {name: part for name, part in _STAGES.items() if name not in left_out}
        self._clock, self._start, self._share = clock, clock(), 0.0

    def step(self, progress: Progress) -> tuple[float, float | None]:
        """Take a report; return the share done, 0 to 1, and the seconds left if they are known."""
        # Other methods than auto have stages of other names in the place of fusion.
        stage = progress.stage if progress.stage in self._stages else "fusion"
        names = list(self._stages)
        done = sum(self._stages[name] for name in names[: names.index(stage)])
        done += self._stages[stage] * progress.done / max(progress.total, 1)
        self._share = max(self._share, done / sum(self._stages.values()))
        if self._share < _LEAST_SHARE:
            return self._share, None
        return self._share, (self._clock() - self._start) * (1 / self._share - 1)


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
        self._stack = stack
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
        shown[...] = self._stack.to_levels(part)
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
    left_out = {
        "hot pixels": request.reading.hot_pixels == "off",
        "align": not request.aligning.align,
        "restoration": request.fusing.sigma in ("0", "0.0"),
        "depth": not request.maps.needs_depth,
    }
    pace = Pace([stage for stage, out in left_out.items() if out])
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
