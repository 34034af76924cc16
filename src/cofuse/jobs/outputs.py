"""What a job writes: checked before the work, written after it."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cofuse import __version__
from cofuse.alignment import Alignment, alignment_to_json
from cofuse.errors import CofuseError
from cofuse.files import (
    Metadata,
    check_destination,
    check_output,
    plain,
    read_metadata,
    write_image,
    written_whole,
)
from cofuse.files.transaction import Transaction
from cofuse.files.writing import BitDepth, index_dtype, index_picture
from cofuse.fusion import FusionSettings
from cofuse.images import Fusion, Pixels, Stack
from cofuse.jobs.frames import Frames, Prepared, alpha_of
from cofuse.jobs.options import Maps, Request
from cofuse.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from cofuse.depth import Depth


def preview_path(path: Path) -> Path:
    """Name the coloured picture beside a map: d-colours.png for d.png."""
    return path.with_name(f"{path.stem}-colours.png")


# --- before the work -----------------------------------------------------------------------------


def check_maps(maps: Maps, frames: int) -> None:
    """Refuse maps that need more frames."""
    if maps.needs_depth and frames < 2:
        raise CofuseError("the depth of one frame cannot be told; give two or more")


def check_outputs(request: Request, frames: Frames) -> None:
    """Refuse, before any work, what could not be written after it."""
    maps, output, overwrite = request.maps, request.output, request.writing.overwrite
    align_only = request.aligning.align_only
    if align_only:
        for name, value in dataclasses.asdict(maps).items():
            if value is not None:
                raise CofuseError(
                    f"`align_only=True` writes aligned frames and no more; leave out `{name}`"
                )
        check_folder(output)
    # Every picture with the type of its values and the depth that they are converted to.
    pictures: list[tuple[Path, Any, BitDepth | None]] = [
        (path, frames.stack.dtype, request.writing.depth)
        for path in (_aligned_paths(output, frames) if align_only else [output])
    ]
    for path, dtype in (
        (maps.source_map, index_dtype(len(frames.stack))),
        (maps.depth_map, np.uint16),
    ):
        if path is not None:
            if not path.name:
                raise CofuseError(f"{path} is a folder; expected the name of a file to write")
            pictures += [(path, dtype, None), (preview_path(path), np.uint8, None)]
    if maps.confidence_map is not None:
        pictures.append((maps.confidence_map, np.uint8, None))
    if maps.point_cloud is not None and maps.point_cloud.suffix.lower() != ".ply":
        raise CofuseError(f"{maps.point_cloud} is no name of a point cloud; name it .ply")
    others = maps.point_cloud, maps.report, request.aligning.save_transforms
    files = [path for path in others if path is not None]
    # That a frame is in the way comes first: overwriting would be no remedy.
    check_distinct([*(path for path, _, _ in pictures), *files], request, frames)
    if align_only and not output.is_dir():
        pictures = []  # there is nothing in their way
    for path, dtype, depth in pictures:
        check_output(path, overwrite=overwrite, dtype=dtype, depth=depth)
    for path in files:
        check_destination(path, overwrite=overwrite)


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


def check_distinct(outputs: Sequence[Path], request: Request, frames: Frames) -> None:
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


def fused_alpha(
    request: Request, frames: Frames, alignment: Alignment | None, source_map: Pixels | None
) -> tuple[Pixels | None, float | None]:
    """How opaque the picture is, if any frame is not so everywhere, and what hides all.

    Every pixel has the opacity of the frame it came from.
    """
    alphas = alpha_of(frames, alignment, crop=request.aligning.crop)
    if alphas is None or source_map is None:
        return None, None
    try:
        check_output(request.output, overwrite=True, alpha=True)
    except CofuseError as error:
        warnings.warn(f"transparency is left out: {error}", stacklevel=2)
        return None, None
    result = np.zeros(source_map.shape, alphas.dtype)
    for index, plane in enumerate(alphas):
        np.copyto(result, plane, where=source_map == index)
    return result, alphas.white


def write_aligned(
    request: Request,
    frames: Frames,
    stack: Stack,
    alignment: Alignment,
    transaction: Transaction,
    progress: ProgressCallback,
) -> None:
    """Write the kept frames of an aligned stack."""
    paths = _aligned_paths(request.output, frames)
    alphas = alpha_of(frames, alignment, crop=request.aligning.crop)
    for done, (index, frame) in enumerate(zip(alignment.kept, stack, strict=True)):
        write_image(
            transaction.place(paths[index]),
            frame,
            quality=request.writing.quality,
            depth=request.writing.depth,
            metadata=read_metadata(frames.sources[index], raw_mode=request.reading.raw),
            alpha=None if alphas is None else alphas[done],
            white=stack.white,
            opaque=None if alphas is None else alphas.white,
        )
        progress(Progress("write", done + 1, len(stack)))


def _aligned_paths(folder: Path, frames: Frames) -> list[Path]:
    """Name the file of every aligned frame: the frame's own name, as TIFF."""
    stems = [file.stem for file in frames.sources]
    if len(set(stems)) < len(stems):  # pages of one file
        stems = [f"{stem}-{k + 1:04d}" for k, stem in enumerate(stems)]
    return [folder / f"{stem}.tif" for stem in stems]


