"""JPEG, PNG, WebP and BMP: headers, metadata and pixels.

libjpeg-turbo decodes damaged pixels of JPEG as well as it can, and warns. Pillow, OpenCV and
imagecodecs drop the warning, so that a half-grey frame would look like any other. simplejpeg raises
it; its pixels are the same, to the bit.
"""

from __future__ import annotations

import re
import struct
import warnings
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.decoding import (
    DEFLATE_RATIO,
    OnDamage,
    Picture,
    check_size,
    inspect_with_pillow,
    opened_with_pillow,
    orientation_in,
    several_note,
    warnings_lock,
)
from cofuse.files.exif import LARGEST_BLOCK, Field, parse_block
from cofuse.files.metadata import INCH_IN_METRES, Metadata
from cofuse.images import Pixels

#: What a JPEG file puts before an XMP packet, and before each part of a colour profile.
JPEG_XMP, _ICC = b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0"

_SCAN, _PROGRESSIVE, _METADATA = 0xDA, 0xC2, {*range(0xE0, 0xF0), 0xFE}
_END = b"\xff\xd9"
#: Among packed pixels a marker is 0xff followed neither by zero nor by a restart.
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]")

#: The index of a multi-picture file: the tag of its table, the class of an entry.
_ENTRIES, _CLASS, _PREVIEW = 0xB002, 0xFF0000, 0x010000

#: What libjpeg says of damaged pixels. Other complaints are about headers, which webcams write as
#: they like, or say that simplejpeg does not know how colours are subsampled.
_DAMAGE = ("Corrupt JPEG data: ", "Premature end of JPEG file", "Inconsistent progression")

#: More segments or chunks in a file are damage or an attack.
_MOST_BOXES = 100_000

PNG_XMP = b"XML:com.adobe.xmp"
_WANTED = {b"IHDR", b"acTL", b"eXIf", b"iCCP", b"pHYs", b"iTXt", b"tRNS"}


def inspect_jpeg(path: Path, *, on_damage: OnDamage) -> Picture:
    """Read the header of a JPEG file; of a multi-picture file (MPO) that of the first picture."""
    picture, info = inspect_with_pillow(path, "JPEG")
    left_out = several_note(_picture_count(info.get("mp", b"")))

    def load() -> Pixels:
        import imagecodecs
        import simplejpeg

        data = path.read_bytes()
        with suppress(ValueError):
            kind = "RGB" if picture.colour else "GRAY"
            pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace=kind)
            return pixels if picture.colour else pixels[..., 0]
        pixels = imagecodecs.jpeg8_decode(data)  # raises where nothing can be decoded
        complaint = _complaint_about_pixels(data)
        if complaint is None:
            return pixels
        if not complaint.startswith(_DAMAGE):
            return picture.load()  # Pillow notices at least where a file was cut
        damage = complaint.removeprefix(_DAMAGE[0]) + _blank_end(pixels)
        if on_damage == "refuse":
            raise CofuseError(
                f"{path} is damaged ({damage}); copy the file again, or set on_damage to "
                "'warn' to take it as it is"
            )
        with warnings_lock:  # another thread may have silenced them for Pillow
            warnings.warn(f"{path} is damaged ({damage}); taken as it is", stacklevel=2)
        return pixels

    return replace(picture, load=load, left_out=left_out)


def jpeg_metadata(file: Path | BinaryIO) -> Metadata:
    """Collect the metadata that stands before the pixels of a JPEG file."""
    with opened_with_pillow(file, "JPEG") as image:
        info, segments = image.info, [data for _, data in image.applist]
    # Parts of a profile are numbered and come in any order.
    profile = sorted(data for data in segments if data.startswith(_ICC))
    icc = b"".join(data[len(_ICC) + 2 :] for data in profile) or None
    packets = (data.removeprefix(JPEG_XMP) for data in segments if data.startswith(JPEG_XMP))
    scale = {1: 1.0, 2: 2.54}.get(info.get("jfif_unit"), 0.0)
    x, y = (scale * density for density in info.get("jfif_density", (0, 0)))
    dpi = (x, y) if x and y else None
    return Metadata(icc=icc, exif=info.get("exif"), xmp=next(packets, None), dpi=dpi)


