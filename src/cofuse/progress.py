"""How long-running work reports itself: progress, solver traces, cancellation.

A progress callback is any function of one :class:`Progress`. To cancel, let it raise; library
code never catches what a callback raises, so the exception reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cofuse.errors import CofuseError, is_lack_of_memory


@dataclass(frozen=True)
class Progress:
    """Where a stage stands: ``done`` of ``total`` equal steps."""

    stage: str
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]
#: Takes rows and columns of a picture in the making, and the array of their pixels so far.
Preview = Callable[[slice, slice, Any], None]


def silent(progress: Progress) -> None:
    """Ignore all progress: the default callback."""


@contextmanager
def shortage_told(progress: ProgressCallback) -> Iterator[ProgressCallback]:
    """Pass progress on, and if memory runs out raise an error that names the stage."""
    stage = "start"

    def tell(step: Progress) -> None:
        nonlocal stage
        stage = step.stage
        progress(step)

    try:
        yield tell
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        raise CofuseError(
            f"out of memory at the stage {stage}; close other programs, raise the limit that is "
            "set, or use fewer or smaller frames"
        ) from error


@dataclass(frozen=True, kw_only=True)
class SolverTrace:
    """What an iterative solver did, and in words why it stopped.

    ``history`` maps the name of a measured quantity to its values, in the order of the rounds
    at which the solver looked (not necessarily every iteration).
    """

    solver: str
    iterations: int
    converged: bool
    reason: str
    history: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def last(self, quantity: str) -> float:
        """Return the last recorded value of ``quantity``."""
        return self.history[quantity][-1]
