"""What was asked for, read from words and files, and checked before any frame is looked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from cofuse.arguments import MOST_SIGMA, check, check_number, check_sigma
from cofuse.errors import CofuseError
from cofuse.fusion.presets import (
    AutoSettings,
    FastSettings,
    FusionSettings,
    check_method,
    resolve_preset,
)
from cofuse.images.memory import parse_size
from cofuse.jobs.options import Fusing, Request
from cofuse.operators import load_operator
from cofuse.operators.patches import patch_positions
from cofuse.sensor import NoiseLaw

__all__ = [
    "check_options",
    "check_settings",
    "check_size",
    "chosen_settings",
    "given_noise",
    "read_noise",
    "read_saved",
]

#: Most bytes of a file of transforms or of a noise law.
_LARGEST_FILE = 64 * 2**20

Content = TypeVar("Content")


def check_options(request: Request) -> None:
    """Refuse, before frames are looked for, what is wrong whatever they are."""
    # These load imaging libraries, which the help of commands does without.
    from cofuse.jobs.frames import range_parts

    reading, aligning, fusing = request.reading, request.aligning, request.fusing
    writing, maps = request.writing, request.maps
    check_settings(chosen_settings(fusing), fusing)
    read_noise(fusing.sigma, fusing.noise)
    if fusing.max_memory is not None:
        parse_size(fusing.max_memory)
    if reading.frames is not None:
        range_parts(reading.frames)
    if reading.white is not None:
        check("white", reading.white, "a number above 0", lambda white: 0 < white < math.inf)
    if aligning.reference is not None:
        check_number("reference", aligning.reference, 1, whole=True)
    files = aligning.transforms is not None or aligning.save_transforms is not None
    if not aligning.align and (aligning.align_only or files):
        raise CofuseError("`align=False` leaves nothing to align; leave it out")
    if writing.quality is not None:
        check_number("quality", writing.quality, 1, 100, whole=True)
    if maps.z_step is not None:
        check("z_step", maps.z_step, "a number other than 0", lambda z: math.isfinite(z) and z)
    if maps.pixel_size is not None:
        check("pixel_size", maps.pixel_size, "a number above 0", lambda size: 0 < size < math.inf)


def chosen_settings(fusing: Fusing) -> FusionSettings:
    """Take a preset's settings and change some, each NAME=VALUE read as the setting's type."""
    settings = resolve_preset(fusing.preset)
    changed: dict[str, Any] = {}
    kinds = get_type_hints(type(settings))
    for change in fusing.setting:
        name, equals, text = change.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in kinds:
            raise CofuseError(
                f"`setting` {change} names no setting; expected NAME=VALUE with one of "
                f"{', '.join(kinds)}"
            )
        now = getattr(settings, name)
        # A setting that may be None is a number when it is not.
        kind = next((k for k in (int, float) if k in (kinds[name], *get_args(kinds[name]))), str)
        try:
            changed[name] = kind(text)
        except ValueError:
            raise CofuseError(
                f"`setting` {change}: {text!r} is no value for {name}, which is {now!r} by default"
            ) from None
    try:
        return dataclasses.replace(settings, **changed)
    except CofuseError as error:
        raise CofuseError(f"`setting`: {error}") from error


def check_settings(settings: FusionSettings, fusing: Fusing) -> None:
    """Refuse, before frames are looked for, what `fuse` would refuse after they were aligned."""
    check_method(settings, denoise=fusing.denoise, device=fusing.device, operator=fusing.operator)


def check_size(
    settings: FusionSettings, fusing: Fusing, noise: NoiseLaw | None, shape: tuple[int, ...]
) -> None:
    """Refuse operators whose patches are larger than the frames."""
    if isinstance(settings, AutoSettings):
        return
    operators = [settings.operator if fusing.operator is None else fusing.operator]
    if isinstance(settings, FastSettings) and noise is not None and noise.overall > 0:
        operators.append(settings.restoring_operator)
    for operator in operators:
        patch_positions(shape, load_operator(operator).patch_size, 1)


def read_noise(sigma: str, noise: Path | None) -> NoiseLaw | float | None:
    """Read the noise that was given: a law from a file, or a level; None to estimate it."""
    level = None
    if sigma != "auto":
        try:
            level = float(sigma)
        except ValueError:
            raise CofuseError(
                f"`sigma` is {sigma!r}; expected auto or a number of 8-bit grey levels"
            ) from None
        check_sigma(level)
    if noise is None:
        return level
    if level is not None:
        raise CofuseError(
            "`sigma` and `noise` were both given; expected one of them: a noise law has its level"
        )
    law = read_saved(noise, NoiseLaw.from_json, "a noise law as `cofuse noise` writes it")
    if law.overall > MOST_SIGMA:
        raise CofuseError(
            f"{noise}: the noise is {law.overall:g} of 255 grey levels; expected up to {MOST_SIGMA}"
        )
    return law


def given_noise(sigma: str, noise: Path | None, frames: int, *, colour: bool) -> NoiseLaw | None:
    """Describe the noise of frames as it was given; None to estimate it."""
    given = read_noise(sigma, noise)
    if isinstance(given, NoiseLaw):
        return given.for_stack(frames, colour=colour)
    return None if given is None else NoiseLaw.white(given, frames=frames, colour=colour)


def read_saved(path: Path, decode: Callable[[str], Content], expected: str) -> Content:
    """Read and decode a small text file that an earlier run saved."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise CofuseError(f"{path} is too large; expected {expected}")
        text = path.read_text("utf-8")
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise CofuseError(f"{path} is no text; expected {expected}") from error
    try:
        return decode(text)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error
