"""The tables of `experiments.noise_laws`, in Markdown, made of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.sensor.law import BANDS
from experiments.noise_truth import CLEAN, GRADED

__all__ = ["markdown", "report"]

Array = NDArray[np.float64]
Row = Mapping[str, Any]

#: The two ways in which the truth is measured.
_TRUTHS = {"flat": "flat blocks", "everywhere": "all blocks"}
_PLANES = ("luminance", "chrominance")
#: Errors that are counted, in percent: of medians, and of 90th percentiles.
_MEDIAN, _TENTH = 15.0, 30.0
#: Grey levels below which the relative error of a level does not matter.
_FAINT = 1.0


def report(rows: Sequence[Row]) -> str:
    """Write all tables of all counts of frames."""
    parts = []
    for frames in sorted({row["frames"] for row in rows}):
        chosen = [row for row in rows if row["frames"] == frames]
        items = len({row["item"] for row in chosen})
        parts.append(f"# {items} {'pairs' if frames == 2 else f'stacks of {frames} frames'}\n")
        graded = [row for row in chosen if row["kind"] in GRADED]
        if graded:
            parts += [table for truth in _TRUTHS for table in _level_tables(graded, truth)]
            parts += [_summary(graded, truth) for truth in _TRUTHS]
            parts.append(_calibration(graded))
        if clean := [row for row in chosen if row["kind"] in CLEAN]:
            parts.append(_clean(clean))
    return "\n".join(parts)


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table under its title."""
    lines = [header, ["---"] * len(header), *rows]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@dataclass(frozen=True)
class _Cells:
    """The measurements of one kind and level: arrays over them, two planes and the bands."""

    kind: str
    level: float
    estimate: Array
    true: Array

    @property
    def ratio(self) -> Array:
        """Estimate over truth."""
        return self.estimate / self.true

    @property
    def off(self) -> tuple[Array, Array]:
        """Median and 90th percentile of how far estimates are off, in percent."""
        percent = 100 * np.abs(self.ratio - 1)
        return np.nanmedian(percent, axis=0), np.nanquantile(percent, 0.9, axis=0)

    @property
    def is_faint(self) -> Array:
        """Which cells hold too little noise for its relative error to matter."""
        return np.nanmedian(self.true, axis=0) < _FAINT


def _cells(rows: Sequence[Row], truth: str) -> Iterator[_Cells]:
    """Gather the measurements of every kind and level."""
    for kind, level, chosen in _settings(rows):
        yield _Cells(kind, level, *(_two_planes(chosen, name) for name in ("levels", truth)))


def _settings(rows: Sequence[Row]) -> Iterator[tuple[str, float, list[Row]]]:
    for kind, level in dict.fromkeys((row["kind"], row["level"]) for row in rows):
        yield kind, level, [r for r in rows if (r["kind"], r["level"]) == (kind, level)]


def _two_planes(rows: Sequence[Row], name: str) -> Array:
    """Levels of luminance and of both chrominances together: (measurements, 2, bands)."""
    squares = np.concatenate([np.array(row[name], float) for row in rows]) ** 2
    return np.sqrt(np.stack([squares[:, 0], squares[:, 1:].mean(axis=1)], axis=1))


def _level_tables(rows: Sequence[Row], truth: str) -> list[str]:
    bodies: dict[str, list[list[str]]] = {plane: [] for plane in (*_PLANES, "true")}
    for cells in _cells(rows, truth):
        name = [cells.kind, f"{cells.level:g}"]
        true = np.nanmedian(cells.true, axis=0)
        bodies["true"].append([*name, *(f"{value:.1f}" for value in true.ravel())])
        for p, plane in enumerate(_PLANES):
            ratio = np.nanmedian(cells.ratio[:, p], axis=0)
            figures = zip(*(off[p] for off in cells.off), ratio, strict=True)
            bodies[plane].append([*name, *(f"{m:.0f} / {t:.0f} ({r:.2f})" for m, t, r in figures)])
    bands = [f"band {band}" for band in range(BANDS)]
    tables = []
    for plane in _PLANES:
        title = f"{plane.capitalize()}, truth over {_TRUTHS[truth]}: median / 90 % (ratio)"
        tables.append(markdown(title, ["kind", "level", *bands], bodies[plane]))
    header = ["kind", "level", *(f"{plane} {band}" for plane in _PLANES for band in range(BANDS))]
    title = f"True levels over {_TRUTHS[truth]}: median, in grey levels after the law's map"
    return [*tables, markdown(title, header, bodies["true"])]


