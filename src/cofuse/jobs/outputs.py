"""What a job writes: its files, checked before the work and written after it; and its report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from cofuse import __version__
from cofuse.alignment import Alignment, alignment_to_json
from cofuse.depth import Depth, depth_picture, depth_preview, ply_chunks
from cofuse.errors import CofuseError
from cofuse.files import check_destination, check_folder, check_format, plain
from cofuse.files.transaction import Transaction
from cofuse.files.writing import BitDepth, index_dtype, index_picture, write_image, written_whole
from cofuse.fusion import FusionSettings
from cofuse.images import Fusion, Pixels, Stack
from cofuse.jobs.frames import (
    Frames,
    Prepared,
    alignment_facts,
    alpha_of,
    frame_facts,
    stack_in_words,
)
from cofuse.jobs.options import Maps
from cofuse.progress import Progress, ProgressCallback


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a job did."""

    fusion: Fusion
    stack: Stack
    alignment: Alignment | None
    hot_pixels: int
    depth: Depth | None
    report: dict[str, Any] = field(repr=False)
    frames: Frames = field(repr=False)

    def summary(self) -> str:
        """Say in one line what was done."""
        alignment, fusion = self.alignment, self.fusion
        parts = [stack_in_words(self.stack)]
        if alignment is not None and not alignment.already_aligned:
            bent = " and bent to undo parallax" if alignment.parallax else ""
            parts.append(f"moved by up to {alignment.largest_displacement():.1f} pixels{bent}")
        if alignment is not None and alignment.brightness < 1:
            share = 100 * alignment.brightness
            parts.append(f"darkened to {share:.0f} % of the reference to keep highlights")
        if self.hot_pixels:
            parts.append(f"{self.hot_pixels} hot pixels mended")
        counts = self.report["sigma_counts"]  # in the files' own units
        notes = [f"{counts:.3g} counts"] * (counts != fusion.sigma)
        notes += ["estimated"] * fusion.sigma_estimated
        parts.append(f"sigma {fusion.sigma:.1f}" + (f" ({', '.join(notes)})" if notes else ""))
        return ", ".join(parts)


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


def outputs_of(frames: Frames) -> list[Output]:
    """List all files of a job, the picture first and the report last."""
    request, stack = frames.request, frames.stack
    maps, depth = request.maps, request.writing.depth
    pictures = aligned_paths(frames) if request.aligning.align_only else [request.output]
    index, depth_map = maps.source_map, maps.depth_map
    rows: list[tuple[Path | None, Any, Any]] = [
        (request.aligning.save_transforms, None, lambda made: alignment_to_json(made.alignment)),
        (
            index,
            index_dtype(len(stack)),
            lambda o: index_picture(o.fusion.source_map, len(o.stack)),
        ),
        (
            index and preview_path(index),
            np.uint8,
            lambda o: depth_preview(o.fusion.source_map, len(o.stack)),
        ),
        (depth_map, np.uint16, lambda made: depth_picture(made.depth)),
        (
            depth_map and preview_path(depth_map),
            np.uint8,
            lambda o: depth_preview(o.depth.position, o.depth.frames, o.depth.z_step),
        ),
        (
            maps.confidence_map,
            np.uint8,
            lambda made: np.uint8(np.rint(255.0 * made.depth.confidence)),
        ),
        (maps.point_cloud, None, _points),
        (maps.report, None, None),
    ]
    outputs = [Output(path, stack.dtype, depth=depth) for path in pictures]
    return outputs + [Output(path, *how) for path, *how in rows if path is not None]


def aligned_paths(frames: Frames) -> list[Path]:
    """Name the file of every aligned frame: the frame's own name, as TIFF."""
    stems = [picture.path.stem for picture in frames.pictures]
    if len(set(stems)) < len(stems):  # pages of one file
        stems = [f"{stem}-{k + 1:04d}" for k, stem in enumerate(stems)]
    return [frames.request.output / f"{stem}.tif" for stem in stems]


def preview_path(path: Path) -> Path:
    """Name the coloured picture beside a map: d-colours.png for d.png."""
    return path.parent / f"{path.stem}-colours.png"


# --- before the work -----------------------------------------------------------------------------


def check_maps(maps: Maps, frames: int) -> None:
    """Refuse maps that need more frames."""
    if maps.needs_depth and frames < 2:
        raise CofuseError("the depth of one frame cannot be told; give two or more")


def check_outputs(outputs: Sequence[Output], frames: Frames) -> None:
    """Refuse, before any work, what could not be written after it."""
    request, maps = frames.request, frames.request.maps
    if request.aligning.align_only:
        for name, value in vars(maps).items():
            if value is not None:
                raise CofuseError(
                    f"`align_only=True` writes aligned frames and no more; leave out `{name}`"
                )
        check_folder(request.output)
    if maps.point_cloud is not None and maps.point_cloud.suffix.lower() != ".ply":
        raise CofuseError(f"{maps.point_cloud} is no name of a point cloud; name it .ply")
    # That a frame is in the way comes first: overwriting would be no remedy.
    read = [*frames.files, *(Path(given.removeprefix("@")) for given in request.inputs)]
    read += [path for path in (request.aligning.transforms, request.fusing.noise) if path]
    check_distinct([output.path for output in outputs], read)
    for path, dtype, _, depth in outputs:
        if dtype is not None:
            check_format(path, dtype=dtype, depth=depth)
        if path.parent != request.output or path.parent.is_dir():  # a new folder is empty
            check_destination(path, overwrite=request.writing.overwrite)


