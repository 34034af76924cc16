"""The one colour profile cofuse makes itself: sRGB's colours, values in proportion to the light."""

from __future__ import annotations

import struct
from functools import cache

__all__ = ["linear_srgb"]

# sRGB's primaries as seen from the white of D50, to which all profiles refer.
_WHITE = (0.9642, 1.0, 0.8249)
_PRIMARIES = {
    b"rXYZ": (0.43607, 0.22249, 0.01392),
    b"gXYZ": (0.38515, 0.71687, 0.09708),
    b"bXYZ": (0.14307, 0.06061, 0.71410),
}


@cache
def linear_srgb() -> bytes:
    """Return an ICC profile, version 2.1, for what camera RAW is developed to when linear."""
    name = b"Linear sRGB\0"
    description = b"desc" + struct.pack(">II", 0, len(name)) + name + bytes(78)
    tags = {
        b"desc": description,
        b"cprt": b"text" + bytes(4) + b"No copyright\0",
        b"wtpt": _xyz(_WHITE),
        **{tag: _xyz(colour) for tag, colour in _PRIMARIES.items()},
        # A curve of no points is the straight line.
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), b"curv" + bytes(8)),
    }
    start = 128 + 4 + 12 * len(tags)
    table, data = struct.pack(">I", len(tags)), b""
    for tag, value in tags.items():
        table += struct.pack(">4sII", tag, start + len(data), len(value))
        data += value + bytes(-len(value) % 4)
    header = struct.pack(">I4xI4s4s4s", start + len(data), 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    header += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp")
    header = header.ljust(68, b"\0") + _xyz(_WHITE)[8:]
    return header.ljust(128, b"\0") + table + data


def _xyz(values: tuple[float, float, float]) -> bytes:
    """Write a colour in the fixed-point numbers of profiles."""
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(v * 65536) for v in values))
