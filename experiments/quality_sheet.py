"""Tables that are declared before they are computed: cells name trials, and trials fill cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from experiments.methods import label
from experiments.statistics import markdown, mean
from experiments.trials import Record, Trial

Trials = tuple[Trial, ...]
Records = Mapping[Trial, Record]

_DIGITS = dict.fromkeys(("gradient", "correlation", "texture"), 3) | {"psnr": 2, "inside": 2}
_BETTER_HIGH = ("psnr", "inside", "ssim", "q_mi_clean", "q_abf_clean")


@dataclass(frozen=True)
class Cell:
    """The mean of a score over trials, or of its difference from other trials, pair by pair.

    A ``target`` is the least the mean should be. With ``count_only`` the cell tells how many of
    the trials have a score above zero. Without trials it is empty.
    """

    trials: Trials = ()
    name: str = ""
    against: Trials = ()
    target: float | None = None
    count_only: bool = False

    @property
    def digits(self) -> int:
        """Digits after the point."""
        return _DIGITS.get(self.name, 4)

    def values(self, records: Records) -> list[float]:
        """Return the score of every trial, or its differences."""
        found = [records[trial]["scores"][self.name] for trial in self.trials]
        if self.against:
            others = [records[trial]["scores"][self.name] for trial in self.against]
            found = [a - b for a, b in zip(found, others, strict=True)]
        return found

    def is_whole(self, records: Records) -> bool:
        """Whether there is something to write and none of it failed."""
        every = self.trials + self.against
        return bool(every) and all(
            self.name in records.get(trial, {}).get("scores", {}) for trial in every
        )

    def text(self, records: Records) -> str:
        """Write the cell; differences with their 95 % interval."""
        if not self.is_whole(records):
            every = self.trials + self.against
            return "failed" if any("error" in records.get(t, {}) for t in every) else "–"
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


def score(trials: Iterable[Trial], name: str, target: float | None = None) -> Cell:
    """Make the cell of a mean score."""
    return Cell(tuple(trials), name, (), target)


def gap(
    trials: Iterable[Trial], against: Iterable[Trial], name: str, target: float | None = None
) -> Cell:
    """Make the cell of a mean difference."""
    return Cell(tuple(trials), name, tuple(against), target)


def count(trials: Iterable[Trial], name: str) -> Cell:
    """Make the cell that counts the trials whose score is above zero."""
    return Cell(tuple(trials), name, count_only=True)


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
        return [t for _, cells in self.lines for cell in cells for t in cell.trials + cell.against]

    def text(self, records: Records) -> str:
        """Write the table in Markdown; beneath it where `auto` is behind, and what failed."""
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
        parts = [table.strip(), self._behind(records), "\n".join(failures)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _verdicts(self, cells: tuple[Cell, ...], records: Records) -> str:
        """Say what a line is aimed at, by column."""
        said = zip(self.columns[1:], (cell.verdict(records) for cell in cells), strict=True)
        return "; ".join(f"{column} {verdict}" for column, verdict in said if verdict)

    def _behind(self, records: Records) -> str:
        """Say, for every column, which line is ahead of `auto` by most, on the scenes of both."""
        said = []
        ours = dict(self.lines).get(label("auto"), ())
        for column, mine in enumerate(ours):
            if mine.name not in _BETTER_HIGH or mine.against or not mine.is_whole(records):
                continue
            leads = {}
            for name, cells in self.lines:
                other = cells[column]
                is_rival = not name.startswith("`auto`") and not other.against
                if is_rival and other.name == mine.name and other.is_whole(records):
                    lead = -_common_difference(mine, other, records)
                    leads[name] = round(lead, mine.digits)
            best = max(leads, key=lambda name: leads[name], default=None)
            if best is not None and leads[best] > 0:
                said.append(
                    f"{best} in {self.columns[column + 1]} by {leads[best]:.{mine.digits}f}"
                )
        return f"`auto` is behind: {'; '.join(said)}." if said else ""


def _common_difference(first: Cell, second: Cell, records: Records) -> float:
    """Mean difference of two cells over the scenes that both have; below all for none."""
    a, b = (
        {(t.dataset, t.item): records[t]["scores"][cell.name] for t in cell.trials}
        for cell in (first, second)
    )
    common = [a[scene] - b[scene] for scene in a if scene in b]
    return mean(common).mean if common else float("inf")
