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

#: What libjpeg says of damaged pixels. Other complaints are about headers, which webcams write as
#: they like, or say that simplejpeg does not know how colours are subsampled.
_DAMAGE = ("Corrupt JPEG data: ", "Premature end of JPEG file", "Inconsistent progression")


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
        import imagecodecs
        import simplejpeg

        data = path.read_bytes()
        try:
            pixels = simplejpeg.decode_jpeg(data, colorspace="RGB" if colour else "GRAY")
            return orient(pixels if colour else pixels[..., 0], orientation_of(block))
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
            if not said:
                said.append(damage)
                with warnings_lock:  # another thread may have silenced them for Pillow
                    warnings.warn(f"{path} is damaged ({damage}); taken as it is", stacklevel=2)
        return orient(pixels, orientation_of(block))

    return [replace(picture, load=load, left_out=left_out)]


def _complaint_about_pixels(data: bytes) -> str | None:
    """Say what a decoder complains of in the packed pixels of a file, None if of nothing.

    Metadata is no matter here, nor are zeros before the end marker or in its place, as some
    cameras write them.
    """
    packed = containers.jpeg_without_metadata(data)
    complaint = _complaint(packed)
    return complaint if complaint and _complaint(_without_padding(packed)) else None


def _complaint(data: bytes) -> str | None:
    """Say what the decoder complains of last."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data)
    except ValueError as error:
        return str(error)
    return None


def _without_padding(data: bytes) -> bytes:
    """Leave out zeros before the end marker; the one behind 0xff belongs to it."""
    packed, end = data[:-2].rstrip(b"\0"), data[-2:]
    return packed + b"\0" * packed.endswith(b"\xff") + end


def _blank_end(pixels: Pixels) -> str:
    """Say how much at the end is of one colour, as the decoder fills in what is missing."""
    blank = (pixels == pixels[-1, -1]).reshape(len(pixels), -1).all(axis=1)
    rows = len(pixels) if blank.all() else int(np.argmin(blank[::-1]))
    share = rows / len(pixels)
    return f"; the last {share:.0%} is one colour" if share >= 0.005 else ""
