"""What a fusion did, as plain JSON beside the picture."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.writing import check_destination, written_whole
from cofuse.images import Fusion, Stack
from cofuse.progress import SolverTrace

__all__ = ["check_report", "fusion_report", "plain", "write_json"]

PathLike = str | os.PathLike[str]


def check_report(path: PathLike, *, overwrite: bool) -> Path:
    """Make sure, without writing, that `write_json` can write to ``path``."""
    check_destination(Path(path), overwrite=overwrite)
    return Path(path)


def write_json(path: PathLike, data: Mapping[str, Any], *, overwrite: bool = False) -> Path:
    """Write a report as UTF-8 JSON, whole or not at all.

    Parameters
    ----------
    path
        The file to write; its folder must exist.
    data
        What to write; NaN and infinities are refused, as JSON has no word for them.
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


def fusion_report(
    fusion: Fusion, stack: Stack, settings: Mapping[str, Any], output: str | None
) -> dict[str, Any]:
    """Describe a fusion in plain, JSON-able values.

    Parameters
    ----------
    fusion
        The result.
    stack
        The frames it was made from.
    settings
        The settings it was made with, by name.
    output
        Where the picture was written, if it was.

    Returns
    -------
    dict
        Numbers that are not finite stand as None.
    """
    from cofuse import __version__

    report = {
        "cofuse": __version__,
        "frames": {
            "count": len(stack),
            "names": stack.names,
            "width": stack.width,
            "height": stack.height,
            "colour": stack.is_colour,
            "dtype": stack.dtype.name,
            "white": stack.white,
            "white_found": stack.white_is_found,
        },
        "output": output,
        "device": fusion.device,
        "sigma": fusion.sigma,
        "sigma_counts": fusion.sigma * (stack.white / 255.0),
        "sigma_estimated": fusion.sigma_estimated,
        "noise": None if fusion.noise is None else fusion.noise.facts(),
        "clipped": np.mean(fusion.image >= stack.ceiling),
        "shares": _shares(fusion, stack),
        "mean_confidence": (
            None if fusion.confidence is None else fusion.confidence.mean(dtype=np.float64)
        ),
        "settings": settings,
        "traces": {stage: _trace(trace) for stage, trace in fusion.trace.items()},
        "seconds": fusion.seconds,
    }
    return plain(report)


def _shares(fusion: Fusion, stack: Stack) -> list[dict[str, Any]] | None:
    """Say what share of the pixels was taken from each frame, where frames were chosen at all."""
    if fusion.source_map is None:
        return None
    counts = np.bincount(fusion.source_map.ravel().astype(np.intp), minlength=len(stack))
    shares = (counts / fusion.source_map.size).tolist()
    return [
        {"frame": name, "share": share} for name, share in zip(stack.names, shares, strict=True)
    ]


def _trace(trace: SolverTrace) -> dict[str, Any]:
    """Say what a solver did; of its histories only the last values."""
    return {
        "solver": trace.solver,
        "iterations": trace.iterations,
        "converged": trace.converged,
        "reason": trace.reason,
        "last": {name: values[-1] for name, values in trace.history.items() if values},
    }


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Turn facts into what JSON knows; numbers that are not finite become None."""
    return {str(name): _plain(value) for name, value in facts.items()}


def _plain(value: Any) -> Any:
    """Turn a value into what JSON knows; what it does not know at all, into text."""
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
    if isinstance(value, str):
        # A file's name may hold bytes that are no text; JSON cannot.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int):
        return value
    return _plain(str(value))
