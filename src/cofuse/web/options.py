"""Options of a job: as clients send them, as a request to the library, as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from cofuse.jobs import Aligning, Fusing, Maps, Reading, Request, Writing

__all__ = ["Options", "command_line", "fusing_request"]


class Options(BaseModel):
    """How to fuse; the words of the command line."""

    model_config = ConfigDict(extra="forbid")

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
    return Request(
        inputs=tuple(str(frame) for frame in frames),
        output=folder / "result.tif",
        reading=Reading(hot_pixels=options.hot_pixels),
        aligning=Aligning(align=options.align),
        fusing=Fusing(
            preset=options.preset,
            sigma=str(options.sigma),
            denoise=options.denoise,
            max_memory=options.max_memory,
            device=options.device,
        ),
        writing=Writing(overwrite=True),
        maps=Maps(depth_map=folder / "depth.png" if options.depth else None, z_step=options.z_step),
    )


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
