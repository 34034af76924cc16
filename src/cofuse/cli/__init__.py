"""The command line: `main` parses, calls one command, and turns its end into an exit code.

Exit codes: 0 done; 1 some stacks of a batch are not done; 2 a mistake the user can mend, told in
one line; 129, 130 and 143 stopped by a hangup, an interrupt and a request to terminate.
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
    # The process is ours.
    interruption = Interruption()
    open_streams()
    # Libraries make some hundred thousand objects as they load, none of them garbage: to look
    # through these again and again takes a third of a second.
    gc.set_threshold(500_000)
    return _run(sys.argv[1:], interruption)


def _run(tokens: list[str], interruption: Interruption | None) -> int:
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    if hasattr(sys.stdout, "reconfigure"):
        # A file name the terminal cannot spell must not spoil the summary of work well done.
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
                interruption.end()  # of what is done nobody is to say that it was stopped
        except KeyboardInterrupt:
            return _interrupted(interruption)
        except Exception as error:
            if interruption is not None and interruption.number:  # a library made it its own error
                return _interrupted(interruption)
            told = _told(error)
            if told is None or debug:
                raise
            if told:
                say(f"error: {' '.join(_worded(told, tokens).split())}")
            return 2 if told else 0
    return code or 0


def _worded(text: str, tokens: list[str]) -> str:
    """Say arguments that a message names as options of the command, once one is loaded."""
    application = sys.modules.get("cofuse.cli.application")
    in_options = getattr(application, "in_options", None)
    return text if in_options is None else str(in_options(text, tokens))


def _interrupted(interruption: Interruption | None) -> int:
    if interruption is not None:
        interruption.end()
    say("interrupted; nothing was written half")
    return 130 if interruption is None else 128 + interruption.number


def _told(error: Exception) -> str | None:
    """What to say of an error; nothing where it is none, None where it is a mistake of ours."""
    # Asked for by name: under too little memory nothing more can be loaded.
    if isinstance(error, CofuseError) or type(error).__module__.startswith("cyclopts"):
        return str(error)
    if is_lack_of_memory(error):
        return (
            "out of memory; close other programs, raise the limit that is set, or use fewer or "
            "smaller pictures"
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        # A name somebody gave, found wherever it was first looked for.
        return f"{str(error.filename)[:40]!r}... is too long for a name; choose a shorter"
    if isinstance(error, OSError) and error.filename is None:  # what is printed goes to no file
        shut_output()
        if isinstance(error, BrokenPipeError):
            return ""  # whoever read it has gone, as `head` does: no reason to complain
        return f"output cannot be written ({error.strerror}); send it elsewhere"
    return None
