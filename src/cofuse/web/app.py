"""The application: its routes, errors in one line, the page's files."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from cofuse import __version__
from cofuse.errors import CofuseError
from cofuse.web import routes_jobs, routes_stacks, routes_viewer
from cofuse.web.options import Config
from cofuse.web.schemas import ErrorLine, Info
from cofuse.web.security import AccessMiddleware, refusal
from cofuse.web.service import Here, Service
from cofuse.web.worker import in_one_line, is_full

#: Seconds between two deletions of what is too old.
_CLEAN_UP_EVERY = 600.0

_PRESETS = {
    "auto": "the trained model: best picture",
    "fast": "without the trained model: quickest",
    "paper": "the letter's own method",
}

_DEVICES = {
    "auto": "whatever is fastest here",
    "cpu": "the processor",
    "cuda": "an NVIDIA graphics card",
    "mps": "the graphics of a Mac",
}

#: Status of the answer to an error; the first kind that fits counts.
_STATUSES = {ClientDisconnect: 400, CancelledError: 409, CofuseError: 422}
_STATUSES |= {FileNotFoundError: 404, OSError: 500}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorLine} for status in (401, 403, 404, 409, 413, 422, 429, 507)
}


def create_app(config: Config) -> FastAPI:
    """Make the server of a folder that is `taken`; its processes start with it."""
    service = Service(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        cleaning = asyncio.create_task(_clean_up_often(service))
        yield
        cleaning.cancel()
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="cofuse",
        version=__version__,
        summary="Fuse focus stacks: upload frames, start a job, follow it, look at the result.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # needs scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(AccessMiddleware, config=config)
    known = HTTPBearer(auto_error=False, description="The token that `cofuse serve` printed.")
    api = APIRouter(prefix="/api", responses=_ERRORS, dependencies=[Depends(known)])
    api.add_api_route("/info", _info, methods=["GET"])
    for part in (routes_stacks, routes_jobs, routes_viewer):
        api.include_router(part.router)
    app.include_router(api)
    for kind in (*_STATUSES, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer)
    mimetypes.add_type("text/javascript", ".js")  # some systems call it something else
    page = StaticFiles(directory=Path(__file__).with_name("static"), html=True)
    app.mount("/static", page)
    app.mount("/", page)
    return app


async def _clean_up_often(service: Service) -> None:
    while True:
        await asyncio.sleep(_CLEAN_UP_EVERY)
        with suppress(OSError):
            await run_in_threadpool(service.store.clean_up)


async def _info(here: Here) -> Info:
    """What this server can do, and its limits."""
    config = here.config
    return Info(
        version=__version__,
        presets=[{"name": name, "words": words} for name, words in _PRESETS.items()],
        devices=[
            {"name": name, "words": _DEVICES[name], "available": there}
            for name, there in here.devices.items()
        ],
        formats=list(routes_viewer.SUFFIXES),
        limits={
            "bytes": config.max_upload,
            "frames": config.max_frames,
            "pixels": config.max_pixels,
            "queue": config.max_waiting,
        },
        demo=config.demo,
    )


async def _answer(request: Request, error: Exception) -> Response:
    """Say what went wrong in one line."""
    if isinstance(error, HTTPException):
        return refusal(error.status_code, str(error.detail), error.headers)
    if isinstance(error, RequestValidationError):
        return refusal(422, _first_mistake(request, error))
    store = request.app.state.service.store
    for word, records in (("job", store.jobs), ("stack", store.stacks)):
        named = request.path_params.get(word)
        if named is not None and named not in records:  # deleted, perhaps at this moment
            return refusal(404, f"there is no such {word}")
    status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
    if isinstance(error, ClientDisconnect | CancelledError):
        return refusal(status, "the request broke off")
    line = in_one_line(error).replace(f"{store.config.folder}{os.sep}", "")
    return refusal(507 if is_full(error) else status, line)


def _first_mistake(request: Request, error: RequestValidationError) -> str:
    """Say what is wrong with the first thing that is."""
    first = error.errors()[0]
    if first["loc"] == ("body",) and "json" not in request.headers.get("content-type", ""):
        return "send JSON, with the header Content-Type: application/json"
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    line = f"{place[:100]}: {first['msg']}" if place else str(first["msg"])
    return line.encode("utf-8", "replace").decode()
