"""Settings of a server: where it listens, and its limits."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Config"]


@dataclass(frozen=True)
class Config:
    """How a server is to behave. Sizes are in bytes."""

    #: Where stacks and jobs lie; private to the server, nothing outside is read or written.
    folder: Path
    #: The address it is bound to, which requests must name.
    host: str = "127.0.0.1"
    port: int = 8765
    #: The secret that every request must carry.
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    #: Most bytes that the frames of one stack may have as files, and most frames of one stack.
    max_upload: int = 4 * 10**9
    max_frames: int = 400
    #: Most pixels of one frame, as its header declares them.
    max_pixels: int = 400 * 10**6
    #: Most jobs that wait while one runs, and most stacks that are kept at a time.
    max_waiting: int = 8
    max_stacks: int = 500
    #: Days after which what was not used is deleted, and most bytes of all; the oldest goes first.
    keep_days: float = 14.0
    keep_size: int = 50 * 10**9
    #: Most bytes of a job's aligned frames on disk; beyond, they are made when looked at.
    keep_frames: int = 4 * 10**9
    #: Whether there is a sample stack from the start.
    demo: bool = False
    #: Seconds in which a cancelled job may stop by itself before its process is ended.
    stop_seconds: float = 4.0

    @property
    def address(self) -> str:
        """Where the page is, without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"
