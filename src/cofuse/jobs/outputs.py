"""What a job writes: a table of files, checked before the work and written after it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from cofuse.alignment import alignment_to_json
from cofuse.depth import depth_picture, depth_preview, ply_chunks
from cofuse.errors import CofuseError
from cofuse.files import Metadata, check_destination, check_output, write_image, written_whole
from cofuse.files.transaction import Transaction
from cofuse.files.writing import BitDepth, index_dtype, index_picture
from cofuse.images import Pixels, Stack
from cofuse.jobs.frames import Frames, Prepared, alpha_of
from cofuse.jobs.options import Maps, Request
from cofuse.jobs.report import Outcome
from cofuse.progress import Progress, ProgressCallback


class Output(NamedTuple):
    """A file that a job writes."""

    path: Path
    #: Type of a picture's values; None if the file is no picture.
    dtype: DTypeLike | None
    #: Makes a picture, a text or pieces of bytes from what the job has made; None where the job
    #: writes the file itself.
    content: Callable[[Any], Pixels | str | Iterator[bytes]] | None = None
    #: What the values of a picture are converted to.
    depth: BitDepth | None = None

    def write(self, transaction: Transaction, made: object) -> None:
        """Write the file, unless the job does that itself."""
        if self.content is None:
            return
        place, content = transaction.place(self.path), self.content(made)
        if isinstance(content, np.ndarray):
            write_image(place, content)
            return
        with written_whole(place, overwrite=False) as file:
            file.writelines([content.encode()] if isinstance(content, str) else content)


def outputs_of(request: Request, frames: Frames) -> list[Output]:
    """List all files of a job, the picture first and the report last."""
    maps, depth, stack = request.maps, request.writing.depth, frames.stack
    pictures = aligned_paths(request, frames) if request.aligning.align_only else [request.output]
    source_colours = maps.source_map and preview_path(maps.source_map)
    depth_colours = maps.depth_map and preview_path(maps.depth_map)
    rows: list[tuple[Path | None, Any, Any]] = [
        (request.aligning.save_transforms, None, lambda made: alignment_to_json(made.alignment)),
        (maps.source_map, index_dtype(len(stack)), _sources),
        (source_colours, np.uint8, _source_colours),
        (maps.depth_map, np.uint16, lambda made: depth_picture(made.depth)),
        (depth_colours, np.uint8, _depth_colours),
        (maps.confidence_map, np.uint8, _confidence),
        (maps.point_cloud, None, _points),
        (maps.report, None, None),
    ]
    outputs = [Output(path, stack.dtype, depth=depth) for path in pictures]
    return outputs + [Output(path, *how) for path, *how in rows if path is not None]


def aligned_paths(request: Request, frames: Frames) -> list[Path]:
    """Name the file of every aligned frame: the frame's own name, as TIFF."""
    stems = [file.stem for file in frames.sources]
    if len(set(stems)) < len(stems):  # pages of one file
        stems = [f"{stem}-{k + 1:04d}" for k, stem in enumerate(stems)]
    return [request.output / f"{stem}.tif" for stem in stems]


def preview_path(path: Path) -> Path:
    """Name the coloured picture beside a map: d-colours.png for d.png."""
    return path.parent / f"{path.stem}-colours.png"


# --- before the work -----------------------------------------------------------------------------


def check_maps(maps: Maps, frames: int) -> None:
    """Refuse maps that need more frames."""
    if maps.needs_depth and frames < 2:
        raise CofuseError("the depth of one frame cannot be told; give two or more")


def check_outputs(outputs: Sequence[Output], request: Request, frames: Frames) -> None:
    """Refuse, before any work, what could not be written after it."""
    maps, align_only = request.maps, request.aligning.align_only
    if align_only:
        for name, value in vars(maps).items():
            if value is not None:
                raise CofuseError(
                    f"`align_only=True` writes aligned frames and no more; leave out `{name}`"
                )
        check_folder(request.output)
    if maps.point_cloud is not None and maps.point_cloud.suffix.lower() != ".ply":
        raise CofuseError(f"{maps.point_cloud} is no name of a point cloud; name it .ply")
    # That a frame is in the way comes first: overwriting would be no remedy.
    _check_distinct([output.path for output in outputs], request, frames)
    overwrite = request.writing.overwrite
    for path, dtype, _, depth in outputs:
        if dtype is None:
            check_destination(path, overwrite=overwrite)
        elif not align_only or path.parent.is_dir():  # a new folder has nothing in their way
            check_output(path, overwrite=overwrite, dtype=dtype, depth=depth)


