"""Pixels and their metadata into each format that is written."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
class Content:
    """What goes into a file: the picture, its alpha if it is not opaque, and what is known of it.

    ``quality`` is from 1 to 100 for formats with loss, or None for their default.
    """

    image: Pixels
    alpha: Pixels | None = None
    metadata: Metadata | None = None
    quality: int | None = None

    def samples(self) -> Pixels:
        """Return colours and alpha in one array."""
        return self.image if self.alpha is None else np.dstack([self.image, self.alpha])


@dataclass(frozen=True)
class Format:
    """What a file format takes, and how it is encoded."""

    dtypes: tuple[str, ...]
    encode: Callable[[BinaryIO, Content], None]
    alpha: bool = False


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format; ``.ome.tif`` is one suffix."""
    name = path.name.lower()
    return next((s for s in (".ome.tif", ".ome.tiff") if name.endswith(s)), path.suffix.lower())


def _encode_png(file: BinaryIO, content: Content) -> None:
    """Write PNG, 8 or 16 bits."""
    import imagecodecs

    samples = content.samples()
    png = imagecodecs.png_encode(samples, **_png_packing(samples))
    # Behind the header, as the profile must come before pixels; a view, to copy no pixels.
    behind_header = 8 + 25
    file.write(png[:behind_header])
    if content.metadata is not None:
        file.writelines(_png_chunks(content.metadata))
    file.write(memoryview(png)[behind_header:])


def _png_chunks(known: Metadata) -> Iterator[bytes]:
    """Yield the chunks of metadata."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    if known.icc:
        yield chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(known.icc, 9))
    if known.dpi:
        x, y = (min(max(round(value / INCH_IN_METRES), 1), 2**31 - 1) for value in known.dpi)
        yield chunk(b"pHYs", struct.pack(">IIB", x, y, 1))
    if known.exif:
        yield chunk(b"eXIf", known.exif)
    if known.xmp:
        yield chunk(b"iTXt", PNG_XMP + b"\0\0\0\0\0" + known.xmp)


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


def _encode_jpeg(file: BinaryIO, content: Content) -> None:
    """Write JPEG, 4:4:4."""
    from PIL import Image

    options: dict[str, Any] = {}
    if known := content.metadata:
        found = parse_block(known.exif)
        # Only JPEG says where colours lie among the pixels: centred.
        place = Field(exif.SHORT, struct.pack(found.order + "H", 1))
        found = replace(found, image=found.image | {_CHROMA_PLACE: place})
        block = serialise(found, most=_SEGMENT - len(JPEG_EXIF))
        if block is None:
            warnings.warn("the EXIF block is too large for this format; left out", stacklevel=3)
        else:
            options["exif"] = JPEG_EXIF + block
        packet = JPEG_XMP + (known.xmp or b"")
        if len(packet) > _SEGMENT:
            warnings.warn("the XMP packet is too large for this format; left out", stacklevel=3)
        elif known.xmp:
            options["extra"] = b"\xff\xe1" + struct.pack(">H", len(packet) + 2) + packet
        if known.icc:
            options["icc_profile"] = known.icc
        if known.dpi and max(known.dpi) < 2**16 and min(known.dpi) >= 1:
            options["dpi"] = tuple(round(value) for value in known.dpi)
    quality = 95 if content.quality is None else content.quality
    Image.fromarray(content.image).save(file, "JPEG", quality=quality, subsampling=0, **options)


def _encode_webp(file: BinaryIO, content: Content) -> None:
    """Write WebP, without loss unless a quality is asked for."""
    from PIL import Image

    lossless = content.quality is None
    options: dict[str, Any] = {"lossless": True} if lossless else {"quality": content.quality}
    if known := content.metadata:
        named = {"exif": known.exif, "icc_profile": known.icc, "xmp": known.xmp}
        options |= {name: block for name, block in named.items() if block}
    if content.alpha is not None and content.image.ndim == 2:  # WebP knows no grey
        content = replace(content, image=np.dstack([content.image] * 3))
    # Exact: colours are kept where they are transparent.
    Image.fromarray(content.samples()).save(file, "WEBP", exact=True, **options)


def _encode_bmp(file: BinaryIO, content: Content) -> None:
    """Write BMP; of metadata it holds the resolution only."""
    from PIL import Image

    dpi = content.metadata.dpi if content.metadata else None
    options = {"dpi": dpi} if dpi and max(dpi) < 1e7 else {}
    Image.fromarray(content.image).save(file, "BMP", **options)


def _encode_ome(file: BinaryIO, content: Content) -> None:
    """Write TIFF with a description in OME-XML."""
    alpha = content.alpha is not None
    _encode_tiff(file, content, ome_description(content.image, alpha=alpha, known=content.metadata))


def _encode_tiff(file: BinaryIO, content: Content, description: bytes | None = None) -> None:
    """Write TIFF, any depth, deflated, behind its EXIF block if it has one.

    tifffile writes the pixels, but no EXIF. The file starts with the EXIF block, with the maker's
    note at its offset, tifffile appends the picture, and a directory at the end joins both.
    """
    import tifffile

    image, known = content.image, content.metadata
    # By default tifffile relies on compression to keep a large picture below 4 GB.
    big = image.nbytes > 2**32 - 2**25
    start: dict[str, Any] = {"bigtiff": big}
    if known:
        found = parse_block(known.exif)
        software = {exif.SOFTWARE: found.image[exif.SOFTWARE]}
        file.write(serialise(replace(found, image=software), big=big) or b"")
        file.seek(0)
        start = {"append": True}
    with tifffile.TiffWriter(file, **start) as tif:
        tif.write(
            content.samples(),
            photometric="rgb" if image.ndim == 3 else "minisblack",
            planarconfig="contig" if image.ndim == 3 or content.alpha is not None else None,
            extrasamples=None if content.alpha is None else ["unassalpha"],
            compression="zlib",
            # Half the time of the usual level, for files 3 to 4 % larger.
            compressionargs={"level": 4},
            predictor=True,
            description=description,
            software=False if known else f"cofuse {__version__}",
            metadata=None,
            maxworkers=processors(),
        )
    if not known:
        return
    directories = exif.Directories(file)
    block = directories.read(directories.first)
    page = directories.read(directories.after(directories.first))
    fields = page | found.image
    fields |= {tag: block[tag] for tag in (exif.EXIF_IFD, exif.GPS_IFD) if tag in block}
    if description is not None:
        fields[DESCRIPTION] = page[DESCRIPTION]
    if known.icc:
        fields[ICC] = Field(_UNDEFINED, known.icc)
    if known.xmp:
        fields[XMP] = Field(_BYTES, known.xmp)
    directories.begin_with(directories.add(fields))


_DEPTHS = ("uint8", "uint16", "float32", "float64")
_TIFF, _OME = Format(_DEPTHS, _encode_tiff, True), Format(_DEPTHS, _encode_ome, True)

#: Formats by suffix.
FORMATS = {
    ".png": Format(("uint8", "uint16"), _encode_png, True),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".jpg": Format(("uint8",), _encode_jpeg),
    ".jpeg": Format(("uint8",), _encode_jpeg),
    ".webp": Format(("uint8",), _encode_webp, True),
    ".bmp": Format(("uint8",), _encode_bmp),
    ".ome.tif": _OME,
    ".ome.tiff": _OME,
}
