"""The joint model, its sizes and its file; `cofuse.joint_fusion` runs it.

A *weigher* gives every pixel of every frame a score for being the sharp one and one for each band
of frequency; the frames are mixed band by band with these. Unrolled *stages* then descend an
analysis-operator energy around the mixture, and half way the frames are weighed again by how well
they agree with the picture so far. The weigher also guides the stages, pixel by pixel.
`cofuse.learning.end_to_end` holds the same model for training.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.errors import CofuseError

__all__ = [
    "AGREEMENT_SCALES",
    "BANDS",
    "BAND_WINDOWS",
    "DETAIL_CHANNELS",
    "DETAIL_FILTERS",
    "GUIDES",
    "LEVEL_CHANNELS",
    "PENALTIES",
    "REWEIGH_BEFORE",
    "JointModel",
    "load_model",
    "model_bytes",
    "read_model",
]

#: Windows of the second weighing: residuals are smoothed over the first, their squares over the
#: second.
AGREEMENT_SCALES = ((1, 5), (5, 11), (9, 15))
#: Bands of frequency that are weighed apart, and the windows that split them.
BANDS = 3
BAND_WINDOWS = (3, 7)
#: Channels of the weigher's levels, finest first; the kernels want multiples of four.
LEVEL_CHANNELS = (16, 24, 24, 20, 16)
#: Filters at full size that place the borders of the choice, and channels that they work in.
DETAIL_FILTERS = 8
DETAIL_CHANNELS = 8
#: What the weigher tells every stage at every pixel: how strong, how narrow, how faithful.
GUIDES = 3
#: Terms of a stage's penalty.
PENALTIES = 4
#: The frames are weighed again before this stage (from 0).
REWEIGH_BEFORE = 2

Levels = NDArray[np.float32]

_FORMAT = "cofuse-joint"
_FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class JointModel:
    """A trained model.

    Attributes
    ----------
    arrays
        All parameters by name, float32, as `cofuse.learning.end_to_end` names them.
    card
        How the model came about: training set, seed, settings, version.
    """

    arrays: Mapping[str, Levels]
    card: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, ArrayLike], card: Mapping[str, Any] | None = None
    ) -> JointModel:
        """Check arrays and make a model of them."""
        checked = {}
        given = {name: np.asarray(values) for name, values in arrays.items()}
        expected = _expected_shapes(given)
        if missing := sorted(expected.keys() - given.keys()):
            raise CofuseError(f"the model lacks {_some(missing)}")
        if more := sorted(given.keys() - expected.keys()):
            raise CofuseError(f"the model has arrays that no part of it uses: {_some(more)}")
        for name, shape in expected.items():
            values = given[name]
            if values.shape != shape or values.dtype.kind != "f":
                raise CofuseError(
                    f"{name} of the model holds {values.dtype} of shape {values.shape}; expected "
                    f"floats of shape {shape}"
                )
            if not np.isfinite(values).all():
                raise CofuseError(f"{name} of the model holds NaN or infinite values")
            checked[name] = np.array(values, np.float32, order="C")
            checked[name].setflags(write=False)
        return cls(checked, dict(card or {}))

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(values.size for values in self.arrays.values())

    @property
    def stages(self) -> int:
        """Number of unrolled stages."""
        return _stage_count(self.arrays)

    def part(self, prefix: str) -> dict[str, Levels]:
        """Arrays of one part, named without the part's own name."""
        start = prefix + "."
        return {n.removeprefix(start): a for n, a in self.arrays.items() if n.startswith(start)}


def load_model(name: str | Path = "joint") -> JointModel:
    """Find a model by its shipped name or in a file."""
    if str(name) in (shipped := _shipped_models()):
        return _shipped_model(str(name))
    if not os.path.exists(name):  # noqa: PTH110 - unlike Path, says so of any name
        known = f"; shipped are {', '.join(shipped)}" if shipped else ""
        raise CofuseError(f"there is no model or file named {name}{known}")
    return read_model(Path(name))


def model_bytes(model: JointModel) -> bytes:
    """Encode a model as a file's content: NumPy arrays and a JSON text, no pickle."""
    header = {"format": _FORMAT, "version": _FORMAT_VERSION, "card": dict(model.card)}
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(model.arrays)
    np.savez(buffer, header=np.array(json.dumps(header, sort_keys=True)), **arrays)
    return buffer.getvalue()


