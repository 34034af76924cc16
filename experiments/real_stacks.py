"""What is lost and what is invented in real stacks, for which there is no truth.

``python -m experiments.real_stacks --data DIR [--pictures FOLDER]`` aligns every stack of 8 bits
below ``DIR/real`` and ``DIR/stacks`` as `cofuse fuse` does, fuses it, and prints in percent

lost
    of the places where some frame has clear detail, the share in which the picture has less than
    half of that frame's energy. Detail is what lies between 2 and 8 pixels; its energy is taken
    over windows of 17; the energy in a frame's quietest tenth counts as its grain.
phantom
    pixels with a step to a neighbour that is larger by more than 4 grey levels than any step that
    any frame has within 3 x 3 pixels: seams, jigsaws and contour lines. A near edge before a sharp
    background is such a step as well, so that 0 is nothing to aim at.

The Laplacian pyramid takes the largest coefficient, grain included: it loses nothing by
construction, and pays in phantoms.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import cofuse
from cofuse.baselines import METHODS
from cofuse.images import Stack, luminance

__all__ = ["lost_and_phantom", "main"]

Picture = NDArray[Any]

#: Steps beyond those of the frames that count, and energy that is clear detail, in grey levels.
_STEP, _CLEAR = 4, 4.0
_FUSERS: dict[str, Callable[[Stack], Picture]] = {
    "auto": lambda stack: cofuse.fuse(stack).image,
    "fast": lambda stack: cofuse.fuse(stack, preset="fast").image,
    "Laplacian pyramid": lambda stack: METHODS["laplacian"](stack).image,
}
#: Folders of too many pixels for a quick look, or with frames that no global transform brings
#: into place.
_LEFT_OUT = ("algae", "misaligned", "pairs", "fluorescence16", "cellfinder16", "truth", "rival")


def lost_and_phantom(picture: Picture, frames: list[Picture]) -> tuple[float, float]:
    """Shares, from 0 to 1, of detail that is lost and of pixels with a step that no frame has."""
    best = np.full(picture.shape[:2], -np.inf, np.float32)
    largest = np.zeros(tuple(n - 1 for n in picture.shape[:2]), np.int16)
    grain = np.inf
    for frame in frames:
        energy = _energy(frame)
        quiet = float(np.quantile(energy, 0.1))
        grain = min(grain, quiet)
        np.maximum(best, energy - np.float32(quiet), out=best)
        np.maximum(largest, cv2.dilate(_steps(frame), np.ones((3, 3), np.uint8)), out=largest)
    clear = best > _CLEAR
    lost = clear & (_energy(picture) - grain < 0.5 * best)
    phantom = _steps(picture) - largest > _STEP
    return float(lost.sum() / max(1, clear.sum())), float(phantom.mean())


def _energy(picture: Picture) -> NDArray[np.float32]:
    grey = luminance(picture.astype(np.float32))
    band = cv2.GaussianBlur(grey, (0, 0), 1.0) - cv2.GaussianBlur(grey, (0, 0), 3.0)
    return np.asarray(cv2.GaussianBlur(band * band, (0, 0), 4.0), np.float32)


def _steps(picture: Picture) -> NDArray[np.int16]:
    """Larger step of every pixel to the next one across and down, in any channel."""
    values = picture.astype(np.int16).reshape(*picture.shape[:2], -1)
    across = np.abs(np.diff(values, axis=1)[:-1]).max(axis=2)
    down = np.abs(np.diff(values, axis=0)[:, :-1]).max(axis=2)
    return np.asarray(np.maximum(across, down))


def _stacks(data: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted([*(data / "real").rglob("*"), *(data / "stacks").rglob("*")]):
        names = folder.relative_to(data).parts
        if folder.is_dir() and not set(names) & set(_LEFT_OUT):
            files = [file for file in folder.iterdir() if file.suffix.lower() in (".jpg", ".png")]
            if len(files) > 1:
                yield "/".join(names[1:]), folder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("COFUSE_DATA"), required=False)
    parser.add_argument("--pictures", type=Path, help="folder to write the results to")
    given = parser.parse_args()
    if given.data is None or not (given.data / "real").is_dir():
        parser.error("name the folder of the picture collections with --data or COFUSE_DATA")
    warnings.simplefilter("ignore", UserWarning)
    print(f"| stack (frames) | {' | '.join(_FUSERS)} |\n|{'---|' * (1 + len(_FUSERS))}")
    found = []
    for name, folder in _stacks(given.data):
        frames = cofuse.read_stack(folder)
        stack = Stack.from_arrays(list(cofuse.aligned(frames, cofuse.align_stack(frames))))
        row = []
        for method, fuse in _FUSERS.items():
            picture = fuse(stack)
            row.append(lost_and_phantom(picture, list(stack)))
            if given.pictures:
                given.pictures.mkdir(parents=True, exist_ok=True)
                path = given.pictures / f"{name.replace('/', '-')}-{method.split()[0]}.png"
                cofuse.write_image(path, picture, overwrite=True)
        found.append(row)
        print(_line(f"{name} ({len(stack)})", row), flush=True)
    print(_line("mean", np.mean(found, axis=0)))


def _line(name: str, row: Any) -> str:
    return f"| {name} | " + " | ".join(f"{100 * a:.1f} / {100 * b:.2f}" for a, b in row) + " |"


if __name__ == "__main__":
    main()
