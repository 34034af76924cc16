"""The command line: `main` parses, calls one command, and turns its end into an exit code.

Exit codes: 0 done; 1 some stacks of a batch are not done; 2 a mistake the user can mend, told in
one line; 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM.
"""

from __future__ import annotations

import errno
import gc
import sys
import warnings
from collections.abc import Sequence

from cofuse.cli.ending import Interruption, check_addresses, open_streams, say, shut_output
from cofuse.errors import CofuseError, is_lack_of_memory

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is not None:
        return _run(list(arguments), None)
    interruption = Interruption()
    open_streams()
    # Libraries make some hundred thousand objects while they load, none of them garbage: collecting
    # again and again would take a third of a second.
    gc.set_threshold(500_000)
    return _run(sys.argv[1:], interruption)


def _run(tokens: list[str], interruption: Interruption | None) -> int:
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    if hasattr(sys.stdout, "reconfigure"):
        # A file name that the terminal cannot encode must not break the summary.
        sys.stdout.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(
            f"warning: {_worded(str(message), tokens)}"
        )
        warnings.simplefilter("always", UserWarning)
        try:
            check_addresses()
            from cofuse.cli.application import app, load_commands

            load_commands(tokens)
            code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
            if interruption is not None:
                interruption.end()  # the work is done: no signal may change the exit code
        except KeyboardInterrupt:
            return _interrupted(interruption)
        except Exception as error:
            if interruption is not None and interruption.number:  # wrapped by a library
                return _interrupted(interruption)
            told = _told(error)
            if told is None or debug:
                raise
            if told:
                say(f"error: {' '.join(_worded(told, tokens).split())}")
            return 2 if told else 0
    return code or 0


def _worded(text: str, tokens: list[str]) -> str:
    """Name arguments in a message as options of the command, once one is loaded."""
    application = sys.modules.get("cofuse.cli.application")
    in_options = getattr(application, "in_options", None)
    return text if in_options is None else str(in_options(text, tokens))


def _interrupted(interruption: Interruption | None) -> int:
    if interruption is not None:
        interruption.end()
    say("interrupted; nothing was written half")
    return 130 if interruption is None else 128 + interruption.number


def _told(error: Exception) -> str | None:
    """The message for an error; empty if it is to be ignored, None if it is a bug."""
    # Cyclopts is known by name: with too little memory nothing more can be imported.
    if isinstance(error, CofuseError) or type(error).__module__.startswith("cyclopts"):
        return str(error)
    if is_lack_of_memory(error):
        return (
            "out of memory; close other programs, raise the limit that is set, or use fewer or "
            "smaller pictures"
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:40]!r}... is too long for a name; choose a shorter"
    if isinstance(error, OSError) and error.filename is None:  # from printing
        shut_output()
        if isinstance(error, BrokenPipeError):
            return ""  # the reader has closed the pipe, as `head` does
        return f"output cannot be written ({error.strerror}); send it elsewhere"
    return None
