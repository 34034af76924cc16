"""The command line: `main` parses, calls one command, and turns its end into an exit code.

Exit codes: 0 done; 1 some stacks of a batch are not done; 2 a mistake the user can mend, said in
one line; 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM. This module heeds signals before
anything else is loaded, and hence imports nothing that takes time to load.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cofuse.errors import CofuseError, is_lack_of_memory

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Interruption", "main", "say"]

#: Seconds after a signal during which more signals are ignored, so that cleaning up is not stopped.
_IGNORED = 5.0
#: Bytes of address space that libraries, kernels and threads take before any picture is read.
_LEAST_ADDRESSES = 1_000_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is not None:
        return _run(list(arguments), None)
    interruption = Interruption()
    _open_streams()
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
            _check_addresses()
            from cofuse.cli.application import app, load_commands

            load_commands(tokens)
            code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
            if interruption is not None:
                interruption.end()  # the work is done: no signal may change the exit code
        except (KeyboardInterrupt, Exception) as error:
            # A library may have wrapped the interrupt in an error of its own.
            if isinstance(error, KeyboardInterrupt) or (interruption and interruption.number):
                if interruption is not None:
                    interruption.end()
                say("interrupted; nothing was written half")
                return 130 if interruption is None else 128 + interruption.number
            message = _message(error)
            if message is None or debug:
                raise
            if message:
                say(f"error: {' '.join(_worded(message, tokens).split())}")
            return 2 if message else 0
    return code or 0


def say(line: str) -> None:
    """Print one line on standard error."""
    print(f"cofuse: {line}", file=sys.stderr)


def _worded(text: str, tokens: list[str]) -> str:
    """Name arguments in a message as options of the command, once one is loaded."""
    application = sys.modules.get("cofuse.cli.application")
    in_options = getattr(application, "in_options", None)
    return text if in_options is None else str(in_options(text, tokens))


def _message(error: BaseException) -> str | None:
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
        # What is still to be printed cannot be: it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ""  # the reader has closed the pipe, as `head` does
        return f"output cannot be written ({error.strerror}); send it elsewhere"
    return None


class Interruption:
    """Turn SIGINT, SIGTERM and SIGHUP into one `KeyboardInterrupt`."""

    #: The signal that came; 0 where none did.
    number = 0

    def __init__(self) -> None:
        self._moment = -_IGNORED
        known = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
        # What a shell or nohup has switched off stays so.
        self._heeded = [n for n in known if n and signal.getsignal(n) != signal.SIG_IGN]
        for number in self._heeded:
            signal.signal(number, self._heed)
        sys.unraisablehook = self._lost

    def end(self) -> None:
        """Ignore all further signals: the exit code is decided."""
        for number in self._heeded:
            signal.signal(number, signal.SIG_IGN)
        # If a KeyboardInterrupt has left an `exec`, as libraries use while they load, Python kills
        # itself by SIGINT at exit, whatever the exit code. Another `exec` resets that.
        exec("")

    def _heed(self, number: int, frame: FrameType | None) -> None:
        moment = time.monotonic()
        if moment - self._moment >= _IGNORED:
            Interruption.number, self._moment = number, moment
            raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Raise again, if a signal came and a library turned the interrupt into another error."""
        if cls.number:
            raise KeyboardInterrupt

    def _lost(self, what: sys.UnraisableHookArgs) -> None:
        """Send the signal again if the interrupt was lost in `__del__` or a callback."""
        if not isinstance(what.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(what)
            return
        import threading

        self._moment = -_IGNORED
        threading.Timer(0.01, self._again, [threading.get_ident()]).start()

    def _again(self, thread: int) -> None:
        if hasattr(signal, "pthread_kill"):  # wakes the thread where it waits
            signal.pthread_kill(thread, self.number)
        else:
            signal.raise_signal(self.number)


def _check_addresses() -> None:
    """Refuse a limit on address space under which libraries crash when they are loaded."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESSES:
        raise CofuseError(
            f"addresses are limited to {limit // 10**6} MB (ulimit -v), which is too little to "
            f"begin with; expected {_LEAST_ADDRESSES // 10**6} MB or more"
        )


def _open_streams() -> None:
    """Open the null device for closed standard streams, so that no file gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(1, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115
