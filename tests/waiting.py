"""Waiting for things to happen, for as long as a busy machine may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds after which something waited for has failed: many times what it takes on a machine that
#: has much else to do. No test is to depend on less.
PATIENCE = 300.0


def until(found: Callable[[], Any]) -> Any:
    """Wait until something is true; what it is then."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not come about in {PATIENCE:.0f} s")


def settled(look: Callable[[], Any]) -> Any:
    """Wait until something no longer changes; what it is then."""
    before: list[Any] = []

    def again() -> bool:
        time.sleep(0.2)
        before.append(look())
        return len(before) > 1 and bool(before[-1] == before[-2])

    until(again)
    return before[-1]
