"""`fuse`: from a stack to one sharp, clean picture; the order of the stages and their settings.

The noise level σ is always in 8-bit grey levels (0-255 scale), whatever the depth of the frames.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.cosparse import estimate_patches
from cofuse.errors import CofuseError
from cofuse.images import Fusion, Pixels, Stack, from_opponent, luminance_noise, to_opponent
from cofuse.noise import noise_to_remove
from cofuse.operators import AnalysisOperator, load_operator
from cofuse.patches import average_patches, patch_positions
from cofuse.progress import Progress, ProgressCallback, SolverTrace, silent
from cofuse.reconstruction import check_orthonormal, reconstruct, shrink, shrink_twice
from cofuse.selection import (
    Choice,
    choose,
    compose,
    gather_patches,
    patch_activity,
    patch_votes,
    remove_small_regions,
    window_activity,
)

__all__ = ["PRESETS", "FusionSettings", "fuse"]

Levels = NDArray[np.float32]


@dataclass(frozen=True)
class FusionSettings:
    """How to fuse. The two presets are instances of this; `dataclasses.replace` makes others.

    Attributes
    ----------
    method
        ``"shrinkage"``: choose pixels by windowed activity with small regions cleaned up; with
        noise, choose on shrunken frames and shrink the composed picture. Without noise pixels
        away from seams are copied. ``"letter"``: the letter's method, patch by patch.
    operator
        Name or file of the operator that measures activity, and that the letter restores with.
    window
        Side in pixels over which activity is averaged (shrinkage).
    smallest_region
        Regions of the choice smaller than this share of what is a frame's on average, the
        picture over the number of frames, are cleaned up (shrinkage).
    seam
        Side in pixels of the window over which frames are blended where a hard seam would show;
        1 for plain copies everywhere (shrinkage).
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

    method: Literal["shrinkage", "letter"] = "shrinkage"
    operator: str = "separable-7"
    window: int = 11
    smallest_region: float = 0.02
    seam: int = 5
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
            _check(name, getattr(self, name), "a number, 0 or more", lambda v: 0 <= v < np.inf)
        for name in ("accuracy", "epsilon"):
            _check(name, getattr(self, name), "a number above 0", lambda v: 0 < v < np.inf)
        for name in ("window", "seam", "stride", "max_iterations"):
            _check(name, getattr(self, name), "a whole number, 1 or more", _is_count)
        _check("method", self.method, "shrinkage or letter", {"shrinkage", "letter"}.__contains__)
        _check("x_step", self.x_step, "exact or surrogate", {"exact", "surrogate"}.__contains__)


def _check(name: str, value: Any, expected: str, fits: Callable[[Any], bool]) -> None:
    """Refuse a setting that does not fit; None stands for what the method itself decides."""
    if value is not None and not fits(value):
        raise CofuseError(f"{name} is {value!r}; expected {expected}")


def _is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least one."""
    return isinstance(value, int | np.integer) and int(value) >= 1


#: The settings by name. ``paper`` is the letter read literally; ``auto`` is free to be better.
PRESETS = {
    "auto": FusionSettings(),
    "paper": FusionSettings(method="letter", operator="full-7"),
}


def fuse(
    frames: Stack | Sequence[ArrayLike],
    *,
    sigma: float | None = None,
    preset: str | FusionSettings = "auto",
    align: bool = True,
    operator: AnalysisOperator | str | Path | None = None,
    white: float | None = None,
    progress: ProgressCallback = silent,
) -> Fusion:
    """Fuse frames focused at different distances into one sharp picture, and remove their noise.

    Parameters
    ----------
    frames
        A `Stack`, or a sequence of arrays of one shape, (H, W) or (H, W, 3), and one dtype:
        uint8, uint16, float32 or float64. They are never written to. A single frame is restored,
        with a warning.
    sigma
        Standard deviation of the noise in 8-bit grey levels (0-255 scale) whatever the depth;
        0 for clean frames, None to estimate it.
    preset
        ``"auto"``, ``"paper"``, or settings of your own.
    align
        Reserved for the alignment of frames; they are at present taken as aligned either way.
    operator
        An operator (or its name or file) to use in place of the preset's.
    white
        The value of white when ``frames`` are arrays; see `Stack`.
    progress
        Called with a `Progress` now and then; may raise to cancel.

    Returns
    -------
    Fusion
        Its ``image`` has the shape, dtype and range of the frames.
    """
    stack = frames if isinstance(frames, Stack) else Stack.from_arrays(frames, white=white)
    settings = _resolve(preset)
    if not isinstance(operator, AnalysisOperator):
        operator = load_operator(operator or settings.operator)
    patch_positions(stack.shape, operator.patch_size, 1)  # refuses a picture below patch size
    run = _Run(stack, settings, operator, progress)
    if len(stack) == 1:
        warnings.warn("one frame only: there is nothing to fuse, it is restored", stacklevel=2)
    if sigma is None:
        with run.stage("noise"):
            run.sigma = noise_to_remove(stack, progress=progress)
    else:
        if not 0 <= sigma < np.inf:
            raise CofuseError(f"sigma is {sigma}; expected a number of grey levels, 0 or more")
        run.sigma = float(sigma)
    image, choice = run.letter() if settings.method == "letter" else run.shrinkage()
    return Fusion(
        image,
        choice.index,
        choice.confidence,
        run.sigma,
        sigma is None,
        run.trace,
        run.seconds,
    )


def _resolve(preset: str | FusionSettings) -> FusionSettings:
    """Look a preset's settings up."""
    if isinstance(preset, FusionSettings):
        return preset
    if preset not in PRESETS:
        raise CofuseError(f"there is no preset {preset!r}; known are {', '.join(PRESETS)}")
    return PRESETS[preset]


