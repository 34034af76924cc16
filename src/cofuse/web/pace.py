"""How far a job is, and how long it will still take: measured in every stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cofuse.progress import Progress

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
