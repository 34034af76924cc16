"""Pixel sizes and bit depths that microscopes write: OME-XML, and the lines of ImageJ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cofuse import __version__

__all__ = ["PixelSize", "describes_pixels", "imagej_pixel_size", "ome_description", "ome_facts"]

#: Micrometres across, down and between frames; the last may be unknown.
PixelSize = tuple[float, float, float | None]

#: Both letters that look like a micro sign are in use.
_MICROMETRES = {
    **dict.fromkeys(("µm", "μm", "um", "micron", "microns", "\\u00B5m", "micrometer"), 1.0),
    **dict.fromkeys(("in", "inch"), 25400.0),
    "pm": 1e-6,
    "Å": 1e-4,
    "nm": 1e-3,
    "mm": 1e3,
    "cm": 1e4,
    "m": 1e6,
}

_LONGEST = 16 * 2**20


def describes_pixels(description: bytes) -> bool:
    """Whether a description was made by a program to describe the pixels, not by a person."""
    start = description[:512].lstrip()
    return start.startswith((b"ImageJ=", b'{"shape"', b"shape=")) or b"<OME" in start


def ome_facts(description: bytes) -> tuple[PixelSize | None, int | None]:
    """Read the size of a pixel and the bits in use from OME-XML.

    Raises
    ------
    ValueError
        It is not the XML of OME.
    """
    from xml.etree import ElementTree

    # OME needs no entities; they would be an attack on the parser.
    if len(description) > _LONGEST or b"<!DOCTYPE" in description or b"<!ENTITY" in description:
        raise ValueError("it is no plain OME-XML")
    try:
        root = ElementTree.fromstring(description.rstrip(b"\0"))
    except (ElementTree.ParseError, LookupError) as error:
        raise ValueError(f"it is no OME-XML ({error})") from error
    pixels = next((e for e in root.iter() if e.tag.rpartition("}")[2] == "Pixels"), None)
    if pixels is None:
        raise ValueError("it describes no pixels")

    def size(axis: str) -> float | None:
        text, unit = (pixels.get(f"PhysicalSize{axis}{end}") for end in ("", "Unit"))
        return _positive(text, _MICROMETRES.get(unit or "µm"))

    bits = _positive(pixels.get("SignificantBits"), 1.0)
    x, y, z = (size(axis) for axis in "XYZ")
    return ((x, y, z) if x and y else None), (int(bits) if bits and bits <= 64 else None)


def imagej_pixel_size(description: bytes, resolution: Sequence[float | None]) -> PixelSize | None:
    """Read the size of a pixel from what ImageJ writes and the pixels per unit of TIFF's tags."""
    lines = (line.partition("=") for line in description.decode("utf-8", "replace").splitlines())
    facts = {key.strip(): value.strip() for key, _, value in lines}
    scale = _MICROMETRES.get(facts.get("unit", ""))
    x, y = resolution
    if scale is None or not x or not y:
        return None
    return scale / x, scale / y, _positive(facts.get("spacing"), scale)


def _positive(text: str | None, scale: float | None) -> float | None:
    """Read a number and scale it; None unless it is finite and above zero."""
    try:
        value = float(text or "") * (scale or 0.0)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def ome_description(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    alpha: bool,
    pixel_size: PixelSize | None,
    white: float | None,
) -> bytes:
    """Describe one picture in OME-XML, without the distance between frames: it has no depth."""
    import tifffile

    facts: dict[str, Any] = {}
    if pixel_size:
        for axis, value in zip("XY", pixel_size, strict=False):
            facts |= {f"PhysicalSize{axis}": value, f"PhysicalSize{axis}Unit": "µm"}
    bits = math.log2(white + 1) if white and dtype.kind == "u" else 0.0
    if bits and bits == int(bits) <= 8 * dtype.itemsize:
        facts["SignificantBits"] = int(bits)
    samples = (shape[2] if len(shape) == 3 else 1) + alpha
    height, width = shape[:2]
    stored = (1, 1, 1, height, width, samples)
    xml = tifffile.OmeXml(Creator=f"cofuse {__version__}")
    shape, axes = ((height, width, samples), "YXS") if samples > 1 else ((height, width), "YX")
    xml.addimage(dtype, shape, stored, axes=axes, **facts)
    text: str = xml.tostring(declaration=True)
    return text.encode("utf-8")
