"""The event stream of jobs: sends each job when it has changed, up to five times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from pydantic import TypeAdapter
from starlette.responses import StreamingResponse

from cofuse.web.schemas import Job, JobRecord
from cofuse.web.store import Full

__all__ = ["job_events"]

#: Leaves out those fields of a record that clients do not see.
_WIRE = TypeAdapter(Job)
#: Seconds between two looks at the jobs; looking costs less than waking streams from threads.
_LOOK_EVERY = 0.2
#: Seconds of silence after which a comment shows that the connection lives.
_ALIVE_EVERY = 10.0


def job_events(
    jobs: Callable[[], list[JobRecord]],
    watchers: asyncio.Semaphore,
    closing: Callable[[], bool],
    *,
    until_over: bool,
) -> StreamingResponse:
    """Answer with a stream of ``jobs``, each sent when it has changed.

    ``watchers`` limits how many streams are open. A stream ends when the server is ``closing``, and
    with ``until_over`` also when all of its jobs are over.
    """
    if watchers.locked():
        raise Full("too many are watching already; close some pages")

    async def stream() -> AsyncIterator[str]:
        seen: dict[str, tuple[int, str]] = {}
        async with watchers:
            spoken = time.monotonic()
            yield "retry: 1000\n\n"
            while not closing():
                watched = jobs()
                over = all(job.is_over for job in watched)
                for job in reversed(watched):
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
