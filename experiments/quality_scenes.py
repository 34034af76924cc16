"""Scenes as a method meets them: read or simulated, one frame perhaps disturbed, noise added.

Datasets are those of `experiments.pictures`, and besides

* ``train-K``: stacks simulated from the training pictures, for tuning;
* ``colour-K``: RGB stacks simulated from the pictures that come with the package;
* ``photo``: one RGB photograph, every 15th of which no training sees;
* ``rooms``: RGB pairs blurred after depth maps;
* ``misaligned``: RGB stacks with parallax, aligned to their third frame, whose truth is known;
* ``…-K-between``: any simulated stack, its layers spread evenly in depth rather than each lying
  in the plane of focus nearest to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError, Stack, align_stack, aligned, read_image
from cofuse.alignment.warping import common_area
from cofuse.evaluation.metrics import to_grey
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture, simulate_stack
from cofuse.images import from_opponent
from experiments import pictures
from experiments.pictures import to_8_bit

__all__ = ["CHANGES", "NOISES", "Situation", "situation", "situation_files"]

Picture = NDArray[Any]
Levels = NDArray[np.float32]

#: Poisson-Gaussian noise: variance gain · level + floor².
_GAIN, _FLOOR = 1.0, 3.0
_JPEG_QUALITY = 90
_MIX = 7919  # keeps the draws of one purpose apart from those of another


@dataclass(frozen=True)
class Situation:
    """What a method is given, and what its result is held against.

    ``sigma`` is the root mean square of the noise, which a method may be told; for white noise
    the level asked for. ``noisy_truth`` is the sharp picture with noise of the same kind.
    ``unaligned`` are the frames before they were aligned, if they were.
    """

    stack: Stack
    clean: list[Picture]
    truth: Picture | None
    noisy_truth: Levels | None
    sigma: float
    unaligned: list[Picture] | None = None


def situation(
    data: Path | None,
    dataset: str,
    item: int,
    *,
    noise: str = "white",
    sigma: float = 0.0,
    change: str = "",
    crop: int = 0,
) -> Situation:
    """Make the situation; everything random is seeded by the item."""
    if noise not in NOISES or change not in ("", *CHANGES):
        raise CofuseError(f"there is no noise {noise!r} or change {change!r}")
    if dataset == "misaligned":
        return _put_in_place(situation_files(data, dataset, item))
    frames, truth = _scene(data, dataset, item)
    if crop:
        frames, truth = [_middle(f, crop) for f in frames], _middle(truth, crop)
    clean = [frame.astype(np.float32) for frame in frames]
    given = list(clean)
    odd = len(given) // 2  # the frame that is disturbed: the second of two, the middle one of five
    if change:
        given[odd] = CHANGES[change](given[odd], item)
    made = NOISES[noise](given, sigma, item)
    if change == "double noise":
        made[odd] = (2.0 * made[odd] - given[odd]).astype(np.float32)
    told = sigma if noise == "white" else _rms(made, given)
    noisy_truth = None
    if truth is not None:
        noisy_truth = NOISES[noise]([truth.astype(np.float32)], sigma, item)[0].astype(np.float32)
    return Situation(Stack.from_arrays(made, white=255.0), frames, truth, noisy_truth, told)


def situation_files(data: Path | None, dataset: str, item: int) -> list[Path]:
    """Name the files a scene is read from."""
    kind, *rest = dataset.split("-")
    if kind == "colour":
        return []
    if kind in ("train", *_COLLECTIONS) and data is None:
        raise CofuseError(f"{dataset} needs the folder of the picture collections: --data")
    if data is not None and kind in _COLLECTIONS:
        return _COLLECTIONS[kind](data, item)
    if data is not None and kind == "train":
        numbers = (item, item % 400 + 1)
        return [data / "natural" / "train" / f"test_{number:03}.png" for number in numbers]
    return pictures.scene_files(data, "-".join([kind, *rest[:1]]), item)


def _scene(data: Path | None, dataset: str, item: int) -> tuple[list[Picture], Picture | None]:
    """Read or simulate the frames and their truth, 8 bits, without noise."""
    kind, *rest = dataset.split("-")
    spread = rest[1:] == ["between"]
    if kind in _COLLECTIONS:
        *colour, sharp = (read_image(file) for file in situation_files(data, dataset, item))
        return colour, sharp
    if kind not in ("colour", "train") and not spread:
        found = pictures.scene(data, dataset, item)
        return list(found.frames), found.truth
    if kind == "colour":
        picture, foreground = (
            sample_picture(SAMPLE_NAMES[n % len(SAMPLE_NAMES)]) for n in (item, item + 2)
        )
    else:
        files = situation_files(data, dataset, item)
        picture, foreground = (to_grey(read_image(file)) for file in files)
    made = simulate_stack(
        picture, frames=int(rest[0]), foreground=foreground, snap=not spread, seed=item
    )
    return list(made.frames), made.truth


#: Files of RGB scenes, the truth last.
_COLLECTIONS: dict[str, Callable[[Path, int], list[Path]]] = {
    "photo": lambda data, item: [sorted((data / "photos").glob("*.jpg"))[item]] * 2,
    "rooms": lambda data, item: _with_truth(data / "real" / "pairs" / f"{item:03}"),
    "misaligned": lambda data, item: _with_truth(data / "real" / "misaligned" / f"{item:02}"),
}


def _with_truth(folder: Path) -> list[Path]:
    return [f for part in (folder, folder / "truth") for f in sorted(part.iterdir()) if f.is_file()]


def _put_in_place(files: list[Path]) -> Situation:
    """Align frames to the middle one, where the truth lies, and cut it as they are cut."""
    *frames, truth = (read_image(file) for file in files)
    # Where frames have 16 bits the truth has their high byte.
    frames = [(f >> 8).astype(np.uint8) if f.dtype == np.uint16 else f for f in frames]
    alignment = align_stack(frames)
    places = [transform for transform in alignment.transforms if transform is not None]
    top, bottom, left, right = common_area(places, alignment.size)
    stack = Stack.from_arrays(list(aligned(frames, alignment)))
    truth = np.ascontiguousarray(truth[top:bottom, left:right])
    return Situation(stack, list(stack), truth, truth.astype(np.float32), 0.0, frames)


# --- noise: (frames, sigma, seed) -> frames, float unless a camera would have rounded them ---


def _white(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
    """White Gaussian noise, never clipped."""
    return frames if sigma == 0 else list(pictures.noisy(frames, sigma, seed))


def _poisson(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
    """A sensor's noise: counts of light, and a floor of white noise; ``sigma`` plays no part."""
    rng = np.random.default_rng([_MIX, seed])
    counts = [rng.poisson(np.maximum(frame, 0.0) / _GAIN) * _GAIN for frame in frames]
    return [(c + rng.normal(scale=_FLOOR, size=c.shape)).astype(np.float32) for c in counts]


