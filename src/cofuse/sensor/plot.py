"""A noise law as a picture: its standard deviation against brightness, and against frequency."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.sensor.law import BANDS, WAVELENGTHS, Array, NoiseLaw, root_mean_square

#: The plot is drawn this many times larger and then scaled down, so that its edges are smooth. All
#: sizes here are those of the drawing.
_FINER = 3
_SIZE = 4500, 1920
#: Left, top, right and bottom of the two panels.
_PANELS = ((288, 396, 2124, 1614), (2538, 396, 4374, 1614))
_TEXT, _QUIET, _GRID = "#22272e", "#646b75", "#e3e6ea"
#: Colours that the colour-blind can tell apart as well: of luminance or grey, and of chroma.
_COLOURS = ("#1f5f99", "#d1622b")
_MODEL = "#8a919b"

Point = tuple[float, float]


def plot_noise(law: NoiseLaw) -> NDArray[np.uint8]:
    """Draw a law: an RGB picture of two panels side by side, in grey levels.

    Left the standard deviation of a channel's values against their brightness, as it was measured
    and as the model has it; right that of luminance and chroma against frequency, by band.
    """
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", _SIZE, "white")
    draw = ImageDraw.Draw(picture)
    panel = _draw_brightness(draw, law)
    panel.text((panel.box[0], 102), "Noise", 90, anchor="lm")
    words = " · ".join([f"sigma {law.sigma:.2f} of 255", *law.character])
    panel.text((panel.box[0] + panel.width_of("Noise  ", 90), 108), words, 60, _QUIET, "lm")
    _draw_frequency(draw, law)
    return np.asarray(picture.reduce(_FINER))


def _draw_brightness(draw: Any, law: NoiseLaw) -> _Panel:
    """Draw points with their errors, and the model as a line."""
    levels = np.linspace(0.0, 255.0, 256)
    line = law.model.sigma_at(levels)
    where, measured, error = law.brightness.T
    top = max(line.max(), (measured * (1 + error)).max(initial=0.0))
    panel = _Panel(draw, _PANELS[0], (0.0, 255.0), top)
    panel.frame("By brightness", "grey level", {float(x): f"{x:g}" for x in (0, 64, 128, 192, 255)})
    panel.curve(list(zip(levels, line, strict=True)), _MODEL)
    for x, y, share in zip(where, measured, error, strict=True):
        panel.point(float(np.clip(x, 0, 255)), y, y * share, _COLOURS[0])
    panel.legend([("measured", _COLOURS[0])] * bool(len(where)) + [("model", _MODEL)])
    return panel


def _draw_frequency(draw: Any, law: NoiseLaw) -> None:
    """Draw steps as wide as the bands, an octave each, with points and errors in their middle."""
    levels, errors = luminance_and_chroma(law)
    panel = _Panel(draw, _PANELS[1], (-(BANDS + 1), -1.0), float((levels + errors).max()))
    ticks = {-np.log2(length): f"1/{length}" for length in WAVELENGTHS}
    panel.frame("By frequency", "cycles per pixel; the coarsest band reaches to 0", ticks)
    for kind in reversed(range(len(levels))):  # luminance on top
        # Where there are two, their points stand beside each other.
        offset = (kind - (len(levels) - 1) / 2) * 0.12
        starts = -np.log2(WAVELENGTHS) - 1.0
        for start, level, error in zip(starts, levels[kind], errors[kind], strict=True):
            panel.curve([(start + 0.04, level), (start + 0.96, level)], _COLOURS[kind])
            panel.point(start + 0.5 + offset, level, error, _COLOURS[kind])
    names = ("luminance", "chroma") if len(levels) == 2 else ("grey",)
    panel.legend(list(zip(names, _COLOURS, strict=False)))


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


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


class _Panel:
    """A panel of the plot: values along its sides, from ``span[0]`` and from 0."""

    def __init__(self, draw: Any, box: tuple[int, int, int, int], span: Point, top: float) -> None:
        self.draw, self.box, self.span = draw, box, span
        least = max(top, 0.1) / 5
        steps = np.array([1, 2, 4, 5, 10]) * 10.0 ** np.floor(np.log10(least))
        self.step = float(steps[steps >= least * 0.999][0])
        # The grid ends above all that is drawn.
        self.top = np.ceil(1.04 * max(top, 0.1) / self.step) * self.step

    def width_of(self, text: str, size: int) -> float:
        return float(self.draw.textlength(text, _font(size)))

    def text(self, at: Point, text: str, size: int, fill: str = _TEXT, anchor: str = "mm") -> None:
        self.draw.text(at, text, fill=fill, font=_font(size), anchor=anchor)

    def at(self, x: float, y: float) -> Point:
        """Place of a value."""
        left, top, right, bottom = self.box
        share = (x - self.span[0]) / (self.span[1] - self.span[0])
        return left + share * (right - left), bottom - y / self.top * (bottom - top)

    def frame(self, title: str, label: str, ticks: dict[float, str]) -> None:
        """Draw grid, axes and what they stand for."""
        left, top, right, bottom = self.box
        digits = max(0, -int(np.floor(np.log10(self.step))))
        for number in range(round(self.top / self.step) + 1):
            _, y = self.at(0.0, number * self.step)
            self.draw.line([(left, y), (right, y)], _GRID if number else _QUIET, 4)
            self.text((left - 36, y), f"{number * self.step:.{digits}f}", 54, _QUIET, "rm")
        for x, text in ticks.items():
            place, _ = self.at(x, 0.0)
            self.draw.line([(place, bottom), (place, bottom + 21)], _QUIET, 4)
            self.text((place, bottom + 66), text, 54, _QUIET)
        self.text((left, top - 138), title, 69, anchor="lm")
        self.text((left, top - 54), "standard deviation, grey levels", 51, _QUIET, "lm")
        self.text(((left + right) / 2, bottom + 174), label, 57, _QUIET)

    def legend(self, entries: list[tuple[str, str]]) -> None:
        """Name the colours, above the panel at its right."""
        x, y = float(self.box[2]), self.box[1] - 132
        for name, colour in reversed(entries):
            x -= self.width_of(name, 57)
            self.text((x, y), name, 57, anchor="lm")
            self.draw.circle((x - 42, y), 18, colour)
            x -= 138

    def curve(self, points: list[Point], fill: str) -> None:
        """Draw a line through values."""
        self.draw.line([self.at(*point) for point in points], fill, 9, joint="curve")

    def point(self, x: float, y: float, error: float, fill: str) -> None:
        """Draw a disc with a bar from one standard error below it to one above."""
        if error > 0:
            low, high = self.at(x, max(y - error, 0.0)), self.at(x, y + error)
            self.draw.line([low, high], fill, 6)
            for px, py in (low, high):
                self.draw.line([(px - 18, py), (px + 18, py)], fill, 6)
        self.draw.circle(self.at(x, y), 18, fill)
