"""What every method of fusion shares: a stack and settings, progress, times and traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cofuse.fusion.choice import Choice
from cofuse.images import Fusion, Levels, Pixels, Stack, from_opponent, to_opponent
from cofuse.progress import Progress, ProgressCallback, SolverTrace
from cofuse.sensor import NoiseLaw, estimate_noise

__all__ = ["Run"]


@dataclass(kw_only=True)
class Run:
    """One fusion under way: what every stage needs, and what the stages leave behind."""

    stack: Stack
    progress: ProgressCallback
    #: The noise that was found or given, and its level as far as it is taken out.
    noise: NoiseLaw | None = None
    sigma: float = 0.0
    trace: dict[str, SolverTrace] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    #: Where the trained model works, as `resolve_device` says.
    device: str = "cpu"

    def find_noise(self, noise: NoiseLaw | None) -> NoiseLaw:
        """Take the noise as given, or estimate it; returns what is to be taken out."""
        removed = noise
        if noise is None:
            with self.stage("noise"):
                noise = estimate_noise(self.stack, progress=self.progress)
            removed = noise.to_remove()
        assert removed is not None
        self.noise, self.sigma = noise, removed.sigma
        return removed

    def result(self, image: Pixels, choice: Choice, *, estimated: bool) -> Fusion:
        """Put together what came out."""
        return Fusion(
            image=image,
            source_map=choice.index,
            confidence=choice.confidence,
            sigma=self.sigma,
            sigma_estimated=estimated,
            trace=self.trace,
            seconds=self.seconds,
            device=self.device,
            noise=self.noise,
        )

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
