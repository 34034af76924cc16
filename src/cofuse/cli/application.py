"""The commands, put together."""

from collections.abc import Sequence

from cyclopts import App

from cofuse import __version__

__all__ = ["COMMANDS", "app", "load_commands"]

#: Every command; each lives in a module of its name, and is loaded when it is called.
COMMANDS = (
    "fuse",
    "batch",
    "learn",
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
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
)
for _name in COMMANDS:
    app.command(f"cofuse.cli.{_name}:{_name}")


def load_commands(tokens: Sequence[str]) -> None:
    """Load what a command line needs: one command, or for the overview all of them."""
    if not tokens or tokens[0] not in COMMANDS:
        for name in COMMANDS:
            app[name]
