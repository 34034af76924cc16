"""From words to settings: the preset and its changes, the noise level."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args, get_type_hints

from cofuse.devices import resolve_device
from cofuse.errors import CofuseError
from cofuse.jobs.options import Fusing
from cofuse.joint import load_model
from cofuse.operators import load_operator
from cofuse.patches import patch_positions
from cofuse.settings import PRESETS, FusionSettings

__all__ = ["check_settings", "check_size", "chosen_settings", "noise_level"]


def chosen_settings(fusing: Fusing) -> FusionSettings:
    """Take a preset's settings and change some, each NAME=VALUE read as the setting's type."""
    if fusing.preset not in PRESETS:
        raise CofuseError(f"there is no preset {fusing.preset!r}; known are {', '.join(PRESETS)}")
    settings = PRESETS[fusing.preset]
    changed: dict[str, Any] = {}
    kinds = get_type_hints(FusionSettings)
    for change in fusing.setting:
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


def noise_level(text: str) -> float | None:
    """Read ``auto`` or a number of 8-bit grey levels."""
    if text == "auto":
        return None
    try:
        sigma = float(text)
    except ValueError:
        raise CofuseError(
            f"--sigma is {text!r}; expected auto or a number of 8-bit grey levels"
        ) from None
    if not 0 <= sigma < math.inf:
        raise CofuseError(f"--sigma is {text}; expected a number of grey levels, 0 or more")
    return sigma


def check_settings(settings: FusionSettings, fusing: Fusing) -> None:
    """Refuse, before frames are looked for, what `fuse` would refuse after they were aligned."""
    if not 0 <= fusing.denoise <= 1:
        raise CofuseError(f"denoise is {fusing.denoise}; expected a number from 0 to 1")
    if settings.method != "joint" and fusing.device not in ("auto", "cpu"):
        raise CofuseError(
            f"device {fusing.device} was asked for, but only the preset auto runs on devices; use "
            "it, or --device cpu"
        )
    if settings.method == "joint":
        if fusing.device != "auto":
            resolve_device(fusing.device)
        if fusing.operator is not None:
            raise CofuseError(
                "an operator was given, but the joint model has filters of its own; use operators "
                "with the preset fast or paper"
            )
        load_model(settings.model)
    elif settings.method == "letter" and fusing.denoise != 1:
        raise CofuseError(
            f"denoise is {fusing.denoise}, but the letter's method restores whole; use the preset "
            "auto or fast, or sigma 0"
        )


def check_size(
    settings: FusionSettings, fusing: Fusing, sigma: float | None, shape: tuple[int, ...]
) -> None:
    """Refuse operators that are not there, or whose patches are larger than the frames."""
    if settings.method == "joint":
        return
    patch_positions(shape, load_operator(fusing.operator or settings.operator).patch_size, 1)
    if settings.method == "shrinkage" and sigma != 0:
        restoring = load_operator(settings.restoring_operator)
        if sigma is not None:
            patch_positions(shape, restoring.patch_size, 1)
