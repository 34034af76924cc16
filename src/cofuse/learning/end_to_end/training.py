"""Training the joint model end to end on stacks made on the fly."""

from __future__ import annotations

import copy
import hashlib
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofuse.errors import CofuseError
from cofuse.learning.end_to_end import network as networks
from cofuse.learning.end_to_end.losses import SMALL_ERROR, choice_loss, log_error, ssim
from cofuse.learning.end_to_end.network import JointNetwork
from cofuse.learning.end_to_end.scenes import SceneMaker, Scenes
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = ["Training", "TrainingSettings", "pick_device", "train"]

#: Numbers of frames a step may have, and how often each comes.
_FRAMES = {1: 0.15, 2: 0.38, 3: 0.13, 4: 0.08, 5: 0.12, 8: 0.08, 10: 0.06}
#: What validation looks at: frames and noise of its stacks.
_VALIDATION = ((1, 15.0), (2, 0.0), (2, 15.0), (2, 25.0), (5, 0.0), (5, 15.0))
#: How often it draws, and stacks in a draw: those of one draw are scenes of the same kind.
_VALIDATION_DRAWS, _VALIDATION_STACKS = 12, 2
#: Every so many pictures one is kept for validation.
_KEPT_ASIDE = 20
_CLEAN = 0.7
_LARGEST_SIGMA = 50.0


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes
    ----------
    steps, batch, side
        Number of updates, stacks in each, and side in pixels of the stacks.
    stages, filters, coarse_filters
        Size of the unrolled part: steps, and filters of a step at full and at half size.
    frames
        Numbers of frames that stacks may have.
    rate
        Largest learning rate; warmed up, then lowered along a cosine.
    structure
        How much of the loss is the log of 1 − SSIM; the rest is the log of the squared error.
    validate_every, patience
        Steps between validations; training stops early after so many without a better one.
    seed
        Seed of all that is random.
    """

    steps: int = 5000
    batch: int = 32
    side: int = 160
    stages: int = 5
    filters: int = 64
    coarse_filters: int = 24
    frames: tuple[int, ...] = tuple(_FRAMES)
    rate: float = 3e-3
    structure: float = 0.2
    validate_every: int = 500
    patience: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "side", "stages", "filters", "coarse_filters")
        for name in (*counts, "validate_every", "patience"):
            if getattr(self, name) < 1:
                raise CofuseError(f"`{name}` is {getattr(self, name)}; expected 1 or more")
        if self.side < 48 or self.filters < 48:
            raise CofuseError(
                f"side {self.side} and {self.filters} filters were given; expected 48 or more each"
            )
        if not self.frames or (unknown := set(self.frames) - _FRAMES.keys()):
            given = ", ".join(map(str, sorted(unknown))) if self.frames else "none"
            known = ", ".join(map(str, _FRAMES))
            raise CofuseError(f"numbers of frames to train with: {given}; expected some of {known}")
        if not 0 < self.rate < 1:
            raise CofuseError(f"the learning rate is {self.rate}; expected a number from 0 to 1")


@dataclass
class Training:
    """A training under way or done: the weights so far, their running mean and the curve."""

    settings: TrainingSettings
    network: JointNetwork
    average: JointNetwork
    optimiser: torch.optim.Optimizer
    scenes: SceneMaker
    step: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    stopped_early: bool = False
    seconds: float = 0.0

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The best weights as arrays by name."""
        state = self.best or self.average.state_dict()
        return {name: value.detach().cpu().numpy() for name, value in state.items()}

    def save(self, path: Path) -> None:
        """Write all that is needed to go on."""
        partial = path.with_name(path.name + ".partial")
        torch.save(
            {
                "settings": asdict(self.settings),
                "pictures": _digest(self.scenes.pictures),
                "network": self.network.state_dict(),
                "average": self.average.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "device_generator": self.scenes.generator.get_state(),
                "host_generator": self.scenes.host.get_state(),
                "step": self.step,
                "curve": self.curve,
                "best": self.best,
                "stopped_early": self.stopped_early,
                "seconds": self.seconds,
            },
            partial,
        )
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on where a checkpoint of the same settings was written."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            known = state["settings"], state["pictures"]
        except Exception as error:  # a file that is none of ours can fail in any way
            raise CofuseError(
                f"{path} is no checkpoint of a training ({type(error).__name__}); name another file"
            ) from error
        if known != (asdict(self.settings), _digest(self.scenes.pictures)):
            raise CofuseError(
                f"{path} is from a training with other settings or pictures; go on with the same "
                "ones, or remove it to start anew"
            )
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.scenes.generator.set_state(state["device_generator"])
        self.scenes.host.set_state(state["host_generator"])
        self.step, self.curve = state["step"], state["curve"]
        self.stopped_early, self.seconds = state["stopped_early"], state["seconds"]
        best = state["best"]
        self.best = best and {name: value.to(self.scenes.device) for name, value in best.items()}


