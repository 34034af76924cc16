"""What a picture says of itself beside its pixels: profile, EXIF, XMP, resolution, pixel size.

Pixel sizes and bit depths are those that microscopes write: OME-XML, and the lines of ImageJ.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cofuse import __version__
from cofuse.files import exif
from cofuse.images import Pixels

XMP, ICC, DESCRIPTION = 700, 34675, 270
INCH_IN_METRES = 0.0254

#: Micrometres across, down and between frames; the last may be unknown.
PixelSize = tuple[float, float, float | None]

#: Both letters that look like a micro sign are in use.
_MICROMETRES = {"pm": 1e-6, "Å": 1e-4, "nm": 1e-3, "mm": 1e3, "cm": 1e4, "m": 1e6, "in": 25400.0}
_MICROMETRES |= dict.fromkeys(
    ("µm", "μm", "um", "micron", "microns", "\\u00B5m", "micrometer"), 1.0
)
_MICROMETRES["inch"] = _MICROMETRES["in"]


@dataclass(frozen=True, kw_only=True)
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
    pixel_size: PixelSize | None = None
    white: float | None = None


def tiff_metadata(path: Path) -> Metadata:
    """Collect the metadata of a TIFF file, or of a camera RAW file that is one inside."""
    with path.open("rb") as file:
        try:
            found = exif.parse_block(file, frozenset((XMP, ICC)))
        except ValueError as error:
            _warn(path, "tags", error)
            return Metadata()
    image = dict(found.image)
    xmp, icc = (image.pop(tag).data if tag in image else None for tag in (XMP, ICC))
    pixel_size = white = None
    text = image[DESCRIPTION].data if DESCRIPTION in image else b""
    if b"<OME" in text[:512].lstrip():
        try:
            pixel_size, bits = ome_facts(text)
            # Many writers say 16 for everything that is stored in 16 bits.
            white = 2.0**bits - 1 if bits and bits < 16 else None
        except ValueError as error:
            _warn(path, "OME-XML", error)
        del image[DESCRIPTION]
    elif text.lstrip().startswith((b"ImageJ=", b'{"shape"', b"shape=")):  # no person's words
        pixel_size = _imagej_pixel_size(text, found)
        del image[DESCRIPTION]
    kept = replace(found, image=image)
    block = exif.serialise(kept) if image or kept.photo or kept.gps else None
    return Metadata(
        icc=icc, exif=block, xmp=xmp, dpi=found.dpi(), pixel_size=pixel_size, white=white
    )


def ome_facts(description: bytes) -> tuple[PixelSize | None, int | None]:
    """Read the size of a pixel and the bits in use from OME-XML; other text is a `ValueError`."""
    from xml.etree import ElementTree

    # OME needs no entities; they would be an attack on the parser.
    if b"<!DOCTYPE" in description or b"<!ENTITY" in description:
        raise ValueError("it is no plain OME-XML")
    try:
        root = ElementTree.fromstring(description.rstrip(b"\0"))
    except (ElementTree.ParseError, LookupError) as error:
        raise ValueError(f"it is no OME-XML ({error})") from error
    pixels = next((e for e in root.iter() if e.tag.rpartition("}")[2] == "Pixels"), None)
    if pixels is None:
        raise ValueError("it describes no pixels")
    units = (_MICROMETRES.get(pixels.get(f"PhysicalSize{axis}Unit") or "µm") for axis in "XYZ")
    sizes = (pixels.get(f"PhysicalSize{axis}") for axis in "XYZ")
    x, y, z = (_positive(size, unit) for size, unit in zip(sizes, units, strict=True))
    bits = _positive(pixels.get("SignificantBits"), 1.0)
    return ((x, y, z) if x and y else None), (int(bits) if bits and bits <= 64 else None)


def _imagej_pixel_size(description: bytes, tags: exif.Exif) -> PixelSize | None:
    """Read the size of a pixel from what ImageJ writes and the pixels per unit of TIFF's tags."""
    lines = (line.partition("=") for line in description.decode("utf-8", "replace").splitlines())
    facts = {key.strip(): value.strip() for key, _, value in lines}
    unit = _MICROMETRES.get(facts.get("unit", ""))
    x, y = tags.number(exif.X_RESOLUTION), tags.number(exif.Y_RESOLUTION)
    if unit is None or not x or not y:
        return None
    return unit / x, unit / y, _positive(facts.get("spacing"), unit)


