"""Means over scenes with 95 % confidence intervals, the records they are taken of, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from scipy.special import stdtrit

Row = dict[str, Any]


class Mean(NamedTuple):
    """A mean, half the width of its 95 % interval (NaN for a single value), and of how many."""

    mean: float
    half: float
    count: int

    def text(self, digits: int = 4, sign: str = "") -> str:
        """Write the mean and its interval."""
        if not self.count:
            return "–"
        body = f"{self.mean:{sign}.{digits}f}"
        return body if math.isnan(self.half) else f"{body} ± {self.half:.{digits}f}"

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return abs(self.mean) > self.half  # false for NaN


def mean(numbers: Iterable[float]) -> Mean:
    """Student's interval: the mean ± t · s / √N, t the 97.5 % quantile at N − 1 degrees."""
    given = list(numbers)
    count = len(given)
    if count == 0:
        return Mean(math.nan, math.nan, 0)
    centre = math.fsum(given) / count
    if count == 1:
        return Mean(centre, math.nan, 1)
    variance = math.fsum((x - centre) ** 2 for x in given) / (count - 1)
    return Mean(centre, float(stdtrit(count - 1, 0.975)) * math.sqrt(variance / count), count)


def pick(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Keep the rows without error whose trial has these values."""
    return [
        row
        for row in rows
        if "error" not in row and all(row["trial"][k] == v for k, v in wanted.items())
    ]


def scores_by_item(rows: Sequence[Row], score: str, **wanted: Any) -> dict[Any, float]:
    """Return one score (or ``cpu`` or ``wall`` seconds) of the picked rows by dataset and item."""
    place = "seconds" if score in ("cpu", "wall") else "scores"
    return {
        (row["trial"]["dataset"], row["trial"]["item"], row["trial"]["repeat"]): row[place][score]
        for row in pick(rows, **wanted)
    }


def difference(first: dict[Any, float], second: dict[Any, float]) -> Mean:
    """Mean of the paired differences over the items both have."""
    return mean(first[item] - second[item] for item in first if item in second)


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """List the values a field of the trials takes, in the order of their first appearance."""
    return list(dict.fromkeys(row["trial"][name] for row in rows))


def markdown(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table under its title."""
    lines = [header, ["---"] * len(header), *rows]
    return f"{title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
