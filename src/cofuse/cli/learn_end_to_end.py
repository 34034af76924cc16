"""``cofuse learn --end-to-end``: train the joint model, write it and its card."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofuse.cli.console import progress_bars
from cofuse.errors import CofuseError

if TYPE_CHECKING:
    from cofuse.images import Levels

__all__ = ["Request", "learn_end_to_end"]


@dataclass(frozen=True)
class Request:
    """What `cofuse learn` has read and was asked for."""

    pictures: list[Levels]
    files: tuple[Path, ...]
    digest: str
    output: Path
    overwrite: bool
    quiet: bool
    as_json: bool


def learn_end_to_end(
    request: Request,
    *,
    steps: int,
    batch: int,
    side: int,
    frames: tuple[int, ...],
    rate: float,
    seed: int,
    device: str,
    start_from: Path | None,
    checkpoint: Path | None,
) -> None:
    """Train, and write the best model of the training and what is to be said about it."""
    try:
        import torch
    except ImportError as error:
        raise CofuseError(
            'training end to end needs torch; install it with pip install "cofuse[gpu]"'
        ) from error
    from cofuse import __version__
    from cofuse.files import check_report, written_whole
    from cofuse.joint import JointModel, load_model, model_bytes
    from cofuse.learning.end_to_end import TrainingSettings, pick_device, train

    card_file = request.output.with_suffix(".md")
    if card_file == request.output:
        raise CofuseError(f"{card_file} is to hold the model's card; name the model .npz")
    check_report(card_file, overwrite=request.overwrite)
    if checkpoint:
        _check_checkpoint(checkpoint, (request.output, card_file, *request.files))
    settings = TrainingSettings(
        steps=steps, batch=batch, side=side, frames=frames, rate=rate, seed=seed
    )
    start = load_model(start_from) if start_from else None
    device = pick_device(device)
    with progress_bars(quiet=request.quiet) as progress:
        training = train(
            request.pictures,
            settings,
            device=device,
            start=start.arrays if start else None,
            checkpoint=checkpoint,
            progress=progress,
        )
    card = {
        "cofuse": __version__,
        "torch": torch.__version__.split("+")[0],
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "seconds": round(training.seconds, 1),
        "pictures": len(request.pictures),
        "pictures_sha256": request.digest,
        "settings": asdict(settings),
        "steps_done": training.step,
        "stopped_early": training.stopped_early,
        "started_from": dict(start.card) if start else None,
        "validation": training.curve,
    }
    model = JointModel.from_arrays(training.arrays(), card)
    with written_whole(request.output, overwrite=request.overwrite) as file:
        file.write(model_bytes(model))
    with written_whole(card_file, overwrite=request.overwrite) as file:
        file.write(_card_text(request.output.stem, model.parameters, card).encode())
    if request.as_json:
        print(json.dumps(card, indent=2))
    elif not request.quiet:
        best = max(training.curve, key=lambda row: row["mean"])
        print(
            f"model of {model.parameters} parameters from {len(request.pictures)} pictures, "
            f"{training.step} steps in {training.seconds:.0f} s on {card['device']}, best at step "
            f"{best['step']} (validation {best['mean']:.2f} dB): {request.output}, {card_file}"
        )


def _check_checkpoint(checkpoint: Path, taken: tuple[Path, ...]) -> None:
    """Refuse a checkpoint that cannot be written, or would replace something else."""
    if checkpoint.is_dir() or not checkpoint.parent.is_dir():
        raise CofuseError(f"the checkpoint {checkpoint} cannot be written there; name a file")
    if checkpoint.resolve() in {path.resolve() for path in taken}:
        raise CofuseError(f"{checkpoint} is in use for something else; keep the checkpoint apart")


def _card_text(name: str, parameters: int, card: dict[str, Any]) -> str:
    """The model card: what it is, what it learned from, how it did, and its limits."""
    curve = card["validation"]
    columns = [key for key in curve[0] if key not in ("step", "mean")]
    rows = "\n".join(
        f"| {row['step']} | " + " | ".join(f"{row[key]:.2f}" for key in columns) + " |"
        for row in curve
    )
    settings = ", ".join(f"{key} {value}" for key, value in card["settings"].items())
    frames = ", ".join(map(str, card["settings"]["frames"]))
    return f"""# Model card: {name}

**What it is.** The joint model of cofuse {card["cofuse"]}: {parameters} parameters in float32. It
weighs the frames of a focus stack at every pixel and restores their mixture by unrolled steps with
learned analysis operators.

**What it learned from.** {card["pictures"]} sharp pictures, grey; every twentieth was kept for
validation. Focus stacks of {frames} frames were made of them as they were
needed: layers behind each other, surfaces of smooth depth and masks with hard edges, blurred by
discs or Gaussians of up to 64 pixels, some places in focus in no frame; white noise of 1 to 50 grey
levels or none, weak grain that is not told, JPEG compression, small shifts and changes of
brightness, things that are in one frame only. SHA-256 of the pictures' grey levels:
`{card["pictures_sha256"]}`.

**Training.** {_training_text(card)}

Settings: {settings}.

**Validation**, mean PSNR in dB on stacks of kept pictures, the same at every step; "copied" takes
each pixel from the frame with the best score:

| step | {" | ".join(columns)} |
|{"---|" * (len(columns) + 1)}
{rows}

**Limits.** Frames must be aligned. Noise must be white and its level known; camera noise is to be
stabilised first. Blur wider than 64 pixels and pictures unlike photographs were not seen in
training.
"""


def _training_text(card: dict[str, Any]) -> str:
    """How long a training took, and the one before it where it set out from a trained model."""
    stopped = "stopped early" if card["stopped_early"] else "ran to the end"
    text = (
        f"{card['steps_done']} steps, {stopped}, {card['seconds']:.0f} seconds on\n"
        f"{card['device']} with torch {card['torch']}."
    )
    if earlier := card.get("started_from"):
        text += f" It set out from a model trained before: {_training_text(earlier)}"
    return text
