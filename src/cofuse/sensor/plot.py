"""A noise law as a picture: its standard deviation against brightness, and against frequency."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cofuse.sensor.law import BANDS, WAVELENGTHS, NoiseLaw

if TYPE_CHECKING:
    from PIL import Image

#: Size of the plot, and how many times larger it is drawn: scaled down, its edges are smooth.
_WIDTH, _HEIGHT, _FINER = 1500, 640, 3
#: Left, top, right and bottom of the two panels.
_PANELS = ((96, 132, 708, 538), (846, 132, 1458, 538))
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
    from PIL import Image

    picture = Image.new("RGB", (_WIDTH * _FINER, _HEIGHT * _FINER), "white")
    canvas = _Canvas(picture)
    words = [f"sigma {law.sigma:.2f} of 255", *law.character]
    canvas.text((_PANELS[0][0], 34), "Noise", 30, anchor="lm")
    left = _PANELS[0][0] + canvas.width("Noise  ", 30)
    canvas.text((left, 36), " · ".join(words), 20, _QUIET, "lm")
    _draw_brightness(canvas, law)
    _draw_frequency(canvas, law)
    return np.asarray(picture.reduce(_FINER))


def _draw_brightness(canvas: _Canvas, law: NoiseLaw) -> None:
    """Points with their errors, and the model as a line."""
    levels = np.linspace(0.0, 255.0, 256)
    line = law.model.sigma_at(levels)
    where, measured, error = law.brightness.T
    tops = measured * (1 + error)
    axes = _Axes(canvas, _PANELS[0], (0.0, 255.0), max(line.max(), tops.max(initial=0.0)))
    axes.frame("By brightness", "grey level", {float(x): f"{x:g}" for x in (0, 64, 128, 192, 255)})
    axes.line(list(zip(levels, line, strict=True)), _MODEL)
    for x, y, share in zip(where, measured, error, strict=True):
        axes.point(float(np.clip(x, 0, 255)), y, y * share, _COLOURS[0])
    axes.legend([("measured", _COLOURS[0])] * bool(len(where)) + [("model", _MODEL)])


def _draw_frequency(canvas: _Canvas, law: NoiseLaw) -> None:
    """Steps as wide as the bands, an octave each, with points and errors in their middle."""
    levels, errors = law.luminance_and_chroma
    axes = _Axes(canvas, _PANELS[1], (-(BANDS + 1), -1.0), float((levels + errors).max()))
    ticks = {-np.log2(length): f"1/{length}" for length in WAVELENGTHS}
    axes.frame("By frequency", "cycles per pixel; the coarsest band reaches to 0", ticks)
    for kind in reversed(range(len(levels))):  # luminance on top
        # From the coarsest, at the left; where there are two they stand beside each other.
        offset = (kind - (len(levels) - 1) / 2) * 0.12
        starts = -np.log2(WAVELENGTHS) - 1.0
        for start, level, error in zip(starts, levels[kind], errors[kind], strict=True):
            axes.line([(start + 0.04, level), (start + 0.96, level)], _COLOURS[kind])
            axes.point(start + 0.5 + offset, level, error, _COLOURS[kind])
    names = ("luminance", "chroma") if len(levels) == 2 else ("grey",)
    axes.legend(list(zip(names, _COLOURS, strict=False)))


class _Canvas:
    """Draws in the plot's pixels on a picture that is finer."""

    def __init__(self, picture: Image.Image) -> None:
        from PIL import ImageDraw, ImageFont

        self._draw = ImageDraw.Draw(picture)
        self._font = cache(lambda size: ImageFont.load_default(size * _FINER))

    def width(self, text: str, size: float) -> float:
        return self._draw.textlength(text, self._font(size)) / _FINER

    def text(
        self, at: Point, text: str, size: float, fill: str = _TEXT, anchor: str = "mm"
    ) -> None:
        place = at[0] * _FINER, at[1] * _FINER
        self._draw.text(place, text, fill=fill, font=self._font(size), anchor=anchor)

    def line(self, points: list[Point], fill: str, width: float = 1.5) -> None:
        path = [(x * _FINER, y * _FINER) for x, y in points]
        self._draw.line(path, fill=fill, width=round(width * _FINER), joint="curve")

    def disc(self, at: Point, fill: str) -> None:
        self._draw.circle((at[0] * _FINER, at[1] * _FINER), 6 * _FINER, fill=fill)


class _Axes:
    """One panel: values along its sides, from ``span[0]`` and from 0, and what is drawn in it."""

    def __init__(
        self, canvas: _Canvas, box: tuple[int, int, int, int], span: Point, top: float
    ) -> None:
        self.canvas, self.box, self.span = canvas, box, span
        self.step = _round_step(max(top, 0.1) / 5)
        # The grid ends above all that is drawn.
        self.top = np.ceil(1.04 * max(top, 0.1) / self.step) * self.step

    def at(self, x: float, y: float) -> Point:
        left, top, right, bottom = self.box
        share = (x - self.span[0]) / (self.span[1] - self.span[0])
        return left + share * (right - left), bottom - y / self.top * (bottom - top)

    def frame(self, title: str, label: str, ticks: dict[float, str]) -> None:
        """Draw grid, axes and what they stand for."""
        left, top, right, bottom = self.box
        digits = max(0, -int(np.floor(np.log10(self.step))))
        for number in range(round(self.top / self.step) + 1):
            _, y = self.at(0.0, number * self.step)
            self.canvas.line([(left, y), (right, y)], _GRID if number else _QUIET)
            value = f"{number * self.step:.{digits}f}"
            self.canvas.text((left - 12, y), value, 18, _QUIET, "rm")
        for x, text in ticks.items():
            place, _ = self.at(x, 0.0)
            self.canvas.line([(place, bottom), (place, bottom + 7)], _QUIET)
            self.canvas.text((place, bottom + 22), text, 18, _QUIET)
        self.canvas.text((left, top - 46), title, 23, anchor="lm")
        self.canvas.text((left, top - 18), "standard deviation, grey levels", 17, _QUIET, "lm")
        self.canvas.text(((left + right) / 2, bottom + 58), label, 19, _QUIET)

    def legend(self, entries: list[tuple[str, str]]) -> None:
        """Name the colours, above the panel at its right."""
        x, y = float(self.box[2]), self.box[1] - 44.0
        for name, colour in reversed(entries):
            x -= self.canvas.width(name, 19)
            self.canvas.text((x, y), name, 19, anchor="lm")
            self.canvas.disc((x - 14, y), colour)
            x -= 46

    def line(self, points: list[Point], fill: str) -> None:
        self.canvas.line([self.at(*point) for point in points], fill, 3)

    def point(self, x: float, y: float, error: float, fill: str) -> None:
        """Draw a disc with a bar from one standard error below it to one above."""
        if error > 0:
            low, high = self.at(x, max(y - error, 0.0)), self.at(x, y + error)
            self.canvas.line([low, high], fill, 2)
            for px, py in (low, high):
                self.canvas.line([(px - 6, py), (px + 6, py)], fill, 2)
        self.canvas.disc(self.at(x, y), fill)


def _round_step(least: float) -> float:
    """Find the smallest of 1, 2, 4 and 5 times a power of ten that is no less."""
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(step * power for step in (1, 2, 4, 5, 10) if step * power >= least * 0.999))
