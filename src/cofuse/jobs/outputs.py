"""The files a job writes: checked before the work, written after it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import (
    Metadata,
    check_output,
    check_report,
    write_image,
    written_whole,
)
from cofuse.files.previews import index_dtype, index_picture
from cofuse.files.transaction import Transaction
from cofuse.files.writing import BitDepth
from cofuse.images import Pixels, Stack
from cofuse.jobs.frames import Frames
from cofuse.jobs.options import Maps, Request, Writing

if TYPE_CHECKING:
    from cofuse.depth import Depth

__all__ = [
    "check_maps",
    "check_outputs",
    "noise_in_words",
    "preview_path",
    "write_depth",
    "write_picture",
    "write_source_map",
    "z_distance",
]


def bit_depth(writing: Writing) -> BitDepth | None:
    """The depth asked for, as `write_image` takes it."""
    return {None: None, "8": 8, "16": 16, "float": "float"}[writing.bit_depth]


def preview_path(path: Path) -> Path:
    """Name the coloured picture beside a map: d-colours.png for d.png."""
    return path.with_name(f"{path.stem}-colours.png")


def check_maps(maps: Maps, frames: int) -> None:
    """Refuse maps that need more frames."""
    if maps.needs_depth and frames < 2:
        raise CofuseError("the depth of one frame cannot be told; give two or more")


def check_outputs(request: Request, frames: Frames) -> None:
    """Refuse, before any work, what could not be written after it."""
    maps, writing = request.maps, request.writing
    overwrite = writing.overwrite
    for path in (maps.source_map, maps.depth_map):
        if path is not None and not path.name:
            raise CofuseError(f"{path} is a folder; expected the name of a file to write")
    if maps.point_cloud is not None and maps.point_cloud.suffix.lower() != ".ply":
        raise CofuseError(f"{maps.point_cloud} is no name of a point cloud; name it .ply")
    named: list[tuple[Path | None, Any]] = [
        (maps.source_map, index_dtype(len(frames.stack))),
        (maps.depth_map, np.uint16),
        (maps.confidence_map, np.uint8),
    ]
    pictures = [(path, dtype) for path, dtype in named if path is not None]
    previews = [preview_path(path) for path in (maps.source_map, maps.depth_map) if path]
    pictures += [(path, np.uint8) for path in previews]
    others = [maps.point_cloud, maps.report, request.aligning.save_transforms]
    files = [path for path in others if path is not None]
    # That a frame is in the way comes first: overwriting would be no remedy.
    check_distinct([request.output, *(path for path, _ in pictures), *files], request, frames)
    dtype, depth = frames.stack.dtype, bit_depth(writing)
    check_output(request.output, overwrite=overwrite, dtype=dtype, depth=depth)
    for path, kind in pictures:
        check_output(path, overwrite=overwrite, dtype=kind)
    for path in files:
        check_report(path, overwrite=overwrite)


def check_distinct(outputs: list[Path], request: Request, frames: Frames) -> None:
    """Refuse to write two results to one file, or a result over a file that is read."""
    # Not `Path.resolve`, which stops at links that go in circles.
    resolved = [Path(os.path.realpath(path)) for path in outputs]
    for path in resolved:
        if resolved.count(path) > 1:
            raise CofuseError(
                f"two outputs have the same file name, {path.name}; give each its own"
            )
    sources = {os.path.realpath(file) for file in frames.files}
    sources |= {os.path.realpath(given.removeprefix("@")) for given in request.inputs}
    read = request.aligning.transforms, request.fusing.noise
    sources |= {os.path.realpath(path) for path in read if path is not None}
    for path in resolved:
        if str(path) in sources:
            raise CofuseError(
                f"{path.name} is one of the frames or files read; write the result elsewhere"
            )


def write_picture(
    path: Path,
    image: Pixels,
    writing: Writing,
    *,
    metadata: Metadata | None,
    alpha: Pixels | None,
    white: float,
    opaque: float | None = None,
) -> None:
    """Write the fused picture with the metadata of the reference frame."""
    write_image(
        path,
        image,
        metadata=metadata,
        alpha=alpha,
        quality=writing.quality,
        depth=bit_depth(writing),
        white=white,
        opaque=opaque,
    )


def write_source_map(
    path: Path, source_map: Pixels, stack: Stack, transaction: Transaction
) -> None:
    """Write the source map, in grey and in colours."""
    from cofuse.depth import Depth, depth_preview

    write_image(transaction.place(path), index_picture(source_map, len(stack)))
    position = source_map.astype(np.float32)
    sure = np.broadcast_to(np.float32(1.0), position.shape)
    preview = depth_preview(Depth(position, sure, sure, len(stack)))
    write_image(transaction.place(preview_path(path)), preview)


def write_depth(
    depth: Depth,
    picture: Pixels,
    stack: Stack,
    maps: Maps,
    metadata: Metadata,
    transaction: Transaction,
) -> None:
    """Write the maps that are made from the depth."""
    from cofuse.depth import depth_picture, depth_preview, ply_chunks

    if maps.depth_map is not None:
        write_image(transaction.place(maps.depth_map), depth_picture(depth))
        preview = depth_preview(depth, unit="um" if depth.z_step is not None else "")
        write_image(transaction.place(preview_path(maps.depth_map)), preview)
    if maps.confidence_map is not None:
        shades = np.rint(255.0 * depth.confidence).astype(np.uint8)
        write_image(transaction.place(maps.confidence_map), shades)
    if maps.point_cloud is not None:
        size = metadata.pixel_size
        pixel_size = maps.pixel_size or (size[0] if size else None)
        if depth.z_step is not None and pixel_size is None:
            warnings.warn(
                "the size of a pixel is not known and taken as 1 micrometre in the point cloud; "
                "say it with `pixel_size`",
                stacklevel=4,
            )
        with written_whole(transaction.place(maps.point_cloud), overwrite=False) as file:
            chunks = ply_chunks(depth, picture, white=stack.white, pixel_size=pixel_size or 1.0)
            for chunk in chunks:
                file.write(chunk)


def z_distance(maps: Maps, metadata: Metadata, places: Sequence[int]) -> float | None:
    """Micrometres between the focus planes of neighbouring frames; None if not known.

    ``places`` are the indices of the fused frames among all frames of the files, whose metadata
    tell the distance between neighbours. They must be evenly spaced.
    """
    size = metadata.pixel_size
    if maps.z_step is not None or size is None or size[2] is None:
        return maps.z_step
    steps = np.diff(places)
    return float(size[2] * steps[0]) if (steps == steps[0]).all() else None


def noise_in_words(sigma: float, counts: float, *, estimated: bool = False) -> str:
    """Say the noise level in 8-bit grey levels, and in the files' own units where they differ."""
    notes = [f"{counts:.3g} counts"] * (counts != sigma) + ["estimated"] * estimated
    return f"sigma {sigma:.1f}" + (f" ({', '.join(notes)})" if notes else "")
