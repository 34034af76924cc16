"""Routes of results: pictures in tiles, facts about pixels, retouching, downloads."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from cofuse.errors import CofuseError
from cofuse.files import read_alpha, read_metadata, write_image
from cofuse.images import Stack
from cofuse.web import tasks
from cofuse.web.facts import activities, pixel_facts, relief_grid
from cofuse.web.facts import histogram as count
from cofuse.web.pyramid import OVERLAP, TILE, eight_bits, to_srgb
from cofuse.web.retouching import painted_from
from cofuse.web.schemas import AnyJSON, Job, JobRecord, Pending, Strokes
from cofuse.web.service import BRIEFLY, DoneJob, Here
from cofuse.web.store import content_of
from cofuse.web.viewer import MAPS, profile_of, result_file, result_of, strokes_of

SUFFIXES = {"tiff": ".tif", "png": ".png", "jpeg": ".jpg"}

#: Bytes of a download that are read at a time.
_PART = 2**20

router = APIRouter(tags=["results"])

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in ("image/jpeg", "image/png", "image/tiff")}}
}


@router.get("/jobs/{job}/pictures")
def pictures(job: DoneJob, here: Here) -> list[AnyJSON]:
    """What there is to look at, in tiles: name, title and sizes."""
    pyramid = here.viewer.pyramid(job, "result")
    sizes = {"width": pyramid.width, "height": pyramid.height, "levels": pyramid.top + 1}
    sizes |= {"tile": TILE, "overlap": OVERLAP}
    return [
        {"name": name, "title": title, "format": "png" if name in MAPS else "jpeg", **sizes}
        for name, title in here.viewer.titles(job).items()
    ]


@router.get(
    "/jobs/{job}/pictures/{name}/tiles/{level}/{place}", response_class=Response, responses=_BYTES
)
def tile(
    job: DoneJob,
    name: str,
    level: Annotated[int, InPath(ge=0, le=40)],
    place: Annotated[str, InPath(pattern=r"^[0-9]{1,6}_[0-9]{1,6}(\.[a-z]{3,4})?$")],
    here: Here,
    v: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """One tile, numbered COLUMN_ROW as Deep Zoom does; the result's with its version ``v``."""
    column, row = (int(number) for number in place.partition(".")[0].split("_"))
    # The result changes when it is retouched: only an address that names its version can be kept.
    fixed = name != "result" or v == job.retouched
    pyramid = here.viewer.pyramid(job, name)
    headers = {"cache-control": BRIEFLY if fixed else "no-store"}
    kind = "image/png" if pyramid.lossless else "image/jpeg"
    return Response(pyramid.tile(level, column, row), 200, headers, kind)


@router.get("/jobs/{job}/pixel")
def pixel(
    job: DoneJob,
    x: Annotated[int, Query(ge=0, lt=10**6)],
    y: Annotated[int, Query(ge=0, lt=10**6)],
    here: Here,
) -> AnyJSON:
    """All that is known about one pixel.

    ``colour`` is how it is shown. ``painted`` says that its ``frame`` was painted there.
    ``activity`` of every frame is given where it chose the frame, as the preset ``fast`` does.
    """
    viewer, names = here.viewer, result_of(job).names
    image = viewer.current(job)
    maps = {name: viewer.array(job, name) for name in viewer.titles(job).keys() & MAPS}
    found = pixel_facts(x, y, image=image, maps=maps)
    painted, activity = painted_from(strokes_of(job).painted, x, y, image.shape), None
    if painted is not None:
        found |= {"frame": painted, "confidence": None, "depth": None}
    elif job.options.preset == "fast":
        frames = [partial(viewer.array, job, f"frame-{k}") for k in range(len(names))]
        activity = activities(x, y, Stack(frames, white=job.white))
    shown = to_srgb(profile_of(job.folder))(eight_bits(image[y : y + 1, x : x + 1], job.white))
    return {
        **found,
        "colour": np.broadcast_to(shown[0, 0], 3).tolist(),
        "frame_name": None if found["frame"] is None else names[found["frame"]],
        "painted": painted is not None,
        "activity": activity,
    }


@router.get("/jobs/{job}/histogram")
def histogram(job: DoneJob, here: Here) -> AnyJSON:
    """Count the values of the result in 256 steps."""
    return {"bins": 256, "channels": count(here.viewer.current(job), white=job.white)}


