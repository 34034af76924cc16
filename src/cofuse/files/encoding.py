"""Pixels and their metadata into each format that is written."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cofuse import __version__
from cofuse.files import exif
from cofuse.files.exif import JPEG_EXIF, Field, parse_block, serialise
from cofuse.files.formats import JPEG_XMP, PNG_XMP
from cofuse.files.metadata import DESCRIPTION, ICC, INCH_IN_METRES, XMP, Metadata, ome_description
from cofuse.images import Pixels
from cofuse.images.tiles import processors

_CHROMA_PLACE = 531
_BYTES, _UNDEFINED = 1, 7

#: Number and rows of the strips tried to choose the packing; relative size at which runs suffice.
_STRIPS, _STRIP, _NO_LARGER = 8, 32, 1.02

#: A JPEG segment counts its bytes with 16 bits.
_SEGMENT = 2**16 - 1 - 2


@dataclass(frozen=True)
class Format:
    """What a file format takes, and how it is encoded.

    ``encode`` takes the file; samples, with alpha as the last channel if it is not opaque; metadata
    as `outgoing` returns it, or empty; and the quality from 1 to 100, or None for the default.
    """

    dtypes: tuple[str, ...]
    encode: Callable[[BinaryIO, Pixels, Metadata, int | None], None]
    alpha: bool = False


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format; ``.ome.tif`` is one suffix."""
    name = path.name.lower()
    return next((s for s in (".ome.tif", ".ome.tiff") if name.endswith(s)), path.suffix.lower())


def _encode_png(file: BinaryIO, samples: Pixels, known: Metadata, _: int | None) -> None:
    """Write PNG, 8 or 16 bits."""
    import imagecodecs
    from PIL.PngImagePlugin import putchunk

    png = imagecodecs.png_encode(samples, **_png_packing(samples))
    # Behind the header, as the profile must come before pixels; a view, to copy no pixels.
    behind_header = 8 + 25
    file.write(png[:behind_header])
    if known.icc:
        putchunk(file, b"iCCP", b"ICC profile\0\0", zlib.compress(known.icc, 9))
    if known.dpi:
        x, y = (min(max(round(value / INCH_IN_METRES), 1), 2**31 - 1) for value in known.dpi)
        putchunk(file, b"pHYs", struct.pack(">IIB", x, y, 1))
    if known.exif:
        putchunk(file, b"eXIf", known.exif)
    if known.xmp:
        putchunk(file, b"iTXt", PNG_XMP + b"\0\0\0\0\0", known.xmp)
    file.write(memoryview(png)[behind_header:])


def _png_packing(samples: Pixels) -> dict[str, int]:
    """Choose how PNG packs a picture, by trying some of its rows.

    PNG's filters leave noise of most pictures: looking for runs alone takes a fifth of the time
    then, and the file is no larger. Smooth maps and pictures of few colours need more.
    """
    import imagecodecs

    rows = samples
    if len(samples) > _STRIPS * _STRIP:
        starts = np.linspace(0, len(samples) - _STRIP, _STRIPS).astype(int)
        rows = np.concatenate([samples[start : start + _STRIP] for start in starts])
    runs, matches = {"strategy": int(imagecodecs.PNG.STRATEGY.RLE)}, {"level": 4}
    sizes = [len(imagecodecs.png_encode(rows, **options)) for options in (runs, matches)]
    return runs if sizes[0] <= _NO_LARGER * sizes[1] else matches


def _encode_jpeg(file: BinaryIO, image: Pixels, known: Metadata, quality: int | None) -> None:
    """Write JPEG, 4:4:4."""
    from PIL import Image

    options: dict[str, Any] = {"icc_profile": known.icc}
    if known.exif:
        found = parse_block(known.exif)
        # Only JPEG says where colours lie among the pixels: centred.
        place = Field(exif.SHORT, struct.pack(found.order + "H", 1))
        found = replace(found, image=found.image | {_CHROMA_PLACE: place})
        if block := serialise(found, most=_SEGMENT - len(JPEG_EXIF)):
            options["exif"] = JPEG_EXIF + block
        else:
            warnings.warn("the EXIF block is too large for this format; left out", stacklevel=3)
    if known.xmp:
        packet = JPEG_XMP + known.xmp
        if len(packet) <= _SEGMENT:
            options["extra"] = b"\xff\xe1" + struct.pack(">H", len(packet) + 2) + packet
        else:
            warnings.warn("the XMP packet is too large for this format; left out", stacklevel=3)
    if known.dpi and max(known.dpi) < 2**16 and min(known.dpi) >= 1:
        options["dpi"] = known.dpi
    quality = 95 if quality is None else quality
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling=0, **options)


