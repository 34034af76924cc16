"""HEIC and its kin, through pillow-heif, which turns upright; 10 and 12 bits become 16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.files.containers import Blocks
from cofuse.files.decoding import Picture, check_size

__all__ = ["heif_blocks", "inspect_heif"]

Pixels = NDArray[Any]

_CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}


def inspect_heif(path: Path) -> list[Picture]:
    """Read the header of a HEIC file; of several pictures the primary one counts."""
    heif = _opened(path)
    (width, height), (mode, _, bits) = heif.size, heif.mode.partition(";")
    check_size(width, height, path)
    if mode not in _CHANNELS:
        raise CofuseError(f"{path} is a {heif.mode} picture; expected grey or RGB: convert it")
    channels = _CHANNELS[mode]

    def load() -> Pixels:
        heif = _opened(path)
        # Copied while the file is open: in some versions the view does not keep it alive.
        pixels: Pixels = np.array(heif)
        return pixels.reshape(height, width, channels) if channels > 1 else pixels

    shape = (height, width) if channels < 3 else (height, width, 3)
    dtype = np.dtype(np.uint16 if bits else np.uint8)
    count = len(heif)
    left_out = f"holds {count} pictures, of which the primary one is read" if count > 1 else ""
    return [Picture(str(path), shape, dtype, load, mode.endswith("A"), left_out)]


def heif_blocks(path: Path) -> Blocks:
    """Collect the metadata of a HEIC file."""
    info = _opened(path).info
    exif = info.get("exif") or None
    return Blocks(info.get("icc_profile") or None, exif, info.get("xmp") or None)


def _opened(path: Path) -> Any:
    """Open a HEIC file; pixels are decoded when they are asked for."""
    try:
        import pillow_heif
    except ImportError:
        raise CofuseError(
            f"{path} is a HEIC picture, and reading it needs an extra: pip install 'cofuse[raw]'"
        ) from None
    return pillow_heif.open_heif(path, convert_hdr_to_8bit=False)
