"""``cofuse fuse``: a stack in, one sharp and clean picture out."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter

from cofuse import fusion
from cofuse.cli.console import Flag, Output, parse_sigma, progress_bars
from cofuse.errors import CofuseError

__all__ = ["fuse"]

#: The library's defaults are the command's.
_DEFAULTS: dict[str, Any] = fusion.fuse.__kwdefaults__ or {}


def fuse(
    *frames: Path,
    output: Output,
    preset: str = _DEFAULTS["preset"],
    sigma: str = "auto" if _DEFAULTS["sigma"] is None else str(_DEFAULTS["sigma"]),
    denoise: float = _DEFAULTS["denoise"],
    align: bool = _DEFAULTS["align"],
    operator: str | None = _DEFAULTS["operator"],
    white: float | None = _DEFAULTS["white"],
    setting: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    source_map: Path | None = None,
    report: Path | None = None,
    overwrite: Flag = False,
    quiet: Flag = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Fuse pictures focused at different distances into one sharp picture, and remove noise.

    Parameters
    ----------
    frames
        Picture files, folders of pictures, or a multi-page TIFF.
    output
        The picture to write: .png, .tif, .jpg, .webp or .bmp.
    preset
        auto, fast without the trained model, or paper for the letter's own method.
    sigma
        Noise level in 8-bit grey levels (0-255 scale) whatever the depth, or auto to estimate it.
    denoise
        How much of the noise to take out: from 0, nothing, to 1, all of it.
    align
        Accepted for the time when frames are aligned; they are now taken as aligned either way.
    operator
        Name or file of an analysis operator to use instead of that of fast or paper.
    white
        Value of white, where it is not the largest the files can hold (4095 for 12 bits in 16).
    setting
        Change one setting of the preset, as NAME=VALUE; may be given more than once.
    source_map
        Also write which frame every pixel came from: black is the first, white the last.
    report
        Also write a report in JSON.
    overwrite
        Replace output files that exist.
    quiet
        No progress bars and no summary.
    as_json
        Print the report instead of the summary.
    """
    from cofuse.files import (
        check_output,
        check_report,
        fusion_report,
        read_stack,
        write_image,
        write_json,
    )
    from cofuse.files.previews import index_dtype, index_picture

    start = time.perf_counter()
    settings = _settings(preset, setting)
    noise = parse_sigma(sigma)
    if not frames:
        raise CofuseError("no frames were given; name picture files, a folder or a TIFF")
    outputs = [path for path in (output, source_map, report) if path is not None]
    _check_distinct(outputs, frames)
    check_output(output, overwrite=overwrite)
    stack = read_stack(frames, white=white)
    check_output(output, overwrite=overwrite, dtype=stack.dtype)
    if source_map:
        check_output(source_map, overwrite=overwrite, dtype=index_dtype(len(stack)))
    if report:
        check_report(report, overwrite=overwrite)
    with progress_bars(quiet=quiet) as progress:
        result = fusion.fuse(
            stack,
            sigma=noise,
            denoise=denoise,
            preset=settings,
            align=align,
            operator=operator,
            progress=progress,
        )
    write_image(output, result.image, overwrite=overwrite)
    if source_map and result.source_map is not None:
        write_image(source_map, index_picture(result.source_map, len(stack)), overwrite=overwrite)
    used = dataclasses.asdict(settings) | {
        "preset": preset,
        "align": align,
        "denoise": denoise,
    }
    if operator:
        used["operator"] = operator
    facts = fusion_report(result, stack, used, str(output))
    if report:
        write_json(report, facts, overwrite=overwrite)
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif not quiet:
        kind = f"{'RGB' if stack.is_colour else 'grey'} {stack.dtype}"
        estimated = " (estimated)" if result.sigma_estimated else ""
        print(
            f"{len(stack)} frame{'s' * (len(stack) > 1)} of {stack.width}x{stack.height} {kind}, "
            f"sigma {result.sigma:.1f}{estimated}, {time.perf_counter() - start:.1f} s: {output}"
        )


def _settings(preset: str, changes: tuple[str, ...]) -> fusion.FusionSettings:
    """Take a preset's settings and change some, each NAME=VALUE read as the setting's type."""
    if preset not in fusion.PRESETS:
        raise CofuseError(f"there is no preset {preset!r}; known are {', '.join(fusion.PRESETS)}")
    settings = fusion.PRESETS[preset]
    changed: dict[str, Any] = {}
    kinds = get_type_hints(fusion.FusionSettings)
    for change in changes:
        name, equals, text = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in kinds:
            raise CofuseError(
                f"--set {change} names no setting; expected NAME=VALUE with one of "
                f"{', '.join(kinds)}"
            )
        now = getattr(settings, name)
        # A setting that may be None is a number when it is not.
        kind = next((k for k in (int, float) if k in (kinds[name], *get_args(kinds[name]))), str)
        try:
            changed[name] = kind(text)
        except ValueError:
            raise CofuseError(
                f"--set {change}: {text!r} is no value for {name}, which is {now!r} by default"
            ) from None
    return dataclasses.replace(settings, **changed)


def _check_distinct(outputs: list[Path], frames: tuple[Path, ...]) -> None:
    """Refuse to write two results to one file, or a result over a frame."""
    from cofuse.files import picture_files

    resolved = [path.resolve() for path in outputs]
    if len(set(resolved)) < len(resolved):
        raise CofuseError("two outputs have the same file name; give each its own")
    sources = {frame.resolve() for frame in picture_files(frames)}
    for path in resolved:
        if path in sources:
            raise CofuseError(f"{path.name} is one of the frames; write the result elsewhere")
        if path.exists() and path.parent in {f.resolve() for f in frames if f.is_dir()}:
            raise CofuseError(f"{path.name} lies among the frames; write the result elsewhere")
