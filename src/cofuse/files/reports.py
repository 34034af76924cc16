"""What a fusion did, as plain JSON beside the picture."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.formats import PathLike
from cofuse.files.writing import check_destination, written_whole

__all__ = ["check_report", "plain", "write_json"]


def check_report(path: PathLike, *, overwrite: bool) -> Path:
    """Check, without writing, that a report can be written to ``path``."""
    check_destination(Path(path), overwrite=overwrite)
    return Path(path)


def write_json(path: PathLike, data: Mapping[str, Any], *, overwrite: bool = False) -> Path:
    """Write a report as UTF-8 JSON, whole or not at all.

    Parameters
    ----------
    path
        The file to write; its folder must exist.
    data
        What to write; NaN and infinities are refused: JSON does not know them.
    overwrite
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    CofuseError
        The data are no JSON, or the file cannot or may not be written.
    """
    path = Path(path)
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        content = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise CofuseError(
            f"{path} cannot be written as JSON ({error}); expected finite numbers, text, lists "
            "and dictionaries"
        ) from error
    with written_whole(path, overwrite=overwrite) as file:
        file.write(content)
    return path


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn values into what JSON knows: NaN and infinities into None, paths into text."""
    return {str(key): _plain(item) for key, item in facts.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    # A file's name may hold bytes that are no text; JSON cannot.
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
