"""How far a job is and how long it will take, from the progress of its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from cofuse.progress import Progress

__all__ = ["Pace"]

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
#: Below this share the time left is not told: too little is measured.
_LEAST_SHARE = 0.05


class Pace:
    """Turns stages into one share that never falls, and into the time left at the pace so far.

    Parameters
    ----------
    left_out
        Stages that there will not be.
    clock
        Tells the time in seconds.
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
