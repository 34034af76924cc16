"""PNG, WebP and BMP: headers, metadata and pixels; and what Pillow says of a header."""

from __future__ import annotations

import math
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files import exif
from cofuse.files.decoding import DEFLATE_RATIO, Picture, check_size, several_note
from cofuse.files.metadata import INCH_IN_METRES, LARGEST_BLOCK, MOST_BOXES, Metadata
from cofuse.images import Pixels

#: Taken to change Python's warning filters, which all threads share.
warnings_lock = threading.Lock()

#: What to convert a Pillow mode into; modes that are not here are refused.
_PILLOW_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGBA"}

PNG_XMP = b"XML:com.adobe.xmp"
_WANTED = {b"IHDR", b"acTL", b"eXIf", b"iCCP", b"pHYs", b"iTXt", b"tRNS"}


@contextmanager
def opened_with_pillow(file: Path | BinaryIO, kind: str) -> Iterator[Any]:
    """Open a file with the plugin of Pillow for its kind, whatever that warns of.

    The plugin is called directly: ``Image.open`` would warn or refuse from 89 megapixels on, by
    a limit that is one global variable for everyone in the process.
    """
    from PIL import BmpImagePlugin, JpegImagePlugin, WebPImagePlugin

    plugin: Callable[[Any], Any] = {
        "BMP": BmpImagePlugin.BmpImageFile,
        "JPEG": JpegImagePlugin.JpegImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile,
    }[kind]
    with warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = plugin(file)
    with image:
        yield image


def inspect_with_pillow(path: Path, kind: str) -> tuple[Picture, dict[str, Any]]:
    """Read a header through a plugin of Pillow; returns what else it found as well."""
    with opened_with_pillow(path, kind) as image:
        (width, height), mode, info = image.size, image.mode, image.info
        note = several_note(getattr(image, "n_frames", 1), "is an animation of")
    # A JPEG block of 64 pixels takes more than a bit, run-length codes of BMP two bytes for up to
    # 255 pixels. Of RGB the fewest bits are meant: JPEG may halve the colours.
    bits, ratio = 8, {"JPEG": 2048.0, "BMP": 1024.0}.get(kind, math.inf)
    if kind == "BMP" and mode in ("RGB", "RGBA"):
        bits, ratio = 16, 1.0
    check_size(path, width, height, bits=bits, packed=path.stat().st_size, ratio=ratio)
    if mode not in _PILLOW_MODES:
        raise CofuseError(f"{path} is a {mode} picture; convert it to RGB or grey first")
    target = _PILLOW_MODES[mode]

    def load() -> Pixels:
        with opened_with_pillow(path, kind) as image:
            return np.array(image.convert(target))

    picture = Picture(
        *(str(path), width, height, target != "L", np.dtype(np.uint8), load, target == "RGBA"),
        left_out=note,
        orientation=_orientation(info.get("exif")),
    )
    return picture, info


def _orientation(block: bytes | None) -> int:
    """Return the orientation of an EXIF block; 1, upright, where it holds no valid one."""
    try:
        value = exif.parse_block(block).number(exif.ORIENTATION) or 1
    except ValueError:  # damaged metadata is no reason to refuse whole pixels
        return 1
    return int(value) if value in range(1, 9) else 1


def inspect_png(path: Path) -> Picture:
    """Read the header of a PNG file."""
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
    return Picture(
        *(str(path), width, height, kind in (2, 3, 6), dtype, load),
        alpha=kind in (4, 6) or b"tRNS" in chunks,
        left_out=several_note(frames, "is an animation of"),
        orientation=_orientation(chunks.get(b"eXIf")),
    )


def png_metadata(path: Path) -> Metadata:
    """Collect the metadata of a PNG file."""
    chunks, _ = _png_chunks(path)
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
    return Metadata(icc=icc, exif=chunks.get(b"eXIf") or None, xmp=xmp, dpi=dpi)


def _png_chunks(path: Path) -> tuple[dict[bytes, bytes], int]:
    """Collect header and metadata chunks by name; and count the bytes of packed pixels."""
    chunks: dict[bytes, bytes] = {}
    packed, place, size = 0, 8, path.stat().st_size
    with path.open("rb") as file:
        for _ in range(MOST_BOXES):
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


def inspect_webp(path: Path) -> Picture:
    """Read the header of a WebP file, and of the first picture of an animation."""
    picture, _ = _opened_webp(path)

    def load() -> Pixels:
        # A third of the memory that Pillow takes; but imagecodecs reads no animations.
        import imagecodecs

        return imagecodecs.webp_decode(path.read_bytes(), hasalpha=picture.alpha)

    return picture if picture.left_out else replace(picture, load=load)


def webp_metadata(path: Path) -> Metadata:
    """Collect the metadata of a WebP file."""
    _, info = _opened_webp(path)
    return Metadata(icc=info.get("icc_profile"), exif=info.get("exif"), xmp=info.get("xmp"))


def _opened_webp(path: Path) -> tuple[Picture, dict[str, Any]]:
    with path.open("rb") as file:
        start = file.read(30)
    if start[12:16] == b"VP8X":  # the plugin allocates before it tells the size
        width, height = (int.from_bytes(start[k : k + 3], "little") + 1 for k in (24, 27))
        check_size(path, width, height)
    return inspect_with_pillow(path, "WEBP")


def inspect_bmp(path: Path) -> Picture:
    """Read the header of a BMP file."""
    return inspect_with_pillow(path, "BMP")[0]


def bmp_metadata(path: Path) -> Metadata:
    """Read the resolution of a BMP file, the only metadata it holds."""
    with opened_with_pillow(path, "BMP") as image:
        return Metadata(dpi=image.info.get("dpi"))
