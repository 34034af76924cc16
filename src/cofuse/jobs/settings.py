"""From words to settings: the preset and its changes, the noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

from cofuse.arguments import MOST_SIGMA, check_number, check_sigma
from cofuse.errors import CofuseError
from cofuse.fusion.presets import AutoSettings, FastSettings, FusionSettings, resolve_preset
from cofuse.jobs.options import Fusing
from cofuse.jobs.saved import read_saved
from cofuse.model.devices import resolve_device
from cofuse.model.runtime import model_folder
from cofuse.operators import load_operator
from cofuse.operators.patches import patch_positions
from cofuse.sensor import NoiseLaw

__all__ = ["check_settings", "check_size", "chosen_settings", "given_noise", "read_noise"]


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


def _noise_level(text: str) -> float | None:
    """Read ``auto`` or a number of 8-bit grey levels."""
    if text == "auto":
        return None
    try:
        sigma = float(text)
    except ValueError:
        raise CofuseError(
            f"`sigma` is {text!r}; expected auto or a number of 8-bit grey levels"
        ) from None
    check_sigma(sigma)
    return sigma


def read_noise(sigma: str, noise: Path | None) -> NoiseLaw | float | None:
    """Read the noise that was given: a law from a file, or a level; None to estimate it."""
    level = _noise_level(sigma)
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


def check_settings(settings: FusionSettings, fusing: Fusing) -> None:
    """Refuse, before frames are looked for, what `fuse` would refuse after they were aligned."""
    check_number("denoise", fusing.denoise, 0, 1)
    if not isinstance(settings, AutoSettings) and fusing.device not in ("auto", "cpu"):
        raise CofuseError(
            f"device {fusing.device} was asked for, but only the preset auto runs on devices; use "
            "it, or `device='cpu'`"
        )
    if isinstance(settings, AutoSettings):
        if fusing.device != "auto":
            resolve_device(fusing.device)
        if fusing.operator is not None:
            raise CofuseError(
                "an operator was given, but the trained model has filters of its own; use "
                "operators with the preset fast or paper"
            )
        model_folder(settings.model)
        return
    load_operator(settings.operator if fusing.operator is None else fusing.operator)
    if isinstance(settings, FastSettings):
        load_operator(settings.restoring_operator)
    elif fusing.denoise != 1:
        raise CofuseError(
            f"`denoise` is {fusing.denoise}, but the letter's method restores whole; use the "
            "preset auto or fast, or sigma 0"
        )


def check_size(
    settings: FusionSettings, fusing: Fusing, noise: NoiseLaw | None, shape: tuple[int, ...]
) -> None:
    """Refuse operators whose patches are larger than the frames."""
    if isinstance(settings, AutoSettings):
        return
    patch_positions(
        shape,
        load_operator(settings.operator if fusing.operator is None else fusing.operator).patch_size,
        1,
    )
    if isinstance(settings, FastSettings) and noise is not None and noise.overall > 0:
        patch_positions(shape, load_operator(settings.restoring_operator).patch_size, 1)
