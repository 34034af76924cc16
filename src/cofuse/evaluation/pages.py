"""A page to compare pictures on: scores in a table, details side by side, all at full size.

The page needs the picture files beside it and nothing else: styles, the script and the magnified
details stand in it, and it asks no server for anything.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from cofuse.evaluation.metrics import digits
from cofuse.evaluation.metrics.with_truth import box_inside
from cofuse.images import Levels, Pixels

#: The files the page is made of.
_PARTS = Path(__file__).parents[1] / "data" / "pages"


@dataclass
class Exhibit:
    """One picture of the page, or why it is missing (``failure``).

    ``kind`` is ``"method"``, ``"external"``, ``"frame"`` or ``"truth"``; the first two are in the
    table, with their ``scores`` by metric and the ``seconds`` they took. ``file`` is the name,
    beside the page, of the file that holds ``picture``, (H, W) or (H, W, 3) of 8 or 16 bits.
    """

    name: str
    kind: str
    picture: Pixels | None = None
    _: KW_ONLY
    file: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    failure: str | None = None

    @property
    def link(self) -> str:
        """The file's name as an attribute of HTML."""
        return escape(quote(self.file or ""))

    @property
    def in_table(self) -> bool:
        """Whether it is one of the pictures that are compared."""
        return self.kind in ("method", "external")

    @property
    def eight_bits(self) -> Pixels:
        """The picture in 8 bits."""
        assert self.picture is not None
        deep = self.picture.dtype == np.uint16
        return (self.picture >> 8).astype(np.uint8) if deep else self.picture


class Detail(NamedTuple):
    """A square of a picture."""

    left: int
    top: int
    side: int


