"""A course of training: so many minutes, from weights or from nothing, to weights."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cofuse.errors import CofuseError
from cofuse.learning.training.steps import (
    Stacks,
    drawn,
    turned,
    weighing_loss,
    weights_of,
)
from cofuse.learning.training.told import mixed
from cofuse.learning.world import World
from cofuse.model.network import Networks

__all__ = ["Course", "CourseSettings", "train"]

#: Numbers of frames that stacks have, and how often; a step has about as many frames in all.
_FRAMES = {2: 0.28, 3: 0.2, 4: 0.16, 6: 0.14, 9: 0.12, 16: 0.06, 28: 0.04}
#: Every so many photographs one is kept for validation.
_KEPT_ASIDE = 15
#: Stacks of validation: how many frames they have.
_VALIDATION = (2, 2, 3, 5, 8)


@dataclass(frozen=True)
class CourseSettings:
    """How to train.

    Attributes
    ----------
    seconds
        How long; the rate falls along a cosine to nothing.
    rate
        Largest learning rate, after a short warming up.
    frames
        Frames in a step.
    side
        Side of the stacks in pixels, a multiple of 16.
    """

    seconds: float
    rate: float = 1e-3
    frames: int = 32
    side: int = 256
    validate_every: float = 60.0
    seed: int = 0


@dataclass
class Course:
    """A training under way: the networks, their running mean, and what validation said."""

    settings: CourseSettings
    networks: Networks
    average: Networks
    world: World
    step: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)


def train(
    photos: Tensor,
    settings: CourseSettings,
    *,
    start: Networks | None = None,
    say: Callable[[Course], None] = lambda course: None,
) -> Course:
    """Train on photographs (N, 3, H, W) of bytes, on the device that they lie on.

    ``say`` is told of every validation, while `Course.average` has the weights.
    """
    kept, used = photos[::_KEPT_ASIDE], photos[torch.arange(len(photos)) % _KEPT_ASIDE > 0]
    if not len(used):
        raise CofuseError("one picture was given; training needs some to learn from, one to check")
    torch.manual_seed(settings.seed)
    networks = Networks() if start is None else copy.deepcopy(start)
    networks = networks.to(photos.device, memory_format=torch.channels_last)
    course = Course(settings, networks, copy.deepcopy(networks), World(used, seed=settings.seed))
    world = World(kept, seed=1)
    validation = [drawn(world, 4, count, settings.side) for count in _VALIDATION for _ in range(2)]
    parameters = list(networks.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4, betas=(0.9, 0.98))
    stacks = _stacks(course)
    began, next_time = time.perf_counter(), settings.validate_every
    while (seconds := time.perf_counter() - began) < settings.seconds:
        for group in optimiser.param_groups:
            group["lr"] = _rate(settings, course.step, seconds / settings.seconds)
        loss = weighing_loss(networks, next(stacks))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if bool(torch.isfinite(norm)):
            optimiser.step()
        course.step += 1
        _follow(course)
        if seconds > next_time:
            next_time += settings.validate_every
            _validate(course, validation, seconds, say)
    _validate(course, validation, settings.seconds, say)
    return course


def _rate(settings: CourseSettings, step: int, done: float) -> float:
    warm = min(1.0, (step + 1) / 200)
    return settings.rate * warm * (0.5 + 0.5 * math.cos(math.pi * min(done, 1.0)) + 1e-3)


def _follow(course: Course) -> None:
    """Let the running mean follow: freely at first, then over the last few hundred steps."""
    pace = max(1.0 / course.step, 0.003)
    means, values = list(course.average.parameters()), list(course.networks.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(means, values, pace)


def _stacks(course: Course) -> Iterator[Stacks]:
    chance, settings = course.world.chance, course.settings
    counts = {str(count): share for count, share in _FRAMES.items()}
    while True:
        count = int(chance.pick(**counts))
        batch = max(1, settings.frames // count)
        yield from turned(drawn(course.world, 2 * batch, count, settings.side), course.world, 2)


def _psnr(picture: Tensor, truth: Tensor) -> float:
    error = (picture.float().clamp(0, 1) - truth).square().mean((1, 2, 3))
    return float((-10 * torch.log10(error + 1e-7)).mean())


def _validate(
    course: Course, validation: list[Stacks], seconds: float, say: Callable[[Course], None]
) -> None:
    row: dict[str, Any] = {"step": course.step, "seconds": round(seconds, 1)}
    figures = []
    with torch.no_grad():
        for stacks in validation:
            s = stacks.scenes
            weights = weights_of(course.average, s.frames, stacks.levels, s.floor, s.reference)
            figures.append(_psnr(sum(mixed(s.clean, weights)), s.truth))
    row["psnr"] = [round(figure, 2) for figure in figures]
    course.curve.append(row)
    say(course)
