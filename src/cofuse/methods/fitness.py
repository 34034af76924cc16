"""Frames that must not be used, here or anywhere, whatever the model makes of them.

The model has learned from frames of one exposure with blur of up to 16 pixels, and judges by what
it sees. In a frame with much wider blur, or none of the scene in it at all, there is nothing to
see: what it says of such a frame is a guess. A plain look at energy and brightness rules it out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cofuse.joint_fusion import BLOCK, PlaneReader
from cofuse.memory import Shelf
from cofuse.methods.run import Levels

__all__ = ["OTHER_LEVELS", "OTHER_SHARE", "Fitness", "judge_frames", "judge_measured"]

#: A frame is unfit where it has less than this share of the gradient energy of the sharpest. An
#: edge spread evenly over w pixels keeps 1/w of its energy: this is one spread over fifty.
_LEAST_SHARE = 0.02
#: Share of the energy that an edge keeps when it is spread as wide as the widest blur the model has
#: learned from. If some frame has less in half of the places, the choice is beyond the model.
_LEARNED_SHARE = 1 / 16
#: Blocks on the side of the window over which energies are compared. Beside a sharp edge the sharp
#: frame is flat and a blurred one is not: the window must be wide enough to hold the edge as well.
_WINDOW = 9
#: What a measured energy of noise may be off by, as a share of it: somewhat over four standard
#: errors of a mean of squares over the window's pixels.
_CHANCE = 0.08
#: Means that differ by less than this share and this many grey levels may be of the same scene.
_ALIKE_SHARE, _ALIKE_LEVELS = 0.25, 8.0
#: A frame unlike the others in brightness over half of the picture, by more than this share of it
#: and this many grey levels, shows another scene or none.
OTHER_SHARE, OTHER_LEVELS = 0.25, 8.0
#: Pixels of a frame that are measured at a time, and rows of blocks that are compared.
_BAND_PIXELS, _COMPARED_ROWS = 1 << 21, 16

Blocks = NDArray[np.float32]


@dataclass(frozen=True)
class Fitness:
    """Where each frame must not be used, in blocks of pixels (frames, rows, columns).

    ``is_beyond_model`` says that frames are blurred wider than any that the model has learned from.
    """

    unfit: NDArray[np.bool_]
    is_beyond_model: bool = False


def judge_frames(
    readers: Sequence[PlaneReader],
    shape: tuple[int, int],
    sigma: Levels,
    names: Sequence[str],
    *,
    white: float = 255.0,
    in_memory: bool = True,
) -> Fitness:
    """Find where each frame must not be used.

    ``sigma`` is the noise level of each frame's first plane, by which all is measured, and
    ``white`` its value of white. A frame that is ruled out as a whole is named in a warning. What
    is measured of the frames is kept ``in_memory`` or in a temporary file.
    """
    measures = (_measure(reader, shape) for reader in readers)
    return judge_measured(measures, shape, sigma, names, white=white, in_memory=in_memory)


def judge_measured(
    measures: Iterable[tuple[Blocks, Blocks]],
    shape: tuple[int, int],
    sigma: Levels,
    names: Sequence[str],
    *,
    white: float = 255.0,
    in_memory: bool = True,
    others: Sequence[int] | None = None,
) -> Fitness:
    """Judge frames by the gradient energy and mean of their blocks; see `judge_frames`.

    ``others`` are frames of other brightness, if they have been found already.
    """
    count = len(sigma)
    blocks = -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)
    if min(shape) <= 3 * BLOCK:
        return Fitness(np.zeros((count, *blocks), np.bool_))
    noise = np.float32(4.0) * np.square(np.asarray(sigma, np.float32))
    # Energy over a window, and brightness: two pictures of every frame.
    with Shelf(2 * count, blocks, np.float32, in_memory=in_memory) as measured:
        for number, (energy, mean) in enumerate(measures):
            measured.write(2 * number, _windowed(energy))
            measured.write(2 * number + 1, mean)
        unfit, least = _blurred(measured, noise, white)
        if count == 2:
            # Pairs are often made from one picture with a mask, which seldom reaches the very
            # rim: there energy tells nothing.
            unfit[:, [0, -1]] = unfit[:, :, [0, -1]] = False
        else:
            for number in _of_other_brightness(measured) if others is None else others:
                unfit[number] = True
                warnings.warn(
                    f"{names[number]} differs from the other frames in brightness nearly "
                    "everywhere; it is left out",
                    stacklevel=3,
                )
    # Where every frame is out, as when most are of other scenes, the model decides after all.
    unfit[:, unfit.all(axis=0)] = False
    return Fitness(unfit, least.size > 0 and float(np.median(least)) < _LEARNED_SHARE)


def _blurred(
    measured: Shelf, noise: Blocks, white: float
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Where each frame has next to nothing of what the sharpest one shows.

    Also the share that the most blurred frame has of it, in every place that can tell.
    """
    most = np.full(measured.shape, -np.inf, np.float32)
    there = np.zeros(measured.shape, np.float32)
    for number, own in enumerate(noise):
        content, around = measured.read(2 * number) - own, _windowed(measured.read(2 * number + 1))
        sharper = content > most
        np.copyto(most, content, where=sharper)
        np.copyto(there, around, where=sharper)
    # A gentler slope than from black to white across the window may be blur that spread into it.
    telling = most > (white / (_WINDOW * BLOCK)) ** 2 + 4 * _CHANCE * noise.max()
    unfit = np.empty((len(noise), *measured.shape), np.bool_)
    least = np.full(measured.shape, np.inf, np.float32)
    for number, own in enumerate(noise):
        content, around = measured.read(2 * number) - own, _windowed(measured.read(2 * number + 1))
        # What only the sharpest frame shows, as something that passed by, is no matter of blur.
        alike = np.abs(around - there) < _ALIKE_SHARE * np.abs(there) + _ALIKE_LEVELS
        unfit[number] = (content + _CHANCE * own < _LEAST_SHARE * most) & telling & alike
        np.minimum(least, content, out=least)
    return unfit, np.maximum(least[telling], 0.0) / most[telling]


