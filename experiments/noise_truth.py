"""The true noise of frames whose clean picture is known, by plane and band of frequency.

What differs between a noisy frame and the clean one is cut into blocks of 8 x 8 pixels, and of
their DCT those coefficients count that lie above half of the finest frequency along either axis;
then the same of the difference halved by averages of 2 x 2 pixels, and so on: the bands of
`cofuse.sensor.law`. A level is a root mean square, after the map of the law it is held against.

JPEG takes away texture as well, which is an error but no noise. So levels are measured twice: over
the quarter of the blocks where the clean frame itself is flattest, of those in which the noise is
not cut off by black and white, and over all blocks.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError
from cofuse.images import to_opponent
from cofuse.sensor.law import BANDS, NoiseModel
from experiments.pictures import add_data_option, data_folder

Array = NDArray[Any]
#: Frame (RGB, uint8, even sides), level at mid-grey, number of the frame and generator to the
#: noisy frame and its truth.
Kind = Callable[[Array, float, int, np.random.Generator], tuple[Array, Array]]

#: Kinds of noise that come in levels, and frames without any.
GRADED = ("white", "shot", "blurred", "jpeg", "bayer", "camera_jpeg")
GRADED += ("mixed_white", "mixed_bayer")
CLEAN = ("clean", "clean_jpeg")

_SIDE = 8
_FREQUENCY = np.arange(_SIDE)
_DCT = np.cos(np.pi * (2 * _FREQUENCY[None] + 1) * _FREQUENCY[:, None] / (2 * _SIDE)) / 2
_DCT[0] /= 2**0.5
_FINE = np.maximum(_FREQUENCY[:, None], _FREQUENCY[None]) >= _SIDE // 2
#: Pixels from one block to the next in every band.
_STRIDES = (4, 4, 2, 1, 1)

#: Part of the blocks that counts as flat, and the part of a block's values that may be black or
#: white: so many lie two standard deviations off.
_FLAT, _CUT_OFF = 0.25, 0.02
#: Blocks below which a band is not measured.
_FEWEST = 8


#: A model whose map leaves values as they are.
NO_MAP = NoiseModel(0.0)


def true_levels(noisy: Array, truth: Array, model: NoiseModel = NO_MAP) -> tuple[Array, Array]:
    """Measure the noise of one 8-bit frame after a model's map.

    Returns
    -------
    tuple of ndarray
        Levels over flat blocks and over all, both of shape (planes, bands); NaN where a band has
        too few blocks in which the noise is not cut off.
    """
    noisy, truth = noisy.astype(np.float32), truth.astype(np.float32)
    residual = to_opponent(model.stabilise(noisy)) - to_opponent(model.stabilise(truth))
    texture = band_energies(to_opponent(truth)[..., :1])
    cut_off = ((noisy < 1.5) | (noisy > 253.5)).reshape(*noisy.shape[:2], -1).mean(axis=2)
    flat, everywhere = [], []
    for energy, content, share in zip(
        band_energies(residual), texture, _block_means(cut_off), strict=True
    ):
        kept = share <= _CUT_OFF
        everywhere.append(rms(energy))
        if kept.sum() < _FEWEST / _FLAT:
            flat.append(np.full(len(energy), np.nan))
            continue
        limit = np.quantile(content[0][kept], _FLAT)
        flat.append(rms(energy[:, kept & (content[0] <= limit)]))
    return np.stack(flat, axis=1), np.stack(everywhere, axis=1)


def band_energies(planes: Array) -> list[Array]:
    """Mean square of every block's fine coefficients, by band: arrays (planes, rows, columns).

    White noise of variance v has the mean v in every band.
    """
    picture = np.moveaxis(np.asarray(planes, np.float32), -1, 0)
    energies = []
    for band in range(BANDS):
        energies.append(4.0**band * _fine_energy(picture, _STRIDES[band]))
        picture = _halved(picture)
    return energies


def rms(energy: Array) -> Array:
    """Level of every plane from the energies of its blocks; NaN of none."""
    energy = energy.reshape(len(energy), -1)
    if not energy.shape[1]:
        return np.full(len(energy), np.nan)
    return np.asarray(np.sqrt(energy.mean(axis=1, dtype=np.float64)))


def kinds_of(tools: Path) -> dict[str, Kind]:
    """Load the kinds of noise from ``real_noise.py`` of a folder, and add what is made of them."""
    path = tools / "real_noise.py"
    if not path.is_file():
        raise CofuseError(f"there is no {path}; name the folder of real_noise.py with --tools")
    spec = importlib.util.spec_from_file_location("real_noise", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def kind_of(name: str, first: float = 1.0) -> Kind:
        def kind(frame: Array, level: float, number: int, rng: np.random.Generator) -> Any:
            level *= first if number == 1 else 1.0
            noisy, truth = module.KINDS[name](frame[..., ::-1], level, rng)
            return noisy[..., ::-1], truth[..., ::-1]

        return kind

    found = {name: kind_of(name) for name in module.KINDS}
    # One frame was taken at a sensitivity that gives twice the noise.
    found |= {f"mixed_{name}": kind_of(name, 2.0) for name in ("white", "bayer")}
    return found | {"clean": _clean, "clean_jpeg": _clean_jpeg}


def folders(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Path, Path]:
    """Parse the command line; return it and the folders of data and tools, which must be there."""
    add_data_option(parser)
    parser.add_argument("--tools", type=Path, help="folder of real_noise.py (tools beside --data)")
    given = parser.parse_args()
    data = data_folder(parser, given)
    tools = given.tools or data.parent / "tools"
    try:
        kinds_of(tools)
    except CofuseError as error:
        parser.error(str(error))
    return given, data, tools


def even(picture: Array) -> Array:
    """Cut to even sides, as a mosaic has them."""
    height, width = (side // 2 * 2 for side in picture.shape[:2])
    return picture[:height, :width]


def spread(items: Sequence[int], count: int) -> list[int]:
    """Take so many items evenly over all."""
    places = np.linspace(0, len(items) - 1, min(count, len(items)))
    return [items[round(place)] for place in places.tolist()]


def _clean(frame: Array, _: float, __: int, ___: np.random.Generator) -> tuple[Array, Array]:
    return frame, frame


def _clean_jpeg(frame: Array, _: float, __: int, ___: np.random.Generator) -> tuple[Array, Array]:
    """JPEG of quality 95."""
    encoded = cv2.imencode(".jpg", frame[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    return cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1], frame


def _fine_energy(picture: Array, stride: int) -> Array:
    """Mean square of the fine coefficients of blocks that lie so many pixels apart."""
    if min(picture.shape[1:]) < _SIDE:
        return np.empty((len(picture), 0, 0), np.float32)
    along = np.lib.stride_tricks.sliding_window_view(picture, _SIDE, axis=2)[:, :, ::stride]
    along = _transformed(along)
    both = np.lib.stride_tricks.sliding_window_view(along, _SIDE, axis=1)[:, ::stride]
    return np.asarray(np.square(_transformed(both)[..., _FINE]).mean(axis=-1))


def _transformed(windows: Array) -> Array:
    """Take the DCT along the last axis."""
    rows = np.ascontiguousarray(windows).reshape(-1, _SIDE)
    return (rows @ _DCT.T.astype(np.float32)).reshape(windows.shape)


def _block_means(plane: Array) -> list[Array]:
    """Means over the blocks of `band_energies`, by band: arrays (rows, columns)."""
    picture, means = np.asarray(plane, np.float32)[None], []
    for stride in _STRIDES:
        if min(picture.shape[1:]) < _SIDE:
            means.append(np.empty((0, 0), np.float32))
            continue
        windows = np.lib.stride_tricks.sliding_window_view(picture[0], (_SIDE, _SIDE))
        means.append(windows[::stride, ::stride].mean(axis=(2, 3)))
        picture = _halved(picture)
    return means


def _halved(picture: Array) -> Array:
    """Average 2 x 2 pixels; an odd last row or column is left out."""
    height, width = (side // 2 * 2 for side in picture.shape[1:])
    even = picture[:, :height, :width]
    return np.asarray(
        (even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2]) / 4
    )