def train(
    pictures: Sequence[NDArray[Any]],
    settings: TrainingSettings,
    *,
    device: str,
    start: Mapping[str, NDArray[np.float32]] | None = None,
    checkpoint: Path | None = None,
    progress: ProgressCallback = silent,
) -> Training:
    """Train on sharp pictures of grey levels; goes on from ``checkpoint`` where it exists.

    ``start`` are the arrays of a trained model to set out from.
    """
    kept = same_size(pictures[::_KEPT_ASIDE])
    used = [picture for index, picture in enumerate(pictures) if index % _KEPT_ASIDE]
    if not used:
        raise CofuseError("one picture was given; training needs some to learn from, one to check")
    run = _prepare(same_size(used), settings, device, start)
    _check_side(kept, settings)
    if checkpoint and checkpoint.exists():
        run.load(checkpoint)
    validation = list(_validation_stacks(kept.to(device), settings))
    if start is not None and run.step == 0:
        _validate(run, validation)  # what is to be bettered
    if device == "cuda":
        _compile_slope()
    began = time.perf_counter() - run.seconds
    while run.step < settings.steps and not run.stopped_early:
        _set_rates(run)
        loss = _loss(run)
        run.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(run.network.parameters(), 1.0)
        if bool(torch.isfinite(norm)):
            run.optimiser.step()
        run.step += 1
        _follow(run)
        if run.step % settings.validate_every == 0 or run.step == settings.steps:
            _validate(run, validation)
            run.seconds = time.perf_counter() - began
            if checkpoint:
                run.save(checkpoint)
        progress(Progress("training", run.step, settings.steps))
    return run


def pick_device(name: str) -> str:
    """Check a device's name; ``auto`` takes the best there is."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return next(device for device, is_there in there.items() if is_there)
    if name not in there:
        raise CofuseError(f"the device is {name!r}; expected auto, {', '.join(there)}")
    if not there[name]:
        raise CofuseError(f"there is no {name} device on this machine; use `device='cpu'`")
    return name


def _compile_slope() -> None:
    """Fuse the penalty's arithmetic on a GPU: its planes are most of the traffic of a step."""
    plain = networks.penalty_slope
    sample = torch.rand(1, 1, 8, 8, device="cuda", requires_grad=True)
    numbers = torch.ones(4, 1, 1, 1, 1, device="cuda")
    try:
        fused = torch.compile(plain)
        fused(sample, sample, sample, numbers, numbers).sum().backward()
    except Exception as error:  # whatever is missing for compiling, training works without
        warnings.warn(f"torch.compile failed, training goes on without: {error}", stacklevel=3)
    else:
        networks.penalty_slope = fused


def same_size(pictures: Sequence[NDArray[Any]]) -> Tensor:
    """Stack pictures, each cut to the smallest height and width among them."""
    height = min(picture.shape[0] for picture in pictures)
    width = min(picture.shape[1] for picture in pictures)
    # Scenes are turned by a quarter now and then.
    side = min(height, width)
    cut = [
        picture[(h - side) // 2 :, (w - side) // 2 :][:side, :side]
        for picture in pictures
        for h, w in [picture.shape]
    ]
    return torch.from_numpy(np.stack(cut).astype(np.float32))


def _prepare(
    pictures: Tensor,
    settings: TrainingSettings,
    device: str,
    start: Mapping[str, NDArray[np.float32]] | None,
) -> Training:
    """Set a new training up."""
    _check_side(pictures, settings)
    torch.manual_seed(settings.seed)
    network = JointNetwork(settings.stages, settings.filters, settings.coarse_filters)
    if start is not None:
        state = {name: torch.tensor(values) for name, values in start.items()}
        try:
            network.load_state_dict(state)
        except RuntimeError as error:
            raise CofuseError(
                "the model to start from has other sizes than the one to be trained"
            ) from error
    network = network.to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.rate)
    scenes = SceneMaker(pictures.to(device), seed=settings.seed)
    return Training(settings, network, copy.deepcopy(network), optimiser, scenes)


def _check_side(pictures: Tensor, settings: TrainingSettings) -> None:
    """Refuse pictures that are smaller than the stacks to be cut from them."""
    if pictures.shape[-1] < settings.side:
        raise CofuseError(
            f"the smallest picture is {pictures.shape[-1]} pixels wide or high; expected at least "
            f"the side of the stacks, {settings.side}"
        )


def _digest(pictures: Tensor) -> str:
    """Tell sets of pictures apart."""
    return hashlib.sha256(pictures.cpu().numpy().tobytes()).hexdigest()


def _set_rates(run: Training) -> None:
    """Warm up over the first steps, then follow a cosine down to nothing."""
    warm = min(1.0, (run.step + 1) / min(200, run.settings.steps))
    cosine = 0.5 + 0.5 * math.cos(math.pi * run.step / run.settings.steps)
    for group in run.optimiser.param_groups:
        group["lr"] = run.settings.rate * warm * (cosine + 1e-3)


