"""Camera RAW, through rawpy: developed alike for all frames of a series.

What a developer does by default to make one picture look good - brightening it by its histogram,
stretching it to its own maximum - would make the frames of a series differ, so all of that is off.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.files.containers import jpeg_blocks_of
from cofuse.files.decoding import Picture, check_size, explained
from cofuse.files.formats import RawMode
from cofuse.files.metadata import Metadata, tiff_metadata
from cofuse.files.profiles import linear_srgb

__all__ = ["inspect_raw", "raw_metadata", "white_balance"]

Pixels = NDArray[Any]

#: Gamma of a screen (sRGB), and none.
_GAMMA = {"display": (2.4, 12.92), "linear": (1.0, 1.0)}
_TURNED = (5, 6)  # of LibRaw's numbers for orientation those that exchange rows and columns


def inspect_raw(path: Path, *, balance: list[float] | None, mode: RawMode) -> list[Picture]:
    """Read the header of a camera RAW file, to be developed with a white balance."""
    with _opened(path) as raw:
        sizes = raw.sizes
        width, height = sizes.iwidth or sizes.width, sizes.iheight or sizes.height
        colours = raw.num_colors
    check_size(width, height, path)
    if sizes.flip in _TURNED:
        width, height = height, width

    def load() -> Pixels:
        with _opened(path) as raw:
            raw.unpack()
            pixels: Pixels = raw.postprocess(
                use_camera_wb=balance is None,
                user_wb=balance,
                no_auto_bright=True,
                adjust_maximum_thr=0.0,
                output_bps=16,
                gamma=_GAMMA[mode],
            )
        return pixels[..., 0].copy() if pixels.shape[2:] == (1,) else pixels

    shape = (height, width) if colours == 1 else (height, width, 3)
    return [Picture(str(path), shape, np.dtype(np.uint16), load)]


def raw_metadata(path: Path, mode: RawMode) -> Metadata:
    """Collect EXIF: from the file where it is a TIFF file inside, or from its preview picture.

    The file's own colour profile and resolution are left out, for they are about the preview or
    nothing at all. Values in proportion to the light get the profile that says so.
    """
    return replace(_raw_exif(path), icc=linear_srgb() if mode == "linear" else None)


def _raw_exif(path: Path) -> Metadata:
    """Collect EXIF and XMP."""
    with path.open("rb") as file:
        start = file.read(4)
    if start in (b"II*\0", b"MM\0*"):
        found = tiff_metadata(path)
        return Metadata(exif=found.exif, xmp=found.xmp)
    import rawpy

    try:
        with _opened(path) as raw:
            preview = raw.extract_thumb()
        is_jpeg = preview.format == rawpy.ThumbFormat.JPEG
        return Metadata(exif=jpeg_blocks_of(io.BytesIO(preview.data)).exif if is_jpeg else None)
    except (rawpy.LibRawError, ValueError):  # a file without a preview
        return Metadata()


def _opened(path: Path) -> Any:
    """Open a RAW file up to its header."""
    try:
        import rawpy
    except ImportError:
        raise CofuseError(
            f"{path} is camera RAW, and reading it needs an extra: pip install 'cofuse[raw]'"
        ) from None
    raw = rawpy.RawPy()
    with explained(path):
        raw.open_file(str(path))
    return raw


def white_balance(path: Path) -> list[float] | None:
    """Return the multipliers the camera recorded, or None where it recorded nothing."""
    with explained(path), _opened(path) as raw:  # which decodes the frame on the way
        balance = [float(value) for value in raw.camera_whitebalance]
    if len(balance) != 4 or not all(np.isfinite(balance)) or min(balance[:3]) <= 0:
        return None
    return [*balance[:3], balance[3] or balance[1]]
