"""Routes of stacks: upload frames, put them in order, look at them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from cofuse.errors import CofuseError
from cofuse.web import frames, tasks
from cofuse.web.frames import add_frames, add_sample, clean_name, thumbnail_path
from cofuse.web.schemas import (
    AnyJSON,
    FrameRecord,
    NewStack,
    Pending,
    Stack,
    StackChange,
    StackRecord,
    Uploaded,
)
from cofuse.web.service import BRIEFLY, JPEG, AnyStack, Here
from cofuse.web.store import content_of
from cofuse.web.uploads import receive

router = APIRouter(tags=["stacks"])

#: Multipart is read as it streams, past FastAPI, so its description is written here.
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _FILES}}
_BODY = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}


@router.get("/stacks", response_model=list[Stack])
async def list_stacks(here: Here) -> list[StackRecord]:
    """All stacks, newest first."""
    return here.store.stacks.all()


@router.post("/stacks", response_model=Stack, status_code=201)
def new_stack(new: NewStack, here: Here) -> StackRecord:
    """Make an empty stack."""
    return here.store.new_stack(clean_name(new.name or "", "Stack"))


@router.post("/stacks/sample", response_model=Stack, status_code=201)
def new_sample(here: Here) -> StackRecord:
    """Make a stack of sample frames, or find the one there is."""
    samples = (stack for stack in here.store.stacks.all() if stack.sample and stack.frames)
    return next(samples, None) or add_sample(here.store)


@router.get("/stacks/{stack}", response_model=Stack)
async def one_stack(stack: AnyStack) -> StackRecord:
    """One stack."""
    return stack


@router.patch("/stacks/{stack}", response_model=Stack)
def change_stack(stack: AnyStack, change: StackChange, here: Here) -> StackRecord:
    """Give a stack another name, its frames another order."""
    values: dict[str, Any] = {}
    with here.store.lock:
        if change.order is not None:
            by_id = {frame.id: frame for frame in stack.frames}
            if sorted(change.order) != sorted(by_id):
                raise CofuseError("the order must name every frame of the stack once")
            values["frames"] = [by_id[identifier] for identifier in change.order]
        if change.name is not None:
            values["name"] = clean_name(change.name, stack.name)
        here.store.stacks.change(stack, **values)
    return stack


@router.delete("/stacks/{stack}", status_code=204)
def delete_stack(stack: str, here: Here) -> None:
    """Delete a stack and its frames; results of its jobs stay."""
    here.store.delete_stack(stack)


@router.post(
    "/stacks/{stack}/frames", response_model=Uploaded, openapi_extra={"requestBody": _BODY}
)
async def upload(stack: AnyStack, request: Request, here: Here) -> dict[str, Any]:
    """Upload frames, each in a field ``file``; what is no picture is named and refused."""
    arrived = await receive(here.store, stack, request)
    added, refused = await run_in_threadpool(add_frames, here.store, stack, arrived)
    return {"added": added, "refused": refused, "stack": stack}


@router.delete("/stacks/{stack}/frames/{frame}", response_model=Stack)
def delete_frame(stack: AnyStack, frame: str, here: Here) -> StackRecord:
    """Take a frame out of a stack."""
    store = here.store
    with store.lock:
        found = _frame(stack, frame)
        store.check_unused(stack)
        left = [one for one in stack.frames if one is not found]
        store.stacks.change(stack, frames=left, noise=None)
        frames.delete_frame(store.frame_path(stack.id, found))
    return stack


@router.get("/stacks/{stack}/frames/{frame}/thumbnail", response_class=Response, responses=JPEG)
def thumbnail(stack: AnyStack, frame: str, here: Here) -> Response:
    """Show a frame, small."""
    path = thumbnail_path(here.store.frame_path(stack.id, _frame(stack, frame)))
    data = content_of(path, "there is no such frame")
    return Response(data, media_type="image/jpeg", headers={"cache-control": BRIEFLY})


@router.get("/stacks/{stack}/noise", response_model=AnyJSON, responses={202: {"model": Pending}})
def noise(stack: AnyStack, here: Here) -> Response:
    """Estimate a stack's noise: its level in 8-bit grey levels, and what is remarkable about it."""
    if not stack.frames or stack.problem:
        raise HTTPException(409, stack.problem or "the stack has no frames; upload some first")
    if stack.noise is None:
        files = [here.store.frame_path(stack.id, frame) for frame in stack.frames]
        key = f"noise {stack.id} {hash(frozenset(files))}"  # in whatever order they are
        found = here.questions.ask(key, tasks.noise, files=files)
        if found is None:
            return JSONResponse({"pending": True}, 202)
        here.store.stacks.change(stack, noise=found)
    return JSONResponse(stack.noise)


def _frame(record: StackRecord, identifier: str) -> FrameRecord:
    for frame in record.frames:
        if frame.id == identifier:
            return frame
    raise HTTPException(404, "there is no such frame")