def _positive(text: str | None, scale: float | None) -> float | None:
    """Read a number and scale it; None unless it is finite and above zero."""
    try:
        value = float(text or "") * (scale or 0.0)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def ome_description(samples: Pixels, known: Metadata) -> bytes:
    """Describe one picture in OME-XML, without the distance between frames: it has no depth."""
    import tifffile

    facts: dict[str, Any] = {}
    for axis, value in zip("XY", known.pixel_size or (), strict=False):
        facts |= {f"PhysicalSize{axis}": value, f"PhysicalSize{axis}Unit": "µm"}
    bits = math.log2(known.white + 1) if known.white and samples.dtype.kind == "u" else 0.0
    if bits and bits == int(bits) <= 8 * samples.dtype.itemsize:
        facts["SignificantBits"] = int(bits)
    height, width, channels = samples.shape if samples.ndim == 3 else (*samples.shape, 1)
    axes = "YXS" if channels > 1 else "YX"
    xml = tifffile.OmeXml(Creator=f"cofuse {__version__}")
    stored = (1, 1, 1, height, width, channels)
    xml.addimage(samples.dtype, samples.shape, stored, axes=axes, **facts)
    text: str = xml.tostring(declaration=True)
    return text.encode("utf-8")


def checked(metadata: Metadata, path: Path) -> Metadata:
    """Leave out what is damaged, with a warning."""
    icc, xmp, dpi = metadata.icc, metadata.xmp, metadata.dpi
    block = metadata.exif.removeprefix(exif.JPEG_EXIF) if metadata.exif else None
    if icc is not None and (len(icc) < 132 or icc[36:40] != b"acsp"):
        _warn(path, "colour profile", "it does not start as a profile does")
        icc = None
    elif icc is not None and int.from_bytes(icc[:4], "big") > len(icc):
        _warn(path, "colour profile", "it ends too early")
        icc = None
    if block is not None:
        try:
            dpi = dpi or exif.parse_block(block).dpi()
        except ValueError as error:
            _warn(path, "EXIF", error)
            block = None
    if xmp is not None and b"rdf:RDF" not in xmp:
        _warn(path, "XMP", "it holds no description")
        xmp = None
    if dpi and not all(math.isfinite(value) and 0 < value < 1e7 for value in dpi):
        dpi = None
    return replace(metadata, icc=icc, exif=block, xmp=xmp, dpi=dpi)


def _warn(path: Path, what: str, reason: object) -> None:
    warnings.warn(f"{path}: its {what} is damaged ({reason}) and left out", stacklevel=4)


def outgoing(metadata: Metadata, *, width: int, height: int, colour: bool) -> Metadata:
    """Turn a frame's metadata into that of the picture fused from it; it always has EXIF then.

    Orientation is upright, the size the new one, Software and DateTime are this program and now,
    and the thumbnail is gone. A colour profile of another kind of colour is left out.
    """
    icc, dpi = metadata.icc, metadata.dpi
    if dpi is None and metadata.pixel_size:
        x, y, _ = metadata.pixel_size
        dpi = (25400.0 / x, 25400.0 / y)  # micrometres an inch
    try:
        found = exif.parse_block(metadata.exif or None)
    except ValueError as error:
        warnings.warn(f"the EXIF block is damaged ({error}) and left out", stacklevel=3)
        found = exif.Exif()
    fields = exif.updated(found, width, height, dpi)
    if icc and icc[16:20] != (b"RGB " if colour else b"GRAY"):
        space = icc[16:20].decode("latin-1").strip()
        kind = "an RGB" if colour else "a grey"
        warnings.warn(f"a colour profile for {space} does not suit {kind} picture", stacklevel=3)
        icc = None
    xmp = _upright_xmp(metadata.xmp)
    return replace(metadata, icc=icc, exif=exif.serialise(fields), xmp=xmp, dpi=dpi)


def _upright_xmp(xmp: bytes | None) -> bytes | None:
    """Set the orientation in a packet upright; leave out packets about other pixels."""
    # They refer to gain maps and motion pictures, which lie behind the pixels of a phone's file.
    if xmp is None or b"Container:Directory" in xmp or b"hdrgm:" in xmp:
        return None
    # A RAW developer would apply settings that were not applied yet to the fused picture.
    if b"crs:HasSettings" in xmp and not re.search(rb"crs:AlreadyApplied(=.|>)True", xmp):
        return None
    return re.sub(rb"""(tiff:Orientation\s*(?:=\s*["']|>)\s*)\d+""", rb"\g<1>1", xmp)
