"""The command line: `main` parses, calls one command, and turns its end into an exit code.

Exit codes: 0 done; 1 some stacks of a batch failed; 2 a mistake the user can mend, told in one
line; 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is None:
        # The process is ours. Libraries make some hundred thousand objects as they load, none of
        # them garbage: to look through these again and again takes a third of a second.
        gc.set_threshold(500_000)
    from cyclopts import CycloptsError

    from cofuse.cli.application import app, in_options, load_commands
    from cofuse.cli.console import say
    from cofuse.errors import CofuseError

    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if hasattr(sys.stdout, "reconfigure"):
        # A file name the terminal cannot spell must not spoil the summary of work well done.
        sys.stdout.reconfigure(errors="backslashreplace")
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(
            f"warning: {in_options(str(message), tokens)}"
        )
        warnings.simplefilter("always", UserWarning)
        try:
            load_commands(tokens)
            code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        except (CofuseError, CycloptsError) as error:
            if debug:
                raise
            say(f"error: {' '.join(in_options(str(error), tokens).split())}")
            return 2
        except BrokenPipeError:
            # Whoever read the output has gone, as `head` does: no reason to complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            # A name somebody gave, found wherever it was first looked for.
            if debug or error.errno != errno.ENAMETOOLONG:
                raise
            say(f"error: {str(error.filename)[:40]!r}... is too long for a name; choose a shorter")
            return 2
        except KeyboardInterrupt:
            say("interrupted; nothing was written half")
            return 130
    return code or 0
