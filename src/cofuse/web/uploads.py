"""Uploads: files go to disk as they stream in, and stop where they pass the limits."""

from __future__ import annotations

import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError, MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from cofuse.errors import CofuseError
from cofuse.files.sources import RAW_SUFFIXES
from cofuse.web.schemas import StackRecord
from cofuse.web.store import Store, new_id

#: Bytes that are gathered before they go to a thread that writes them.
_BATCH = 2**20
#: Room that multipart needs around every file.
_ENVELOPE = 2**16
#: Most bytes of a part's header, and of what separates parts (RFC 2046).
_LONGEST_HEADER, _LONGEST_BOUNDARY = 2**14, 70
#: Bytes of the disk that uploads leave free.
_SPARE_DISK = 500 * 10**6


async def receive(store: Store, stack: StackRecord, request: Request) -> dict[Path, str]:
    """Write the files of a request to the stack's folder, all or none; returns their names."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= _LONGEST_BOUNDARY:
        raise CofuseError('send frames as multipart/form-data, each in a field "file"')
    await run_in_threadpool(_check_room, store)
    length = request.headers.get("content-length", "")
    if length.isdigit():
        _check_size(store, stack, int(length) - _ENVELOPE)
    parts = _Parts(boundary, stack.folder / "frames", store.config.max_frames)
    taken, whole = 0, False
    try:
        batch = bytearray()
        async for chunk in request.stream():
            taken += len(chunk)
            store.coming[stack.id] += len(chunk)
            _check_size(store, stack)
            batch += chunk
            if len(batch) >= _BATCH:
                await run_in_threadpool(_check_room, store)  # others write to it as well
                await run_in_threadpool(parts.feed, bytes(batch))
                batch.clear()
        await run_in_threadpool(parts.feed, bytes(batch))
        whole = parts.ended
        if not whole:
            raise CofuseError("the upload ended too early; send it again")
    finally:
        store.coming[stack.id] -= taken
        parts.close(keep=whole)
    if not parts.files:
        raise CofuseError('no file was sent; send frames in the multipart field "file"')
    return parts.files


def _check_size(store: Store, stack: StackRecord, more: int = 0) -> None:
    """Refuse frames that are larger than those of one stack may be."""
    there, most = sum(frame.bytes for frame in stack.frames), store.config.max_upload
    if there + store.coming[stack.id] + more > most + _ENVELOPE:
        raise HTTPException(413, f"the frames of a stack may have {most} bytes (--max-upload)")


def _check_room(store: Store) -> None:
    """Refuse uploads when the store or the disk is full."""
    if store.size > store.config.keep_size:
        store.clean_up()
    if store.size > store.config.keep_size:
        line = "the server keeps as much as it may (--keep-size); delete something"
        raise HTTPException(413, line)
    if shutil.disk_usage(store.config.folder).free < _SPARE_DISK:
        raise HTTPException(413, "the disk is nearly full; delete something first")


class _Parts:
    """Takes multipart apart and writes the parts called "file" to files of our own names."""

    def __init__(self, boundary: bytes, folder: Path, most: int) -> None:
        #: Files by their place, with the client's names for them.
        self.files: dict[Path, str] = {}
        self.ended = False
        self._folder, self._most = folder, most
        self._file: BinaryIO | None = None
        self._header: defaultdict[str, bytes] = defaultdict(bytes)
        self._disposition = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_header_field": partial(self._read_header, "field"),
                "on_header_value": partial(self._read_header, "value"),
                "on_header_end": self._header_end,
                "on_headers_finished": self._open,
                "on_part_data": self._write,
                "on_part_end": lambda: self.close(keep=True),
                "on_end": partial(setattr, self, "ended", True),
            },
        )

    def feed(self, data: bytes) -> None:
        """Take more of the body."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise CofuseError(f"the upload cannot be read ({error}); send it again") from error

    def close(self, *, keep: bool) -> None:
        """Close the open file; delete all unless they are to be kept."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if not keep:
            for path in self.files:
                path.unlink(missing_ok=True)

    def _read_header(self, part: str, data: bytes, start: int, end: int) -> None:
        self._header[part] += data[start:end]
        if sum(map(len, self._header.values())) > _LONGEST_HEADER:
            raise MultipartParseError("a part has a header that is too long")

    def _header_end(self) -> None:
        if self._header["field"].lower() == b"content-disposition":
            self._disposition = self._header["value"]
        self._header.clear()

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._disposition = b""
        if options.get(b"name") != b"file" or b"filename" not in options:
            return
        if len(self.files) >= self._most:
            raise HTTPException(413, f"a stack may have {self._most} frames (--max-frames)")
        name = options[b"filename"].decode("utf-8", "replace")
        # Formats are known by content; only camera RAW needs the ending of its name.
        suffix = next((end for end in RAW_SUFFIXES if name.lower().endswith(end)), "")
        path = self._folder / f"{new_id()}{suffix}"
        self._file = path.open("xb")
        self.files[path] = name

    def _write(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.write(data[start:end])