def write_transforms(
    request: Request, alignment: Alignment | None, transaction: Transaction
) -> None:
    """Write the transforms, to be used again for these frames, if that is asked for."""
    path = request.aligning.save_transforms
    if path is not None and alignment is not None:
        with written_whole(transaction.place(path), overwrite=False) as file:
            file.write(alignment_to_json(alignment).encode())


def write_maps(
    maps: Maps,
    fusion: Fusion,
    stack: Stack,
    depth: Depth | None,
    metadata: Metadata,
    transaction: Transaction,
) -> None:
    """Write the source map and what is made from the depth, in grey and in colours."""
    from cofuse.depth import Depth, depth_picture, depth_preview, ply_chunks

    if maps.source_map is not None and fusion.source_map is not None:
        index = index_picture(fusion.source_map, len(stack))
        write_image(transaction.place(maps.source_map), index)
        position = fusion.source_map.astype(np.float32)
        sure = np.broadcast_to(np.float32(1.0), position.shape)
        preview = depth_preview(Depth(position, sure, sure, len(stack)))
        write_image(transaction.place(preview_path(maps.source_map)), preview)
    if depth is None:
        return
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
                stacklevel=2,
            )
        with written_whole(transaction.place(maps.point_cloud), overwrite=False) as file:
            for chunk in ply_chunks(
                depth, fusion.image, white=stack.white, pixel_size=pixel_size or 1.0
            ):
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


# --- what is told --------------------------------------------------------------------------------


def fusion_report(
    fusion: Fusion,
    stack: Stack,
    prepared: Prepared,
    request: Request,
    settings: FusionSettings,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Describe a fusion and how it was made, in values that JSON knows.

    ``seconds`` is how long the parts of the work took beside those of the fusion.
    """
    shares = None
    if fusion.source_map is not None:
        counts = np.bincount(fusion.source_map.ravel().astype(np.intp), minlength=len(stack))
        each = zip(stack.names, counts / fusion.source_map.size, strict=True)
        shares = [{"frame": name, "share": share} for name, share in each]
    fusing, aligning = request.fusing, request.aligning
    more = {"preset": fusing.preset, "align": aligning.align, "denoise": fusing.denoise}
    if fusing.operator:
        more["operator"] = fusing.operator
    options = dataclasses.asdict(request)
    del options["output"]
    confidence, alignment = fusion.confidence, prepared.alignment
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
        "settings": dataclasses.asdict(settings) | more,
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
        "options": options,
        "hot_pixels": prepared.hot_pixels,
        "alignment": None if alignment is None else alignment_facts(alignment),
    }
    return plain(facts)


def frame_facts(stack: Stack) -> dict[str, Any]:
    """What reports say of frames."""
    return {
        "count": len(stack),
        "names": stack.names,
        "width": stack.width,
        "height": stack.height,
        "colour": stack.is_colour,
        "dtype": stack.dtype.name,
        "white": stack.white,
        "white_found": stack.white_is_found,
    }


def alignment_facts(alignment: Alignment) -> dict[str, object]:
    """What reports say of the alignment."""
    return {
        "transform": alignment.model,
        "reference": alignment.names[alignment.reference],
        "already_aligned": alignment.already_aligned,
        "parallax": alignment.parallax,
        "largest_displacement": alignment.largest_displacement(),
        "left_out": {alignment.names[k]: reason for k, reason in alignment.left_out.items()},
        "matrices": [None if t is None else t.matrix.tolist() for t in alignment.transforms],
        "brightness": alignment.brightness,
        "gains": [list(gains) for gains in alignment.gains],
    }


def noise_in_words(sigma: float, counts: float, *, estimated: bool = False) -> str:
    """Say the noise level in 8-bit grey levels, and in the files' own units where they differ."""
    notes = [f"{counts:.3g} counts"] * (counts != sigma) + ["estimated"] * estimated
    return f"sigma {sigma:.1f}" + (f" ({', '.join(notes)})" if notes else "")