def _of_other_brightness(measured: Shelf) -> list[int]:
    """Frames unlike the others over half of the picture."""
    frames = range(measured.count // 2)
    usual = np.empty(measured.shape, np.float32)
    for top in range(0, len(usual), _COMPARED_ROWS):
        rows = slice(top, top + _COMPARED_ROWS)
        usual[rows] = np.median([measured.read(2 * number + 1, rows) for number in frames], axis=0)
    allowed = OTHER_SHARE * np.abs(usual) + OTHER_LEVELS

    def apart(number: int) -> float:
        return float(np.median(np.abs(measured.read(2 * number + 1) - usual) / allowed))

    return [number for number in frames if apart(number) > 1.0]


def _windowed(values: Blocks) -> Blocks:
    """Means over the window."""
    import cv2

    window = (_WINDOW, _WINDOW)
    return np.asarray(cv2.blur(values, window, borderType=cv2.BORDER_REFLECT), np.float32)


def _measure(reader: PlaneReader, shape: tuple[int, int]) -> tuple[Blocks, Blocks]:
    """Gradient energy and mean of every block of a frame's first plane."""
    from cofuse.kernels.pictures import block_energies

    energies, means = [], []
    for rows in _bands(shape):
        energy, mean = block_energies(reader(rows, slice(0, shape[1]))[..., 0], BLOCK)
        energies.append(energy)
        means.append(mean)
    # Blur that ran into a black surround leaves a strong edge around a frame, but no detail.
    energy = np.pad(np.concatenate(energies)[1:-1, 1:-1], 1, mode="edge")
    return energy, np.concatenate(means)


def _bands(shape: tuple[int, int]) -> Iterator[slice]:
    """Rows in bands of whole blocks: a frame of planes at once would take much memory."""
    step = max(_BAND_PIXELS // shape[1] // BLOCK, 1) * BLOCK
    return (slice(top, min(top + step, shape[0])) for top in range(0, shape[0], step))