def _summary(rows: Sequence[Row], truth: str) -> str:
    """Sum up every kind; a cell is one of the tables' (a level, plane and band)."""
    body = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        body.append(_summed(list(_cells([row for row in rows if row["kind"] == kind], truth))))
    header = ["kind", "worst median", "worst 90 %"]
    header += [f"medians ≤ {_MEDIAN:g} %", f"90 % ≤ {_TENTH:g} %"]
    header += [f"measurements ≤ {limit:g} %" for limit in (_MEDIAN, _TENTH)]
    header += ["not measured", f"cells below {_FAINT:g} level", "their worst median, levels"]
    title = f"Summary, truth over {_TRUTHS[truth]}; all but the last two of cells that are not"
    return markdown(f"{title} below {_FAINT:g} grey level", header, body)


def _summed(levels: Sequence[_Cells]) -> list[str]:
    places, faint, off = [], [], []
    missing = np.mean([np.isnan(cells.true).mean() for cells in levels])
    for cells in levels:
        errors = np.nanmedian(np.abs(cells.estimate - cells.true), axis=0)
        faint += errors[cells.is_faint].tolist()
        clear = ~cells.is_faint
        off.append(100 * np.abs(cells.ratio[:, clear] - 1).ravel())
        for p, b in np.argwhere(clear):
            name = f"{_PLANES[p]} {b} at {cells.level:g}"
            places.append((cells.off[0][p, b], cells.off[1][p, b], name))
    none = np.nan, np.nan, "none"
    median = max(places, key=lambda place: float(np.nan_to_num(place[0])), default=none)
    tenth = max(places, key=lambda place: float(np.nan_to_num(place[1])), default=none)
    measured = np.concatenate(off)
    measured = measured[np.isfinite(measured)]
    return [
        levels[0].kind,
        f"{median[0]:.0f} % ({median[2]})",
        f"{tenth[1]:.0f} % ({tenth[2]})",
        f"{sum(place[0] <= _MEDIAN for place in places)} of {len(places)}",
        f"{sum(place[1] <= _TENTH for place in places)} of {len(places)}",
        *(f"{100 * np.mean(measured <= limit):.0f} %" for limit in (_MEDIAN, _TENTH)),
        f"{100 * missing:.0f} %",
        str(len(faint)),
        f"{max(faint):.2f}" if faint else "–",
    ]


def _calibration(rows: Sequence[Row]) -> str:
    """Count true levels, of every frame, plane and band, within the law's own errors."""
    body = []
    for truth, blocks in _TRUTHS.items():
        distances = np.concatenate([_distances(row, truth) for row in rows])
        for reach in (1, 2):
            inside = np.where(np.isfinite(distances), distances <= reach, np.nan)
            shares = [100 * np.nanmean(inside), *(100 * np.nanmean(inside, axis=(0, 1)))]
            body.append([blocks, str(reach), *(f"{share:.0f} %" for share in shares)])
    header = ["truth over", "standard errors", "all", *(f"band {band}" for band in range(BANDS))]
    return markdown("True levels within the law's standard errors (68 and 95 %)", header, body)


def _distances(row: Row, truth: str) -> Array:
    """How many of the law's standard errors the truth is off: (frames, planes, bands)."""
    levels, errors, true = (np.array(row[name], float) for name in ("levels", "errors", truth))
    return np.asarray(np.abs(true - levels) / np.maximum(errors * levels, 1e-9))


def _clean(rows: Sequence[Row]) -> str:
    body = []
    for kind, _, chosen in _settings(rows):
        sigmas = np.array([row["sigma"] for row in chosen])
        worst = chosen[int(sigmas.argmax())]["item"]
        count = sum(row["is_clean"] for row in chosen)
        cells = [f"{np.median(sigmas):.2f}", f"{np.quantile(sigmas, 0.9):.2f}"]
        cells += [f"{sigmas.max():.2f} (picture {worst})", f"{count} of {len(chosen)}"]
        body.append([kind, *cells])
    header = ["kind", "median σ", "90 % σ", "largest σ", "taken for clean"]
    return markdown("Frames without noise", header, body)
