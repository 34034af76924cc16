"""What a running job shows of itself: how far it is, and a preview."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cofuse.images import Pixels, Stack
from cofuse.jobs import Request
from cofuse.progress import Progress, ProgressCallback
from cofuse.web.pyramid import eight_bits, encoded, to_srgb
from cofuse.web.worker import Report

#: Longest side of a preview in pixels, and brightness of what is not fused yet.
_LONGEST, _DIM = 1200, 0.35

#: Seconds of every stage with five noisy frames of 6 megapixels on two processors.
_STAGES = {
    "hot pixels": 0.4,
    "align": 2.5,
    "frames": 0.6,
    "noise": 2.5,
    "fusion": 6.0,
    "restoration": 7.0,
    "depth": 4.0,
    "writing": 1.0,
}
#: These take as long whatever the number of frames is.
_ONCE = "restoration", "writing"
#: Aligning looks at reduced copies of frames, which have at most so many megapixels.
_ALIGNED_MEGAPIXELS = 2.0
#: Below this share of the expected time too little is measured to say the time left.
_LEAST_SHARE = 0.05


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


def expected(frames: int, megapixels: float) -> dict[str, float]:
    """Seconds that each stage would take on two processors, in the order of the stages."""
    times = {}
    for stage, seconds in _STAGES.items():
        many = 1.0 if stage in _ONCE else frames / 5
        large = megapixels / 6
        if stage == "align":
            large = min(megapixels, _ALIGNED_MEGAPIXELS) / _ALIGNED_MEGAPIXELS
        times[stage] = seconds * many * large
    return times


class Pace:
    """The share of a job that is done, which never falls, and the time left.

    ``stages`` maps every stage that there will be to the seconds expected of it. What is left of
    the present stage follows more and more from what was measured of it; stages to come take as
    many times longer than expected as all that was measured did. ``clock`` returns the time in
    seconds.
    """

    def __init__(
        self, stages: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names, self._expected = list(stages), list(stages.values())
        self._clock, self._start = clock, clock()
        #: Number of the present stage, when it began, and when there was a report last.
        self._number, self._began, self._last = 0, self._start, self._start
        self._share = 0.0

    def step(self, progress: Progress) -> tuple[float, float | None]:
        """Take a report; return the share done, 0 to 1, and the seconds left if they are known."""
        now = self._clock()
        # Other methods than auto have stages of other names in the place of fusion.
        stage = progress.stage if progress.stage in self._names else "fusion"
        number = self._names.index(stage)
        if number > self._number:
            self._number, self._began = number, self._last
        self._last = now
        whole = self._expected[self._number]
        part = progress.done / max(progress.total, 1) if number == self._number else 1.0
        past = sum(self._expected[: self._number]) + part * whole
        if past < _LEAST_SHARE * sum(self._expected):
            return self._share, None
        scale = (now - self._start) / past
        # At the beginning as expected, at the end as measured.
        here = (1 - part) * scale * whole + (now - self._began)
        left = (1 - part) * here + scale * sum(self._expected[self._number + 1 :])
        spent = now - self._start
        self._share = max(self._share, spent / (spent + left) if spent else 0.0)
        return self._share, left
