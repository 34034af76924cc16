"""From a job of the page to a job of the library; the command line asks for the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cofuse.jobs import Aligning, Fusing, Maps, Reading, Request, Writing

__all__ = ["fusing_request"]


def fusing_request(folder: Path, frames: list[str], options: dict[str, Any]) -> Request:
    """Ask for these frames to be fused into ``result.tif`` of a folder; options as in `Options`."""
    return Request(
        inputs=tuple(frames),
        output=folder / "result.tif",
        reading=Reading(hot_pixels=options["hot_pixels"]),
        aligning=Aligning(align=options["align"]),
        fusing=Fusing(
            preset=options["preset"],
            sigma=str(options["sigma"]),
            denoise=options["denoise"],
            max_memory=options["max_memory"],
            device=options["device"],
        ),
        writing=Writing(overwrite=True),
        maps=Maps(
            depth_map=folder / "depth.png" if options["depth"] else None,
            z_step=options["z_step"],
        ),
    )