@dataclass
class _Run:
    """One fusion under way: what every stage needs, and what the stages leave behind."""

    stack: Stack
    settings: FusionSettings
    operator: AnalysisOperator
    progress: ProgressCallback
    sigma: float = 0.0
    trace: dict[str, SolverTrace] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def shrinkage(self) -> tuple[Pixels, Choice]:
        """Choose pixels, compose, and where there is noise restore the composed picture."""
        stack, settings = self.stack, self.settings
        restoring = load_operator(settings.restoring_operator) if self.sigma > 0 else None
        if restoring:
            patch_positions(stack.shape, restoring.patch_size, 1)
            check_orthonormal(restoring)

        def activity(index: int) -> Levels:
            picture = stack.luminance(index)
            if restoring:
                picture = shrink(picture, restoring, sigma=luminance_noise(stack, self.sigma))
            return window_activity(picture, self.operator, window=settings.window)

        with self.stage("choice"):
            choice = choose(self.each_frame("choice", activity))
            fair_share = choice.index.size / len(stack)
            choice = remove_small_regions(choice, round(settings.smallest_region * fair_share))
        with self.stage("composition"):
            frames = self.each_frame("composition", stack.__getitem__)
            image = compose(stack, frames, choice.index, seam=settings.seam)
        if restoring:
            with self.stage("restoration"):
                image = self.by_plane(
                    "restoration",
                    stack.to_levels(image),
                    lambda plane, _: shrink_twice(plane, restoring, sigma=self.sigma),
                )
        return image, choice

    def letter(self) -> tuple[Pixels, Choice]:
        """Choose patches, estimate each, average them, and reconstruct the whole."""
        stack, settings, n = self.stack, self.settings, self.operator.patch_size
        shape = (stack.height, stack.width)
        positions = patch_positions(shape, n, settings.stride or n - 1)

        def activity(index: int) -> Levels:
            return patch_activity(stack.luminance(index), self.operator, positions)

        with self.stage("choice"):
            chosen = choose(self.each_frame("choice", activity))
            choice = patch_votes(chosen, len(stack), n, shape, positions)

        def frame_planes(index: int) -> Levels:
            return to_opponent(stack.to_levels(stack[index]))

        with self.stage("local estimate"):
            frames = self.each_frame("local estimate", frame_planes)
            planes = gather_patches(frames, chosen.index, n, positions)
            estimates = []
            for name, patches in zip(self.plane_names(), planes, strict=True):
                if self.sigma > 0:
                    patches, trace = estimate_patches(
                        patches,
                        self.operator,
                        weight=settings.local_weight * self.sigma,
                        epsilon=settings.epsilon,
                        x_step=settings.x_step,
                        max_iterations=settings.max_iterations,
                    )
                    self.trace[f"local estimate{name}"] = trace
                estimates.append(average_patches(patches, shape, positions))
        with self.stage("reconstruction"):
            estimate = from_opponent(np.stack(estimates, axis=-1))
            image = self.by_plane("planes", estimate, self.reconstruct_plane)
        return image, choice

    def reconstruct_plane(self, plane: Levels, name: str) -> Levels:
        """Solve the letter's global problem on one plane; without noise there is none."""
        if self.sigma == 0 or self.settings.global_weight == 0:
            return plane
        plane, self.trace[f"reconstruction{name}"] = reconstruct(
            plane,
            self.operator,
            weight=self.settings.global_weight * self.sigma,
            accuracy=self.settings.accuracy,
            max_iterations=self.settings.max_iterations,
            progress=self.progress,
        )
        return plane

    def by_plane(self, stage: str, levels: Levels, work: Callable[[Levels, str], Levels]) -> Pixels:
        """Restore luminance and chrominance planes one by one and return native pixels."""
        planes = to_opponent(levels)
        done = []
        for index, name in enumerate(self.plane_names()):
            done.append(work(np.ascontiguousarray(planes[..., index]), name))
            self.progress(Progress(stage, index + 1, planes.shape[-1]))
        return self.stack.from_levels(from_opponent(np.stack(done, axis=-1)))

    def plane_names(self) -> tuple[str, ...]:
        """Suffixes that tell the planes of a colour picture apart in traces."""
        return (" Y", " C1", " C2") if self.stack.is_colour else ("",)

    def each_frame(self, stage: str, work: Callable[[int], Any]) -> Iterator[Any]:
        """Do ``work`` on one frame after the other, reporting each."""
        for index in range(len(self.stack)):
            yield work(index)
            self.progress(Progress(stage, index + 1, len(self.stack)))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
