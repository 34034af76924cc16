"""Settings of a server: where it listens, and its limits."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Config"]


@dataclass(frozen=True)
class Config:
    """How a server is to behave.

    Attributes
    ----------
    folder
        Where stacks and jobs lie; private to the server, nothing outside is read or written.
    host, port
        The address it is bound to, which requests must name.
    token
        The secret that every request must carry.
    max_upload
        Most bytes that the frames of one stack may have as files.
    max_frames
        Most frames of one stack.
    max_pixels
        Most pixels of one frame, as its header declares them.
    max_waiting
        Most jobs that wait while one runs.
    max_stacks
        Most stacks that are kept at a time.
    keep_days, keep_size
        Days after which what was not used is deleted, and most bytes of all; the oldest goes first.
    keep_frames
        Most bytes of a job's aligned frames on disk; beyond, they are made when looked at.
    demo
        Whether there is a sample stack from the start.
    stop_seconds
        How long a cancelled job may take to stop before its process is ended.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    max_upload: int = 4 * 10**9
    max_frames: int = 400
    max_pixels: int = 400 * 10**6
    max_waiting: int = 8
    max_stacks: int = 500
    keep_days: float = 14.0
    keep_size: int = 50 * 10**9
    keep_frames: int = 4 * 10**9
    demo: bool = False
    stop_seconds: float = 4.0

    @property
    def address(self) -> str:
        """Where the page is, without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"