def choose_details(exhibits: Sequence[Exhibit]) -> list[Detail]:
    """Find squares worth a closer look: where the methods disagree, and where detail is strongest.

    Detail is that of the truth or, without one, of the first method.
    """
    methods = [_grey(e) for e in exhibits if e.in_table]
    truths = [_grey(e) for e in exhibits if e.kind == "truth"]
    reference = (truths or methods)[0]
    height, width = reference.shape
    side = min(max(min(height, width) // 6, 24), 160, height, width)
    mean = np.mean(methods, axis=0)
    # Noise is everywhere; what is left after a little smoothing is blur, halos and seams.
    smooth = [np.abs(box_inside(np.pad(grey - mean, 2, mode="edge"), 5)) for grey in methods]
    unlike = box_inside(np.sum(smooth, axis=0), side)
    slope = np.abs(np.diff(reference, axis=0))[:, :-1] + np.abs(np.diff(reference, axis=1))[:-1]
    busy = box_inside(np.pad(slope, ((0, 1), (0, 1))), side)
    reach = max(side + side // 4, min(height, width) // 2)
    details: list[Detail] = []
    for merit in (unlike, busy, unlike):  # apart, to see more than one corner
        free = merit.copy()
        for other in details:
            top, left = max(other.top - reach, 0), max(other.left - reach, 0)
            free[top : other.top + reach + 1, left : other.left + reach + 1] = -1.0
        top, left = divmod(int(free.argmax()), free.shape[1])
        if free[top, left] >= 0:
            details.append(Detail(left, top, side))
    return details


def comparison_page(
    title: str,
    facts: Sequence[str],
    metrics: Sequence[str],
    exhibits: Sequence[Exhibit],
    details: Sequence[Detail],
    *,
    note: str = "",
) -> str:
    """Write the page in HTML, all names and texts escaped.

    Below the title stand the ``facts`` in one line, the table of scores, a ``note``, the pictures,
    all of one size, and the ``details`` of them magnified.
    """
    shown = [exhibit for exhibit in exhibits if exhibit.picture is not None]
    height, width = shown[0].eight_bits.shape[:2]
    chips = [
        f'<button type="button" class="{e.kind}" data-show="{e.link}" '
        f'aria-pressed="{str(k == 0).lower()}">{escape(e.name)}</button>'
        for k, e in enumerate(shown)
    ]
    marks = [
        f'<span class="mark" style="left:{100 * d.left / width:.3f}%;'
        f"top:{100 * d.top / height:.3f}%;width:{100 * d.side / width:.3f}%;"
        f'height:{100 * d.side / height:.3f}%"><b>{number}</b></span>'
        for number, d in enumerate(details, 1)
    ]
    html, style, script = (
        (_PARTS / f"comparison.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    return Template(html).substitute(
        title=escape(title),
        facts=" · ".join(escape(fact) for fact in facts),
        note=escape(note),
        style=style,
        script=script,
        table=_table(metrics, exhibits),
        chips="\n".join(chips),
        marks="".join(marks),
        width=width,
        height=height,
        most=width * (2 if width < 700 else 1),
        first=shown[0].link,
        name=escape(shown[0].name),
        details="".join(_detail(number, d, shown) for number, d in enumerate(details, 1)),
    )


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


def _table(metrics: Sequence[str], exhibits: Sequence[Exhibit]) -> str:
    """Scores and seconds, one row a method, the best of every column marked."""
    rows = [e for e in exhibits if e.in_table]
    heads, cells = "", [""] * len(rows)
    for column in (*metrics, "seconds"):
        timed = column == "seconds"
        values = [e.seconds if timed else e.scores.get(column) for e in rows]
        known = [value for value in values if value is not None]
        best = (min if timed else max)(known) if len(known) > 1 else None
        arrow, word = ("↓", "less") if timed else ("↑", "more")
        heads += f'\n<th scope="col" title="{word} is better">{escape(column)} {arrow}</th>'
        for number, value in enumerate(values):
            text = "–" if value is None else _rounded(value, 2 if timed else digits(column))
            mark = ' class="best"' if value is not None and value == best else ""
            cells[number] += f"<td{mark}>{text}</td>"
    body = ""
    for exhibit, row in zip(rows, cells, strict=True):
        attribute = f'data-show="{exhibit.link}"'
        if exhibit.picture is None:
            attribute, reason = 'class="failed"', escape(exhibit.failure or "no picture")
            row = f'<td colspan="{len(metrics) + 1}">{reason}</td>'
        body += f'\n<tr {attribute}><th scope="row">{escape(exhibit.name)}</th>{row}</tr>'
    head = f'<div class="scroll"><table>\n<thead><tr><th></th>{heads}\n</tr></thead>'
    return f"{head}<tbody>{body}\n</tbody></table></div>"


def _rounded(value: float, places: int) -> str:
    """Round to some places after the point, but never a small value to zero."""
    least = 10.0**-places
    return f"&lt;{least:.{places}f}" if 0 < value < least / 2 else f"{value:.{places}f}"


def _detail(number: int, detail: Detail, exhibits: Sequence[Exhibit]) -> str:
    """One square of every picture, magnified, each encoded into the page itself."""
    import imagecodecs

    left, top, side = detail
    cards = ""
    for exhibit in exhibits:
        square = np.ascontiguousarray(exhibit.eight_bits[top : top + side, left : left + side])
        png = base64.b64encode(imagecodecs.png_encode(square)).decode()
        name = escape(exhibit.name)
        cards += (
            f'<figure class="{exhibit.kind}" data-show="{exhibit.link}">'
            f'<img src="data:image/png;base64,{png}" alt="detail {number} of {name}">'
            f"<figcaption>{name}</figcaption></figure>\n"
        )
    head = f"<h2><b>{number}</b> {side} × {side} pixels at {left}, {top}</h2>"
    return f'<section>{head}\n<div class="details">\n{cards}</div></section>\n'


def _grey(exhibit: Exhibit) -> Levels:
    """Mean of the channels, in 8-bit grey levels."""
    return np.asarray(np.atleast_3d(exhibit.eight_bits).mean(axis=2, dtype=np.float32))
