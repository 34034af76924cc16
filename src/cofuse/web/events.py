"""Server-sent events: whoever watches jobs hears of every change, at most five times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from pydantic import TypeAdapter
from starlette.responses import StreamingResponse

from cofuse.web.schemas import Job, JobRecord
from cofuse.web.store import Full

__all__ = ["Watchers", "job_events", "job_json"]

#: Writes of a record what clients are to see of it, no more.
_WIRE = TypeAdapter(Job)
_LOOK_EVERY = 0.2
_ALIVE_EVERY = 10.0


def job_json(job: JobRecord) -> str:
    """A job as clients see it, without what is only ours."""
    return _WIRE.dump_json(job).decode()


class Watchers:
    """Counts those who watch; no more than ``most`` may at a time."""

    def __init__(self, most: int = 100) -> None:
        self._most, self._count = most, 0

    def check(self) -> None:
        """Refuse one more if there are so many."""
        if self._count >= self._most:
            raise Full(f"{self._count} are watching already; close some pages")

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1


def job_events(
    jobs: Callable[[], list[JobRecord]],
    watchers: Watchers,
    closing: Callable[[], bool],
    *,
    until_over: bool,
) -> StreamingResponse:
    """Answer with a stream of jobs, each when it has changed.

    Parameters
    ----------
    jobs
        The jobs to watch.
    watchers
        All who watch.
    closing
        Whether the server is about to stop.
    until_over
        Whether to end when all jobs are over.
    """
    watchers.check()

    # Looking at a number five times a second is less than waking watchers from other threads.

    async def stream() -> AsyncIterator[str]:
        with watchers:
            async for text in changes():
                yield text

    async def changes() -> AsyncIterator[str]:
        seen: dict[str, tuple[int, str]] = {}
        spoken = time.monotonic()
        yield "retry: 1000\n\n"
        while not closing():
            here = jobs()
            over = all(job.is_over for job in here)
            for job in reversed(here):
                now = job.version, job.state
                if seen.get(job.id) != now:
                    seen[job.id] = now
                    spoken = time.monotonic()
                    yield f"event: job\ndata: {job_json(job)}\n\n"
            if until_over and over:
                return
            if time.monotonic() - spoken > _ALIVE_EVERY:
                spoken = time.monotonic()
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_EVERY)

    return StreamingResponse(stream(), media_type="text/event-stream")