def check_distinct(outputs: Sequence[Path], read: Sequence[Path]) -> None:
    """Refuse to write two results to one file, or a result over a file that is read."""
    # Not `Path.resolve`, which stops at links that go in circles.
    resolved = [os.path.realpath(path) for path in outputs]
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
    frames, index = outcome.frames, outcome.fusion.source_map
    alphas, alpha = alpha_of(frames, outcome.alignment), None
    if alphas is not None and index is not None:
        try:
            check_format(frames.request.output, alpha=True)
        except CofuseError as error:
            warnings.warn(f"transparency is left out: {error}", stacklevel=2)
        else:
            alpha = np.zeros(index.shape, alphas.dtype)
            for number, plane in enumerate(alphas):
                np.copyto(alpha, plane, where=index == number)
    write = _writer(frames, outcome.stack, alphas)
    write(place, outcome.fusion.image, metadata=frames.metadata, alpha=alpha)


def write_aligned(
    frames: Frames, found: Prepared, transaction: Transaction, progress: ProgressCallback
) -> None:
    """Write the kept frames of an aligned stack."""
    assert found.alignment is not None, "checked with the options"
    paths, stack = aligned_paths(frames), found.stack
    alphas = alpha_of(frames, found.alignment)
    write = _writer(frames, stack, alphas)
    for done, index in enumerate(found.alignment.kept):
        alpha = None if alphas is None else alphas[done]
        place = transaction.place(paths[index])
        write(place, stack[done], metadata=frames.metadata_of(index), alpha=alpha)
        progress(Progress("writing", done + 1, len(stack)))


def _writer(frames: Frames, stack: Stack, alphas: Stack | None) -> Callable[..., Path]:
    """Prepare `write_image` for pictures on the scale of a stack."""
    quality, depth = frames.request.writing.quality, frames.request.writing.depth
    opaque = None if alphas is None else alphas.white
    return partial(write_image, quality=quality, depth=depth, white=stack.white, opaque=opaque)


def _points(outcome: Outcome) -> Iterator[bytes]:
    """Encode the depth as points in space, in micrometres."""
    depth, size = outcome.depth, outcome.frames.metadata.pixel_size
    assert depth is not None
    pixel_size = outcome.frames.request.maps.pixel_size or (size[0] if size else None)
    if depth.z_step is not None and pixel_size is None:
        warnings.warn(
            "the size of a pixel is not known and taken as 1 micrometre in the point cloud; "
            "say it with `pixel_size`",
            stacklevel=2,
        )
    white = outcome.stack.white
    return ply_chunks(depth, outcome.fusion.image, white=white, pixel_size=pixel_size or 1.0)


# --- the report ----------------------------------------------------------------------------------


def fusion_report(
    outcome: Outcome, settings: FusionSettings, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Describe a fusion and how it was made, in values that JSON knows.

    ``seconds`` are the durations of the stages besides those of the fusion.
    """
    fusion, stack, request = outcome.fusion, outcome.stack, outcome.frames.request
    shares = None
    if fusion.source_map is not None:
        counts = np.bincount(fusion.source_map.ravel().astype(np.intp), minlength=len(stack))
        each = zip(stack.names, counts / fusion.source_map.size, strict=True)
        shares = [{"frame": name, "share": share} for name, share in each]
    confidence, alignment = fusion.confidence, outcome.alignment
    facts = {
        "cofuse": __version__,
        "frames": frame_facts(stack),
        "output": request.output,
        "device": fusion.device,
        "sigma": fusion.sigma,
        "sigma_counts": fusion.sigma * (stack.white / 255.0),
        "sigma_estimated": fusion.sigma_estimated,
        "noise": None if fusion.noise is None else fusion.noise.facts(),
        "clipped": np.mean(fusion.image >= stack.ceiling),
        "shares": shares,
        "mean_confidence": None if confidence is None else confidence.mean(dtype=np.float64),
        "settings": settings,
        "traces": {
            stage: {
                "solver": trace.solver,
                "iterations": trace.iterations,
                "converged": trace.converged,
                "reason": trace.reason,
                "last": {name: values[-1] for name, values in trace.history.items() if values},
            }
            for stage, trace in fusion.trace.items()
        },
        "seconds": {**fusion.seconds, **seconds},
        "options": vars(request),
        "hot_pixels": outcome.hot_pixels,
        "alignment": None if alignment is None else alignment_facts(alignment),
    }
    return plain(facts)