def _encode_webp(file: BinaryIO, samples: Pixels, known: Metadata, quality: int | None) -> None:
    """Write WebP, without loss unless a quality is asked for."""
    from PIL import Image

    if samples.shape[2:] == (2,):  # WebP knows no grey
        samples = samples[..., [0, 0, 0, 1]]
    options: dict[str, Any] = {"lossless": True} if quality is None else {"quality": quality}
    blocks = {"exif": known.exif, "icc_profile": known.icc, "xmp": known.xmp}
    options |= {name: block for name, block in blocks.items() if block}
    # Exact: colours are kept where they are transparent.
    Image.fromarray(samples).save(file, "WEBP", exact=True, **options)


def _encode_bmp(file: BinaryIO, image: Pixels, known: Metadata, _: int | None) -> None:
    """Write BMP; of metadata it holds the resolution only."""
    from PIL import Image

    options = {"dpi": known.dpi} if known.dpi and max(known.dpi) < 1e7 else {}
    Image.fromarray(image).save(file, "BMP", **options)


def _encode_tiff(
    file: BinaryIO, samples: Pixels, known: Metadata, _: int | None, *, ome: bool = False
) -> None:
    """Write TIFF, any depth, deflated, behind its EXIF block if it has one.

    tifffile writes the pixels, but no EXIF. The file starts with the EXIF block, with the maker's
    note at its offset, tifffile appends the picture, and a directory at the end joins both.
    """
    import tifffile

    # By default tifffile relies on compression to keep a large picture below 4 GB.
    big = samples.nbytes > 2**32 - 2**25
    start: dict[str, Any] = {"bigtiff": big}
    found = parse_block(known.exif)
    if known.exif:
        software = {exif.SOFTWARE: found.image[exif.SOFTWARE]}
        file.write(serialise(replace(found, image=software), big=big) or b"")
        file.seek(0)
        start = {"append": True}
    channels = samples.shape[2] if samples.ndim == 3 else 1
    with tifffile.TiffWriter(file, **start) as tif:
        tif.write(
            samples,
            photometric="rgb" if channels > 2 else "minisblack",
            planarconfig="contig" if channels > 1 else None,
            extrasamples=["unassalpha"] if channels in (2, 4) else None,
            compression="zlib",
            # Half the time of the usual level, for files 3 to 4 % larger.
            compressionargs={"level": 4},
            predictor=True,
            description=ome_description(samples, known) if ome else None,
            software=False if known.exif else f"cofuse {__version__}",
            metadata=None,
            maxworkers=processors(),
        )
    if not known.exif:
        return
    directories = exif.Directories(file)
    block = directories.read(directories.first)
    page = directories.read(directories.after(directories.first))
    fields = page | found.image
    fields |= {tag: block[tag] for tag in (exif.EXIF_IFD, exif.GPS_IFD) if tag in block}
    if ome:
        fields[DESCRIPTION] = page[DESCRIPTION]
    if known.icc:
        fields[ICC] = Field(_UNDEFINED, known.icc)
    if known.xmp:
        fields[XMP] = Field(_BYTES, known.xmp)
    directories.begin_with(directories.add(fields))


_DEPTHS = ("uint8", "uint16", "float32", "float64")
_TIFF = Format(_DEPTHS, _encode_tiff, alpha=True)
_OME = Format(_DEPTHS, partial(_encode_tiff, ome=True), alpha=True)
_JPEG = Format(("uint8",), _encode_jpeg)

#: Formats by suffix.
FORMATS = {
    ".png": Format(("uint8", "uint16"), _encode_png, alpha=True),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".jpg": _JPEG,
    ".jpeg": _JPEG,
    ".webp": Format(("uint8",), _encode_webp, alpha=True),
    ".bmp": Format(("uint8",), _encode_bmp),
    ".ome.tif": _OME,
    ".ome.tiff": _OME,
}
