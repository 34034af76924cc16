"""How far a job is and how long it will take, from the progress of its stages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from cofuse.progress import Progress

__all__ = ["Glide", "Pace"]

#: Seconds that each stage took, of five frames of six megapixels on two processors; only how they
#: relate to one another matters.
_BEFORE = {"hot pixels": 0.3, "align": 1.3, "frames": 0.6, "noise": 0.9}
_CLEAN = {"fusion": 18.0}
_NOISY = _CLEAN | {"restoration": 7.2}
#: What comes after the last report: writing, and most of the depth.
_WRITING, _DEPTH_REST = 1.7, 4.5
#: Depth is found in a small picture: a smaller part where noise is taken out of large ones.
_DEPTH, _ALL = 1.2, 33.0
#: A stage of another method, as a part of all the others.
_UNKNOWN = 0.4
#: How much the guess counts, as a part of the whole, against what was measured.
_TRUST = 0.02

Clock = Callable[[], float]


class Pace:
    """Turns stages into one number from 0 to 1 that never falls, and into the time left.

    Parameters
    ----------
    seconds
        A guess of the whole time.
    sigma
        The noise level, "auto" if it is to be found out; frames without noise are fused sooner.
    align, hot_pixels, depth
        Which stages there will be.
    clock
        Tells the time in seconds.
    """

    def __init__(
        self,
        seconds: float,
        *,
        sigma: float | str,
        align: bool,
        hot_pixels: bool,
        depth: bool,
        clock: Clock = time.monotonic,
    ) -> None:
        self._left_out = {"align": not align, "hot pixels": not hot_pixels, "depth": not depth}
        self._clock, self._guess = clock, seconds
        self._plan(_CLEAN if sigma == 0 else _NOISY)
        self._done: dict[str, float] = {}
        self._stage, self._start = "", clock()
        self._stage_start = self._last = self._start
        self._measured = 0.0, 0.0
        self.share = 0.0

    def _plan(self, fusing: dict[str, float]) -> None:
        self._is_clean = fusing is _CLEAN
        part = 1.0 if self._is_clean else min(1.0, _ALL / max(self._guess, 1.0))
        stages = _BEFORE | fusing | {"depth": part * _DEPTH}
        self._end = _WRITING + (not self._left_out["depth"]) * part * _DEPTH_REST
        self._stages = {k: v for k, v in stages.items() if not self._left_out.get(k)}

    @property
    def _whole(self) -> float:
        return sum(self._stages.values()) + self._end

    def step(self, progress: Progress) -> tuple[float, float]:
        """Take a step; return the share done and the seconds left."""
        stage, moment = progress.stage, self._clock()
        if stage not in self._stages:  # of another method
            self._stages[stage] = _UNKNOWN * self._whole
        for earlier in self._stages:  # what comes later shows that the earlier is over
            if earlier == stage:
                break
            self._done[earlier] = 1.0
        if stage != self._stage:  # it began when the one before was last heard of
            self._stage, self._stage_start = stage, self._last
        self._last = moment
        part = progress.done / max(progress.total, 1)
        self._done[stage] = part
        whole = self._whole
        done = sum(self._stages.get(name, 0.0) * ready for name, ready in self._done.items())
        if self._is_clean:
            self._measured = moment - self._start, done
        elif stage == max(self._stages, key=self._stages.__getitem__):
            # The longest by far says most of how fast it goes, of what comes after it too.
            self._measured = moment - self._stage_start, part * self._stages[stage]
        self.share = min(max(self.share, done / whole), 0.99)
        seconds, weight = self._measured
        rate = (_TRUST * self._guess + seconds) / (_TRUST * whole + weight)
        return self.share, rate * (whole - done)


class Glide:
    """Goes on between two reports, which may be long apart: time passes, the share grows slower.

    >>> glide = Glide()
    >>> glide.set(0.5, 10.0, moment=100.0)
    >>> share, left = glide.at(104.0)
    >>> round(share, 2), left
    (0.66, 6.0)
    """

    def __init__(self) -> None:
        self._share, self._left, self._moment = 0.0, 0.0, math.inf

    def set(self, share: float, left: float, *, moment: float) -> None:
        """Take a report; a share below what was said already is passed over."""
        if self._moment < math.inf:
            share = max(share, self.at(moment)[0])
        self._share, self._left, self._moment = share, left, moment

    def at(self, moment: float) -> tuple[float, float]:
        """Return the share done and the seconds left at a moment."""
        passed = max(moment - self._moment, 0.0)
        grown = 1.0 - math.exp(-passed / max(self._left, 1.0))
        return min(self._share + (1.0 - self._share) * grown, 0.99), max(self._left - passed, 1.0)
