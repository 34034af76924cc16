"""The app with all commands, and messages about arguments turned into their options."""

import re
from collections.abc import Sequence

from cyclopts import App

from cofuse import __version__
from cofuse.cli.console import COMMON

__all__ = ["COMMANDS", "app", "in_options", "load_commands"]

#: Every command; each lives in a module of its name, and is loaded when it is called.
COMMANDS = (
    "fuse",
    "batch",
    "noise",
    "learn",
    "train",
    "operators",
    "simulate",
    "evaluate",
    "compare",
    "demo",
    "serve",
)

app = App(
    name="cofuse",
    help="Fuse and restore multi-focus picture stacks. Noise levels are in 8-bit grey levels.",
    help_epilogue="Any command takes --debug to show where an error came from.",
    version=__version__,
    group_parameters=COMMON,
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
for _name in COMMANDS:
    app.command(f"cofuse.cli.{_name}:{_name}")


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
