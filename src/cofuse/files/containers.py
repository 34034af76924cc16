"""The boxes pictures come in: metadata found in JPEG, PNG, WebP and BMP without decoding pixels.

Each ``*_blocks`` function steps through a file from box to box and returns what it found as a
`Blocks`. A file that is cut or lies about its lengths gives what came before.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cofuse.files import exif

__all__ = [
    "Blocks",
    "bmp_blocks",
    "jpeg_blocks",
    "jpeg_blocks_of",
    "jpeg_pictures",
    "jpeg_without_metadata",
    "png_blocks",
    "png_chunks",
    "png_with_chunks",
    "webp_blocks",
]

JPEG_EXIF, JPEG_XMP, JPEG_ICC = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0"
PNG_XMP = b"XML:com.adobe.xmp"

#: A block of metadata larger than this is damaged, or bait.
_LARGEST_BLOCK = 32 * 2**20
_MOST_BOXES = 100_000
_WANTED_CHUNKS = {b"IHDR", b"acTL", b"eXIf", b"iCCP", b"pHYs", b"iTXt", b"tRNS"}
_STANDALONE = {0x01, 0xD8, *range(0xD0, 0xD8)}  # JPEG markers without a length
#: Among packed pixels a marker is what no zero follows, nor a restart.
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]")
_JPEG_PROGRESSIVE, _JPEG_SCAN, _JPEG_END = 0xC2, 0xDA, 0xD9
_JPEG_METADATA = {*range(0xE0, 0xF0), 0xFE}
#: An index of several pictures: where it lies, and its table, with the class of every picture.
_JPEG_INDEX, _MP_ENTRIES, _MP_CLASS, _MP_PREVIEW = b"MPF\0", 0xB002, 0xFF0000, 0x010000
_METRE = 0.0254


@dataclass(frozen=True)
class Blocks:
    """Metadata as it lies in a file, not looked into."""

    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None


def jpeg_blocks(path: Path) -> Blocks:
    """Collect what stands before the pixels of a JPEG file."""
    with path.open("rb") as file:
        return jpeg_blocks_of(file)


def jpeg_blocks_of(file: BinaryIO) -> Blocks:
    """Collect what stands before the pixels of an open JPEG file."""
    exif = xmp = dpi = None
    profile: dict[int, bytes] = {}
    for marker, data in _jpeg_segments(file):
        if marker == 0xE1 and data.startswith(JPEG_EXIF):
            exif = exif or data[len(JPEG_EXIF) :]
        elif marker == 0xE1 and data.startswith(JPEG_XMP):
            xmp = xmp or data[len(JPEG_XMP) :]
        elif marker == 0xE2 and data.startswith(JPEG_ICC) and len(data) > 14:
            profile[data[12]] = data[14:]  # numbered from 1, in any order
        elif marker == 0xE0 and data.startswith(b"JFIF\0") and len(data) >= 12:
            unit, x, y = struct.unpack_from(">BHH", data, 7)
            scale = {1: 1.0, 2: 2.54}.get(unit)
            dpi = (x * scale, y * scale) if scale and x and y else None
    icc = b"".join(profile[k] for k in sorted(profile)) or None
    return Blocks(icc, exif, xmp, dpi)


def _jpeg_segments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the marked segments up to the start of the scan."""
    file.seek(2)
    for _ in range(_MOST_BOXES):
        if file.read(1) != b"\xff":
            return
        marker = b"\xff"
        while marker == b"\xff":  # any number of them may fill in
            marker = file.read(1)
        if not marker or marker[0] in (0xDA, 0xD9):
            return
        if marker[0] in _STANDALONE:
            continue
        (length,) = struct.unpack(">H", file.read(2).ljust(2, b"\0"))
        data = file.read(max(length - 2, 0))
        if length < 2 or len(data) < length - 2:
            return
        yield marker[0], data


def jpeg_without_metadata(data: bytes) -> bytes:
    """Return what a decoder needs of a JPEG file's first picture: tables, headers, packed pixels.

    An end marker that lacks is put there, but for progressive files: where these have several
    scans, nothing but the marker tells that none is missing.
    """
    parts, place, in_scan, progressive = [b"\xff\xd8"], 2, False, False
    end = bytes((0xFF, _JPEG_END))
    for _ in range(_MOST_BOXES):
        found = _MARKER.search(data, place)
        if in_scan:
            parts.append(data[place : found.start() if found else None].rstrip(b"\xff"))
        if found is None or found[0] == end:
            end = b"" if found is None and progressive else end
            break
        marker, start = found[0][-1], found.end()
        # A segment is stepped over by its length; what follows may be packed pixels.
        place = start + int.from_bytes(data[start : start + 2], "big")
        in_scan = marker == _JPEG_SCAN
        progressive = progressive or marker == _JPEG_PROGRESSIVE
        if marker not in _JPEG_METADATA:
            parts.append(data[start - 2 : place])
    return b"".join(parts) + end


