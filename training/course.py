"""A course of training: for a given time, from given weights or random ones."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import torch
from torch import Tensor

from cofuse.errors import CofuseError
from cofuse.model.network import Networks
from training.restoring import Noisy
from training.weighing import Stacks
from training.world.making import World

#: What can be trained, one at a time, and the networks that belong to it.
PARTS = {
    "weighing": ("filter", "compare", "relate", "look", "share", "weigh", "border"),
    "restoring": ("restore",),
}

#: Numbers of frames in a stack, and how often each is drawn.
_FRAMES = {2: 0.24, 3: 0.16, 4: 0.12, 6: 0.14, 9: 0.12, 16: 0.12, 28: 0.1}
#: Seconds to wait for a draw of the helpers.
_PATIENCE = 120
#: Numbers of frames of the stacks for validation.
_VALIDATION = (2, 2, 3, 5, 8)

_Batch = Stacks | Noisy


@dataclass(frozen=True, kw_only=True)
class CourseSettings:
    """How to train."""

    seconds: float  #: How long; the learning rate falls along a cosine to zero.
    part: str = "weighing"  #: One of `PARTS`.
    rate: float = 1e-3  #: Largest learning rate, after a short warming up.
    frames: int = 32  #: Frames, or pictures to restore, in a step.
    side: int = 256  #: Their side in pixels, a multiple of 16.
    validate_every: float = 60.0  #: Seconds.
    seed: int = 0
    #: Processes that draw scenes beside the training. Without any, scenes are drawn between steps,
    #: and the course can be repeated to the last bit.
    helpers: int = 0


@dataclass
class Course:
    """A training under way: the networks, their running mean, and the results of validation.

    ``left_out`` counts steps that were skipped because their gradient was not finite: every one
    is a fault of the scenes or of the loss.
    """

    networks: Networks
    average: Networks
    step: int = 0
    left_out: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)


def train(
    photos: Tensor,
    settings: CourseSettings,
    start: Networks,
    *,
    say: Callable[[Course], None] = lambda course: None,
) -> Course:
    """Train a copy of ``start`` on photographs (N, 3, H, W) of bytes, on the device they lie on.

    ``say`` is called after every validation; `Course.average` then has the weights.
    """
    # One photograph in fifteen is kept for validation.
    kept, used = photos[::15], photos[torch.arange(len(photos)) % 15 > 0]
    if not len(used):
        raise CofuseError("one picture was given; training needs some to learn from, one to check")
    networks = copy.deepcopy(start).to(photos.device, memory_format=torch.channels_last).train()
    course = Course(networks, copy.deepcopy(networks).eval())
    world = World(used, seed=settings.seed)
    if photos.is_cuda:
        networks.restore.compile()  # one size alone: rounding is fused with what it follows
    trained = [networks.get_submodule(name) for name in PARTS[settings.part]]
    parameters = [values for network in trained for values in network.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4, betas=(0.9, 0.98))
    validation = _validation(World(kept, seed=1), settings)
    drawing = drawn_beside(used, settings) if settings.helpers else draws(world, settings)
    with closing(drawing) as batches:
        # Every batch is used several times, flipped: drawing takes longer than a step.
        parts = (part for batch in batches for part in batch.parts(world.canvas))
        began, next_time = time.perf_counter(), settings.validate_every
        while (seconds := time.perf_counter() - began) < settings.seconds:
            for group in optimiser.param_groups:
                group["lr"] = rate_of(settings, course.step, seconds / settings.seconds)
            loss = next(parts).loss(networks)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            if bool(torch.isfinite(norm)):
                optimiser.step()
            else:
                course.left_out += 1
            course.step += 1
            follow(course)
            if seconds > next_time:
                next_time += settings.validate_every
                _validate(course, validation, seconds, say)
        _validate(course, validation, settings.seconds, say)
    return course


def rate_of(settings: CourseSettings, step: int, done: float) -> float:
    """Learning rate of a step, when a part ``done`` of the time is over."""
    warm = min(1.0, (step + 1) / 200)
    return settings.rate * warm * (0.5 + 0.5 * math.cos(math.pi * min(done, 1.0)) + 1e-3)


def follow(course: Course) -> None:
    """Let the running mean follow: freely at first, then over the last few hundred steps."""
    pace = max(1.0 / course.step, 0.003)
    means, values = list(course.average.parameters()), list(course.networks.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(means, values, pace)


def draws(world: World, settings: CourseSettings) -> Generator[_Batch, None, None]:
    """Draw for ever; all batches have about the same number of frames."""
    while True:
        if settings.part == "restoring":
            yield Noisy.draw(world, settings.frames, settings.side)
        else:
            count = world.canvas.pick(_FRAMES)
            yield Stacks.draw(world, 2 * max(1, settings.frames // count), count, settings.side)


def _draw_into(queue: Any, photos: Tensor, settings: CourseSettings, seed: int) -> None:
    """Draw in a process of its own, for ever."""
    if photos.is_cuda:
        # Half for all helpers. Without a limit, torch keeps memory that is no longer used.
        torch.cuda.set_per_process_memory_fraction(0.5 / settings.helpers)
    world = World(photos, seed=seed)
    while True:
        try:
            for batch in draws(world, settings):
                queue.put(batch)
        except torch.OutOfMemoryError:
            # Scenes differ in size: one that does not fit beside the others is left out.
            torch.cuda.empty_cache()


def drawn_beside(photos: Tensor, settings: CourseSettings) -> Generator[_Batch, None, None]:
    """Draw in processes beside the training, which end with it: both wait for the device."""
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue(2 * settings.helpers)
    helpers = []
    try:
        for number in range(settings.helpers):
            given = (queue, photos, settings, settings.seed + 1000 + number)
            helpers.append(context.Process(target=_draw_into, args=given, daemon=True))
            helpers[-1].start()
        while True:
            yield queue.get(timeout=_PATIENCE)
    except Empty as error:
        raise CofuseError(
            f"no helper has drawn anything for {_PATIENCE} seconds; train with fewer of them, or "
            "with none"
        ) from error
    finally:
        for helper in helpers:
            helper.terminate()
        for helper in helpers:
            helper.join()


def _validation(world: World, settings: CourseSettings) -> list[_Batch]:
    side = settings.side
    if settings.part == "restoring":
        white = [Noisy.draw_white(world, 24, side, sigma) for sigma in (15.0, 25.0)]
        return [*white, *(Noisy.draw(world, 24, side) for _ in range(8))]
    return [Stacks.draw(world, 4, count, side) for count in _VALIDATION for _ in range(2)]


def _validate(
    course: Course, validation: list[_Batch], seconds: float, say: Callable[[Course], None]
) -> None:
    for ours, theirs in zip(course.average.buffers(), course.networks.buffers(), strict=True):
        ours.copy_(theirs)  # steps of rounding follow running maxima already
    with torch.no_grad():
        figures = [round(batch.psnr(course.average), 2) for batch in validation]
    row = {"step": course.step, "seconds": round(seconds, 1), "left_out": course.left_out}
    course.curve.append({**row, "psnr": figures})
    say(course)