@router.get("/jobs/{job}/relief", response_model=AnyJSON)
def relief(job: DoneJob, here: Here) -> Response:
    """The depth as a small grid of heights, with the colours of the result."""
    last = float(max(result_of(job).frames - 1, 1))
    depth, picture = here.viewer.array(job, "depth"), here.viewer.current(job)
    heights, colours = relief_grid(
        depth, picture, white=job.white, last=last, profile=profile_of(job.folder)
    )
    facts = {
        "columns": heights.shape[1],
        "rows": heights.shape[0],
        "heights": heights.astype(float).round(4).ravel().tolist(),
        "colours": base64.b64encode(colours.tobytes()).decode(),
    }
    return JSONResponse(facts)  # written here, in a thread: it is long


@router.get("/jobs/{job}/metrics", response_model=AnyJSON, responses={202: {"model": Pending}})
def metrics(job: DoneJob, here: Here) -> Response:
    """Score the result against the frames: values by name, and the part that was measured."""
    if job.metrics is None:
        count = result_of(job).frames
        if not all(tasks.frame_file(job.folder, k).exists() for k in range(count)):
            line = "the frames are too large to be kept; measure with cofuse evaluate"
            raise HTTPException(404, line)
        found = here.questions.ask(f"metrics {job.id}", tasks.metrics, job=job)
        if found is None:
            return JSONResponse({"pending": True}, 202)
        here.store.jobs.change(job, metrics=found)
    return JSONResponse(job.metrics)


@router.get("/jobs/{job}/strokes")
def strokes(job: DoneJob) -> Strokes:
    """The strokes the result was retouched with, and those that are not applied yet."""
    return strokes_of(job)


@router.put("/jobs/{job}/strokes", response_model=Job)
def retouch(job: DoneJob, new: Strokes, here: Here) -> JobRecord:
    """Keep these strokes, all of them each time, and apply them, or the first ``applied``.

    Answers when it is done.
    """
    here.viewer.retouch(job, new)
    return job


@router.get("/jobs/{job}/download", response_class=Response, responses=_BYTES)
def download(
    job: DoneJob,
    here: Here,
    format: Literal["tiff", "png", "jpeg"] = "tiff",
    depth: Annotated[Literal["8", "16"] | None, Query()] = None,
) -> Response:
    """The result as a file, with all metadata, made when it is first asked for.

    Without ``depth`` it is as deep as the frames, if the format holds that.
    """
    if format == "jpeg" and depth == "16":
        raise CofuseError("JPEG holds 8 bits only; ask for depth 8, or another format")
    whole, own = job.folder / "result.tif", result_of(job).depth
    deepest = {"png": 16, "jpeg": 8, "tiff": own}[format]
    bits = min(own, deepest) if depth is None else int(depth)
    version = job.retouched
    path = job.folder / f"download-{version}-{bits}{SUFFIXES[format]}"
    if format == "tiff" and bits == own and not version:
        path = whole  # as the job wrote it
    if not path.exists():
        write_image(
            path,
            here.viewer.array(job, result_file(version)),
            metadata=read_metadata(whole),
            alpha=None if format == "jpeg" else read_alpha(whole),
            depth=None if bits == own else 8 if bits == 8 else 16,
            white=job.white,
            overwrite=True,
        )
    return _attachment(path, f"{job.name}-fused{SUFFIXES[format]}")


@router.get("/jobs/{job}/report", response_model=None)
def report(job: DoneJob, format: Literal["json", "html"] = "json") -> Response:
    """What the job did, in all detail."""
    text = content_of(job.folder / "report.json", "there is no report")
    if format == "json":
        return Response(text, media_type="application/json")
    return HTMLResponse(_page(job, json.loads(text)))


def _attachment(path: Path, name: str) -> Response:
    """Send a file that is open from the start: it may be deleted on the way."""
    file = path.open("rb")

    def parts() -> Iterator[bytes]:
        with file:
            yield from iter(partial(file.read, _PART), b"")

    whole = FileResponse(path, filename=name, stat_result=os.fstat(file.fileno()))
    headers = {one: text for one, text in whole.headers.items() if one != "accept-ranges"}
    return StreamingResponse(parts(), headers=headers)


def _page(job: JobRecord, facts: dict[str, Any]) -> str:
    """A report to read or print: plain tables, no scripts."""

    def table(value: Any) -> str:
        if isinstance(value, dict):
            rows = ((html.escape(name), table(fact)) for name, fact in value.items())
            cells = (f"<tr><th>{name}</th><td>{fact}</td></tr>" for name, fact in rows)
            return f"<table>{''.join(cells)}</table>"
        if isinstance(value, list) and value and isinstance(value[0], dict | list):
            return "".join(table(item) for item in value)
        if isinstance(value, list):
            return html.escape(", ".join(str(item) for item in value))
        return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))

    title = html.escape(job.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1><p><code>{html.escape(job.command)}</code></p>{table(facts)}"
        "</body></html>"
    )
