"""Ending early: signals, closed streams, too little memory.

Loaded before anything else, and hence imports nothing that takes time to load.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from cofuse.errors import CofuseError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Interruption", "check_addresses", "open_streams", "say", "shut_output"]

#: Seconds after a signal during which more signals are ignored, so that cleaning up is not stopped.
_IGNORED = 5.0

#: Bytes of address space that libraries, kernels and threads take before any picture is read.
_LEAST_ADDRESSES = 1_000_000_000


class Interruption:
    """Turn SIGINT, SIGTERM and SIGHUP into one `KeyboardInterrupt`.

    Attributes
    ----------
    number
        The signal that came; 0 where none did.
    """

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


def check_addresses() -> None:
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


def say(line: str) -> None:
    """Print one line on standard error."""
    print(f"cofuse: {line}", file=sys.stderr)


def open_streams() -> None:
    """Open the null device for closed standard streams, so that no file gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(1, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115


def shut_output() -> None:
    """Discard what is still to be printed: standard output cannot be written to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
