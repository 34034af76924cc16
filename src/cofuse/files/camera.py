"""Camera RAW and HEIC, through the packages of the extra ``raw``.

All frames of a series are developed alike. What a developer does by default to make one picture
look good - brightening it by its histogram, stretching it to its own maximum - would make them
differ, so all of that is off.
"""

from __future__ import annotations

import io
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.decoding import Picture, RawMode, check_size, explained, several_note
from cofuse.files.formats import jpeg_metadata
from cofuse.files.metadata import Metadata, tiff_metadata
from cofuse.images import Pixels

#: Power and slope at black of the tone curve: that of sRGB, and none.
_GAMMA = {"display": (2.4, 12.92), "linear": (1.0, 1.0)}


def inspect_raw(path: Path, *, balance: list[float] | None, mode: RawMode) -> Picture:
    """Read the header of a camera RAW file, to be developed with a white balance."""
    with _opened_raw(path) as raw:
        sizes, colour = raw.sizes, raw.num_colors > 1
    width, height = sizes.iwidth or sizes.width, sizes.iheight or sizes.height
    check_size(path, width, height)
    if sizes.flip in (5, 6):  # LibRaw's numbers for a quarter turn
        width, height = height, width

    def load() -> Pixels:
        with _opened_raw(path) as raw:
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

    return Picture(path, width, height, colour, np.dtype(np.uint16), load)


def raw_metadata(path: Path, mode: RawMode) -> Metadata:
    """Collect EXIF: from the file where it is a TIFF file inside, or from its preview picture.

    The file's own colour profile and resolution are left out: they are the preview's, or
    meaningless. Linear values get a profile with sRGB's colours and no gamma.
    """
    found = Metadata()
    with path.open("rb") as file:
        start = file.read(4)
    if start in (b"II*\0", b"MM\0*"):
        found = tiff_metadata(path)
    else:
        # A file may have no preview, or one that is no JPEG.
        with _opened_raw(path) as raw, suppress(Exception):
            preview = io.BytesIO(raw.extract_thumb().data)
            found = Metadata(exif=jpeg_metadata(preview).exif)
    profile = resources.files("cofuse").joinpath("data", "profiles", "linear-srgb.icc")
    icc = profile.read_bytes() if mode == "linear" else None
    return Metadata(icc=icc, exif=found.exif, xmp=found.xmp)


def _opened_raw(path: Path) -> Any:
    """Open a RAW file up to its header."""
    try:
        import rawpy
    except ImportError:
        raise CofuseError(f"{path} is camera RAW; to read it: pip install 'cofuse[raw]'") from None
    raw = rawpy.RawPy()
    raw.open_file(str(path))
    return raw


def white_balance(path: Path) -> list[float] | None:
    """Return the multipliers the camera recorded, or None where it recorded nothing."""
    with explained(path), _opened_raw(path) as raw:  # which decodes the frame on the way
        balance = [float(value) for value in raw.camera_whitebalance]
    if len(balance) != 4 or not all(np.isfinite(balance)) or min(balance[:3]) <= 0:
        return None
    return [*balance[:3], balance[3] or balance[1]]


def inspect_heif(path: Path) -> tuple[Picture, Metadata]:
    """Read header and metadata of a HEIC file; of several pictures the primary one counts."""
    heif = _opened_heif(path)
    (width, height), (mode, _, bits), count = heif.size, heif.mode.partition(";"), len(heif)
    check_size(path, width, height)
    if mode not in ("L", "LA", "RGB", "RGBA"):
        raise CofuseError(f"{path} is a {heif.mode} picture; expected grey or RGB: convert it")
    channels = len(mode)

    def load() -> Pixels:
        heif = _opened_heif(path)  # a name, as in some versions the view does not keep it alive
        pixels: Pixels = np.array(heif)
        return pixels.reshape(height, width, channels) if channels > 1 else pixels

    dtype = np.dtype(np.uint16 if bits else np.uint8)
    note, alpha = several_note(count, which="primary one"), mode.endswith("A")
    icc, block, xmp = (heif.info.get(name) or None for name in ("icc_profile", "exif", "xmp"))
    picture = Picture(path, width, height, channels > 2, dtype, load, alpha, note)
    return picture, Metadata(icc=icc, exif=block, xmp=xmp)


def _opened_heif(path: Path) -> Any:
    """Open a HEIC file; pixels are decoded when they are asked for."""
    try:
        import pillow_heif
    except ImportError:
        raise CofuseError(f"{path} is HEIC; to read it: pip install 'cofuse[raw]'") from None
    return pillow_heif.open_heif(path, convert_hdr_to_8bit=False)
