"""JPEG: header and metadata, and pixels decoded by a library that reports damage.

libjpeg-turbo decodes damaged pixels as well as it can, and warns. Pillow, OpenCV and imagecodecs
drop the warning, so that a half-grey frame would look like any other. simplejpeg raises it; its
pixels are the same, to the bit.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.decoding import Picture, orientation_of
from cofuse.files.exif import JPEG_EXIF, parse_block
from cofuse.files.formats import OnDamage
from cofuse.files.metadata import MOST_BOXES, Metadata
from cofuse.files.with_pillow import inspect_with_pillow, warnings_lock
from cofuse.images import Pixels

__all__ = ["JPEG_XMP", "inspect_jpeg", "jpeg_metadata", "jpeg_without_metadata"]

JPEG_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_ICC = b"ICC_PROFILE\0"

_SCAN, _END, _PROGRESSIVE = 0xDA, 0xD9, 0xC2
_STANDALONE = {0x01, 0xD8, *range(0xD0, 0xD8)}  # markers without a length
_METADATA = {*range(0xE0, 0xF0), 0xFE}
#: Among packed pixels a marker is 0xff followed neither by zero nor by a restart.
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]")

#: The index of a multi-picture file: its segment, the tag of its table, the class of an entry.
_INDEX, _ENTRIES, _CLASS, _PREVIEW = b"MPF\0", 0xB002, 0xFF0000, 0x010000

#: What libjpeg says of damaged pixels. Other complaints are about headers, which webcams write as
#: they like, or say that simplejpeg does not know how colours are subsampled.
_DAMAGE = ("Corrupt JPEG data: ", "Premature end of JPEG file", "Inconsistent progression")


def inspect_jpeg(path: Path, *, on_damage: OnDamage) -> list[Picture]:
    """Read the header of a JPEG file; of a multi-picture file (MPO) that of the first picture."""
    from PIL.JpegImagePlugin import JpegImageFile

    with path.open("rb") as file:
        orientation = orientation_of(jpeg_metadata(file).exif)
        count = _picture_count(file)
    picture = inspect_with_pillow(path, JpegImageFile, orientation)
    colour = len(picture.shape) == 3
    left_out = f"holds {count} pictures, of which the first is read" if count > 1 else ""
    warned = False  # a frame may be decoded more than once

    def load() -> Pixels:
        import imagecodecs
        import simplejpeg

        nonlocal warned
        data = path.read_bytes()
        try:
            pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace="RGB" if colour else "GRAY")
            return pixels if colour else pixels[..., 0]
        except ValueError:
            pixels = imagecodecs.jpeg8_decode(data)  # raises where nothing can be decoded
        complaint = _complaint_about_pixels(data)
        if complaint is not None and not complaint.startswith(_DAMAGE):
            return picture.load()  # Pillow notices at least where a file was cut
        if complaint is not None:
            damage = complaint.removeprefix(_DAMAGE[0]) + _blank_end(pixels)
            if on_damage == "refuse":
                raise CofuseError(
                    f"{path} is damaged ({damage}); copy the file again, or set on_damage to "
                    "'warn' to take it as it is"
                )
            if not warned:
                warned = True
                with warnings_lock:  # another thread may have silenced them for Pillow
                    warnings.warn(f"{path} is damaged ({damage}); taken as it is", stacklevel=2)
        return pixels

    return [replace(picture, load=load, left_out=left_out)]


def jpeg_metadata(file: BinaryIO) -> Metadata:
    """Collect the metadata that stands before the pixels of an open JPEG file."""
    exif = xmp = dpi = None
    profile: dict[int, bytes] = {}
    for marker, data in _segments(file):
        if marker == 0xE1 and data.startswith(JPEG_EXIF):
            exif = exif or data[len(JPEG_EXIF) :]
        elif marker == 0xE1 and data.startswith(JPEG_XMP):
            xmp = xmp or data[len(JPEG_XMP) :]
        elif marker == 0xE2 and data.startswith(_ICC) and len(data) > 14:
            profile[data[12]] = data[14:]  # parts are numbered and come in any order
        elif marker == 0xE0 and data.startswith(b"JFIF\0") and len(data) >= 12:
            unit, x, y = struct.unpack_from(">BHH", data, 7)
            scale = {1: 1.0, 2: 2.54}.get(unit)
            dpi = (x * scale, y * scale) if scale and x and y else None
    icc = b"".join(profile[k] for k in sorted(profile)) or None
    return Metadata(icc, exif, xmp, dpi)


def _segments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield marker and data of the segments before the scan; ends early in a damaged file."""
    file.seek(2)
    for _ in range(MOST_BOXES):
        if file.read(1) != b"\xff":
            return
        marker = b"\xff"
        while marker == b"\xff":  # any number of them may fill in
            marker = file.read(1)
        if not marker or marker[0] in (_SCAN, _END):
            return
        if marker[0] in _STANDALONE:
            continue
        (length,) = struct.unpack(">H", file.read(2).ljust(2, b"\0"))
        data = file.read(max(length - 2, 0))
        if length < 2 or len(data) < length - 2:
            return
        yield marker[0], data


def _picture_count(file: BinaryIO) -> int:
    """Count the pictures that the index of a multi-picture file (MPO) lists, without previews."""
    for marker, data in _segments(file):
        if marker == 0xE2 and data.startswith(_INDEX):
            try:
                found = parse_block(data[len(_INDEX) :], frozenset({_ENTRIES}))
            except (ValueError, struct.error):
                return 1
            table = found.image[_ENTRIES].data if _ENTRIES in found.image else b""
            kinds = struct.iter_unpack(f"{found.order}I12x", table[: len(table) // 16 * 16])
            pictures = [kind for (kind,) in kinds if kind & _CLASS != _PREVIEW]
            return max(len(pictures), 1)
    return 1


def jpeg_without_metadata(data: bytes) -> bytes:
    """Return what a decoder needs of a JPEG file's first picture: tables, headers, packed pixels.

    A missing end marker is added, except to progressive files: where these have several scans,
    only the marker shows that none is missing.
    """
    parts, place, in_scan, progressive = [b"\xff\xd8"], 2, False, False
    end = bytes((0xFF, _END))
    for _ in range(MOST_BOXES):
        found = _MARKER.search(data, place)
        if in_scan:
            parts.append(data[place : found.start() if found else None].rstrip(b"\xff"))
        if found is None or found[0] == end:
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
    cameras write them.
    """
    packed = jpeg_without_metadata(data)
    complaint = _complaint(packed)
    return complaint if complaint and _complaint(_without_padding(packed)) else None


def _complaint(data: bytes) -> str | None:
    """Return the decoder's error message."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data)
    except ValueError as error:
        return str(error)
    return None


def _without_padding(data: bytes) -> bytes:
    """Remove zeros before the end marker; one that follows 0xff belongs to the pixels."""
    packed, end = data[:-2].rstrip(b"\0"), data[-2:]
    return packed + b"\0" * packed.endswith(b"\xff") + end


def _blank_end(pixels: Pixels) -> str:
    """Say how much at the end is of one colour, as the decoder fills in what is missing."""
    blank = (pixels == pixels[-1, -1]).reshape(len(pixels), -1).all(axis=1)
    rows = len(pixels) if blank.all() else int(np.argmin(blank[::-1]))
    share = rows / len(pixels)
    return f"; the last {share:.0%} is one colour" if share >= 0.005 else ""
