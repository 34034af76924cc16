"""Routes of jobs: start, follow, cancel, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Json, TypeAdapter
from starlette.exceptions import HTTPException

from cofuse.web.options import Options, command_line
from cofuse.web.schemas import Job, JobRecord, NewJob
from cofuse.web.service import JPEG, AnyJob, Here, Service
from cofuse.web.store import content_of

router = APIRouter(tags=["jobs"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "jobs as they change"}
}
_DEFAULTS = Options()
#: Leaves out those fields of a record that clients do not see.
_WIRE = TypeAdapter(Job)
#: Seconds between two looks at the jobs; looking costs less than waking streams from threads.
_LOOK_EVERY = 0.2
#: Seconds of silence after which a comment shows that the connection lives.
_ALIVE_EVERY = 10.0


@router.post("/jobs", response_model=Job, status_code=202)
def new_job(new: NewJob, here: Here) -> JobRecord:
    """Start a job, or put it at the end of the queue."""
    return here.submit(here.store.stacks[new.stack], new.options)


@router.get("/jobs", response_model=list[Job])
async def list_jobs(here: Here) -> list[JobRecord]:
    """All jobs, newest first."""
    return here.store.jobs.all()


@router.get("/command")
async def command(
    stack: str, here: Here, options: Annotated[Json[Options], Query()] = _DEFAULTS
) -> dict[str, str]:
    """The command line that does the same, as ``command``."""
    return {"command": command_line(here.store.stacks[stack].names, options)}


@router.get("/jobs/{job}", response_model=Job)
async def one_job(job: AnyJob) -> JobRecord:
    """One job."""
    return job


@router.post("/jobs/{job}/cancel", response_model=Job)
def cancel(job: AnyJob, here: Here) -> JobRecord:
    """Stop a job; one that is over stays as it is."""
    here.cancel(job)
    return job


@router.delete("/jobs/{job}", status_code=204)
def delete_job(job: str, here: Here) -> None:
    """Delete a job that is over, and its result."""
    here.store.delete_job(job)


@router.get("/jobs/{job}/preview", response_class=Response, responses=JPEG)
def preview(job: AnyJob) -> Response:
    """Show what is fused so far, the rest dim."""
    data = content_of(job.folder / "preview.jpg", "there is no preview yet")
    return Response(data, media_type="image/jpeg")


@router.get("/events", response_class=Response, responses=_STREAM)
async def all_events(here: Here) -> Response:
    """Follow all jobs."""
    return _event_stream(here, here.store.jobs.all, until_over=False)


@router.get("/jobs/{job}/events", response_class=Response, responses=_STREAM)
async def events(job: AnyJob, here: Here) -> Response:
    """Follow one job to its end."""
    return _event_stream(here, lambda: [job], until_over=True)


def _event_stream(
    here: Service, jobs: Callable[[], list[JobRecord]], *, until_over: bool
) -> Response:
    """Send each job when it has changed, until the server stops, or all are over if asked for."""
    if here.watchers.locked():
        raise HTTPException(429, "too many are watching already; close some pages")

    async def stream() -> AsyncIterator[str]:
        seen: dict[str, tuple[int, str]] = {}
        async with here.watchers:
            spoken = time.monotonic()
            yield "retry: 1000\n\n"
            while not here.closing():
                watched = jobs()
                over = all(job.is_over for job in watched)
                for gone in seen.keys() - {job.id for job in watched}:
                    del seen[gone]
                    yield f"event: gone\ndata: {gone}\n\n"
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
