"""An alignment as JSON text, to be looked at, kept, and used again on the same frames."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cofuse.alignment.stack import Alignment
from cofuse.alignment.transforms import MODELS, Transform
from cofuse.errors import CofuseError

__all__ = ["alignment_from_json", "alignment_to_json"]

_FORMAT, _VERSION = "cofuse alignment", 1


def alignment_to_json(alignment: Alignment) -> str:
    """Write an alignment as text; numbers keep all their digits."""
    frames = [
        {
            "name": name,
            "matrix": None if transform is None else transform.matrix.tolist(),
            "gains": list(gains),
            **({"left_out": alignment.left_out[k]} if k in alignment.left_out else {}),
        }
        for k, (name, transform, gains) in enumerate(
            zip(alignment.names, alignment.transforms, alignment.gains, strict=True)
        )
    ]
    text = {
        "format": _FORMAT,
        "version": _VERSION,
        "meaning": "matrix: pixel centres (x, y, 1) of the reference to those of the frame",
        "height": alignment.size[0],
        "width": alignment.size[1],
        "model": alignment.model,
        "reference": alignment.reference,
        "parallax": alignment.parallax,
        "frames": frames,
    }
    return json.dumps(text, indent=2, allow_nan=False) + "\n"


def alignment_from_json(text: str) -> Alignment:
    """Read an alignment that `alignment_to_json` wrote.

    Whether it fits a stack is looked at where it is used, in `aligned`.
    """
    try:
        given = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _broken(f"it is no JSON: {error}") from error
    if not isinstance(given, dict) or given.get("format") != _FORMAT:
        raise _broken(f"it does not say that its format is {_FORMAT!r}")
    if given.get("version") != _VERSION:
        raise CofuseError(
            f"the saved alignment is of version {given.get('version')!r}; this program reads "
            f"version {_VERSION}: align the stack anew"
        )
    try:
        return _alignment(given)
    except KeyError as error:
        raise _broken(f"{error} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _broken(str(error)) from error


def _alignment(given: dict[str, Any]) -> Alignment:
    """Turn parsed JSON into an alignment, looking at every value."""
    frames = given["frames"]
    if not isinstance(frames, list) or not frames:
        raise _broken("it lists no frames")
    model, reference = given["model"], given["reference"]
    if model not in MODELS:
        raise _broken(f"no transform {model!r}; expected one of {', '.join(MODELS)}")
    if type(reference) is not int or not 0 <= reference < len(frames):
        raise _broken(f"the reference is {reference!r} of {len(frames)} frames, counted from 0")
    size = (given["height"], given["width"])
    if any(type(side) is not int or side < 1 for side in size):
        raise _broken(f"the size is {size[1]!r}x{size[0]!r} px")
    transforms: list[Transform | None] = []
    gains, left_out = [], {}
    for k, frame in enumerate(frames):
        factors = tuple(float(gain) for gain in frame["gains"])
        if len(factors) not in (1, 3) or not all(np.isfinite(g) and g > 0 for g in factors):
            raise _broken(f"the gains of frame {k} are {frame['gains']!r}")
        gains.append(factors)
        if frame["matrix"] is None:
            transforms.append(None)
            left_out[k] = str(frame.get("left_out", "it was left out"))
        else:
            transform = Transform(np.array(frame["matrix"], np.float64), model)
            transform.invert()  # refuses what flattens the picture
            transforms.append(transform)
    fixed = transforms[reference]
    if fixed is None or not fixed.is_identity:
        raise _broken("its reference frame is left out or moved")
    parallax = given.get("parallax", False)  # text of before there was any has none
    if type(parallax) is not bool:
        raise _broken(f"parallax is {parallax!r}, not true or false")
    names = tuple(str(frame["name"]) for frame in frames)
    moved = tuple(transforms)
    return Alignment(names, size, model, reference, moved, tuple(gains), left_out, parallax)


def _broken(reason: str) -> CofuseError:
    return CofuseError(
        f"the saved alignment cannot be used: {reason}; expected the text that cofuse saved, "
        "unchanged; align the stack anew"
    )