def check_folder(folder: Path) -> None:
    """Refuse what is no folder, or one that cannot be made; it is made with the files."""
    if folder.is_dir():
        return
    if folder.exists():
        raise CofuseError(f"{folder} is a file; expected a folder for the results")
    above = next(path for path in folder.absolute().parents if path.exists())
    if not above.is_dir():
        raise CofuseError(f"the folder {folder} cannot be made: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise CofuseError(f"the folder {folder} cannot be made: no permission to write in {above}")


def _check_distinct(outputs: Sequence[Path], request: Request, frames: Frames) -> None:
    """Refuse to write two results to one file, or a result over a file that is read."""
    # Not `Path.resolve`, which stops at links that go in circles.
    resolved = [os.path.realpath(path) for path in outputs]
    read: list[str | Path] = [*frames.files, *(given.removeprefix("@") for given in request.inputs)]
    read += [path for path in (request.aligning.transforms, request.fusing.noise) if path]
    sources = {os.path.realpath(path) for path in read}
    for path in resolved:
        name = Path(path).name
        if resolved.count(path) > 1:
            raise CofuseError(f"two outputs have the same file name, {name}; give each its own")
        if path in sources:
            raise CofuseError(
                f"{name} is one of the frames or files read; write the result elsewhere"
            )


# --- after the work ------------------------------------------------------------------------------


def write_picture(place: Path, outcome: Outcome) -> None:
    """Write the fused picture, each pixel as opaque as in the frame it came from."""
    request, frames, index = outcome.request, outcome.frames, outcome.fusion.source_map
    alphas, alpha = alpha_of(frames, outcome.alignment, crop=request.aligning.crop), None
    if alphas is not None and index is not None:
        try:
            check_output(request.output, overwrite=True, alpha=True)
        except CofuseError as error:
            warnings.warn(f"transparency is left out: {error}", stacklevel=2)
        else:
            alpha = np.zeros(index.shape, alphas.dtype)
            for number, plane in enumerate(alphas):
                np.copyto(alpha, plane, where=index == number)
    write = _writer(request, outcome.stack, alphas)
    write(place, outcome.fusion.image, metadata=frames.metadata, alpha=alpha)


def write_aligned(
    request: Request,
    frames: Frames,
    found: Prepared,
    transaction: Transaction,
    progress: ProgressCallback,
) -> None:
    """Write the kept frames of an aligned stack."""
    assert found.alignment is not None, "checked with the options"
    paths, stack = aligned_paths(request, frames), found.stack
    alphas = alpha_of(frames, found.alignment, crop=request.aligning.crop)
    write = _writer(request, stack, alphas)
    for done, index in enumerate(found.alignment.kept):
        alpha = None if alphas is None else alphas[done]
        place = transaction.place(paths[index])
        write(place, stack[done], metadata=frames.metadata_of(index), alpha=alpha)
        progress(Progress("writing", done + 1, len(stack)))


def _writer(request: Request, stack: Stack, alphas: Stack | None) -> Callable[..., Path]:
    """Prepare `write_image` for pictures on the scale of a stack."""
    quality, depth = request.writing.quality, request.writing.depth
    opaque = None if alphas is None else alphas.white
    return partial(write_image, quality=quality, depth=depth, white=stack.white, opaque=opaque)


def _sources(outcome: Any) -> Pixels:
    return index_picture(outcome.fusion.source_map, len(outcome.stack))


def _source_colours(outcome: Any) -> Pixels:
    """Colour every pixel by the frame it came from, as if that were its depth."""
    return depth_preview(outcome.fusion.source_map, len(outcome.stack))


def _depth_colours(outcome: Any) -> Pixels:
    return depth_preview(outcome.depth.position, outcome.depth.frames, outcome.depth.z_step)


def _confidence(outcome: Any) -> Pixels:
    return np.asarray(np.rint(255.0 * outcome.depth.confidence), np.uint8)


def _points(outcome: Outcome) -> Iterator[bytes]:
    """Encode the depth as points in space, in micrometres."""
    depth, size = outcome.depth, outcome.frames.metadata.pixel_size
    assert depth is not None
    pixel_size = outcome.request.maps.pixel_size or (size[0] if size else None)
    if depth.z_step is not None and pixel_size is None:
        warnings.warn(
            "the size of a pixel is not known and taken as 1 micrometre in the point cloud; "
            "say it with `pixel_size`",
            stacklevel=2,
        )
    white = outcome.stack.white
    return ply_chunks(depth, outcome.fusion.image, white=white, pixel_size=pixel_size or 1.0)


def z_distance(maps: Maps, metadata: Metadata, places: Sequence[int]) -> float | None:
    """Micrometres between the focus planes of neighbouring frames; None if not known.

    ``places`` are the indices of the fused frames among all frames of the files, of which the
    metadata have the distance. They must be evenly spaced.
    """
    size = metadata.pixel_size
    if maps.z_step is not None or size is None or size[2] is None:
        return maps.z_step
    steps = np.diff(places)
    return float(size[2] * steps[0]) if (steps == steps[0]).all() else None
