"""Bringing a job's frames into place, with transforms found or taken from a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from cofuse.alignment import (
    Alignment,
    align_stack,
    aligned,
    alignment_from_json,
    alignment_to_json,
)
from cofuse.alignment.warping import check_fits
from cofuse.errors import CofuseError
from cofuse.files import written_whole
from cofuse.images import Stack
from cofuse.jobs.frames import mend_hot_pixels
from cofuse.jobs.options import Aligning, Reading
from cofuse.jobs.settings import read_saved
from cofuse.progress import ProgressCallback

__all__ = [
    "alignment_facts",
    "find_alignment",
    "given_alignment",
    "put_in_place",
    "reference_index",
    "save_transforms",
]


def reference_index(aligning: Aligning, count: int) -> int:
    """Index of the frame that stays as it is: the middle one by default."""
    if aligning.reference is None:
        return count // 2
    if not 1 <= aligning.reference <= count:
        raise CofuseError(
            f"the reference is frame {aligning.reference}; expected a number from 1 to {count}"
        )
    return aligning.reference - 1


def put_in_place(
    stack: Stack,
    reading: Reading,
    aligning: Aligning,
    progress: ProgressCallback,
    timed: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[Stack, Alignment | None, int]:
    """Mend and align frames: the stack, how it lies, and how many pixels were hot."""
    hot = 0
    if reading.hot_pixels == "auto":
        with timed("hot pixels"):
            stack, hot = mend_hot_pixels(stack, progress)
    if not aligning.align:
        return stack, None, hot
    with timed("alignment"):
        alignment = find_alignment(stack, aligning, progress)
    for index, reason in alignment.left_out.items():
        warnings.warn(f"{stack.names[index]} is left out: {reason}", stacklevel=2)
    return aligned(stack, alignment, crop=aligning.crop), alignment, hot


def find_alignment(stack: Stack, aligning: Aligning, progress: ProgressCallback) -> Alignment:
    """Find how the frames lie, or read it."""
    if aligning.transforms is not None:
        return given_alignment(stack, aligning, aligning.transforms)
    return align_stack(
        stack,
        model=aligning.transform,
        reference=reference_index(aligning, len(stack)),
        on_failure=aligning.on_failure,
        match_exposure=aligning.match_exposure,
        parallax=aligning.parallax,
        progress=progress,
    )


def given_alignment(stack: Stack, aligning: Aligning, path: Path) -> Alignment:
    """Read transforms and make sure that they are for these frames."""
    alignment = read_saved(path, alignment_from_json, "a file that `save_transforms` named")
    try:
        check_fits(stack, alignment)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error
    if aligning.reference not in (None, alignment.reference + 1):
        raise CofuseError(
            f"the reference is frame {aligning.reference}, but the transforms in {path} are for "
            f"frame {alignment.reference + 1}; leave `reference` out, or align the stack anew"
        )
    if not aligning.match_exposure:
        ones = tuple((1.0,) * len(gains) for gains in alignment.gains)
        alignment = replace(alignment, gains=ones)
    if not aligning.parallax:
        alignment = replace(alignment, parallax=False)
    return alignment


def save_transforms(path: Path, alignment: Alignment) -> None:
    """Write transforms, to be used again for these frames."""
    with written_whole(path, overwrite=False) as file:
        file.write(alignment_to_json(alignment).encode())


def alignment_facts(alignment: Alignment) -> dict[str, object]:
    """What the report says of the alignment."""
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
