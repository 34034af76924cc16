"""Bringing a job's frames into place, with transforms found or taken from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cofuse.alignment import Alignment, align_stack, alignment_from_json, alignment_to_json
from cofuse.alignment.warping import check_fits
from cofuse.errors import CofuseError
from cofuse.files import written_whole
from cofuse.images import Stack
from cofuse.jobs.options import Aligning
from cofuse.progress import ProgressCallback

__all__ = [
    "alignment_facts",
    "find_alignment",
    "given_alignment",
    "reference_index",
    "save_transforms",
]

_LARGEST_FILE = 64 * 2**20


def reference_index(aligning: Aligning, count: int) -> int:
    """Index of the frame that stays as it is: the middle one by default."""
    if aligning.reference is None:
        return count // 2
    if not 1 <= aligning.reference <= count:
        raise CofuseError(
            f"the reference is frame {aligning.reference}; expected a number from 1 to {count}"
        )
    return aligning.reference - 1


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
        progress=progress,
    )


def given_alignment(stack: Stack, aligning: Aligning, path: Path) -> Alignment:
    """Read transforms and make sure that they are for these frames."""
    alignment = read_transforms(path)
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
    return alignment


def read_transforms(path: Path) -> Alignment:
    """Read what `save_transforms` wrote."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise CofuseError(f"{path} is too large for a file of transforms")
        text = path.read_text("utf-8")
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise CofuseError(
            f"{path} is no text; expected a file that `save_transforms` named"
        ) from error
    try:
        return alignment_from_json(text)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error


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
        "largest_displacement": alignment.largest_displacement(),
        "left_out": {alignment.names[k]: reason for k, reason in alignment.left_out.items()},
        "matrices": [None if t is None else t.matrix.tolist() for t in alignment.transforms],
        "brightness": alignment.brightness,
        "gains": [list(gains) for gains in alignment.gains],
    }
