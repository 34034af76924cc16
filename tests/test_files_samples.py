"""Metadata and files for the tests of `cofuse.files`, made by hand: no library agrees by chance."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import tifffile
from PIL import ImageCms

ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" '
    b'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    b'xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Label="Fern" tiff:Orientation="6"/>'
    b"</rdf:RDF></x:xmpmeta>"
)


def grey_icc() -> bytes:
    """A profile of a grey picture: white point and a curve of gamma 2.2."""
    curve = b"curv" + bytes(4) + struct.pack(">IH", 1, 563) + bytes(2)
    white = b"XYZ " + bytes(4) + struct.pack(">iii", 63190, 65536, 54061)
    text = b"desc" + bytes(4) + struct.pack(">I", 5) + b"grey\0" + bytes(78 + 3)
    copyright = b"text" + bytes(4) + b"none\0" + bytes(3)
    parts = {b"desc": text, b"cprt": copyright, b"wtpt": white, b"kTRC": curve}
    table, data = struct.pack(">I", len(parts)), b""
    start = 128 + 4 + 12 * len(parts)
    for name, part in parts.items():
        table += name + struct.pack(">II", start + len(data), len(part))
        data += part + bytes(-len(part) % 4)
    size = start + len(data)
    header = struct.pack(">I4sI4s4s4s", size, b"cfse", 0x02100000, b"mntr", b"GRAY", b"XYZ ")
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    header += struct.pack(">iii", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + table + data


def exif_block(order: str = "<", orientation: int = 6, owner: str = "A careful owner") -> bytes:
    """An EXIF block as a Canon camera writes it.

    Its maker's note holds offsets from the start of the block, and is followed by a thumbnail.
    """

    def entry(tag: int, kind: int, count: int, value: bytes | int) -> bytes:
        if isinstance(value, int):
            value = struct.pack(f"{order}{'H' if kind == 3 else 'I'}", value)
        return struct.pack(f"{order}HHI", tag, kind, count) + value.ljust(4, b"\0")

    def directory(entries: list[bytes], after: int = 0) -> bytes:
        tail = struct.pack(f"{order}I", after)
        return struct.pack(f"{order}H", len(entries)) + b"".join(entries) + tail

    def rational(*values: int) -> bytes:
        return struct.pack(f"{order}{len(values)}I", *values)

    first, photo, gps, interop, note, values, second, thumb = 8, 160, 260, 330, 400, 520, 700, 760
    texts: list[tuple[int, bytes]] = []
    place = [values]

    def far(data: bytes) -> int:
        at = place[0]
        texts.append((at, data))
        place[0] += len(data) + len(data) % 2
        return at

    def text(tag: int, value: str) -> bytes:
        data = value.encode() + b"\0"
        return entry(tag, 2, len(data), far(data) if len(data) > 4 else data)

    kind_data, owner_data = b"Cofuse 1\0", owner.encode() + b"\0"
    kind_at = note + 2 + 12 * 2 + 4
    owner_at = kind_at + len(kind_data)
    note_data = directory(
        [entry(6, 2, len(kind_data), kind_at), entry(9, 2, len(owner_data), owner_at)]
    )
    note_data += kind_data + owner_data
    parts = {
        first: directory(
            [
                text(0x010E, "Fern"),
                text(0x010F, "Canon"),
                text(0x0110, "Canon EOS 5D"),
                entry(0x0112, 3, 1, orientation),
                entry(0x011A, 5, 1, far(rational(300, 1))),
                entry(0x011B, 5, 1, far(rational(300, 1))),
                entry(0x0128, 3, 1, 2),
                text(0x0131, "Firmware 1.0"),
                text(0x0132, "2020:01:02 03:04:05"),
                entry(0x8769, 4, 1, photo),
                entry(0x8825, 4, 1, gps),
            ],
            second,
        ),
        photo: directory(
            [
                entry(0x829A, 5, 1, far(rational(1, 250))),
                entry(0x9000, 7, 4, b"0230"),
                text(0x9003, "2020:01:02 03:04:05"),
                entry(0x927C, 7, len(note_data), note),
                entry(0xA002, 4, 1, 6000),
                entry(0xA003, 4, 1, 4000),
                entry(0xA005, 4, 1, interop),
            ]
        ),
        gps: directory(
            [
                entry(0, 1, 4, b"\2\3\0\0"),
                entry(1, 2, 2, b"N\0"),
                entry(2, 5, 3, far(rational(48, 1, 8, 1, 30, 1))),
            ]
        ),
        interop: directory([entry(1, 2, 4, b"R98\0")]),
        note: note_data,
        second: directory([entry(0x0201, 4, 1, thumb), entry(0x0202, 4, 1, 40)]),
        thumb: b"\xff\xd8" + bytes(36) + b"\xff\xd9",
        **dict(texts),
    }
    block = bytearray(thumb + 40)
    for at, data in parts.items():
        assert not any(block[at : at + len(data)]), "two parts of the block overlap"
        block[at : at + len(data)] = data
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", first)
    return start + bytes(block[8:])


def write_dng(
    path: Path,
    mosaic: np.ndarray,
    *,
    neutral: tuple[float, float, float] = (0.5, 1.0, 0.7),
    orientation: int = 1,
) -> None:
    """Write a camera's mosaic (RGGB, 12 bits, black at 256) as a plain DNG file."""

    def fractions(values: tuple[float, ...]) -> list[int]:
        return [part for value in values for part in (round(value * 10_000), 10_000)]

    matrix = (3.2406, -1.5372, -0.4986, -0.9689, 1.8758, 0.0415, 0.0557, -0.2040, 1.0570)
    tags = [
        (271, 2, None, "Cofuse", True),
        (272, 2, None, "Test", True),
        (274, 3, 1, orientation, True),
        (33421, 3, 2, (2, 2), True),
        (33422, 1, 4, bytes([0, 1, 1, 2]), True),
        (50706, 1, 4, bytes([1, 4, 0, 0]), True),
        (50708, 2, None, "Cofuse Test", True),
        (50714, 3, 1, 256, True),
        (50717, 3, 1, 4095, True),
        (50721, 10, 9, fractions(matrix), True),
        (50728, 5, 3, fractions(neutral), True),
        (50778, 3, 1, 21, True),
    ]
    tifffile.imwrite(path, mosaic, photometric=32803, extratags=tags, metadata=None)
