"""Out of memory during a job: one line that names the stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cofuse.errors import CofuseError, is_lack_of_memory
from cofuse.progress import Progress, ProgressCallback

__all__ = ["shortage_told"]


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