def _clipped(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
    """White noise as 8-bit files keep it."""
    return [to_8_bit(frame) for frame in _white(frames, sigma, seed)]


def _jpeg(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
    """White noise that went through a JPEG file."""
    import cv2

    read = []
    for frame in _clipped(frames, sigma, seed):
        colour = frame.ndim == 3  # which way round the channels are matters to the format
        frame = np.ascontiguousarray(frame[..., ::-1]) if colour else frame
        _, file = cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
        back = np.asarray(cv2.imdecode(file, cv2.IMREAD_UNCHANGED))
        read.append(np.ascontiguousarray(back[..., ::-1]) if colour else back)
    return read


def _chroma(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
    """White noise of ``sigma`` in luminance and twice that in either chrominance."""
    rng = np.random.default_rng([_MIX, seed])
    made = []
    for frame in frames:
        planes = rng.normal(scale=sigma, size=frame.shape) * (1.0, 2.0, 2.0)
        made.append((frame + from_opponent(planes.astype(np.float32))).astype(np.float32))
    return made


def _like(kind: str) -> Callable[[list[Levels], float, int], list[Picture]]:
    """White noise of the root mean square that another kind has on the same frames."""

    def add(frames: list[Levels], sigma: float, seed: int) -> list[Picture]:
        return _white(frames, _rms(NOISES[kind](frames, sigma, seed), frames), seed)

    return add


#: The kinds of noise by name.
NOISES: dict[str, Callable[[list[Levels], float, int], list[Picture]]] = {
    "white": _white,
    "poisson": _poisson,
    "clipped": _clipped,
    "jpeg": _jpeg,
    "chroma": _chroma,
}
NOISES |= {f"white like {kind}": _like(kind) for kind in list(NOISES) if kind != "white"}


# --- changes: what goes wrong with one frame; (frame, seed) -> frame, before noise is added ---


def _shifted(pixels: float) -> Callable[[Levels, int], Levels]:
    """Move a frame to the right by a quintic spline, which hardly blurs; borders are mirrored."""

    def change(frame: Levels, seed: int) -> Levels:
        from scipy.ndimage import shift

        by = (0.0, pixels, *(0.0,) * (frame.ndim - 2))
        return np.asarray(shift(frame, by, order=5, mode="mirror"), np.float32)

    return change


def _visited(frame: Levels, seed: int) -> Levels:
    """Let something cross the scene in one frame only: a striped disc, sharp, at three places."""
    height, width = frame.shape[:2]
    rng = np.random.default_rng([_MIX, seed])
    y, x = np.ogrid[:height, :width]
    radius = 0.05 * min(height, width)
    stripes = 128.0 + 80.0 * np.sign(np.sin(2 * np.pi * (x + y) / 9.0))
    made = frame.astype(np.float64)
    for _ in range(3):
        top, left = rng.uniform(0.15, 0.85) * height, rng.uniform(0.15, 0.85) * width
        alpha = np.clip(radius + 0.5 - np.hypot(y - top, x - left), 0.0, 1.0)
        paint = stripes
        if frame.ndim == 3:
            alpha, paint = alpha[..., None], paint[..., None]
        made = made * (1.0 - alpha) + paint * alpha
    return made.astype(np.float32)


#: What may be wrong with one frame, by name. ``double noise`` is done where the noise is.
CHANGES: dict[str, Callable[[Levels, int], Levels]] = {
    "shift 0.5 px": _shifted(0.5),
    "shift 1 px": _shifted(1.0),
    "10 % brighter": lambda frame, seed: (frame * np.float32(1.1)).astype(np.float32),
    "moving object": _visited,
    "double noise": lambda frame, seed: frame,
}


def _rms(made: list[Picture], given: list[Levels]) -> float:
    """Root mean square of what noise did to the frames."""
    squares = [np.mean((m.astype(np.float64) - g) ** 2) for m, g in zip(made, given, strict=True)]
    return float(np.sqrt(np.mean(squares)))


def _middle(picture: Picture | None, side: int) -> Any:
    """Cut a square out of the middle; a smaller picture stays as it is."""
    if picture is None:
        return None
    top, left = (max((length - side) // 2, 0) for length in picture.shape[:2])
    return np.ascontiguousarray(picture[top : top + side, left : left + side])
