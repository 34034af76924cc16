"""Scenes as a method meets them: read or simulated, noise added.

Collections lie in the folder named by --data or COFUSE_DATA:

* ``lytro``, ``lytro_triple``, ``mfi_whu`` in grey, the last with a truth;
* ``stack-K``: grey focus stacks of K frames simulated from the test pictures, ``train-K`` from the
  training pictures, for tuning;
* ``photo``: one RGB photograph, every 15th of which no training sees; ``rooms``: RGB pairs blurred
  after depth maps; ``misaligned``: RGB stacks with parallax, aligned to their third frame, whose
  truth is known.

``sample-K``, small grey stacks of the package's own pictures, needs no such folder. The layers of
``…-K-between``, any simulated stack, are spread evenly in depth rather than each lying in the plane
of focus nearest to it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError, Stack, align_stack, aligned, read_image
from cofuse.alignment.warping import common_area
from cofuse.evaluation.metrics import to_grey
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack
from cofuse.images.tiles import processors

Picture = NDArray[Any]
Levels = NDArray[np.float32]

#: The scenes of the collections, by number.
LYTRO_PAIRS = tuple(range(1, 21))
LYTRO_TRIPLES = tuple(range(1, 5))
WHU_PAIRS = tuple(range(1, 121, 2))
#: Sides of the grey scenes cut out of the package's own pictures.
_SAMPLE_SHAPE = (160, 192)
_RGB = ("photo", "rooms", "misaligned")


@dataclass(frozen=True)
class Situation:
    """What a method is given, and what its result is held against.

    ``sigma`` is the level of the noise, which a method may be told. ``noisy_truth`` is the sharp
    picture with noise of the same kind. ``unaligned`` are the frames before they were aligned, if
    they were.
    """

    stack: Stack
    clean: list[Picture]
    truth: Picture | None
    noisy_truth: Levels | None
    sigma: float
    unaligned: list[Picture] | None = None


def situation(
    data: Path | None, dataset: str, item: int, sigma: float = 0.0, crop: int = 0
) -> Situation:
    """Make the situation; everything random is seeded by the item."""
    frames, truth = scene(data, dataset, item)
    if dataset == "misaligned":
        assert truth is not None
        return _put_in_place(frames, truth)
    if crop:
        frames, truth = [_middle(f, crop) for f in frames], _middle(truth, crop)
    given = [frame.astype(np.float32) for frame in frames]
    made = noisy(given, sigma, item)
    noisy_truth = None if truth is None else noisy([truth.astype(np.float32)], sigma, item)[0]
    return Situation(Stack.from_arrays(made, white=255.0), frames, truth, noisy_truth, sigma)


def scene(data: Path | None, dataset: str, item: int) -> tuple[list[Picture], Picture | None]:
    """Read or simulate the frames of a scene and, where there is one, its truth; 8 bits, clean."""
    kind, *rest = dataset.split("-")
    pictures = [read_image(file) for file in scene_files(data, dataset, item)]
    if kind == "sample":
        names = (SAMPLE_NAMES[n % len(SAMPLE_NAMES)] for n in (item, item + 1))
        pictures = [sample_picture(name) for name in names]
    if kind not in _RGB:
        pictures = [to_grey(picture) for picture in pictures]
    if kind.startswith("lytro"):
        return pictures, None
    if not rest:
        return pictures[:-1], pictures[-1]
    picture, foreground = pictures
    made = simulate_stack(
        picture,
        frames=int(rest[0]),
        foreground=foreground,
        shape=_SAMPLE_SHAPE if kind == "sample" else None,
        snap=rest[1:] != ["between"],
        seed=item,
    )
    return list(made.frames), made.truth


def scene_files(data: Path | None, dataset: str, item: int) -> list[Path]:
    """Name the files a scene is read from, that of its truth last."""
    kind, *rest = dataset.split("-")
    if kind == "sample":
        return []
    if data is None:
        raise CofuseError(f"{dataset} needs the folder of the picture collections: --data")
    match kind:
        case "lytro" | "lytro_triple":
            sides = "AB" if kind == "lytro" else "ABC"
            return [data / kind / f"lytro-{item:02}-{side}.jpg" for side in sides]
        case "mfi_whu":
            return [_only(data / kind / side, item) for side in ("a", "b", "truth")]
        case "stack" if rest:
            folder, numbers = data / "natural" / "test", (item, item + 1)
            return [folder / f"test{number:03}.png" for number in numbers]
        case "train" if rest:
            folder, numbers = data / "natural" / "train", (item, item % 400 + 1)
            return [folder / f"test_{number:03}.png" for number in numbers]
        case "photo":
            return [sorted((data / "photos").glob("*.jpg"))[item]] * 2
        case "rooms":
            return _with_truth(data / "real" / "pairs" / f"{item:03}")
        case "misaligned":
            return _with_truth(data / "real" / "misaligned" / f"{item:02}")
    raise CofuseError(f"there is no collection {dataset!r}")


def whu(data: Path, number: int) -> tuple[list[Picture], Picture]:
    """Read one pair of the MFI-WHU collection and its truth in grey."""
    frames, truth = scene(data, "mfi_whu", number)
    assert truth is not None
    return frames, truth


def noisy(frames: Sequence[Picture], sigma: float, seed: int) -> list[Picture]:
    """Add white noise of standard deviation σ (8-bit grey levels); floats, never clipped."""
    if sigma == 0:
        return list(frames)
    rng = np.random.default_rng(seed)
    return [(f + rng.normal(scale=sigma, size=f.shape)).astype(np.float32) for f in frames]


def to_8_bit(picture: Picture) -> NDArray[np.uint8]:
    """Round and clip a picture on the 0-255 scale, as it would be saved."""
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def add_data_option(parser: argparse.ArgumentParser, *, workers: bool = True) -> None:
    """Add ``--data`` and, for work that is shared out, ``--workers``."""
    given, cores = os.environ.get("COFUSE_DATA") or None, processors()
    parser.add_argument("--data", type=Path, default=given, help="folder of picture collections")
    if workers:
        parser.add_argument("--workers", type=int, default=cores, help="processes (one a core)")


def data_folder(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Path:
    """Return the folder that ``--data`` names, or end in words; so too without workers."""
    if getattr(given, "workers", 1) < 1:
        parser.error(f"--workers is {given.workers}; expected 1 or more")
    if given.data is None or not Path(given.data).is_dir():
        parser.error("name the folder of the picture collections with --data or COFUSE_DATA")
    return Path(given.data).resolve()


def _with_truth(folder: Path) -> list[Path]:
    return [f for part in (folder, folder / "truth") for f in sorted(part.iterdir()) if f.is_file()]


def _only(folder: Path, number: int) -> Path:
    """Find the one file of a number, whatever its suffix."""
    found = sorted(folder.glob(f"{number}.*"))
    if len(found) != 1:
        raise CofuseError(f"{folder} holds {len(found)} files named {number}; expected one")
    return found[0]


def _middle(picture: Picture | None, side: int) -> Any:
    """Cut a square out of the middle; a smaller picture stays as it is."""
    if picture is None:
        return None
    top, left = (max((length - side) // 2, 0) for length in picture.shape[:2])
    return np.ascontiguousarray(picture[top : top + side, left : left + side])


def _put_in_place(frames: list[Picture], truth: Picture) -> Situation:
    """Align frames to the middle one, where the truth lies, and cut it as they are cut."""
    # Where frames have 16 bits the truth has their high byte.
    frames = [(f >> 8).astype(np.uint8) if f.dtype == np.uint16 else f for f in frames]
    alignment = align_stack(frames)
    places = [transform for transform in alignment.transforms if transform is not None]
    top, bottom, left, right = common_area(places, alignment.size)
    stack = Stack.from_arrays(list(aligned(frames, alignment)))
    truth = np.ascontiguousarray(truth[top:bottom, left:right])
    return Situation(stack, list(stack), truth, truth.astype(np.float32), 0.0, frames)
