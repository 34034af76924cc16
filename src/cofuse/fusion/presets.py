"""The presets: what each method can be set to, and the memory that it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import DTypeLike

from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.images.memory import default_ceiling, format_size, most_memory, used_memory
from cofuse.model import tiling
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


# --- memory ---------------------------------------------------------------------------------------
# Known before the first frame is decoded. Frames, and whole pictures in floats, lie in temporary
# files, which the system keeps in memory as long as there is room. What the process itself holds
# are the result, its maps and the tiles at work. The byte counts were measured on colour stacks of
# 2 to 24 megapixels (`benchmarks/memory.py`).

#: Bytes of the program with its libraries and compiled kernels.
_PROGRAM = 220_000_000
#: Bytes that every stage takes whatever the size of the picture, and that the noise estimate takes.
_SPARE, _NOISE = 60_000_000, 360_000_000
#: Bytes a pixel, beside the result, of `paper`.
_PAPER_BYTES = 650


@dataclass(frozen=True)
class Work:
    """What is to be fused: frames of a shape and dtype, by a preset.

    ``in_memory`` says that the frames are arrays which the process has already, ``restores`` that
    noise may have to be taken out.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    frames: int
    preset: str = "auto"
    in_memory: bool = False
    restores: bool = True


@dataclass(frozen=True)
class Plan:
    """Side of the tiles of `auto` in pixels, and the bytes needed at most."""

    side: int
    peak: int


def plan_fusion(work: Work, *, max_memory: int | None = None, begun: bool = False) -> Plan:
    """Choose the tiles.

    Parameters
    ----------
    work
        What is to be fused.
    max_memory
        Most bytes that the process may have. Default: a safe share of what is free.
    begun
        Whether the frames are at hand already: then too little free memory is no longer a reason
        to refuse, only ``max_memory`` is.

    Raises
    ------
    CofuseError
        Even with small tiles it would take more than ``max_memory``, or than there is.
    """
    least = least_memory(work)
    most = max_memory or least if begun else most_memory(max_memory)
    if least > most:
        height, width = work.shape[:2]
        named = max_memory is not None and most == max_memory
        remedy = "close other programs, raise the limit that is set"
        if named:
            remedy = "allow more with `max_memory`"
        raise CofuseError(
            f"{work.frames} frames of {width}x{height} pixels need {format_size(least)} of memory "
            f"at least, but only {format_size(most)} {'may be used' if named else 'can be had'}; "
            f"{remedy}, or make the frames smaller"
        )
    # What the caller has already, leftovers and arrays, makes tiles smaller but refuses nothing.
    sides = tiling.tile_sides(work.frames)
    if _peak(work, sides[0]) == least:  # there is no need to ask the system
        return Plan(sides[0], least)
    more = max(0, used_memory() - _PROGRAM)
    left = (default_ceiling() if max_memory is None else max_memory) - more
    side = next((s for s in sides if _peak(work, s) <= left), tiling.LEAST_SIDE)
    return Plan(side, _peak(work, side))


def least_memory(work: Work) -> int:
    """Bytes that a fusion takes with small tiles."""
    return _peak(work, tiling.LEAST_SIDE)


def _peak(work: Work, side: int) -> int:
    """Most bytes of the process at any stage, beside arrays of the caller's."""
    from cofuse.fusion import fast

    height, width = work.shape[:2]
    pixels, channels = height * width, math.prod(work.shape[2:])
    frame = pixels * channels * np.dtype(work.dtype).itemsize
    # While frames come in: the file, the picture, the aligned picture, and the reference.
    stages = [0 if work.in_memory else 5 * frame]
    if work.preset == "paper":
        stages.append(_PAPER_BYTES * pixels + frame)
    else:
        maps = pixels * ((1 if work.frames <= 256 else 2) + 4)
        tiles = tiling.working_bytes((height, width), work.frames, side)
        if work.preset == "fast":
            tiles = fast.working_bytes((height, width))
        if work.restores:
            tiles = max(tiles, tiling.restoring_bytes((height, width)))
        stages += [
            (0 if work.in_memory else frame) + _NOISE,
            maps + frame + tiles,
            maps + 3 * frame,  # writing to a compressed format
        ]
    return _PROGRAM + _SPARE + max(stages)