def _picture_count(index: bytes) -> int:
    """Count the pictures that the index of a multi-picture file lists, without previews."""
    try:
        found = parse_block(index, frozenset({_ENTRIES}))
    except ValueError:
        return 1
    table = found.image.get(_ENTRIES, Field(0, b"")).data
    kinds = struct.iter_unpack(f"{found.order}I12x", table[: len(table) // 16 * 16])
    return sum(int(kind) & _CLASS != _PREVIEW for (kind,) in kinds)


def jpeg_without_metadata(data: bytes) -> bytes:
    """Return what a decoder needs of a JPEG file's first picture: tables, headers, packed pixels.

    A missing end marker is added, except to progressive files: where these have several scans,
    only the marker shows that none is missing.
    """
    parts, place, in_scan, progressive, end = [b"\xff\xd8"], 2, False, False, _END
    for _ in range(_MOST_BOXES):
        found = _MARKER.search(data, place)
        if in_scan:
            parts.append(data[place : found.start() if found else None].rstrip(b"\xff"))
        if found is None or found[0] == _END:
            end = b"" if found is None and progressive else end
            break
        marker, start = found[0][-1], found.end()
        # A segment is stepped over by its length; what follows may be packed pixels.
        place = start + int.from_bytes(data[start : start + 2], "big")
        in_scan = marker == _SCAN
        progressive = progressive or marker == _PROGRESSIVE
        if marker not in _METADATA:
            parts.append(data[start - 2 : place])
    return b"".join(parts) + end


def _complaint_about_pixels(data: bytes) -> str | None:
    """Return what the decoder complains of in the packed pixels of a file, None if of nothing.

    Damaged metadata is ignored, and so are zeros before the end marker or in its place, as some
    cameras write them; a zero that follows 0xff belongs to the pixels.
    """
    import simplejpeg

    data = jpeg_without_metadata(data)
    packed = data[:-2].rstrip(b"\0")
    complaints = []
    for attempt in (data, packed + b"\0" * packed.endswith(b"\xff") + data[-2:]):
        try:
            simplejpeg.decode_jpeg(attempt)
            return None
        except ValueError as error:
            complaints.append(str(error))
    return complaints[0]


def _blank_end(pixels: Pixels) -> str:
    """Say how much at the end is of one colour, as the decoder fills in what is missing."""
    blank = (pixels == pixels[-1, -1]).reshape(len(pixels), -1).all(axis=1)
    rows = len(pixels) if blank.all() else int(np.argmin(blank[::-1]))
    share = rows / len(pixels)
    return f"; the last {share:.0%} is one colour" if share >= 0.005 else ""


def inspect_png(path: Path) -> tuple[Picture, Metadata]:
    """Read header and metadata of a PNG file."""
    chunks, packed = _png_chunks(path)
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    frames = int.from_bytes(chunks.get(b"acTL", b"")[:4], "big")
    bits = depth * {2: 3, 4: 2, 6: 4}.get(kind, 1)
    check_size(path, width, height, bits=bits, packed=packed, ratio=DEFLATE_RATIO)

    def load() -> Pixels:
        # Pillow would silently reduce 16-bit RGB to 8 bits.
        import imagecodecs

        return imagecodecs.png_decode(path.read_bytes())

    dtype = np.dtype(np.uint16 if depth == 16 else np.uint8)
    block = chunks.get(b"eXIf") or None
    picture = Picture(
        *(path, width, height, kind in (2, 3, 6), dtype, load),
        alpha=kind in (4, 6) or b"tRNS" in chunks,
        left_out=several_note(frames, "is an animation of"),
        orientation=orientation_in(block),
    )
    icc = xmp = dpi = None
    name, _, rest = chunks.get(b"iCCP", b"").partition(b"\0")
    if name and rest[:1] == b"\0":
        icc = _inflate(rest[1:])
    if text := chunks.get(b"iTXt", b"")[len(PNG_XMP) + 1 :]:
        fields = text[2:].split(b"\0", 2)  # language, translation, text
        xmp = fields[2] if len(fields) == 3 else None
        xmp = _inflate(xmp) if text[:1] == b"\1" and xmp else xmp
    if len(chunks.get(b"pHYs", b"")) == 9:
        x, y, unit = struct.unpack(">IIB", chunks[b"pHYs"])
        dpi = (x * INCH_IN_METRES, y * INCH_IN_METRES) if unit == 1 and x and y else None
    return picture, Metadata(icc=icc, exif=block, xmp=xmp, dpi=dpi)


def _png_chunks(path: Path) -> tuple[dict[bytes, bytes], int]:
    """Collect header and metadata chunks by name; and count the bytes of packed pixels."""
    chunks: dict[bytes, bytes] = {}
    packed, place, size = 0, 8, path.stat().st_size
    with path.open("rb") as file:
        for _ in range(_MOST_BOXES):
            file.seek(place)
            header = file.read(8)
            if len(header) < 8 or header[4:] == b"IEND":
                break
            length, kind = struct.unpack(">I4s", header)
            if kind == b"IDAT":
                packed += min(length, size - file.tell())
            elif kind in _WANTED and kind not in chunks and length <= LARGEST_BLOCK:
                data = file.read(length)
                if kind != b"iTXt" or data.startswith(PNG_XMP + b"\0"):  # other texts are ignored
                    chunks[kind] = data
            place += 8 + length + 4
    return chunks, packed


def _inflate(packed: bytes) -> bytes | None:
    """Unpack a block; None where it is damaged or too large."""
    try:
        data = zlib.decompressobj().decompress(packed, LARGEST_BLOCK)
    except zlib.error:
        return None
    return data if len(data) < LARGEST_BLOCK else None


def inspect_by_pillow(path: Path, kind: str) -> tuple[Picture, Metadata]:
    """Read header and metadata of a WebP or BMP file; of an animation the first picture."""
    if kind == "WEBP":
        with path.open("rb") as file:
            start = file.read(30)
        if start[12:16] == b"VP8X":  # the plugin allocates before it tells the size
            width, height = (int.from_bytes(start[k : k + 3], "little") + 1 for k in (24, 27))
            check_size(path, width, height)
    picture, info = inspect_with_pillow(path, kind)
    if kind == "WEBP" and not picture.left_out:  # imagecodecs reads no animations
        from imagecodecs import webp_decode  # takes a seventh of Pillow's memory

        alpha = picture.alpha
        picture = replace(picture, load=lambda: webp_decode(path.read_bytes(), hasalpha=alpha))
    icc, block, xmp, dpi = (info.get(name) for name in ("icc_profile", "exif", "xmp", "dpi"))
    return picture, Metadata(icc=icc, exif=block, xmp=xmp, dpi=dpi)
