"""Train the networks of the preset auto on stacks made of photographs.

    python -m training PHOTOS -o mine --minutes 30

The folder that is written can be used at once, as the setting "model" of `cofuse fuse`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from cofuse import __version__
from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.files.sources import picture_files
from cofuse.model.network import Networks
from cofuse.model.runtime import DEVICES, model_folder, resolve_device
from cofuse.model.saving import read_networks, write_networks
from training.course import PARTS, Course, CourseSettings, train

_CARD = "card.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, train, and write the model."""
    parser = argparse.ArgumentParser(
        prog="python -m training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "photos",
        nargs="+",
        type=Path,
        help="sharp colour photographs or folders of them, all of one size; every fifteenth is "
        "used for validation only",
    )
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="the folder to write: the networks, and a card that says what they have seen",
    )
    add(
        "--part",
        choices=PARTS,
        default="weighing",
        help="what to train: the weighing of frames or the restoring of noisy pictures; the other "
        "part is taken from the model to start from",
    )
    add("--minutes", type=float, default=10.0, help="how long (default 10)")
    add("--start-from", default="auto", help="name or folder of the model to start from")
    add(
        "--from-nothing",
        action="store_true",
        help="train that part from random weights instead",
    )
    add("--rate", type=float, default=1e-3, help="largest learning rate (default 0.001)")
    add(
        "--side",
        type=int,
        default=256,
        help="side of the stacks, or of noisy pictures, in pixels, a multiple of 16 from 64 on "
        "(default 256)",
    )
    add("--device", choices=DEVICES, default="auto")
    add(
        "--helpers",
        type=int,
        default=0,
        help="processes that make stacks and noisy pictures during the training; with none they "
        "are made between its steps, and the same seed makes the same networks",
    )
    add("--seed", type=int, default=0, help="seed of all that is random")
    add("--quiet", action="store_true", help="print no progress and no summary")
    add("--json", action="store_true", help="print the card instead of a summary")
    given = parser.parse_args(arguments)
    try:
        card = _run(given)
    except CofuseError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps(card, indent=2))
    elif not given.quiet:
        print(
            f"{card['steps']} steps on {card['device']} with {card['pictures']} photographs: "
            f"{given.output}"
        )


def _run(given: argparse.Namespace) -> dict[str, Any]:
    """Train as asked, write the folder, and return its card."""
    check_number("helpers", given.helpers, 0, 64, whole=True)
    check_number("minutes", given.minutes, 0.001)
    check_number("rate", given.rate, 1e-8, 0.1)
    check("side", given.side, "a multiple of 16 from 64 on", lambda n: n >= 64 and n % 16 == 0)
    output = given.output
    if output.exists() or not output.parent.is_dir():
        raise CofuseError(f"{output} exists or has no folder to lie in; name a new folder")
    known = model_folder(given.start_from)
    place = resolve_device(given.device)
    photos = read_photos(picture_files(given.photos), given.side)
    settings = CourseSettings(
        seconds=60 * given.minutes,
        part=given.part,
        rate=given.rate,
        side=given.side,
        seed=given.seed,
        helpers=given.helpers,
    )
    start = read_networks(known)
    if given.from_nothing:
        torch.manual_seed(given.seed)
        new = Networks()
        for name in PARTS[given.part]:
            start.set_submodule(name, new.get_submodule(name))
    say = (lambda course: None) if given.quiet else _say
    course = train(photos.to(place), settings, start, say=say)
    card = {
        "cofuse": __version__,
        "torch": torch.__version__.split("+")[0],
        "device": torch.cuda.get_device_name() if place == "cuda" else place,
        "pictures": len(photos),
        "pictures_sha256": hashlib.sha256(photos.numpy().tobytes()).hexdigest(),
        "settings": asdict(settings),
        "steps": course.step,
        "validation": course.curve,
        "from_nothing": given.from_nothing,
        "started_from": _card(known),
    }
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".cofuse-") as temporary:
        made = Path(temporary) / "model"
        made.mkdir()
        write_networks(course.average, made)
        (made / _CARD).write_text(json.dumps(card, indent=1) + "\n", "utf-8")
        made.rename(output)
    return card


def _say(course: Course) -> None:
    """Say how the last validation went."""
    row = course.curve[-1]
    mean = sum(row["psnr"]) / len(row["psnr"])
    line = f"step {row['step']}, {row['seconds']:.0f} s, {mean:.2f} dB"
    print(line, file=sys.stderr, flush=True)


def read_photos(files: Sequence[Path], side: int) -> Tensor:
    """Read photographs of one size, ``side`` at least, as bytes (number, 3, height, width)."""
    pictures: list[np.ndarray] = []
    for file in files:
        try:
            with Image.open(file) as picture:
                mode = picture.mode
                pictures.append(np.asarray(ImageOps.exif_transpose(picture)))
        except (OSError, ValueError) as error:
            raise CofuseError(f"{file} cannot be read as a photograph: {error}") from error
        height, width = pictures[-1].shape[:2]
        if mode != "RGB" or pictures[-1].shape != pictures[0].shape:
            raise CofuseError(
                f"{file} has {width}x{height} pixels of the mode {mode}; expected RGB like "
                f"{files[0]}, all of one size"
            )
    if min(height, width) < side:
        raise CofuseError(
            f"the photographs are {width}x{height} pixels; expected `side`, {side}, at least"
        )
    return torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2).copy())


def _card(folder: Path) -> dict[str, Any] | None:
    card = folder / _CARD
    return dict(json.loads(card.read_text("utf-8"))) if card.is_file() else None
