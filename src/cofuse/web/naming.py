"""Names: those that clients gave are for people, those on disk are our own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["clean_name", "file_name", "with_own_names"]

_LONGEST = 120

_Value = TypeVar("_Value")


def clean_name(given: str, fallback: str) -> str:
    """Make a name safe to show and to list: no folders, no control characters, not too long."""
    text = given.encode("utf-8", "replace").decode("utf-8")
    text = re.split(r"[/\\]", unicodedata.normalize("NFC", text))[-1]
    # Categories C: control, format (which may turn the direction of writing), unassigned.
    text = "".join(c for c in text if unicodedata.category(c)[0] != "C").strip()
    if len(text) > _LONGEST:  # the end of a name tells frames apart
        text = text[: _LONGEST // 2] + "…" + text[-_LONGEST // 2 + 1 :]
    return text if text.strip(". ") else fallback


def file_name(name: str, suffix: str) -> str:
    """A name for a file to be downloaded: plain letters, digits and a few signs."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9._ -]+", "_", plain).strip("._ -")[:80]
    return (plain or "fused") + suffix


def with_own_names(value: _Value, names: Mapping[str, str]) -> _Value:
    """Say what clients call their frames instead of our paths, in texts at any depth.

    ``names`` maps what may stand in a text to what shall stand there, the longest first.
    """
    changed: Any = value
    if isinstance(value, str):
        for ours, theirs in names.items():
            changed = changed.replace(ours, theirs)
    elif isinstance(value, dict):
        changed = {with_own_names(k, names): with_own_names(v, names) for k, v in value.items()}
    elif isinstance(value, list):
        changed = [with_own_names(item, names) for item in value]
    return changed  # type: ignore[no-any-return]