def read_model(path: Path) -> JointModel:
    """Read and check a model file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(str(archive["header"]))
            arrays = {key: np.asarray(archive[key]) for key in archive.files if key != "header"}
        tag = header["format"], header["version"]
        card = dict(header["card"])
    except OSError as error:
        raise CofuseError(f"{path} cannot be opened: {error.strerror}") from error
    except Exception as error:  # a file that is none of ours can fail in any way
        raise CofuseError(f"{path} is no file of a joint model ({type(error).__name__})") from error
    if tag != (_FORMAT, _FORMAT_VERSION):
        raise CofuseError(
            f"{path} has format {tag[0]} version {tag[1]}; expected {_FORMAT} version "
            f"{_FORMAT_VERSION}"
        )
    try:
        return JointModel.from_arrays(arrays, card)
    except CofuseError as error:
        raise CofuseError(f"{path}: {error}") from error


def _expected_shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Shapes that all arrays of a model must have; some sizes are the model's own."""
    first = LEVEL_CHANNELS[0]
    shapes: dict[str, tuple[int, ...]] = {
        "weigher.analysis": (first, 2, 8, 8),
        "weigher.analysis_bias": (3, first),
        "weigher.rise.weight": (4 * DETAIL_CHANNELS, first, 3, 3),
        "weigher.rise_bias": (4 * DETAIL_CHANNELS,),
        "weigher.detail": (DETAIL_FILTERS, 2, 5, 5),
        "weigher.detail_bias": (3, DETAIL_FILTERS),
        "weigher.place.weight": (DETAIL_CHANNELS, DETAIL_CHANNELS + DETAIL_FILTERS, 3, 3),
        "weigher.place_bias": (DETAIL_CHANNELS,),
        "weigher.answer.weight": (1 + BANDS, DETAIL_CHANNELS, 1, 1),
        "weigher.guide": (4 * GUIDES * _stage_count(arrays), 2 * first, 1, 1),
    }
    for level, size in enumerate(LEVEL_CHANNELS):
        name = f"weigher.levels.{level}."
        shapes |= {
            name + bias: (size,)
            for bias in ("descend_bias", "own_bias", "noise_bias", "smooth_bias")
        }
        shapes |= {name + f"{part}.weight": (size, size, 3, 3) for part in ("own", "smooth")}
        shapes[name + "shared.weight"] = (size, 2 * size, 1, 1)
        if level > 0:
            shapes[name + "descend.weight"] = (size, LEVEL_CHANNELS[level - 1], 3, 3)
        if level + 1 < len(LEVEL_CHANNELS):
            shapes[name + "ascend.weight"] = (size, LEVEL_CHANNELS[level + 1], 1, 1)
    hidden = arrays.get("agreement.hidden_bias", np.empty(16)).size
    inputs = 1 + BANDS + 2 * (len(AGREEMENT_SCALES) + 1)
    shapes |= {
        "agreement.hidden.weight": (hidden, inputs, 1, 1),
        "agreement.hidden_bias": (hidden,),
        "agreement.correction": (BANDS, hidden, 1, 1),
    }
    for number in range(_stage_count(arrays)):
        name = f"stages.{number}."
        for bank, usual in (("fine", 64), ("coarse", 24)):
            filters, side = usual, 7
            if (given := arrays.get(f"stages.0.{bank}.filters")) is not None and given.ndim == 4:
                filters, side = given.shape[0], given.shape[-1] | 1  # a filter has a centre
            shapes[f"{name}{bank}.filters"] = (filters, 1, side, side)
            for part in ("strength", "strength_noise", "width", "width_noise"):
                shapes[f"{name}{bank}.{part}"] = (PENALTIES, filters)
        shapes |= {name + "strength_left": (2,), name + "width_left": (2,), name + "fidelity": (4,)}
    return shapes


def _stage_count(arrays: Mapping[str, Any]) -> int:
    """Number of stages, at least one."""
    return max(1, len({n.split(".")[1] for n in arrays if n.startswith("stages.")}))


def _some(names: Sequence[str]) -> str:
    """List names, the first few of many."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@cache
def _shipped_models() -> tuple[str, ...]:
    """Names of the models that come with the package."""
    folder = resources.files("cofuse").joinpath("data", "models")
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".npz") for name in names if name.endswith(".npz")))


@cache
def _shipped_model(name: str) -> JointModel:
    """Read a shipped model, once."""
    shipped = resources.files("cofuse").joinpath("data", "models", f"{name}.npz")
    with resources.as_file(shipped) as path:
        return read_model(path)
