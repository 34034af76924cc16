"""PNG: header, metadata and pixels."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cofuse.files.decoding import (
    Picture,
    animation_note,
    check_packing,
    check_size,
    orientation_of,
    oriented_shape,
)
from cofuse.files.metadata import INCH_IN_METRES, LARGEST_BLOCK, MOST_BOXES, Metadata
from cofuse.images import Pixels

__all__ = ["PNG_XMP", "inspect_png", "png_metadata"]

PNG_XMP = b"XML:com.adobe.xmp"

_WANTED = {b"IHDR", b"acTL", b"eXIf", b"iCCP", b"pHYs", b"iTXt", b"tRNS"}
#: The most bytes that deflate packs into one.
_DEFLATE_RATIO = 1032


def inspect_png(path: Path) -> list[Picture]:
    """Read the header of a PNG file."""
    with path.open("rb") as file:
        chunks, packed = _chunks(file)
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    check_size(width, height, path)
    channels = {2: 3, 4: 2, 6: 4}.get(colour_type, 1)
    check_packing(width, height, channels * depth, packed, _DEFLATE_RATIO, path)
    orientation = orientation_of(chunks.get(b"eXIf"))

    def load() -> Pixels:
        # Pillow would silently reduce 16-bit RGB to 8 bits.
        import imagecodecs

        return imagecodecs.png_decode(path.read_bytes())

    shape = oriented_shape(width, height, colour_type in (2, 3, 6), orientation)
    dtype = np.dtype(np.uint16 if depth == 16 else np.uint8)
    alpha = colour_type in (4, 6) or b"tRNS" in chunks
    frames = int.from_bytes(chunks.get(b"acTL", b"")[:4], "big")
    left_out = animation_note(frames)
    picture = Picture(str(path), shape, dtype, load, alpha, left_out, orientation=orientation)
    return [picture]


def png_metadata(file: BinaryIO) -> Metadata:
    """Collect the metadata of an open PNG file."""
    chunks, _ = _chunks(file)
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
        dpi = (x * INCH_IN_METRES, y * INCH_IN_METRES) if unit == 1 and x and y else None
    return Metadata(icc, chunks.get(b"eXIf") or None, xmp, dpi)


def _chunks(file: BinaryIO) -> tuple[dict[bytes, bytes], int]:
    """Collect header and metadata chunks by name; and count the bytes of packed pixels."""
    chunks: dict[bytes, bytes] = {}
    packed = 0
    size = os.fstat(file.fileno()).st_size
    file.seek(8)
    for _ in range(MOST_BOXES):
        header = file.read(8)
        if len(header) < 8 or header[4:] == b"IEND":
            break
        length, kind = struct.unpack(">I4s", header)
        start = file.tell()
        if kind in _WANTED and kind not in chunks and length <= LARGEST_BLOCK:
            data = file.read(length)
            if kind != b"iTXt" or data.startswith(PNG_XMP + b"\0"):  # other texts are ignored
                chunks[kind] = data
        elif kind == b"IDAT":
            packed += max(min(length, size - start), 0)
        file.seek(start + length + 4)
    return chunks, packed


def _inflate(packed: bytes) -> bytes | None:
    """Unpack a block; None where it is damaged or too large."""
    try:
        data = zlib.decompressobj().decompress(packed, LARGEST_BLOCK)
    except zlib.error:
        return None
    return data if len(data) < LARGEST_BLOCK else None
