"""What every baseline asks of its arguments, and the words for it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from cofuse.errors import CofuseError

__all__ = ["check_count", "import_extra"]


def check_count(name: str, value: Any, *, odd: bool = False) -> None:
    """Refuse what is no whole number from 1 up or, where asked, is even."""
    if not isinstance(value, int | np.integer) or value < 1 or (odd and value % 2 == 0):
        raise CofuseError(
            f"{name} is {value}; expected {'an odd' if odd else 'a whole'} number from 1 up"
        )


def import_extra(module: str, *, package: str, purpose: str) -> ModuleType:
    """Import a package that only the extra ``bench`` installs, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as missing:
        raise CofuseError(
            f"{purpose} needs the package {package}, which is not installed; "
            "install it with: pip install 'cofuse[bench]'"
        ) from missing
