"""JPEG: decoded by a library that hands on what libjpeg-turbo complains of.

libjpeg-turbo decodes damaged pixels as well as it can, and warns. Pillow, OpenCV and imagecodecs
leave the warning out, so that a half-grey frame would look like any other. simplejpeg raises it;
its pixels are the same, to the bit.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.files import containers
from cofuse.files.decoding import Picture, orient, orientation_of
from cofuse.files.formats import OnDamage
from cofuse.files.web_formats import inspect_with_pillow, warnings_lock

__all__ = ["inspect_jpeg"]

Pixels = NDArray[Any]

#: A header that webcams write; the decoder knows what is meant.
_HARMLESS = "Invalid SOS parameters"


def inspect_jpeg(path: Path, *, on_damage: OnDamage) -> list[Picture]:
    """Read the header of a JPEG file; of a multi-picture file (MPO) that of the first picture."""
    from PIL.JpegImagePlugin import JpegImageFile

    block = containers.jpeg_blocks(path).exif
    picture = inspect_with_pillow(path, JpegImageFile, block)
    colour = len(picture.shape) == 3
    count = containers.jpeg_pictures(path)
    left_out = f"holds {count} pictures, of which the first is read" if count > 1 else ""
    said: list[str] = []  # a frame may be decoded more than once

    def load() -> Pixels:
        pixels, damage = _decoded(path.read_bytes(), colour=colour)
        if damage is not None and on_damage == "refuse":
            raise CofuseError(
                f"{path} is damaged ({damage}); copy the file again, or set on_damage to 'warn' to "
                "take it as it is"
            )
        if damage is not None and not said:
            said.append(damage)
            with warnings_lock:  # another thread may have silenced them for Pillow
                warnings.warn(f"{path} is damaged ({damage}); taken as it is", stacklevel=2)
        return orient(pixels, orientation_of(block))

    return [replace(picture, load=load, left_out=left_out)]


def _decoded(data: bytes, *, colour: bool) -> tuple[Pixels, str | None]:
    """Decode a whole JPEG file; and say what is wrong with its pixels, None if nothing is."""
    import imagecodecs
    import simplejpeg

    try:
        pixels = simplejpeg.decode_jpeg(data, colorspace="RGB" if colour else "GRAY")
        return (pixels if colour else pixels[..., 0]), None
    except ValueError:
        pixels = imagecodecs.jpeg8_decode(data)  # raises where nothing can be decoded
    # The complaint may be about metadata, or about zeros before the end marker or in its place, as
    # some cameras write them: then the packed pixels alone decode without complaint.
    packed = containers.jpeg_without_metadata(data)
    complaint = _complaint(packed)
    if complaint is None or _complaint(_without_padding(packed)) is None:
        return pixels, None
    reason = complaint.removeprefix("Corrupt JPEG data: ")
    blank = _blank_rows(pixels) / len(pixels)
    return pixels, f"{reason}; the last {blank:.0%} is one colour" if blank >= 0.005 else reason


def _complaint(data: bytes) -> str | None:
    """Say what the decoder complains of last."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data)
    except ValueError as error:
        return None if _HARMLESS in str(error) else str(error)
    return None


def _without_padding(data: bytes) -> bytes:
    """Leave out zeros before the end marker; the one behind 0xff belongs to it."""
    packed, end = data[:-2].rstrip(b"\0"), data[-2:]
    return packed + b"\0" * packed.endswith(b"\xff") + end


def _blank_rows(pixels: Pixels) -> int:
    """Count the stored rows at the end that are of one colour, as the decoder fills them in."""
    blank = (pixels == pixels[-1, -1]).reshape(len(pixels), -1).all(axis=1)
    return len(pixels) if blank.all() else int(np.argmin(blank[::-1]))
