"""Server-sent events: whoever watches jobs hears of every change, at most five times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from pydantic import TypeAdapter
from starlette.responses import StreamingResponse

from cofuse.web.schemas import Job, JobRecord
from cofuse.web.store import Full

__all__ = ["job_events"]

#: Writes of a record only what clients are to see.
_WIRE = TypeAdapter(Job)
#: Seconds between two looks; this costs less than waking watchers from other threads.
_LOOK_EVERY = 0.2
_ALIVE_EVERY = 10.0


def job_events(
    jobs: Callable[[], list[JobRecord]],
    watchers: asyncio.Semaphore,
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
        Has a place for each who may watch.
    closing
        Whether the server is about to stop.
    until_over
        Whether to end when all jobs are over.
    """
    if watchers.locked():
        raise Full("too many are watching already; close some pages")

    async def stream() -> AsyncIterator[str]:
        seen: dict[str, tuple[int, str]] = {}
        async with watchers:
            spoken = time.monotonic()
            yield "retry: 1000\n\n"
            while not closing():
                here = jobs()
                over = all(job.is_over for job in here)
                for job in reversed(here):
                    state = job.version, job.state
                    if seen.get(job.id) != state:
                        seen[job.id] = state
                        spoken = time.monotonic()
                        yield f"event: job\ndata: {_WIRE.dump_json(job).decode()}\n\n"
                if until_over and over:
                    return
                if time.monotonic() - spoken > _ALIVE_EVERY:
                    spoken = time.monotonic()
                    yield ": still here\n\n"
                await asyncio.sleep(_LOOK_EVERY)

    return StreamingResponse(stream(), media_type="text/event-stream")
