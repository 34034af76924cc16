"""Tables that are declared before they are computed: cells name trials, and trials fill cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments.statistics import markdown, mean
from experiments.trials import Record, Trial

Trials = Sequence[Trial]
Records = Mapping[Trial, Record]

_DIGITS = {"psnr": 2, "inside": 2}


@dataclass(frozen=True)
class Cell:
    """The mean of a score over trials, or of its difference from other trials, pair by pair.

    A ``target`` is the least the mean should be. With ``count_only`` the cell tells how many of
    the trials have a score above zero. Without trials it is empty.
    """

    trials: Trials = ()
    name: str = ""
    target: float | None = None
    against: Trials = ()
    count_only: bool = False

    @property
    def digits(self) -> int:
        """Digits after the point."""
        return _DIGITS.get(self.name, 4)

    @property
    def every(self) -> list[Trial]:
        """The trials that the cell wants."""
        return [*self.trials, *self.against]

    def values(self, records: Records) -> list[float]:
        """Return the score of every trial, or its differences."""
        found = [records[trial]["scores"][self.name] for trial in self.trials]
        if self.against:
            others = [records[trial]["scores"][self.name] for trial in self.against]
            found = [a - b for a, b in zip(found, others, strict=True)]
        return found

    def is_whole(self, records: Records) -> bool:
        """Whether there is something to write and none of it failed."""
        found = [records.get(trial, {}).get("scores", {}) for trial in self.every]
        return bool(found) and all(self.name in scores for scores in found)

    def text(self, records: Records) -> str:
        """Write the cell; differences with their 95 % interval."""
        if not self.is_whole(records):
            return "failed" if any("error" in records.get(t, {}) for t in self.every) else "–"
        found = self.values(records)
        if self.count_only:
            return f"{sum(value > 0 for value in found)} of {len(found)}"
        if self.against:
            return mean(found).text(self.digits, "+")
        return f"{mean(found).mean:.{self.digits}f}"

    def verdict(self, records: Records) -> str:
        """Say what is aimed at and whether it is reached; nothing where nothing is aimed at."""
        if self.target is None or not self.is_whole(records):
            return ""
        # Compared as written: a target of 44.0 is not missed by 43.996.
        short = round(self.target - mean(self.values(records)).mean, self.digits)
        goal = f"{self.target:+g}" if self.against else f"{self.target:g}"
        return f"{goal} {'met' if short <= 0 else f'missed by {short:.{self.digits}f}'}"


@dataclass
class Sheet:
    """One table: a title, what a reader must know of it, columns, and lines of cells."""

    title: str
    caption: str
    columns: tuple[str, ...]
    lines: list[tuple[str, tuple[Cell, ...]]] = field(default_factory=list)

    def add(self, name: str, *cells: Cell) -> None:
        """Add a line."""
        if len(cells) != len(self.columns) - 1:
            raise ValueError(f"{name!r} has {len(cells)} cells for {self.columns}")
        self.lines.append((name, cells))

    def trials(self) -> list[Trial]:
        """List the trials the cells want."""
        return [trial for _, cells in self.lines for cell in cells for trial in cell.every]

    def text(self, records: Records) -> str:
        """Write the table in Markdown, and beneath it what failed."""
        rows = [(name, *(cell.text(records) for cell in cells)) for name, cells in self.lines]
        verdicts = [self._verdicts(cells, records) for _, cells in self.lines]
        columns = self.columns
        if any(cell.target is not None for _, cells in self.lines for cell in cells):
            columns = (*columns, "target")
            rows = [(*row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]
        table = markdown(f"### {self.title}\n\n{self.caption}", columns, rows)
        known = [records[trial] for trial in dict.fromkeys(self.trials()) if trial in records]
        errors = [record["error"] for record in known if "error" in record]
        failures = [f"- failed {errors.count(e)} ×: {e}" for e in dict.fromkeys(errors)]
        return "\n\n".join([table.strip(), *filter(None, ["\n".join(failures)])]) + "\n"

    def _verdicts(self, cells: tuple[Cell, ...], records: Records) -> str:
        """Say what a line is aimed at, by column."""
        said = zip(self.columns[1:], (cell.verdict(records) for cell in cells), strict=True)
        return "; ".join(f"{column} {verdict}" for column, verdict in said if verdict)
