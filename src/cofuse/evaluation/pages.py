"""A page to compare pictures on: scores in a table, details side by side, all at full size.

The page needs the picture files beside it and nothing else: styles and the script stand in it,
magnified details are part of it, and it asks no server for anything.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Column",
    "Detail",
    "Exhibit",
    "choose_details",
    "comparison_page",
    "page_file",
    "page_picture",
]

Pixels = NDArray[Any]


@dataclass
class Exhibit:
    """One picture of the page, or why it is missing.

    Attributes
    ----------
    name
        Any text.
    kind
        ``"method"``, ``"external"``, ``"frame"`` or ``"truth"``; the first two are in the table.
    picture
        Pixels of shape (H, W) or (H, W, 3), for the page of 8 or 16 bits.
    file
        Name of the file beside the page that holds it.
    scores, seconds
        Its row of the table, by `Column.key`, and how long the method took.
    failure
        Why there is no picture.
    """

    name: str
    kind: str
    picture: Pixels | None = None
    file: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    failure: str | None = None

    @property
    def values(self) -> dict[str, float]:
        """Scores and, where they are known, the seconds."""
        return self.scores | ({} if self.seconds is None else {"seconds": self.seconds})

    @property
    def link(self) -> str:
        """The file's name as an attribute of HTML."""
        return escape(quote(self.file or ""))


@dataclass(frozen=True)
class Column:
    """One column of the table."""

    key: str
    label: str
    higher_is_better: bool
    digits: int


@dataclass(frozen=True)
class Detail:
    """A square of a picture."""

    left: int
    top: int
    side: int


