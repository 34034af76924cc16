"""The page's own files, read once: they are few, and asked for all at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request, Response

from cofuse.web.store import Missing

__all__ = ["PageFiles"]

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    kind: str
    tag: str


class PageFiles:
    """Answers with one of the files of a folder, by looking its name up: no path is ever made."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, _File] = {}
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix in _KINDS:
                content = path.read_bytes()
                tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
                name = path.relative_to(folder).as_posix()
                self._files[name] = _File(content, _KINDS[path.suffix], tag)

    async def answer(self, path: str, request: Request) -> Response:
        """Send a file; the browser asks each time whether the one it has is still the same."""
        file = self._files.get(path.removeprefix("static/") or "index.html")
        if file is None:
            raise Missing("there is nothing here")
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)
