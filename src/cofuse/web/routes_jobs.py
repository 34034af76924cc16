"""Routes of jobs: start, follow, cancel, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from cofuse.web.events import job_events
from cofuse.web.options import Options, command_line
from cofuse.web.schemas import Command, Job, JobRecord, NewJob
from cofuse.web.service import AnyJob, Here
from cofuse.web.store import content_of

__all__ = ["router"]

router = APIRouter(tags=["jobs"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "jobs as they change"}
}


@router.post("/jobs", response_model=Job, status_code=202)
def new_job(new: NewJob, here: Here) -> JobRecord:
    """Start a job, or put it at the end of the queue."""
    return here.queue.submit(here.store.stack(new.stack), new.options)


@router.get("/jobs", response_model=list[Job])
async def list_jobs(here: Here) -> list[JobRecord]:
    """All jobs, newest first."""
    return here.store.jobs()


@router.get("/command", response_model=Command)
async def command(
    stack: str, here: Here, options: Annotated[str, Query(max_length=2000)] = "{}"
) -> Command:
    """Tell the command line that does the same."""
    try:
        chosen = Options.model_validate_json(options)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
    return Command(command=command_line(here.store.stack(stack).names, chosen))


@router.get("/events", response_class=Response, responses=_STREAM)
async def all_events(here: Here) -> Response:
    """Follow all jobs."""
    return job_events(here.store.jobs, here.watchers, here.closing, until_over=False)


@router.get("/jobs/{job}", response_model=Job)
async def one_job(job: AnyJob) -> JobRecord:
    """One job."""
    return job


@router.get("/jobs/{job}/events", response_class=Response, responses=_STREAM)
async def events(job: AnyJob, here: Here) -> Response:
    """Follow one job to its end."""
    return job_events(lambda: [job], here.watchers, here.closing, until_over=True)


@router.post("/jobs/{job}/cancel", response_model=Job)
def cancel(job: AnyJob, here: Here) -> JobRecord:
    """Stop a job; one that is over stays as it is."""
    here.queue.cancel(job)
    return job


@router.delete("/jobs/{job}", status_code=204)
def delete_job(job: str, here: Here) -> None:
    """Delete a job that is over, and its result."""
    here.store.delete_job(job)


@router.get(
    "/jobs/{job}/preview",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}},
)
def preview(job: AnyJob, here: Here) -> Response:
    """Show what is fused so far, the rest dim."""
    data = content_of(here.store.job_folder(job.id) / "preview.jpg", "there is no preview yet")
    return Response(data, media_type="image/jpeg")
