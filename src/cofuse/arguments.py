"""Checks of arguments: each must be of the kind and in the range that a function expects."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from math import inf
from numbers import Integral, Real
from os import PathLike
from typing import Any

from cofuse.errors import CofuseError

#: Largest noise level in 8-bit grey levels: half the range. Values from 0 to 255 have no larger
#: standard deviation, whatever they are; what is told to have one would be restored to nothing.
MOST_SIGMA = 128


def check(name: str, value: Any, expected: str, fits: Callable[[Any], bool]) -> None:
    """Refuse a value that does not fit, or that cannot be asked whether it does."""
    try:
        fine = bool(fits(value))
    except (TypeError, ValueError, AttributeError):  # of another kind altogether
        fine = False
    if not fine:
        shown = " ".join(reprlib.repr(value).split())
        raise CofuseError(f"`{name}` is {shown}; expected {expected}")


def check_number(
    name: str,
    value: Any,
    least: float = -inf,
    most: float = inf,
    *,
    whole: bool = False,
    unit: str = "",
) -> None:
    """Refuse what is no finite number from ``least`` to ``most``."""
    words = f"a{' whole' * whole} number{f' of {unit}' if unit else ''}"
    if most < inf:
        words += f" from {_plain(least)} to {_plain(most)}"
    elif least > -inf:
        words += f", {_plain(least)} or more"

    def fits(given: Any) -> bool:
        number = isinstance(given, Integral if whole else Real) and not isinstance(given, bool)
        return number and least <= given <= most and -inf < given < inf

    check(name, value, words, fits)


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def check_sigma(sigma: Any) -> None:
    """Refuse what is no noise level."""
    check_number("sigma", sigma, 0, MOST_SIGMA, unit="8-bit grey levels")


def check_path(name: str, value: Any) -> None:
    """Refuse what is no name of a file."""
    check(name, value, "the name of a file", lambda given: isinstance(given, str | PathLike))


def check_callback(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    check(name, value, "a function", callable)
