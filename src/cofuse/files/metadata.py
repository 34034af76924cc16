"""What a picture says of itself beside its pixels: colour profile, EXIF, XMP, resolution."""

from __future__ import annotations

import math
import re
import struct
import warnings
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cofuse import __version__
from cofuse.files import exif, ome
from cofuse.files.exif_layout import serialise

__all__ = ["Metadata", "checked", "outgoing", "tiff_metadata"]

_XMP, _ICC, _DESCRIPTION = 700, 34675, 270
INCH_IN_METRES = 0.0254

#: Larger blocks of metadata, and more segments or chunks in a file, are damage or an attack.
LARGEST_BLOCK = 32 * 2**20
MOST_BOXES = 100_000


@dataclass(frozen=True)
class Metadata:
    """What a file says of its picture, as far as it is kept when frames are fused.

    Attributes
    ----------
    icc
        Colour profile.
    exif
        EXIF block as the file holds it, a small TIFF file; from a TIFF file or camera RAW, a block
        made of its tags.
    xmp
        XMP packet.
    dpi
        Pixels an inch, across and down.
    pixel_size
        Micrometres a pixel across and down, and between frames; the last may be None.
    white
        The value of white, where the file says it (4095 for 12 bits in 16).
    """

    icc: bytes | None = field(default=None, repr=False)
    exif: bytes | None = field(default=None, repr=False)
    xmp: bytes | None = field(default=None, repr=False)
    dpi: tuple[float, float] | None = None
    pixel_size: ome.PixelSize | None = None
    white: float | None = None


def tiff_metadata(path: Path) -> Metadata:
    """Collect the metadata of a TIFF file, or of a camera RAW file that is one inside."""
    tags = frozenset((_XMP, _ICC))
    with path.open("rb") as file:
        try:
            found = exif.parse_exif(file, tags)
        except (ValueError, struct.error) as error:
            _warn(path, "tags", error)
            return Metadata()
    values = {tag: found.image[tag].data for tag in tags if tag in found.image}
    image = {tag: value for tag, value in found.image.items() if tag not in tags}
    pixel_size = white = None
    if _DESCRIPTION in image and ome.describes_pixels(image[_DESCRIPTION].data):
        description = image.pop(_DESCRIPTION).data
        if b"<OME" in description[:512]:
            try:
                pixel_size, bits = ome.ome_facts(description)
                # Many writers say 16 for everything that is stored in 16 bits.
                white = 2.0**bits - 1 if bits and bits < 16 else None
            except ValueError as error:
                _warn(path, "OME-XML", error)
        else:
            resolution = [found.rational(t) for t in (exif.X_RESOLUTION, exif.Y_RESOLUTION)]
            pixel_size = ome.imagej_pixel_size(description, resolution)
    kept = replace(found, image=image)
    block = serialise(kept) if image or kept.photo or kept.gps else None
    return Metadata(values.get(_ICC), block, values.get(_XMP), found.dpi(), pixel_size, white)


def checked(metadata: Metadata, path: Path) -> Metadata:
    """Leave out what is damaged, with a warning."""
    icc, xmp, dpi = metadata.icc, metadata.xmp, metadata.dpi
    block = metadata.exif.removeprefix(exif.JPEG_EXIF) if metadata.exif else None
    if icc is not None and (reason := _icc_fault(icc)):
        _warn(path, "colour profile", reason)
        icc = None
    if block is not None:
        try:
            dpi = dpi or exif.parse_block(block).dpi()
        except (ValueError, struct.error) as error:
            _warn(path, "EXIF", error)
            block = None
    if xmp is not None and b"rdf:RDF" not in xmp:
        _warn(path, "XMP", "it holds no description")
        xmp = None
    if dpi and not all(math.isfinite(value) and 0 < value < 1e7 for value in dpi):
        dpi = None
    return replace(metadata, icc=icc, exif=block, xmp=xmp, dpi=dpi)


def _icc_fault(icc: bytes) -> str | None:
    """Return what is wrong with a colour profile, if anything."""
    if len(icc) < 132 or icc[36:40] != b"acsp":
        return "it does not start as a profile does"
    if int.from_bytes(icc[:4], "big") > len(icc):
        return "it ends too early"
    return None


def _warn(path: Path, what: str, reason: object) -> None:
    warnings.warn(f"{path}: its {what} is damaged ({reason}) and left out", stacklevel=4)


def outgoing(metadata: Metadata, *, width: int, height: int, colour: bool) -> Metadata:
    """Turn a frame's metadata into that of the picture fused from it; it always has EXIF then.

    Orientation is upright, the size the new one, Software and DateTime are this program and now,
    and the thumbnail is gone. A colour profile of another kind of colour is left out.
    """
    dpi = metadata.dpi
    if dpi is None and metadata.pixel_size:
        x, y, _ = metadata.pixel_size
        dpi = (25400.0 / x, 25400.0 / y)  # micrometres an inch
    try:
        found = exif.parse_block(metadata.exif or None)
    except (ValueError, struct.error) as error:
        warnings.warn(f"the EXIF block is damaged ({error}) and left out", stacklevel=3)
        found = exif.Exif()
    fields = exif.updated(
        found,
        width=width,
        height=height,
        software=f"cofuse {__version__}",
        now=datetime.now(),
        dpi=dpi,
    )
    icc = metadata.icc
    if icc and icc[16:20] != (b"RGB " if colour else b"GRAY"):
        space = icc[16:20].decode("latin-1").strip()
        kind = "an RGB" if colour else "a grey"
        warnings.warn(f"a colour profile for {space} does not suit {kind} picture", stacklevel=3)
        icc = None
    xmp = _upright_xmp(metadata.xmp)
    return replace(metadata, icc=icc, exif=serialise(fields), xmp=xmp, dpi=dpi)


def _upright_xmp(xmp: bytes | None) -> bytes | None:
    """Set the orientation in a packet upright; leave out packets about other pixels."""
    # They refer to gain maps and motion pictures, which lie behind the pixels of a phone's file.
    if xmp is None or b"Container:Directory" in xmp or b"hdrgm:" in xmp:
        return None
    # A RAW developer would apply settings that were not applied yet to the fused picture.
    if b"crs:HasSettings" in xmp and not re.search(rb"crs:AlreadyApplied(=.|>)True", xmp):
        return None
    return re.sub(rb"""(tiff:Orientation\s*(?:=\s*["']|>)\s*)\d+""", rb"\g<1>1", xmp)
