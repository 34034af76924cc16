"""Small files that an earlier run saved and a later one uses: transforms, and noise laws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cofuse.errors import CofuseError

__all__ = ["read_saved"]

_LARGEST_FILE = 64 * 2**20

Content = TypeVar("Content")


def read_saved(path: Path, decode: Callable[[str], Content], what: str) -> Content:
    """Read a file and decode its text; ``what`` says what is expected of it."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise CofuseError(f"{path} is too large; expected {what}")
        text = path.read_text("utf-8")
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise CofuseError(f"{path} is no text; expected {what}") from error
    try:
        return decode(text)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error
