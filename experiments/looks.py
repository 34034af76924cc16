"""Real stacks looked at: what is lost and what is invented, in numbers and in pictures.

``make looks DATA=DIR`` (``python -m experiments.looks --data DIR``) aligns every stack below
``DIR/real`` and ``DIR/stacks`` and fuses it by the preset ``auto``, by ``fast``, by enfuse and by a
plain Laplacian pyramid. It prints a table of lost and phantom (`experiments.realness`) and writes
one sheet of the hardest places a stack. ``docs/looks.md`` says how to read them. What was made with
the same source is not made again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from cofuse import CofuseError
from experiments.looks_sheet import hardest_places, sheet
from experiments.looks_stacks import METHOD_NAMES, RealStack, grey_levels, real_stacks
from experiments.pictures import add_data_option, data_folder
from experiments.realness import Frames
from experiments.statistics import markdown
from experiments.trials import worker_pool

Shares = dict[str, tuple[float, float]]


class Row(NamedTuple):
    """What was found of a stack, which may have been stretched to be measured."""

    frames: int
    shares: Shares
    stretched: bool = False


def look_at(stack: RealStack, methods: Sequence[str], sheets: Path) -> Row:
    """Fuse a stack by every method, write its sheet and measure; faults of the first are shown."""
    frames = stack.aligned()
    stretched = frames[0].dtype != np.uint8
    levels = grey_levels(frames)
    results = {method: levels(stack.fused(method)) for method in methods}
    frames = [levels(frame) for frame in frames]
    known = Frames(frames)
    shown = {name: picture for name, picture in results.items() if name != "sharpest"}
    places = hardest_places(shown, frames, known)
    drawn = sheet(f"{stack.name}, {len(frames)} frames", shown, frames, known, places)
    sheets.mkdir(parents=True, exist_ok=True)
    file = sheets / f"{stack.name.replace('/', '-')}.png"
    cv2.imwrite(str(file), np.ascontiguousarray(drawn[..., ::-1]))
    shares = {name: known.judge(picture).shares for name, picture in results.items()}
    return Row(len(frames), shares, stretched)


def table(rows: dict[str, Row], methods: Sequence[str]) -> str:
    """Tabulate lost and phantom in percent, the mean and the worst of the stacks beneath.

    Those of 16 bits come last: stretched, their noise passes for detail, so they are no part of
    the mean.
    """
    plain = {name: row for name, row in rows.items() if not row.stretched}
    header = ["stack (frames)", *(f"`{name}`" for name in methods)]
    lines = [_line(f"{name} ({row.frames})", row.shares, methods) for name, row in plain.items()]
    for title, over in (("**mean**", np.mean), ("**worst**", np.max)) if plain else ():
        found = {m: over([row.shares[m] for row in plain.values()], axis=0) for m in methods}
        lines.append(_line(title, found, methods))
    for name, row in rows.items():
        if row.stretched:
            lines.append(_line(f"{name} ({row.frames}), stretched", row.shares, methods))
    return markdown("Lost / phantom in %", header, lines)


def _line(name: str, shares: Mapping[str, Sequence[float]], methods: Sequence[str]) -> list[str]:
    return [name, *(f"{100 * shares[m][0]:.1f} / {100 * shares[m][1]:.2f}" for m in methods)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_data_option(parser)
    add("--only", nargs="+", default=[], metavar="NAME", help="stacks whose name begins so")
    add("--methods", nargs="+", choices=METHOD_NAMES, default=METHOD_NAMES)
    add("--out", type=Path, default=Path("results") / "looks", help="folder for all results")
    given = parser.parse_args(arguments)
    stacks = [
        stack
        for stack in real_stacks(data_folder(parser, given), given.out / "stacks")
        if not given.only or stack.name.startswith(tuple(given.only))
    ]
    if not stacks:
        parser.error(f"no stack's name begins with {' or '.join(given.only)}")
    rows: dict[str, Row] = {}
    failed = 0
    with worker_pool(min(given.workers, len(stacks))) as pool:
        futures = {
            stack.name: pool.submit(look_at, stack, given.methods, given.out / "sheets")
            for stack in stacks
        }
        for name, future in futures.items():
            try:
                rows[name] = future.result()
            except CofuseError as error:
                failed += 1
                print(f"FAILED {name}: {error}", file=sys.stderr, flush=True)
            print(f"{len(rows) + failed} of {len(stacks)} stacks", file=sys.stderr, flush=True)
    if rows:
        text = table(rows, given.methods)
        print(text)
        if not given.only:
            (given.out / "looks.md").write_text(text, "utf-8")
    print(f"sheets are in {given.out / 'sheets'}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
