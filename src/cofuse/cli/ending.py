"""How the program ends when it does not end well: signals, broken streams, no memory.

Loaded before anything else, and hence without anything that takes time to load.
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

#: Seconds for which asking again is asking for the same: the first time is being heeded.
_SAME = 5.0

#: Bytes of addresses that libraries, kernels and threads take up before any picture is read.
_LEAST_ADDRESSES = 1_000_000_000


class Interruption:
    """Turn signals that ask to stop into one `KeyboardInterrupt`.

    Those that come shortly after it are let pass, so that nothing stops the cleaning up.

    Attributes
    ----------
    number
        The signal that came; 0 where none did.
    """

    number = 0

    def __init__(self) -> None:
        self._moment = -_SAME
        known = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
        # What a shell or nohup has switched off stays so.
        self._heeded = [n for n in known if n and signal.getsignal(n) != signal.SIG_IGN]
        for number in self._heeded:
            signal.signal(number, self._heed)
        sys.unraisablehook = self._lost

    def end(self) -> None:
        """Let no more signals through: the exit code is decided."""
        for number in self._heeded:
            signal.signal(number, signal.SIG_IGN)
        # Python ends itself by SIGINT, whatever the exit code, if an interrupt has left text that
        # was being executed, as libraries do when they are loaded; executing some forgets that.
        exec("")

    def _heed(self, number: int, frame: FrameType | None) -> None:
        moment = time.monotonic()
        if moment - self._moment >= _SAME:
            Interruption.number, self._moment = number, moment
            raise KeyboardInterrupt

    @classmethod
    def check(cls) -> None:
        """Stop here if that was asked for, and something made another error of it."""
        if cls.number:
            raise KeyboardInterrupt

    def _lost(self, what: sys.UnraisableHookArgs) -> None:
        """Ask again where the interrupt came at a place that no exception leaves."""
        if not isinstance(what.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(what)
            return
        import threading

        self._moment = -_SAME
        threading.Timer(0.01, self._again, [threading.get_ident()]).start()

    def _again(self, thread: int) -> None:
        if hasattr(signal, "pthread_kill"):  # wakes the thread where it waits
            signal.pthread_kill(thread, self.number)
        else:
            signal.raise_signal(self.number)


def check_addresses() -> None:
    """Refuse a limit on addresses under which libraries do not load, but bring the process down."""
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
    """Print one line for people, beside the results on standard output."""
    print(f"cofuse: {line}", file=sys.stderr)


def open_streams() -> None:
    """Give standard streams that are closed to nobody, lest files get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(1, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115


def shut_output() -> None:
    """Let what is still to be printed go nowhere, as it can go nowhere else."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