def jpeg_pictures(path: Path) -> int:
    """Count the pictures in a JPEG file as its index tells (MPO); previews are none."""
    with path.open("rb") as file:
        for marker, data in _jpeg_segments(file):
            if marker == 0xE2 and data.startswith(_JPEG_INDEX):
                try:
                    found = exif.parse_block(data[len(_JPEG_INDEX) :], frozenset({_MP_ENTRIES}))
                except (ValueError, struct.error):
                    return 1
                entries = found.image.get(_MP_ENTRIES)
                table = entries.data if entries else b""
                kinds = struct.iter_unpack(f"{found.order}I12x", table[: len(table) // 16 * 16])
                pictures = [kind for (kind,) in kinds if kind & _MP_CLASS != _MP_PREVIEW]
                return max(len(pictures), 1)
    return 1


def png_chunks(path: Path) -> tuple[dict[bytes, bytes], int]:
    """Collect a PNG file's header and metadata; and count the bytes of its packed pixels."""
    chunks: dict[bytes, bytes] = {}
    packed = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(8)
        for _ in range(_MOST_BOXES):
            header = file.read(8)
            if len(header) < 8 or header[4:] == b"IEND":
                break
            length, kind = struct.unpack(">I4s", header)
            start = file.tell()
            wanted = kind in _WANTED_CHUNKS
            if wanted and kind not in chunks and length <= _LARGEST_BLOCK:
                data = file.read(length)
                # Of texts only one is of interest.
                if kind != b"iTXt" or data.startswith(PNG_XMP + b"\0"):
                    chunks[kind] = data
            elif kind == b"IDAT":
                packed += max(min(length, size - start), 0)
            file.seek(start + length + 4)
    return chunks, packed


def png_blocks(path: Path) -> Blocks:
    """Collect the metadata of a PNG file."""
    chunks, _ = png_chunks(path)
    icc = xmp = dpi = None
    name, _, rest = chunks.get(b"iCCP", b"").partition(b"\0")
    if name and rest[:1] == b"\0":
        icc = _inflate(rest[1:])
    text = chunks.get(b"iTXt", b"")
    if text:
        packed = text[len(PNG_XMP) + 1 : len(PNG_XMP) + 2] == b"\1"
        fields = text[len(PNG_XMP) + 3 :].split(b"\0", 2)  # language, translation, text
        xmp = fields[2] if len(fields) == 3 else None
        xmp = _inflate(xmp) if packed and xmp else xmp
    if len(chunks.get(b"pHYs", b"")) == 9:
        x, y, unit = struct.unpack(">IIB", chunks[b"pHYs"])
        dpi = (x * _METRE, y * _METRE) if unit == 1 and x and y else None
    return Blocks(icc, chunks.get(b"eXIf") or None, xmp, dpi)


def _inflate(packed: bytes) -> bytes | None:
    """Unpack a block, unless it is damaged or grows out of all bounds."""
    try:
        data = zlib.decompressobj().decompress(packed, _LARGEST_BLOCK)
    except zlib.error:
        return None
    return data if len(data) < _LARGEST_BLOCK else None


def png_with_chunks(png: bytes | bytearray, blocks: Blocks) -> Iterator[bytes | memoryview]:
    """Put metadata into a PNG file: behind its header, as the profile must come before pixels."""
    behind_header = 8 + 25
    yield bytes(png[:behind_header])
    if blocks.icc:
        yield _png_chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(blocks.icc, 9))
    if blocks.dpi:
        x, y = (min(max(round(value / _METRE), 1), 2**31 - 1) for value in blocks.dpi)
        yield _png_chunk(b"pHYs", struct.pack(">IIB", x, y, 1))
    if blocks.exif:
        yield _png_chunk(b"eXIf", blocks.exif)
    if blocks.xmp:
        yield _png_chunk(b"iTXt", PNG_XMP + b"\0\0\0\0\0" + blocks.xmp)
    # A view: the picture itself need not be copied.
    yield memoryview(png)[behind_header:]


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    """Frame one chunk: length, name, data, check sum."""
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def webp_blocks(path: Path) -> Blocks:
    """Collect the metadata of a WebP file."""
    found: dict[bytes, bytes] = {}
    with path.open("rb") as file:
        file.seek(12)
        for _ in range(_MOST_BOXES):
            header = file.read(8)
            if len(header) < 8:
                break
            kind, length = struct.unpack("<4sI", header)
            start = file.tell()
            if kind in (b"ICCP", b"EXIF", b"XMP ") and length <= _LARGEST_BLOCK:
                found.setdefault(kind, file.read(length))
            file.seek(start + length + length % 2)
    return Blocks(found.get(b"ICCP"), found.get(b"EXIF"), found.get(b"XMP "))


def bmp_blocks(path: Path) -> Blocks:
    """Read the resolution of a BMP file; it holds no other metadata of interest."""
    with path.open("rb") as file:
        header = file.read(54)
    if len(header) < 54:
        return Blocks()
    x, y = struct.unpack_from("<ii", header, 38)
    return Blocks(dpi=(x * _METRE, y * _METRE) if x > 0 and y > 0 else None)
