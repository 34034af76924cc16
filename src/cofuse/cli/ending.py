"""How the program ends when it does not end well: signals, broken streams, no memory.

Loaded before anything else, and hence without anything that takes time to load.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Interruption", "is_lack_of_memory", "open_streams", "say", "shut_output"]

#: Seconds for which asking again is asking for the same: the first time is being heeded.
_SAME = 5.0

#: What libraries say that could not be loaded or could not begin for lack of memory.
_LACK = ("annot allocate memory", "failed to map segment", "can't start new thread")
#: How OpenCV counts that error.
_OPENCV_LACK = -4


class Interruption:
    """Turn signals that ask to stop into one `KeyboardInterrupt`.

    Those that come shortly after it are let pass, so that nothing stops the cleaning up.

    Attributes
    ----------
    number
        The signal that came; 0 where none did.
    """

    def __init__(self) -> None:
        self.number = 0
        self._moment = -_SAME
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # What a shell or nohup has switched off stays so.
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._heed)
        sys.unraisablehook = self._lost

    def _heed(self, number: int, frame: FrameType | None) -> None:
        moment = time.monotonic()
        if moment - self._moment >= _SAME:
            self.number, self._moment = number, moment
            raise KeyboardInterrupt

    def _lost(self, what: sys.UnraisableHookArgs) -> None:
        """Ask again where the interrupt came at a place that no exception leaves."""
        if isinstance(what.exc_value, KeyboardInterrupt):
            self._moment = -_SAME
            threading.Timer(0.01, signal.raise_signal, [self.number]).start()
        else:
            sys.__unraisablehook__(what)


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


def is_lack_of_memory(error: BaseException) -> bool:
    """Tell whether there was too little memory, whatever a library makes of it."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return (
        isinstance(error, MemoryError)
        or (type(error).__module__ == "cv2" and getattr(error, "code", 0) == _OPENCV_LACK)
        or any(words in str(error) for words in _LACK)
    )
