"""The presets: what each method can be set to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.model.runtime import DEVICES, model_folder, resolve_device
from cofuse.operators import AnalysisOperator, load_operator


@dataclass(frozen=True, kw_only=True)
class AutoSettings:
    """The trained model: frames weighed at every pixel, band by band, mixed, and restored.

    Attributes
    ----------
    model
        Name or folder of the trained model.
    """

    model: str = "auto"

    def __post_init__(self) -> None:
        _check_name("model", self.model)


@dataclass(frozen=True, kw_only=True)
class FastSettings:
    """Frames chosen pixel by pixel by an operator's activity, mixed and restored as by ``auto``.

    Attributes
    ----------
    operator
        Name or file of the operator that measures activity.
    window
        Side in pixels over which activity is averaged.
    model
        Name or folder of the trained model that restores.
    """

    operator: str = "separable-7"
    window: int = 11
    model: str = "auto"

    def __post_init__(self) -> None:
        _check_name("operator", self.operator)
        _check_name("model", self.model)
        check_number("window", self.window, 1, whole=True)


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """The letter's method, patch by patch.

    Attributes
    ----------
    operator
        Name or file of the operator.
    stride
        Distance of neighbouring patches. None is the letter's "overlapping length 1" read
        literally, n − 1 (6 for patches of 7); 1 takes every patch.
    local_weight, global_weight
        λ and λ′ of the local estimate and the global reconstruction, as multiples of σ.
    epsilon
        If given, the local estimate is constrained to ‖Ωx‖₁ ≤ ε on normalised patches instead of
        penalised; the letter's value is 0.1.
    accuracy
        Certified distance (RMS, grey levels) from the minimiser at which the global reconstruction
        stops; the real distance is several times smaller.
    max_iterations
        Limit of every iterative solver.
    x_step
        ``"exact"`` or ``"surrogate"``, the letter's first-order form.
    """

    operator: str = "full-7"
    stride: int | None = None
    local_weight: float = 0.4
    global_weight: float = 0.03
    epsilon: float | None = None
    accuracy: float = 0.5
    max_iterations: int = 1000
    x_step: Literal["exact", "surrogate"] = "exact"

    def __post_init__(self) -> None:
        _check_name("operator", self.operator)
        for name in ("local_weight", "global_weight"):
            check_number(name, getattr(self, name), 0)
        check_number("max_iterations", self.max_iterations, 1, whole=True)
        if self.stride is not None:
            check_number("stride", self.stride, 1, whole=True)
        for name in ("accuracy", "epsilon"):
            if name != "epsilon" or self.epsilon is not None:
                check(name, getattr(self, name), "a number above 0", lambda v: 0 < v < np.inf)
        check("x_step", self.x_step, "exact or surrogate", ("exact", "surrogate").__contains__)


def _check_name(name: str, value: object) -> None:
    check(name, value, "a name or a file", lambda given: isinstance(given, str))


FusionSettings = AutoSettings | FastSettings | PaperSettings

#: The settings by name. ``auto`` makes the best picture; ``fast`` chooses frames without a trained
#: model; ``paper`` is the letter read literally. `dataclasses.replace` makes others of them.
PRESETS: Mapping[str, FusionSettings] = MappingProxyType(
    {"auto": AutoSettings(), "fast": FastSettings(), "paper": PaperSettings()}
)


def resolve_preset(preset: str | FusionSettings) -> FusionSettings:
    """Look a preset's settings up."""
    if isinstance(preset, FusionSettings):
        return preset
    check("preset", preset, f"one of {', '.join(PRESETS)}", PRESETS.__contains__)
    return PRESETS[preset]


def preset_name(settings: FusionSettings) -> str:
    """Name the preset that settings belong to."""
    return next(name for name, known in PRESETS.items() if type(known) is type(settings))


def check_method(
    settings: FusionSettings,
    *,
    denoise: float,
    device: str,
    operator: AnalysisOperator | str | Path | None,
) -> AnalysisOperator | None:
    """Refuse, before any frame is read, what the method of these settings cannot do.

    The arguments are those of `fuse`. Returns the operator that measures activity, or None for the
    trained model, which has none.
    """
    check_number("denoise", denoise, 0, 1)
    check("device", device, f"one of {', '.join(DEVICES)}", lambda given: isinstance(given, str))
    if isinstance(settings, PaperSettings):
        if device not in ("auto", "cpu"):
            raise CofuseError(
                f"device {device} was asked for, but the preset paper runs on no device; use "
                "another preset, or `device='cpu'`"
            )
        if denoise != 1:
            raise CofuseError(
                f"`denoise` is {denoise}, but the letter's method restores whole; use the preset "
                "auto or fast, or sigma 0"
            )
    else:
        if device != "auto":
            resolve_device(device)
        model_folder(settings.model)
    if isinstance(settings, AutoSettings):
        if operator is not None:
            raise CofuseError(
                "an operator was given, but the trained model has filters of its own; use "
                "operators with the preset fast or paper"
            )
        return None
    if isinstance(operator, AnalysisOperator):
        return operator
    return load_operator(settings.operator if operator is None else operator)
