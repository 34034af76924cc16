"""The point cloud, read back by a parser of its own."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.depth import Depth, ply_chunks

Array = np.ndarray[Any, Any]


def a_depth(height: int, width: int, *, z_step: float | None = None, seed: int = 0) -> Depth:
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 4, (height, width)).astype(np.float32)
    sure = np.ones((height, width), np.float32)
    return Depth(position=position, confidence=sure, frames=5, z_step=z_step)


def ply_bytes(depth: Depth, colours: Array, *, white: float = 255.0, **options: Any) -> bytes:
    """The whole file."""
    return b"".join(ply_chunks(depth, colours, white=white, **options))


def parse(data: bytes) -> list[tuple[float, ...]]:
    """Read a binary PLY of points: by the header's word, value for value."""
    header, _, body = data.partition(b"end_header\n")
    lines = header.decode("ascii").splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    codes = {"float": "f", "uchar": "B"}
    count, names, form = 0, [], "<"
    for line in lines[2:]:
        word, *rest = line.split()
        if word == "element":
            assert rest[0] == "vertex"
            count = int(rest[1])
        elif word == "property":
            form += codes[rest[0]]
            names.append(rest[1])
    assert names == ["x", "y", "z", "red", "green", "blue"]
    size = struct.calcsize(form)
    assert len(body) == count * size
    return [struct.unpack_from(form, body, size * n) for n in range(count)]


def test_points_are_the_pixels() -> None:
    depth = a_depth(3, 4, z_step=2.0)
    colours = np.random.default_rng(1).integers(0, 256, (3, 4, 3), np.uint8)
    points = parse(ply_bytes(depth, colours, pixel_size=0.5))
    assert len(points) == 12
    for n, point in enumerate(points):
        row, column = divmod(n, 4)
        assert point[:2] == (0.5 * column, 0.5 * (2 - row))
        assert point[2] == pytest.approx(-2.0 * depth.position[row, column], rel=1e-6)
        assert point[3:] == tuple(colours[row, column])


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 500))
@settings(max_examples=40, deadline=None)
def test_points_are_as_many_as_asked_for_at_most(height: int, width: int, most: int) -> None:
    depth = a_depth(height, width)
    points = parse(ply_bytes(depth, np.zeros((height, width), np.uint8), most_points=most))
    assert 1 <= len(points) <= most
    if height * width <= most:
        assert len(points) == height * width


@pytest.mark.parametrize(
    ("colours", "white", "tone"),
    [
        (np.full((4, 4), 65535, np.uint16), 65535, 255),
        (np.full((4, 4), 4095, np.uint16), 4095, 255),
        (np.full((4, 4), 0.5, np.float32), 1, 128),
        (np.full((4, 4, 3), 10, np.uint8), 255, 10),
    ],
)
def test_colours_are_of_8_bits(colours: Array, white: float, tone: int) -> None:
    points = parse(ply_bytes(a_depth(4, 4), colours, white=white))
    assert all(point[3:] == (tone,) * 3 for point in points)


def test_file_comes_in_pieces() -> None:
    chunks = list(ply_chunks(a_depth(500, 30), np.zeros((500, 30), np.uint8), white=255))
    assert len(chunks) > 3
    assert max(map(len, chunks)) < 100_000


def test_depth_of_unknown_scale_is_in_proportion() -> None:
    points = np.array(parse(ply_bytes(a_depth(40, 80), np.zeros((40, 80), np.uint8))))
    assert -0.25 * 80 <= points[:, 2].min() < points[:, 2].max() <= 0
