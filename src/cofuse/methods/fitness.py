"""Frames that must not be used, here or anywhere, whatever the model makes of them.

The model has learned from frames of one exposure with blur of up to ten pixels, and judges by what
it sees. In a frame with much wider blur, or none of the scene in it at all, there is nothing to
see: what it says of such a frame is a guess. A plain look at energy and brightness rules it out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cofuse.joint_fusion import BLOCK, PlaneReader
from cofuse.methods.run import Levels

__all__ = ["unfit_blocks"]

#: A frame is unfit where it has less than this share of the gradient energy of the sharpest. An
#: edge spread evenly over w pixels keeps 1/w of its energy: this is one spread over fifty.
_LEAST_SHARE = 0.02
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
_OTHER_SHARE, _OTHER_LEVELS = 0.25, 8.0
_BAND_ROWS = 128 * BLOCK

Blocks = NDArray[np.float32]


def unfit_blocks(
    readers: Sequence[PlaneReader],
    shape: tuple[int, int],
    sigma: Levels,
    names: Sequence[str],
    *,
    white: float = 255.0,
) -> NDArray[np.bool_]:
    """Find where each frame must not be used, in blocks of pixels: (frames, rows, columns).

    ``sigma`` is the noise level of each frame's first plane, by which all is measured, and
    ``white`` its value of white. A frame that is ruled out as a whole is named in a warning.
    """
    import cv2

    if min(shape) <= 3 * BLOCK:
        return np.zeros((len(readers), *(-(-side // BLOCK) for side in shape)), np.bool_)
    measured = [_measure(reader, shape) for reader in readers]
    energies = np.stack([energy for energy, _ in measured])
    means = np.stack([mean for _, mean in measured])
    noise = 4.0 * np.square(np.asarray(sigma, np.float32))
    window = (_WINDOW, _WINDOW)
    smooth, around = (
        np.stack([cv2.blur(v, window, borderType=cv2.BORDER_REFLECT) for v in values])
        for values in (energies, means)
    )
    content = smooth - noise[:, None, None]
    sharpest = content.argmax(axis=0)[None]
    most, there = (np.take_along_axis(values, sharpest, 0) for values in (content, around))
    at_most = content + _CHANCE * noise[:, None, None]
    # A gentler slope than from black to white across the window may be blur that spread into it.
    telling = most > (white / (_WINDOW * BLOCK)) ** 2 + 4 * _CHANCE * noise.max()
    # What only the sharpest frame shows, as something that passed by, is no matter of blur.
    alike = np.abs(around - there) < _ALIKE_SHARE * np.abs(there) + _ALIKE_LEVELS
    unfit = (at_most < _LEAST_SHARE * most) & telling & alike
    if len(readers) == 2:
        # Pairs are often made from one picture with a mask, which seldom reaches the very rim:
        # there energy tells nothing.
        unfit[:, [0, -1]] = unfit[:, :, [0, -1]] = False
    else:
        usual = np.median(means, axis=0)
        allowed = _OTHER_SHARE * np.abs(usual) + _OTHER_LEVELS
        for number, mean in enumerate(means):
            if np.median(np.abs(mean - usual) / allowed) > 1.0:
                unfit[number] = True
                warnings.warn(
                    f"{names[number]} differs from the other frames in brightness nearly "
                    "everywhere; it is left out",
                    stacklevel=2,
                )
    # Where every frame is out, as when most are of other scenes, the model decides after all.
    unfit[:, unfit.all(axis=0)] = False
    return np.asarray(unfit)


def _measure(reader: PlaneReader, shape: tuple[int, int]) -> tuple[Blocks, Blocks]:
    """Gradient energy and mean of every block of a frame's first plane."""
    energies, means = [], []
    for rows in _bands(shape[0]):
        plane = reader(rows, slice(0, shape[1]))[..., 0]
        padded = np.pad(plane, ((0, -plane.shape[0] % BLOCK), (0, -shape[1] % BLOCK)), mode="edge")
        blocks = padded.reshape(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK)
        across = np.square(np.diff(blocks, axis=3)).mean(axis=(1, 3))
        down = np.square(np.diff(blocks, axis=1)).mean(axis=(1, 3))
        energies.append(across + down)
        means.append(blocks.mean(axis=(1, 3)))
    # Blur that ran into a black surround leaves a strong edge around a frame, but no detail.
    energy = np.pad(np.concatenate(energies)[1:-1, 1:-1], 1, mode="edge")
    return energy, np.concatenate(means)


def _bands(height: int) -> Iterator[slice]:
    """Rows in bands of whole blocks: a frame of planes at once would take much memory."""
    return (slice(top, min(top + _BAND_ROWS, height)) for top in range(0, height, _BAND_ROWS))
