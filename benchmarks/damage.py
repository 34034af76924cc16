"""How much damage to JPEG files is noticed when they are read.

    python -m benchmarks.damage --files 100

A picture that comes with cofuse is packed in several ways, and each file damaged as cards and
cables do it, at a place drawn at random among its packed pixels. Refused files count as noticed.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture
from cofuse.files import read_image

LAYOUTS = {
    "4:2:0": {"quality": 90},
    "4:4:4": {"quality": 95, "subsampling": 0},
    "restart markers": {"quality": 90, "restart_marker_rows": 1},
    "progressive": {"quality": 90, "progressive": True},
}
#: What is put in the place of the bytes from a place on: so many bytes, and then the rest, or not.
DAMAGE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "end missing": lambda chance, rest: b"",
    "end missing, end marker put behind": lambda chance, rest: b"\xff\xd9",
    "zeros to the end": lambda chance, rest: bytes(len(rest)),
    "0xff to the end": lambda chance, rest: b"\xff" * len(rest),
    "512 bytes missing": lambda chance, rest: rest[512:],
    "512 bytes 0xff": lambda chance, rest: b"\xff" * 512 + rest[512:],
    "512 bytes other ones": lambda chance, rest: chance.randbytes(512) + rest[512:],
    "512 bytes zero": lambda chance, rest: bytes(512) + rest[512:],
    "4096 bytes zero": lambda chance, rest: bytes(4096) + rest[4096:],
    "one bit": lambda chance, rest: bytes([rest[0] ^ 1 << chance.randrange(8)]) + rest[1:],
}
#: Grey levels by which a pixel that is plainly wrong is off, and the share of such pixels.
PLAINLY, MANY = 20, 0.01


def packed(layout: str) -> tuple[bytes, int]:
    """A JPEG file, and where its packed pixels begin."""
    file = io.BytesIO()
    Image.fromarray(sample_picture()).save(file, "JPEG", **LAYOUTS[layout])
    data = file.getvalue()
    place = data.index(b"\xff\xda")
    return data, place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")


def count(layout: str, kind: str, files: int, path: Path) -> tuple[int, int]:
    """Count the files that were refused, and of the others those with many wrong pixels."""
    data, start = packed(layout)
    path.write_bytes(data)
    whole = read_image(path).astype(int)
    chance = random.Random(kind)
    refused = wrong = 0
    for _ in range(files):
        place = chance.randrange(start, len(data) - 2 - 4096)
        path.write_bytes(data[:place] + DAMAGE[kind](chance, data[place:]))
        try:
            off = np.abs(read_image(path) - whole).max(axis=2) > PLAINLY
        except CofuseError:
            refused += 1
        else:
            wrong += off.mean() > MANY
    return refused, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100, help="damaged files of each kind")
    files = parser.parse_args().files
    print(f"Of {files} files each: refused (not refused, and over 1 % of the pixels plainly wrong)")
    print("| damage |", " | ".join(LAYOUTS), "|")
    print("|---" * (len(LAYOUTS) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in DAMAGE:
            counts = [count(layout, kind, files, Path(folder) / "a.jpg") for layout in LAYOUTS]
            print(f"| {kind} |", " | ".join(f"{r} ({w})" for r, w in counts), "|", flush=True)


if __name__ == "__main__":
    main()
