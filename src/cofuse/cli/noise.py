"""``cofuse noise``: what the noise of a stack is like, in a table, a file and a plot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter

from cofuse.cli.application import Output, Overwrite, Printing, columns
from cofuse.cli.fuse import PlacingOptions, ReadingOptions, check_pictures
from cofuse.images import Stack
from cofuse.jobs import Request, Writing
from cofuse.sensor import NoiseLaw
from cofuse.sensor.law import WAVELENGTHS
from cofuse.sensor.plot import luminance_and_chroma

#: Frames whose noise levels differ by less than this factor are not listed.
_ALIKE = 1.05
#: Most frames that are listed one by one.
_LISTED = 16

Rows = list[tuple[str, ...]]


def noise(
    *pictures: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Output | None = None,
    plot: Path | None = None,
    reading: ReadingOptions = ReadingOptions(),
    aligning: PlacingOptions = PlacingOptions(),
    overwrite: Overwrite = False,
    printing: Printing = Printing(),
) -> None:
    """Estimate the noise of frames: by frequency, frame, colour and brightness.

    Levels are standard deviations in 8-bit grey levels. The level of a frequency band is that of
    white noise with as much power in the band, so that white noise has one level in all bands.

    Parameters
    ----------
    pictures
        The frames, as cofuse fuse takes them.
    output
        Write the law of the noise to this file, as JSON: with --noise of cofuse fuse, batch and
        compare it is used again, also for other frames of the same camera and sensitivity.
    plot
        Write a plot of it, against brightness and against frequency, to this picture file.
    reading, aligning
        Options in groups. Frames are aligned first, because they are compared.
    """
    from cofuse.jobs.run import noise_of_files

    check_pictures(pictures, "noise")
    request = Request(pictures, Path(), reading, aligning, writing=Writing(overwrite=overwrite))
    with printing.progress() as progress:
        law, stack = noise_of_files(request, output=output, plot=plot, progress=progress)
    facts = {"frames": stack.names, "sigma_counts": law.sigma * (stack.white / 255.0)}
    printing.result(facts | law.facts(), noise_table(law, stack))


def noise_table(law: NoiseLaw, stack: Stack) -> str:
    """Describe the noise of a stack by band, frame and brightness."""
    from cofuse.jobs.frames import stack_in_words

    level = f"sigma {law.sigma:.2f} of 255"
    if stack.white != 255.0:
        level += f" ({law.sigma * stack.white / 255.0:.3g} counts)"
    words = [stack_in_words(stack), level + " at mid-grey" * (law.model.gain > 0)]
    words += ["too little to be removed"] * law.is_clean
    lines = [", ".join([*words, *law.character])]
    for rows in (_by_band(law), _by_frame(law, stack), _by_brightness(law)):
        lines += ["", *columns(rows)] if rows else []
    blocks = (
        f"yes, {100 * law.blocks:.0f} % of the finest detail rounded away" if law.blocks else "no"
    )
    return "\n".join([*lines, "", f"JPEG blocks: {blocks}"])


def _by_band(law: NoiseLaw) -> Rows:
    levels, errors = luminance_and_chroma(law)
    names = ("luminance", "chroma") if len(levels) == 2 else ("sigma",)
    ends = [f"{start} to {2 * start}" for start in WAVELENGTHS[:-1]] + [f"{WAVELENGTHS[-1]} up"]
    rows: Rows = [("wavelength, pixels", *names)]
    for band, words in enumerate(ends):
        cells = (_with_error(*pair) for pair in zip(levels[:, band], errors[:, band], strict=True))
        rows.append((words, *cells))
    return rows


def _by_frame(law: NoiseLaw, stack: Stack) -> Rows:
    """List the noise levels of the frames if they differ; of many frames only the extremes."""
    each = np.sqrt(np.mean(law.by_frame**2, axis=1)) * law.at_mid_grey
    if each.max() <= _ALIKE * each.min():
        return []
    levels = [f"{level:.2f}" for level in each]
    if len(each) <= _LISTED:
        return [("frame", "sigma"), *zip(stack.names, levels, strict=True)]
    least, most = int(each.argmin()), int(each.argmax())
    ends = (f"{levels[frame]} ({stack.names[frame]})" for frame in (least, most))
    return [(f"frames: {' to '.join(ends)}",)]


def _by_brightness(law: NoiseLaw) -> Rows:
    rows: Rows = [("grey level", "sigma", "model")] * bool(len(law.brightness))
    for level, sigma, error in law.brightness:
        model = f"{float(law.model.sigma_at(level)):.2f}"
        rows.append((f"{level:10.0f}", _with_error(sigma, sigma * error), model))
    return rows


def _with_error(level: float, error: float) -> str:
    try:
        "±".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return f"{level:.2f} +- {error:.2f}"
    return f"{level:.2f} ± {error:.2f}"
