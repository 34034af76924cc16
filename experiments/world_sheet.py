"""A sheet of made stacks, to look at beside real ones: can you tell them apart?

    python -m experiments.world_sheet PHOTOS --output sheet.png --count 100

PHOTOS is a folder of pictures of one size. Each stack is a row of its first, middle and last frame
and the truth; `--kind` shows one kind of scene alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cofuse import write_image
from cofuse.files import picture_files
from training.command import read_photos
from training.world.canvas import WorldSettings
from training.world.making import KINDS, World

#: Frames of the stacks, one after the other.
_FRAMES = (2, 3, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--side", type=int, default=192, help="of every picture")
    parser.add_argument("--columns", type=int, default=4, help="stacks beside each other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--overwrite", action="store_true")
    args = parser.parse_args()
    if args.output.exists() and not args.overwrite:
        raise SystemExit(f"{args.output} exists; name another file, or add --overwrite")
    torch.set_num_threads(1)
    settings = WorldSettings()
    if args.kind:
        settings = replace(settings, **{kind: float(kind == args.kind) for kind in KINDS})
    photos = read_photos(picture_files(args.photos), args.side)
    world = World(photos, seed=args.seed, settings=settings)
    picture = sheet(world, args.count, args.side, args.columns)
    write_image(args.output, picture, overwrite=args.overwrite)
    print(f"{args.count} stacks in {args.output}")


def sheet(world: World, count: int, side: int, columns: int) -> np.ndarray:
    """Draw stacks and lay them out, (rows, columns, 3) of bytes."""
    strips: list[Tensor] = []
    while len(strips) < count:
        frames = _FRAMES[len(strips) // 2 % len(_FRAMES)]
        scenes = world.draw(2, frames, side)
        for stack, truth in zip(scenes.frames, scenes.truth, strict=True):
            shown = [stack[0], stack[frames // 2], stack[-1], truth]
            strip = torch.cat(shown, 2)
            strips.append(torch.nn.functional.pad(strip, (0, 8, 0, 4), value=1.0))
    strips = strips[:count]
    strips += [torch.ones_like(strips[0])] * (-count % columns)
    rows = [torch.cat(strips[n : n + columns], 2) for n in range(0, len(strips), columns)]
    levels = (torch.cat(rows, 1) * 255).round().byte()
    return np.ascontiguousarray(levels.permute(1, 2, 0).cpu().numpy())


if __name__ == "__main__":
    main()
