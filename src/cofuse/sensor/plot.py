"""A noise law as a picture: its standard deviation against brightness, and against frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.sensor.law import BANDS, WAVELENGTHS, Array, NoiseLaw, root_mean_square

#: The plot is drawn this many times larger and then scaled down, so that its edges are smooth. All
#: sizes here are those of the drawing.
_FINER = 3
_SIZE = 4500, 1920
#: Left sides of the two panels, their width, top and bottom.
_LEFTS, _WIDTH, _TOP, _BOTTOM = (288, 2538), 1836, 396, 1614
_TEXT, _QUIET, _GRID = "#22272e", "#646b75", "#e3e6ea"
#: Colours that the colour-blind can tell apart as well.
_COLOURS = dict.fromkeys(("measured", "luminance", "grey"), "#1f5f99")
_COLOURS |= {"chroma": "#d1622b", "model": "#8a919b"}

#: Lines of points (x, y), and points (x, y, standard error), by what they show.
_Series = dict[str, tuple[list[Any], list[Any]]]


def plot_noise(law: NoiseLaw) -> NDArray[np.uint8]:
    """Draw a law: an RGB picture of two panels side by side, in grey levels.

    Left the standard deviation of a channel's values against their brightness, as it was measured
    and as the model has it; right that of luminance and chroma against frequency, by band.
    """
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", _SIZE, "white")
    draw = ImageDraw.Draw(picture)
    words = " · ".join([f"sigma {law.sigma:.2f} of 255", *law.character])
    beside = _LEFTS[0] + draw.textlength("Noise  ", font_size=90)
    draw.text((_LEFTS[0], 102), "Noise", _TEXT, anchor="lm", font_size=90)
    draw.text((beside, 108), words, _QUIET, anchor="lm", font_size=60)

    series: _Series = {}
    if len(law.brightness):
        series["measured"] = [], [(np.clip(x, 0, 255), y, y * e) for x, y, e in law.brightness]
    series["model"] = [[(x, float(law.model.sigma_at(x))) for x in range(256)]], []
    ticks = {float(x): f"{x}" for x in (0, 64, 128, 192, 255)}
    _draw_panel(draw, _LEFTS[0], ("By brightness", "grey level"), ticks, series)

    levels, errors = luminance_and_chroma(law)
    names = ("luminance", "chroma") if len(levels) == 2 else ("grey",)
    series = {}
    for kind, (name, own, error) in enumerate(zip(names, levels, errors, strict=True)):
        # Bands are an octave wide. Where two points are in the middle of one they stand side by
        # side.
        starts = -np.log2(WAVELENGTHS) - 1.0
        middles = starts + 0.5 + (kind - (len(levels) - 1) / 2) * 0.12
        lines = [[(x + 0.04, y), (x + 0.96, y)] for x, y in zip(starts, own, strict=True)]
        series[name] = lines, list(zip(middles, own, error, strict=True))
    ticks = {-BANDS - 1.0: "0"} | {-np.log2(length): f"1/{length}" for length in WAVELENGTHS}
    _draw_panel(draw, _LEFTS[1], ("By frequency", "cycles per pixel"), ticks, series)
    return np.asarray(picture.reduce(_FINER))


def luminance_and_chroma(law: NoiseLaw) -> tuple[Array, Array]:
    """`NoiseLaw.by_band` and its standard errors, with the two chrominances taken together.

    Both have shape (2, `BANDS`), or (1, `BANDS`) of grey frames.
    """
    levels, errors = law.by_band, np.median(law.errors, axis=0)
    if len(levels) == 1:
        return levels, errors * levels
    chroma = root_mean_square(levels[1:].T)
    # The error of the root mean square of two independent levels.
    spread = np.hypot(*(errors[1:] * levels[1:] ** 2)) / np.where(chroma > 0, 2 * chroma, 1)
    return np.stack([levels[0], chroma]), np.stack([errors[0] * levels[0], spread])


def _draw_panel(
    draw: Any, left: int, titles: tuple[str, str], ticks: dict[float, str], series: _Series
) -> None:
    """Draw series, the first on top, from 0 up and from the first to the last tick."""
    highest = [y for lines, _ in series.values() for line in lines for _, y in line]
    highest += [y + error for _, points in series.values() for _, y, error in points]
    least = max(*highest, 0.1) / 5
    steps = np.array([1, 2, 4, 5, 10]) * 10.0 ** np.floor(np.log10(least))
    step = float(steps[steps >= least * 0.999][0])
    # The grid ends above all that is drawn.
    top = np.ceil(1.04 * 5 * least / step) * step
    right = left + _WIDTH
    start, end = min(ticks), max(ticks)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - start) / (end - start)
        return left + across * _WIDTH, _BOTTOM - y / top * (_BOTTOM - _TOP)

    digits = max(0, -int(np.floor(np.log10(step))))
    for y in np.arange(round(top / step) + 1) * step:
        line = at(start, y), at(end, y)
        draw.line(line, _GRID if y else _QUIET, 4)
        draw.text((left - 36, line[0][1]), f"{y:.{digits}f}", _QUIET, anchor="rm", font_size=54)
    for x, text in ticks.items():
        place, _ = at(x, 0.0)
        draw.line([(place, _BOTTOM), (place, _BOTTOM + 21)], _QUIET, 4)
        draw.text((place, _BOTTOM + 66), text, _QUIET, anchor="mm", font_size=54)
    draw.text((left, _TOP - 138), titles[0], _TEXT, anchor="lm", font_size=69)
    unit = "standard deviation, grey levels"
    draw.text((left, _TOP - 54), unit, _QUIET, anchor="lm", font_size=51)
    middle = (left + right) / 2, _BOTTOM + 174
    draw.text(middle, titles[1], _QUIET, anchor="mm", font_size=57)

    for name, (lines, points) in reversed(series.items()):
        colour = _COLOURS[name]
        for line in lines:
            draw.line([at(*point) for point in line], colour, 9, joint="curve")
        for x, y, error in points:
            low, high = at(x, max(y - error, 0.0)), at(x, y + error)
            draw.line([low, high], colour, 6)
            draw.circle(at(x, y), 18, colour)
        # Names stand above the panel, at its right.
        right -= draw.textlength(name, font_size=57)
        draw.text((right, _TOP - 132), name, _TEXT, anchor="lm", font_size=57)
        draw.circle((right - 42, _TOP - 132), 18, colour)
        right -= 138
