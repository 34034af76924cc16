"""The picture collections, read from the folder named by --data or COFUSE_DATA.

`scene` reads any of them by name, all in grey: ``lytro``, ``lytro_triple``, ``mfi_whu``;
``stack-K``, focus stacks of K frames simulated from the test pictures; and ``sample-K``, the same,
smaller, from the pictures that come with the package, for where there is no data folder.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError, Stack, read_image
from cofuse.evaluation.metrics import to_grey
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack

__all__ = [
    "LYTRO_PAIRS",
    "LYTRO_TRIPLES",
    "WHU_PAIRS",
    "Scene",
    "data_folder",
    "lytro",
    "lytro_triple",
    "noisy",
    "scene",
    "scene_files",
    "to_8_bit",
    "whu",
]

Grey = NDArray[np.uint8]

#: The scenes of the collections, by number.
LYTRO_PAIRS = tuple(range(1, 21))
LYTRO_TRIPLES = tuple(range(1, 5))
WHU_PAIRS = tuple(range(1, 121, 2))

#: Sides of the scenes cut out of the package's own pictures.
_SAMPLE_SHAPE = (160, 192)


@dataclass(frozen=True)
class Scene:
    """Noise-free frames and, where there is one, the all-in-focus truth."""

    frames: list[Grey]
    truth: Grey | None = None


def scene(data: Path | None, dataset: str, item: int) -> Scene:
    """Read (or make) one scene of a collection."""
    files = scene_files(data, dataset, item)
    if dataset in ("lytro", "lytro_triple"):
        return Scene([_grey(file) for file in files])
    if dataset == "mfi_whu":
        *frames, truth = (_grey(file) for file in files)
        return Scene(frames, truth)
    kind, _, count = dataset.partition("-")
    if kind == "stack":
        picture, foreground = (_grey(file) for file in files)
        shape = None
    else:
        names = [SAMPLE_NAMES[(item + k) % len(SAMPLE_NAMES)] for k in (0, 1)]
        picture, foreground = (to_grey(sample_picture(name)) for name in names)
        shape = _SAMPLE_SHAPE
    made = simulate_stack(picture, frames=int(count), foreground=foreground, shape=shape, seed=item)
    return Scene(list(made.frames), made.truth)


def scene_files(data: Path | None, dataset: str, item: int) -> list[Path]:
    """Name the files a scene is read from, those of its frames first."""
    kind, _, count = dataset.partition("-")
    if kind == "sample" and count.isdigit():
        return []
    if data is None:
        raise CofuseError(f"{dataset} needs the folder of the picture collections: --data")
    if dataset in ("lytro", "lytro_triple"):
        sides = "AB" if dataset == "lytro" else "ABC"
        return [data / dataset / f"lytro-{item:02}-{side}.jpg" for side in sides]
    if dataset == "mfi_whu":
        return [_only(data / "mfi_whu" / side, item) for side in ("a", "b", "truth")]
    if kind == "stack" and count.isdigit():
        return [data / "natural" / "test" / f"test{number:03}.png" for number in (item, item + 1)]
    raise CofuseError(f"there is no collection {dataset!r}")


def data_folder(parser: argparse.ArgumentParser) -> Path:
    """Parse the command line, at least ``--data``, and return that folder."""
    parser.add_argument("--data", default=os.environ.get("COFUSE_DATA"), type=Path)
    folder = parser.parse_args().data
    if folder is None or not folder.is_dir():
        raise SystemExit("name the folder of the picture collections with --data or COFUSE_DATA")
    return Path(folder)


def lytro(data: Path, number: int) -> list[Grey]:
    """Read one pair of the Lytro collection in grey."""
    return scene(data, "lytro", number).frames


def lytro_triple(data: Path, number: int) -> list[Grey]:
    """Read one triple of the Lytro collection in grey."""
    return scene(data, "lytro_triple", number).frames


def whu(data: Path, number: int) -> tuple[list[Grey], Grey]:
    """Read one pair of the MFI-WHU collection and its truth in grey."""
    pair = scene(data, "mfi_whu", number)
    assert pair.truth is not None
    return pair.frames, pair.truth


def noisy(frames: list[Grey], sigma: float, seed: int) -> Stack:
    """Add white noise of standard deviation σ (8-bit grey levels); floats, never clipped."""
    rng = np.random.default_rng(seed)
    if sigma == 0:
        return Stack.from_arrays(frames)
    return Stack.from_arrays(
        [(f + rng.normal(scale=sigma, size=f.shape)).astype(np.float32) for f in frames],
        white=255.0,
    )


def to_8_bit(picture: NDArray[np.floating | np.uint8]) -> Grey:
    """Round and clip a picture on the 0-255 scale, as it would be saved."""
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def _grey(path: Path) -> Grey:
    """Read a picture as the reference metrics read it: grey, rounded."""
    return to_grey(read_image(path))


def _only(folder: Path, number: int) -> Path:
    """Find the one file of a number, whatever its suffix."""
    found = sorted(folder.glob(f"{number}.*"))
    if len(found) != 1:
        raise CofuseError(f"{folder} holds {len(found)} files named {number}; expected one")
    return found[0]