def choose_details(exhibits: Sequence[Exhibit], *, count: int = 3) -> list[Detail]:
    """Find squares worth a closer look: where the methods disagree, and where detail is strongest.

    Detail is that of the truth or, without one, of the first method.
    """
    methods = [e for e in exhibits if e.kind in ("method", "external")]
    truths = [e for e in exhibits if e.kind == "truth"]
    reference = _grey((truths or methods)[0])
    height, width = reference.shape
    side = min(max(min(height, width) // 6, 24), 160, height, width)
    mean = np.zeros_like(reference)
    for exhibit in methods:
        mean += _grey(exhibit) / len(methods)
    unlike = np.zeros((height - side + 1, width - side + 1))
    for exhibit in methods:
        # Noise is everywhere; what is left after a little smoothing is blur, halos and seams.
        smooth = np.abs(_box(np.pad(_grey(exhibit) - mean, 2, mode="edge"), 5))
        unlike += _box(smooth, side)
    slope = np.abs(np.diff(reference, axis=0))[:, :-1] + np.abs(np.diff(reference, axis=1))[:-1]
    busy = _box(np.pad(slope, ((0, 1), (0, 1))), side)
    details: list[Detail] = []
    for merit in (unlike, busy, unlike)[:count]:  # apart, to see more than one corner
        free = merit.copy()
        for other in details:
            reach = max(side + side // 4, min(height, width) // 2)
            top, left = max(other.top - reach, 0), max(other.left - reach, 0)
            free[top : other.top + reach + 1, left : other.left + reach + 1] = -1.0
        top, left = divmod(int(free.argmax()), free.shape[1])
        if free[top, left] >= 0:
            details.append(Detail(left, top, side))
    return details


def comparison_page(
    title: str,
    facts: Sequence[str],
    columns: Sequence[Column],
    exhibits: Sequence[Exhibit],
    details: Sequence[Detail],
    *,
    note: str = "",
) -> str:
    """Write the page.

    Parameters
    ----------
    title, facts
        Title of the page, and short facts in one line below it.
    columns
        Columns of the table.
    exhibits
        The pictures, all of one size, in their order; the table says why others are missing.
    details
        Squares to show magnified.
    note
        A sentence below the table.

    Returns
    -------
    str
        HTML; all names and texts are escaped.
    """
    shown = [exhibit for exhibit in exhibits if exhibit.picture is not None]
    height, width = shown[0].picture.shape[:2]  # type: ignore[union-attr]
    chips = "\n".join(
        f'<button type="button" class="{e.kind}" data-show="{e.link}" '
        f'aria-pressed="{str(k == 0).lower()}">{escape(e.name)}</button>'
        for k, e in enumerate(shown)
    )
    marks = "".join(
        f'<span class="mark" style="left:{100 * d.left / width:.3f}%;'
        f"top:{100 * d.top / height:.3f}%;width:{100 * d.side / width:.3f}%;"
        f'height:{100 * d.side / height:.3f}%"><b>{number}</b></span>'
        for number, d in enumerate(details, 1)
    )
    name = escape(title)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name} – compared by cofuse</title>
<style>
{_part("comparison.css")}</style>
</head>
<body>
<header>
<h1>{name}</h1>
<p>{" · ".join(escape(fact) for fact in facts)}</p>
</header>
<main>
<section>
{_table(columns, exhibits)}
<p class="hint">↑ more is better, ↓ less is better; the best is marked. {escape(note)}</p>
</section>
<section>
<div class="bar">
<div class="chips" role="group" aria-label="Pictures">
{chips}
</div>
<div class="chips" role="group" aria-label="Size">
<button type="button" data-size="fit" aria-pressed="true">fit</button>
<button type="button" data-size="1" aria-pressed="false">100 %</button>
<button type="button" data-size="3" aria-pressed="false">300 %</button>
</div>
</div>
<div class="stage" tabindex="0"><div class="sheet" data-width="{width}"
style="max-width:{width * (2 if width < 700 else 1)}px">
<img id="view" src="{shown[0].link}" alt="{escape(shown[0].name)}"
width="{width}" height="{height}">{marks}</div></div>
<p class="hint">Point at a name to peek, click to keep it, ← and → to step through.</p>
</section>
{"".join(_detail(number, d, shown) for number, d in enumerate(details, 1))}
</main>
<script>
{_part("comparison.js")}</script>
</body>
</html>
"""


def page_picture(picture: Pixels, *, white: float) -> Pixels:
    """Make a picture one that PNG holds and browsers show: 8 bits, or 16 with white at the top."""
    if picture.dtype == np.uint8 or (picture.dtype == np.uint16 and white == 65535):
        return picture
    return np.rint(np.clip(picture * (65535.0 / white), 0, 65535)).astype(np.uint16)


def page_file(name: str, taken: set[str]) -> str:
    """Make a file name of any text, safe on every system and not yet taken; note it in taken."""
    stem = re.sub(r"[^\w+.-]+", "-", name).strip("-.") or "picture"
    file, count = f"{stem}.png", 1
    while file.casefold() in taken:
        count += 1
        file = f"{stem}-{count}.png"
    taken.add(file.casefold())
    return file


def _part(name: str) -> str:
    """Read the style sheet or the script of the page."""
    return resources.files("cofuse").joinpath("data", "pages", name).read_text("utf-8")


def _table(columns: Sequence[Column], exhibits: Sequence[Exhibit]) -> str:
    """Scores, one row a method, the best of every column marked."""
    rows = [e for e in exhibits if e.kind in ("method", "external")]
    best = {}
    for column in columns:
        values = [e.values[column.key] for e in rows if column.key in e.values]
        values = [value for value in values if not math.isnan(value)]
        if len(values) > 1:
            best[column.key] = (max if column.higher_is_better else min)(values)
    lines = ['<div class="scroll"><table>', "<thead><tr><th></th>"]
    for column in columns:
        arrow, word = ("↑", "more") if column.higher_is_better else ("↓", "less")
        lines.append(
            f'<th scope="col" title="{word} is better">{escape(column.label)} {arrow}</th>'
        )
    lines.append("</tr></thead><tbody>")
    for exhibit in rows:
        head = f'<th scope="row">{escape(exhibit.name)}</th>'
        if exhibit.picture is None:
            reason = escape(exhibit.failure or "no picture")
            lines.append(
                f'<tr class="failed">{head}<td colspan="{len(columns)}">{reason}</td></tr>'
            )
            continue
        cells = []
        for column in columns:
            value = exhibit.values.get(column.key)
            text = "–" if value is None else _rounded(value, column.digits)
            is_best = value is not None and value == best.get(column.key)
            cells.append(f'<td class="best">{text}</td>' if is_best else f"<td>{text}</td>")
        lines.append(f'<tr data-show="{exhibit.link}">{head}{"".join(cells)}</tr>')
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


def _rounded(value: float, digits: int) -> str:
    """Round to a number of digits, but never a small value to zero."""
    least = 10.0**-digits
    return f"&lt;{least:.{digits}f}" if 0 < value < least / 2 else f"{value:.{digits}f}"


def _detail(number: int, detail: Detail, exhibits: Sequence[Exhibit]) -> str:
    """One square of every picture, magnified."""
    window = np.s_[detail.top : detail.top + detail.side, detail.left : detail.left + detail.side]
    cards = []
    for exhibit in exhibits:
        assert exhibit.picture is not None
        name = escape(exhibit.name)
        cards.append(
            f'<figure class="{exhibit.kind}" data-show="{exhibit.link}">'
            f'<img src="{_embedded(exhibit.picture[window])}" alt="detail {number} of {name}">'
            f"<figcaption>{name}</figcaption></figure>"
        )
    where = f"{detail.side} × {detail.side} pixels at {detail.left}, {detail.top}"
    return (
        f"<section><h2><b>{number}</b> {where}</h2>\n"
        f'<div class="details">\n{chr(10).join(cards)}\n</div></section>\n'
    )


def _embedded(picture: Pixels) -> str:
    """Encode a small picture into the page itself."""
    import imagecodecs

    png = imagecodecs.png_encode(np.ascontiguousarray(_eight_bits(picture)))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _eight_bits(picture: Pixels) -> Pixels:
    """Reduce 16 bits to 8."""
    return (picture >> 8).astype(np.uint8) if picture.dtype == np.uint16 else picture


def _grey(exhibit: Exhibit) -> NDArray[np.float32]:
    """Mean of the channels, in 8-bit grey levels."""
    assert exhibit.picture is not None
    levels = _eight_bits(exhibit.picture)
    return levels.astype(np.float32) if levels.ndim == 2 else levels.mean(axis=2, dtype=np.float32)


def _box(values: NDArray[Any], side: int) -> NDArray[np.float64]:
    """Mean over every square of the given side that lies inside."""
    sums = values.cumsum(axis=0, dtype=np.float64).cumsum(axis=1)
    sums = np.pad(sums, ((1, 0), (1, 0)))
    total = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    return np.asarray(total / side**2)
