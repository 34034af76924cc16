"""Settings of the server; options of a job, as clients send them, as a request, as a command."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from cofuse.jobs import Request
from cofuse.jobs.options import request_of


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where a server listens, and its limits. Sizes are in bytes."""

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


class Strict(BaseModel):
    """What clients send: a word that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Options(Strict):
    """How to fuse; the words of the command line."""

    sigma: Literal["auto"] | Annotated[FiniteFloat, Field(ge=0, le=128)] = "auto"
    denoise: Annotated[FiniteFloat, Field(ge=0, le=1)] = 1.0
    align: bool = True
    preset: Literal["auto", "fast", "paper"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    hot_pixels: Literal["auto", "off"] = "auto"
    depth: bool = False
    max_memory: Annotated[str, Field(max_length=20)] | None = None
    z_step: FiniteFloat | None = None


def fusing_request(folder: Path, frames: Sequence[Path], options: Options) -> Request:
    """Ask the library to fuse frames into ``result.tif`` of a folder."""
    given = options.model_dump(exclude={"depth"})
    given["depth_map"] = folder / "depth.png" if options.depth else None
    return request_of(map(str, frames), folder / "result.tif", overwrite=True, **given)


def command_line(names: Sequence[str], options: Options) -> str:
    """Write the ``cofuse fuse`` command for frames of these names; defaults are left out.

    >>> command_line(["a b.jpg", "-c.jpg"], Options(sigma=5, align=False))
    "cofuse fuse 'a b.jpg' ./-c.jpg -o result.tif --sigma 5 --no-align"
    """
    # A name that looks like an option or a list is still a file's.
    files = [f"./{name}" if name[:1] in "-@" else name for name in names]
    words = ["cofuse", "fuse", *files, "-o", "result.tif"]
    changed = options.model_dump(exclude_defaults=True)
    for option in ("preset", "sigma", "denoise", "hot_pixels", "max_memory", "device"):
        if option in changed:
            value = changed[option]
            text = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{option.replace('_', '-')}", text]
    if not options.align:
        words.append("--no-align")
    if options.depth:
        words += ["--depth-map", "depth.png"]
        if options.z_step is not None:
            # With a blank between, a negative number would be taken for an option.
            words.append(f"--z-step={options.z_step:g}")
    return shlex.join(words)
