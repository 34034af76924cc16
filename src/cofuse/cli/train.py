"""``cofuse train``: the networks of the preset auto, from photographs."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofuse.arguments import check, check_number
from cofuse.cli import say
from cofuse.cli.application import Flag, Output, Printing, Whole
from cofuse.errors import CofuseError

if TYPE_CHECKING:
    from cofuse.learning.training import Course

_CARD = "card.json"


def train(
    *photos: Path,
    output: Output,
    part: str = "weighing",
    minutes: float = 10.0,
    start_from: str = "auto",
    from_nothing: Flag = False,
    rate: float = 1e-3,
    side: Whole = 256,
    device: str = "auto",
    helpers: Whole = 0,
    seed: Whole = 0,
    printing: Printing = Printing(),
) -> None:
    """Train the networks of the preset auto on stacks made of photographs; wants the extra "gpu".

    The folder that is written can be used at once, as the setting "model" of `cofuse fuse`.

    Parameters
    ----------
    photos
        Sharp colour photographs or folders of them, all of one size; every fifteenth is used for
        validation only.
    output
        The folder to write: the networks, and a card that says what they have seen.
    part
        What to train: weighing (of frames) or restoring (of noisy pictures). The other part is
        taken from the model to start from.
    minutes
        How long.
    start_from
        Name or folder of the model to start from.
    from_nothing
        Train that part from random weights instead.
    rate
        Largest learning rate.
    side
        Side of the stacks, or of noisy pictures, in pixels, a multiple of 16 from 64 on.
    device
        auto, cpu, cuda or mps.
    helpers
        Processes that make stacks and noisy pictures during the training; with none they are made
        between its steps, and the same seed makes the same networks.
    seed
        Seed of all that is random.
    """
    for package in ("torch", "onnx"):
        if find_spec(package) is None:
            raise CofuseError(
                f'training needs {package}; install it with pip install "cofuse[gpu]"'
            )
    import torch

    from cofuse import __version__
    from cofuse.learning.training import PARTS, CourseSettings
    from cofuse.learning.training import train as trained
    from cofuse.model.network import Networks
    from cofuse.model.runtime import DEVICES, model_folder, resolve_device
    from cofuse.model.saving import read_networks, write_networks

    check("part", part, f"one of {', '.join(PARTS)}", PARTS.__contains__)
    check_number("helpers", helpers, 0, 64, whole=True)
    check_number("minutes", minutes, 0.001)
    check_number("rate", rate, 1e-8, 0.1)
    check("side", side, "a multiple of 16 from 64 on", lambda n: n >= 64 and n % 16 == 0)
    if output.exists() or not output.parent.is_dir():
        raise CofuseError(f"{output} exists or has no folder to lie in; name a new folder")
    known = model_folder(start_from)
    check("device", device, f"one of {', '.join(DEVICES)}", DEVICES.__contains__)
    place = resolve_device(device)
    pictures, digest = _pictures(photos, side)
    settings = CourseSettings(
        seconds=60 * minutes, part=part, rate=rate, side=side, seed=seed, helpers=helpers
    )
    start = read_networks(known)
    if from_nothing:
        torch.manual_seed(seed)
        new = Networks()
        for name in PARTS[part]:
            start.set_submodule(name, new.get_submodule(name))
    course = trained(
        torch.from_numpy(pictures).to(place),
        settings,
        start=start,
        say=lambda course: None if printing.quiet else say(_line(course)),
    )
    card = {
        "cofuse": __version__,
        "torch": torch.__version__.split("+")[0],
        "device": torch.cuda.get_device_name() if place == "cuda" else place,
        "pictures": len(pictures),
        "pictures_sha256": digest,
        "settings": asdict(settings),
        "steps": course.step,
        "validation": course.curve,
        "from_nothing": from_nothing,
        "started_from": _card(known),
    }
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".cofuse-") as temporary:
        made = Path(temporary) / "model"
        made.mkdir()
        write_networks(course.average, made)
        (made / _CARD).write_text(json.dumps(card, indent=1) + "\n", "utf-8")
        made.rename(output)
    words = f"{course.step} steps on {card['device']} with {len(pictures)} photographs: {output}"
    printing.result(card, words)


def _line(course: Course) -> str:
    row = course.curve[-1]
    mean = sum(row["psnr"]) / len(row["psnr"])
    return f"step {row['step']}, {row['seconds']:.0f} s, {mean:.2f} dB"


def _pictures(photos: tuple[Path, ...], side: int) -> tuple[Any, str]:
    """Read photographs, (number, 3, height, width), and tell them apart from others."""
    import numpy as np

    from cofuse.files import picture_files, read_image

    files = picture_files(photos)
    if len(files) < 2:
        raise CofuseError(f"{len(files)} of the photographs were found; expected two at least")
    pictures = [read_image(file) for file in files]
    for file, picture in zip(files, pictures, strict=True):
        if picture.shape != pictures[0].shape or picture.dtype != np.uint8 or picture.ndim != 3:
            raise CofuseError(
                f"{file} has shape {picture.shape} and {picture.dtype} values; expected 8-bit "
                f"colour like {files[0]}, all of one size"
            )
    if min(pictures[0].shape[:2]) < side:
        raise CofuseError(
            f"the photographs are {pictures[0].shape[1]}x{pictures[0].shape[0]} pixels; expected "
            f"`side`, {side}, at least"
        )
    planes = np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2))
    return planes, hashlib.sha256(planes.tobytes()).hexdigest()


def _card(folder: Path) -> dict[str, Any] | None:
    card = folder / _CARD
    return dict(json.loads(card.read_text("utf-8"))) if card.is_file() else None