def _follow(run: Training) -> None:
    """Let the running mean follow: freely at first, then over the last few hundred steps."""
    pace = max(1.0 / run.step, 0.004)
    means, values = list(run.average.parameters()), list(run.network.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(means, values, pace)


def _loss(run: Training) -> Tensor:
    """Draw a batch and judge what the network makes of it."""
    scenes, settings = run.scenes, run.settings
    count = _draw_count(scenes, settings)
    clean = count > 1 and scenes.chance(0.5)
    # Sides that are no multiple of the coarsest pixel teach what a border looks like.
    side = settings.side - 12 * scenes.whole(0, 1)
    stacks = scenes.draw(settings.batch, count, side=side)
    noisy, sigma = _add_noise(scenes, stacks, clean=clean)
    output = run.network(noisy, sigma, restore=not clean)
    picture = output.mixed if clean else output.restored
    loss = log_error(picture, stacks.truth)
    if settings.structure and not clean:
        loss = (1.0 - settings.structure) * loss
        loss = loss + settings.structure * torch.log(1.001 - ssim(picture, stacks.truth)).mean()
    if count > 1:
        loss = loss + (0.5 if clean else 0.1) * choice_loss(output.choice, stacks)
    return loss


def _draw_count(scenes: SceneMaker, settings: TrainingSettings) -> int:
    """Draw a number of frames."""
    at = scenes.number(0.0, sum(_FRAMES[count] for count in settings.frames))
    for count in settings.frames:
        at -= _FRAMES[count]
        if at < 0:
            break
    return count


def _add_noise(scenes: SceneMaker, stacks: Scenes, *, clean: bool) -> tuple[Tensor, Tensor]:
    """Add white noise, in some batches of another level in every frame."""
    batch, count = stacks.frames.shape[:2]
    if clean:
        sigma = _CLEAN * scenes.uniform(batch, 1)
    else:
        sigma = torch.exp(scenes.uniform(batch, 1) * math.log(_LARGEST_SIGMA))
    sigma = sigma.repeat(1, count)
    if scenes.chance(0.15):
        sigma = sigma * torch.exp(1.4 * (scenes.uniform(batch, count) - 0.5))
    noisy = stacks.frames + sigma[..., None, None] * scenes.normal(*stacks.frames.shape)
    if clean and scenes.chance(0.4):
        noisy = noisy + scenes.grain(batch, count, *stacks.frames.shape[2:])
    if clean and scenes.chance(0.7):
        noisy = noisy.round().clamp(0.0, 255.0)
        if scenes.chance(0.7):
            noisy = scenes.compressed(noisy)
    return noisy, sigma


def _validation_stacks(
    pictures: Tensor, settings: TrainingSettings
) -> Iterator[tuple[int, float, Tensor, Scenes]]:
    """Make the same noisy stacks every time."""
    for number, (count, sigma) in enumerate(_VALIDATION):
        scenes = SceneMaker(pictures, seed=1000 + number)
        for _ in range(_VALIDATION_DRAWS):
            stacks = scenes.draw(_VALIDATION_STACKS, count, side=settings.side)
            yield count, sigma, stacks.frames + sigma * scenes.normal(*stacks.frames.shape), stacks


def _validate(run: Training, validation: list[tuple[int, float, Tensor, Scenes]]) -> None:
    """Measure the averaged weights, keep the best, and stop when they no longer improve."""
    row: dict[str, Any] = {"step": run.step}
    with torch.no_grad():
        for count, sigma, noisy, stacks in validation:
            output = run.average(noisy, noisy.new_full(noisy.shape[:2], sigma), restore=sigma > 0)
            picture = output.mixed if sigma == 0 else output.restored
            name = f"K={count} sigma={sigma:g}"
            row.setdefault(name, []).append(_psnr(picture, stacks.truth))
            if sigma == 0:
                best = output.choice.argmax(1, keepdim=True)
                copied = torch.gather(noisy, 1, best)[:, 0]
                row.setdefault(f"{name} copied", []).append(_psnr(copied, stacks.truth))
    row.update({name: float(np.mean(v)) for name, v in row.items() if isinstance(v, list)})
    row["mean"] = float(np.mean([value for name, value in row.items() if name != "step"]))
    previous = max((earlier["mean"] for earlier in run.curve), default=-math.inf)
    run.curve.append(row)
    if row["mean"] > previous:
        run.best = {name: value.clone() for name, value in run.average.state_dict().items()}
    last_best = max(range(len(run.curve)), key=lambda index: run.curve[index]["mean"])
    run.stopped_early = len(run.curve) - 1 - last_best >= run.settings.patience


def _psnr(picture: Tensor, truth: Tensor) -> float:
    """Mean PSNR in dB; errors far below a grey level no longer count, as in the loss."""
    errors = (picture.clamp(0.0, 255.0) - truth).square().mean((1, 2))
    return float((10.0 * torch.log10(255.0**2 / (errors + SMALL_ERROR))).mean())
