"""What a report tells of a fusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cofuse import __version__
from cofuse.files import plain
from cofuse.images import Fusion, Stack
from cofuse.progress import SolverTrace

__all__ = ["fusion_report"]


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
    """Share of the pixels taken from each frame; None where frames were not chosen by pixel."""
    if fusion.source_map is None:
        return None
    counts = np.bincount(fusion.source_map.ravel().astype(np.intp), minlength=len(stack))
    shares = (counts / fusion.source_map.size).tolist()
    return [
        {"frame": name, "share": share} for name, share in zip(stack.names, shares, strict=True)
    ]


def _trace(trace: SolverTrace) -> dict[str, Any]:
    """Describe what a solver did; of its histories only the last values."""
    return {
        "solver": trace.solver,
        "iterations": trace.iterations,
        "converged": trace.converged,
        "reason": trace.reason,
        "last": {name: values[-1] for name, values in trace.history.items() if values},
    }
