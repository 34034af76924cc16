"""The walk of one `cofuse fuse`: the files of the package it enters, and how often it reads frames.

    python -m experiments.walk [--sigma 15] [--size 3000]

A stack of files is made, fused by the command line at default options, and watched. Every function
that is called counts the file it stands in. Frames that are decoded count, and what is read back of
the temporary files that keep them, by its share of their pixels.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np

import cofuse
from cofuse.cli import main as command_line
from cofuse.evaluation.simulation import sample_picture
from cofuse.files.decoding import Picture
from cofuse.images.store import Shelf

_PACKAGE = f"{Path(cofuse.__file__).parent}/"
_FRAMES = 5


def main() -> None:
    """Walk, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sigma", type=float, default=0.0, help="noise of the frames")
    parser.add_argument("--size", type=int, default=3000, help="width of the frames in pixels")
    options = parser.parse_args()
    picture = sample_picture()
    repeats = -(-options.size // picture.shape[1])
    picture = np.tile(picture, (repeats, repeats, 1))[:, : options.size]
    made = cofuse.simulate_stack(picture, frames=_FRAMES, sigma=options.sigma, seed=1)
    calls: Counter[str] = Counter()
    passes: Counter[str] = Counter()

    def watch(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_PACKAGE) and not _loading(frame):
            calls[name.removeprefix(_PACKAGE)] += 1

    read, decode = Shelf.read, Picture.decode

    def read_part(shelf: Shelf, *where: Any) -> Any:
        values = read(shelf, *where)
        if shelf.count == _FRAMES:
            passes[f"read back by {_reader()}"] += values.size / made.frames[0].size
        return values

    def decode_frame(*arguments: Any, **keywords: Any) -> Any:
        passes["decoded"] += 1
        return decode(*arguments, **keywords)

    with tempfile.TemporaryDirectory() as folder:
        for number, frame in enumerate(made.frames):
            cofuse.write_image(Path(folder) / f"{number}.jpg", frame)
        with (
            mock.patch.object(Shelf, "read", read_part),
            mock.patch.object(Picture, "decode", decode_frame),
        ):
            threading.setprofile(watch)
            sys.setprofile(watch)
            command_line(["fuse", folder, "-o", f"{folder}/fused.tif", "--quiet"])
            sys.setprofile(None)
            threading.setprofile(None)
    for name, count in sorted(calls.items()):
        print(f"{count:7} {name}")
    print(f"{len(calls)} files, {sum(calls.values())} calls")
    for what, frames in passes.items():
        print(f"{frames / _FRAMES:7.2f} times every frame {what}")
    print(f"{sum(passes.values()) / _FRAMES:7.2f} passes over the frames")


def _loading(frame: FrameType | None) -> bool:
    """Whether a module of the package is being loaded: definitions are no part of the walk."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _reader() -> str:
    """File of the package, outside the room of the frames themselves, that reads a frame now."""
    frame = sys._getframe()
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and not name.startswith(f"{_PACKAGE}images/"):
            return name.removeprefix(_PACKAGE)
        frame = frame.f_back
    return "a thread"


if __name__ == "__main__":
    main()
