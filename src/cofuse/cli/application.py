"""The app with all commands, and what these share: kinds of options, messages, progress bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter, Token

from cofuse import __version__
from cofuse.errors import CofuseError
from cofuse.progress import Progress, ProgressCallback, silent

#: Every command, and its module, which is loaded when the command is called.
COMMANDS = {
    **{name: name for name in ("fuse", "batch", "noise", "learn", "operators")},
    **{name: name for name in ("simulate", "evaluate", "compare", "serve")},
    "demo": "simulate",
}

#: The group of options that a command's help shows first.
COMMON = Group("Parameters", sort_key=0)

app = App(
    name="cofuse",
    help="Fuse and restore multi-focus picture stacks. Noise levels are in 8-bit grey levels.",
    help_epilogue="Any command takes --debug to show where an error came from.",
    version=__version__,
    group_parameters=COMMON,
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
for _name, _module in COMMANDS.items():
    app.command(f"cofuse.cli.{_module}:{_name}")


def load_commands(tokens: Sequence[str]) -> None:
    """Import what a command line needs: one command, or all of them for the overview."""
    if not tokens or tokens[0] not in COMMANDS:
        for name in COMMANDS:
            app[name]


#: Arguments of functions whose option has another name.
_OTHER_NAMES = {"depth": "bit_depth", "raw_mode": "raw"}
_ARGUMENT = re.compile(r"`(\w+)(?:=([^`]+))?`")


def in_options(message: str, tokens: Sequence[str]) -> str:
    """Turn arguments that a message names into options of the command that was called.

    The library names arguments between backquotes, with or without a value. Those for which the
    command has no option stay as they are.

    >>> in_options("d.jpg exists; pass `overwrite=True`, not `nonsense=3`", ["fuse"])
    'd.jpg exists; pass --overwrite, not `nonsense=3`'
    >>> in_options("`align=False`, `depth=8` or `max_memory`", ["fuse"])
    '--no-align, --bit-depth 8 or --max-memory'
    """
    if not (tokens and tokens[0] in COMMANDS and _ARGUMENT.search(message)):
        return message
    command = app.parse_commands(tokens)[1][-1]
    if command.default_command is None:  # a command of commands
        return message
    options = {
        argument.field_info.name: argument
        for argument in command.assemble_argument_collection()
        if argument.parse and argument.name.startswith("--")
    }

    def option(argument: re.Match[str]) -> str:
        name, value = argument.groups()
        known = options.get(name) or options.get(_OTHER_NAMES.get(name, name))
        if known is None:
            return argument[0]
        if value == "False" and known.negatives:
            return str(known.negatives[0])
        return known.name if value in (None, "True") else f"{known.name} {value.strip(chr(39))}"

    return _ARGUMENT.sub(option, message)


# --- options -------------------------------------------------------------------------------------

#: A switch without a ``--no-…`` form.
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]

Quiet = Annotated[Flag, Parameter(help="Print no progress and no summary.")]
Overwrite = Annotated[Flag, Parameter(help="Replace output files that exist.")]
#: The same for commands that write a folder, see `check_empty`.
IntoFolder = Annotated[Flag, Parameter(help="Write into a folder that is not empty.")]


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
#: Several names or files.
Names = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]


# --- what is shown -------------------------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Printing:
    """What a command prints: how far it is on standard error, its result on standard output."""

    quiet: Quiet = False
    as_json: Annotated[
        Flag, Parameter(name="--json", help="Print the result as JSON instead of a summary.")
    ] = False

    @contextmanager
    def progress(self) -> Iterator[ProgressCallback]:
        """Show a bar with the time left for every stage, if standard error is a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield silent
            return
        from rich.console import Console
        from rich.progress import Progress as Bars

        bars = Bars(console=Console(stderr=True), transient=True)
        tasks = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total)
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)

        with bars:
            yield show

    def result(self, facts: Mapping[str, Any], words: str) -> None:
        """Print the result: as JSON, or in words, or not at all."""
        if self.as_json:
            from cofuse.files.writing import plain

            print(json.dumps(plain(facts), indent=2, ensure_ascii=False))
        elif not self.quiet:
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


def check_empty(folder: Path, *, overwrite: bool) -> None:
    """Check a folder to write many files to; one that is not empty only with ``overwrite``.

    It is not made here, but with the files, by a `Transaction`.
    """
    from cofuse.files import check_folder
    from cofuse.files.transaction import clear_leftovers

    for place in (folder, folder.parent):
        clear_leftovers(place)
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise CofuseError(f"{folder} is not empty; pass `overwrite=True` to write into it anyway")
