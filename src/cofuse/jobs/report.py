"""What a job did: in one line, and in the report in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cofuse import __version__
from cofuse.alignment import Alignment
from cofuse.depth import Depth
from cofuse.files import plain
from cofuse.fusion import FusionSettings
from cofuse.images import Fusion, Stack
from cofuse.jobs.frames import Frames, stack_in_words
from cofuse.jobs.options import Request


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a job did."""

    fusion: Fusion
    stack: Stack
    alignment: Alignment | None
    hot_pixels: int
    depth: Depth | None
    report: dict[str, Any] = field(repr=False)
    request: Request = field(repr=False)
    frames: Frames = field(repr=False)

    def summary(self) -> str:
        """Say in one line what was done."""
        alignment, fusion = self.alignment, self.fusion
        parts = [stack_in_words(self.stack)]
        if alignment is not None and not alignment.already_aligned:
            bent = " and bent to undo parallax" if alignment.parallax else ""
            parts.append(f"moved by up to {alignment.largest_displacement():.1f} pixels{bent}")
        if alignment is not None and alignment.brightness < 1:
            share = f"{100 * alignment.brightness:.0f} %"
            parts.append(f"darkened to {share} of the reference to keep highlights")
        if self.hot_pixels:
            parts.append(f"{self.hot_pixels} hot pixels mended")
        counts = self.report["sigma_counts"]
        parts.append(noise_in_words(fusion.sigma, counts, estimated=fusion.sigma_estimated))
        return ", ".join(parts)


def fusion_report(
    outcome: Outcome, settings: FusionSettings, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Describe a fusion and how it was made, in values that JSON knows.

    ``seconds`` are the durations of the stages besides those of the fusion.
    """
    fusion, stack, request = outcome.fusion, outcome.stack, outcome.request
    shares = None
    if fusion.source_map is not None:
        counts = np.bincount(fusion.source_map.ravel().astype(np.intp), minlength=len(stack))
        each = zip(stack.names, counts / fusion.source_map.size, strict=True)
        shares = [{"frame": name, "share": share} for name, share in each]
    fusing = request.fusing
    used = dataclasses.asdict(settings) | {
        "preset": fusing.preset,
        "align": request.aligning.align,
        "denoise": fusing.denoise,
    }
    if fusing.operator:
        used["operator"] = fusing.operator
    options = dataclasses.asdict(request)
    del options["output"]
    confidence, alignment = fusion.confidence, outcome.alignment
    facts = {
        "cofuse": __version__,
        "frames": frame_facts(stack),
        "output": request.output,
        "device": fusion.device,
        "sigma": fusion.sigma,
        "sigma_counts": fusion.sigma * (stack.white / 255.0),
        "sigma_estimated": fusion.sigma_estimated,
        "noise": None if fusion.noise is None else fusion.noise.facts(),
        "clipped": np.mean(fusion.image >= stack.ceiling),
        "shares": shares,
        "mean_confidence": None if confidence is None else confidence.mean(dtype=np.float64),
        "settings": used,
        "traces": {
            stage: {
                "solver": trace.solver,
                "iterations": trace.iterations,
                "converged": trace.converged,
                "reason": trace.reason,
                "last": {name: values[-1] for name, values in trace.history.items() if values},
            }
            for stage, trace in fusion.trace.items()
        },
        "seconds": {**fusion.seconds, **seconds},
        "options": options,
        "hot_pixels": outcome.hot_pixels,
        "alignment": None if alignment is None else alignment_facts(alignment),
    }
    return plain(facts)


def frame_facts(stack: Stack) -> dict[str, Any]:
    """Describe frames for reports."""
    return {
        "count": len(stack),
        "names": stack.names,
        "width": stack.width,
        "height": stack.height,
        "colour": stack.is_colour,
        "dtype": stack.dtype.name,
        "white": stack.white,
        "white_found": stack.white_is_found,
    }


def alignment_facts(alignment: Alignment) -> dict[str, object]:
    """Describe an alignment for reports."""
    return {
        "transform": alignment.model,
        "reference": alignment.names[alignment.reference],
        "already_aligned": alignment.already_aligned,
        "parallax": alignment.parallax,
        "largest_displacement": alignment.largest_displacement(),
        "left_out": {alignment.names[k]: reason for k, reason in alignment.left_out.items()},
        "matrices": [None if t is None else t.matrix.tolist() for t in alignment.transforms],
        "brightness": alignment.brightness,
        "gains": [list(gains) for gains in alignment.gains],
    }


def noise_in_words(sigma: float, counts: float, *, estimated: bool = False) -> str:
    """Say the noise level in 8-bit grey levels, and in the files' own units where they differ."""
    notes = [f"{counts:.3g} counts"] * (counts != sigma) + ["estimated"] * estimated
    return f"sigma {sigma:.1f}" + (f" ({', '.join(notes)})" if notes else "")
