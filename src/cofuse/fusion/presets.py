"""How to fuse: the settings, what they may be, and the presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.model.devices import DEVICES, resolve_device
from cofuse.model.runtime import model_folder
from cofuse.operators import AnalysisOperator, load_operator

__all__ = ["PRESETS", "FusionSettings", "check_method", "resolve_preset"]

#: What settings that are words may be.
_WORDS = {
    "method": ("mixed", "shrinkage", "letter"),
    "x_step": ("exact", "surrogate"),
}


@dataclass(frozen=True)
class FusionSettings:
    """How to fuse. The presets are instances of this; `dataclasses.replace` makes others.

    Attributes
    ----------
    method
        ``"mixed"``: the trained model weighs all frames at every pixel, band by band; their
        mixture is restored as far as noise is left in it. ``"shrinkage"``: choose pixels by
        windowed activity with small regions cleaned up; with noise, choose on shrunken frames and
        shrink the composed picture. ``"letter"``: the letter's method, patch by patch.
    model
        Name or folder of the trained model (mixed).
    operator
        Name or file of the operator that measures activity, and that the letter restores with
        (shrinkage, letter).
    window
        Side in pixels over which activity is averaged (shrinkage).
    smallest_region
        Regions of the choice smaller than this share of what is a frame's on average, the
        picture over the number of frames, are cleaned up (shrinkage).
    restoring_operator
        Name or file of the orthonormal operator that restores (shrinkage).
    stride
        Distance of neighbouring patches (letter). None is its "overlapping length 1" read
        literally, n − 1 (6 for patches of 7); 1 takes every patch.
    local_weight, global_weight
        λ and λ′ of the local estimate and the global reconstruction, as multiples of σ (letter).
    epsilon
        If given, the local estimate is constrained to ‖Ωx‖₁ ≤ ε on normalised patches instead of
        penalised; the letter's value is 0.1 (letter).
    accuracy
        Certified distance (RMS, grey levels) from the minimiser at which the global
        reconstruction stops; the real distance is several times smaller (letter).
    max_iterations
        Limit of every iterative solver (letter).
    x_step
        ``"exact"`` or ``"surrogate"``, the letter's first-order form (letter).
    """

    method: Literal["mixed", "shrinkage", "letter"] = "mixed"
    model: str = "auto"
    operator: str = "separable-7"
    window: int = 11
    smallest_region: float = 0.02
    restoring_operator: str = "dct-7"
    stride: int | None = None
    local_weight: float = 0.4
    global_weight: float = 0.03
    epsilon: float | None = None
    accuracy: float = 0.5
    max_iterations: int = 1000
    x_step: Literal["exact", "surrogate"] = "exact"

    def __post_init__(self) -> None:
        for name in ("local_weight", "global_weight", "smallest_region"):
            check_number(name, getattr(self, name), 0)
        for name in ("window", "stride", "max_iterations"):
            if name != "stride" or self.stride is not None:
                check_number(name, getattr(self, name), 1, whole=True)
        for name in ("accuracy", "epsilon"):
            if name != "epsilon" or self.epsilon is not None:
                check(name, getattr(self, name), "a number above 0", lambda v: 0 < v < np.inf)
        for name in ("model", "operator", "restoring_operator"):
            check(name, getattr(self, name), "a name or a file", lambda v: isinstance(v, str))
        for name, known in _WORDS.items():
            check(name, getattr(self, name), " or ".join(known), known.__contains__)


#: The settings by name. ``auto`` makes the best picture; ``fast`` does without the trained model;
#: ``paper`` is the letter read literally.
PRESETS = {
    "auto": FusionSettings(),
    "fast": FusionSettings(method="shrinkage"),
    "paper": FusionSettings(method="letter", operator="full-7"),
}


def resolve_preset(preset: str | FusionSettings) -> FusionSettings:
    """Look a preset's settings up."""
    if isinstance(preset, FusionSettings):
        return preset
    check("preset", preset, f"one of {', '.join(PRESETS)}", PRESETS.__contains__)
    return PRESETS[preset]


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
    if settings.method == "mixed":
        if operator is not None:
            raise CofuseError(
                "an operator was given, but the trained model has filters of its own; use "
                "operators with the preset fast or paper"
            )
        if device != "auto":
            resolve_device(device)
        model_folder(settings.model)
        return None
    if device not in ("auto", "cpu"):
        raise CofuseError(
            f"device {device} was asked for, but only the preset auto runs on devices; use it, or "
            "`device='cpu'`"
        )
    if settings.method == "letter" and denoise != 1:
        raise CofuseError(
            f"`denoise` is {denoise}, but the letter's method restores whole; use the preset auto "
            "or fast, or sigma 0"
        )
    if settings.method == "shrinkage":
        load_operator(settings.restoring_operator)
    if isinstance(operator, AnalysisOperator):
        return operator
    return load_operator(settings.operator if operator is None else operator)
