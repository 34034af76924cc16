"""What can be wrong with a request whatever its frames are."""

from __future__ import annotations

import math

from cofuse.arguments import check, check_number
from cofuse.errors import CofuseError
from cofuse.images.memory import parse_size
from cofuse.jobs.frames import range_parts
from cofuse.jobs.options import Request
from cofuse.jobs.settings import check_settings, chosen_settings, read_noise

__all__ = ["check_options"]


def check_options(request: Request) -> None:
    """Refuse, before frames are looked for, what is wrong whatever they are."""
    reading, aligning, fusing = request.reading, request.aligning, request.fusing
    writing, maps = request.writing, request.maps
    check_settings(chosen_settings(fusing), fusing)
    read_noise(fusing.sigma, fusing.noise)
    if fusing.max_memory is not None:
        parse_size(fusing.max_memory)
    if reading.frames is not None:
        range_parts(reading.frames)
    if reading.white is not None:
        check("white", reading.white, "a number above 0", lambda white: 0 < white < math.inf)
    if aligning.reference is not None:
        check_number("reference", aligning.reference, 1, whole=True)
    files = aligning.transforms is not None or aligning.save_transforms is not None
    if not aligning.align and (aligning.align_only or files):
        raise CofuseError("`align=False` leaves nothing to align; leave it out")
    if writing.quality is not None:
        check_number("quality", writing.quality, 1, 100, whole=True)
    if maps.z_step is not None:
        check("z_step", maps.z_step, "a number other than 0", lambda z: math.isfinite(z) and z)
    if maps.pixel_size is not None:
        check("pixel_size", maps.pixel_size, "a number above 0", lambda size: 0 < size < math.inf)
