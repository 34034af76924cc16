"""What commands share: kinds of options, progress bars, printing the result, folders."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

from cofuse.cli.ending import say
from cofuse.errors import CofuseError
from cofuse.progress import Progress, ProgressCallback, silent

__all__ = [
    "COMMON",
    "Flag",
    "Json",
    "Output",
    "Overwrite",
    "Quiet",
    "Whole",
    "columns",
    "empty_folder",
    "print_result",
    "progress_bars",
    "say",
]

#: The group of options that a command's help shows first.
COMMON = Group("Parameters", sort_key=0)

#: A switch without a ``--no-…`` form.
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]

#: Switches that mean the same for every command; `print_result` heeds the first two.
Quiet = Annotated[Flag, Parameter(help="Print no progress and no summary.")]
Json = Annotated[
    Flag, Parameter(name="--json", help="Print the result as JSON instead of a summary.")
]
Overwrite = Annotated[Flag, Parameter(help="Replace output files that exist.")]


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Read a whole number; the parser's own converter would take 2.7 for 3."""
    (token,) = tokens
    try:
        return int(token.value)
    except ValueError:
        raise ValueError(f"{token.value[:40]!r} is no whole number.") from None


#: A whole number.
Whole = Annotated[int, Parameter(converter=_whole)]

#: Where the result goes.
Output = Annotated[Path, Parameter(name=["--output", "-o"])]


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[ProgressCallback]:
    """Show a bar with the time left for every stage, if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description:>16}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks = {}

    def show(progress: Progress) -> None:
        if progress.stage not in tasks:
            tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total)
        bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)

    with bars:
        yield show


def print_result(facts: Mapping[str, Any], words: str, *, as_json: bool, quiet: bool) -> None:
    """Print the result of a command on standard output: as JSON, or in words, or not at all."""
    if as_json:
        from cofuse.files.reports import plain

        print(json.dumps(plain(facts), indent=2, ensure_ascii=False))
    elif not quiet:
        print(words)


def columns(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Lay rows out in columns, flush right but for those whose numbers are in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number in left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def empty_folder(path: Path, *, overwrite: bool) -> Path:
    """Check a folder to write many files to; one that is not empty only with ``overwrite``.

    It is not made here, but with the files, by a `Transaction`.
    """
    from cofuse.files.transaction import clear_leftovers

    for folder in (path, path.parent):
        clear_leftovers(folder)
    if path.is_dir():
        if any(path.iterdir()) and not overwrite:
            raise CofuseError(f"{path} is not empty; pass `overwrite=True` to write into it anyway")
        return path
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise CofuseError(f"the folder {path} cannot be made: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise CofuseError(f"the folder {path} cannot be made: no permission to write in {above}")
    return path
