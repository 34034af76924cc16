"""Multi-scale baselines: Laplacian pyramid and discrete wavelet transform, strongest detail wins.

Both run over the frames once: at every coefficient the detail of the frame that is most salient
so far is kept, and the coarse residue is summed to a mean. Memory does not grow with K. The
choice is made on the luminance and holds for all three colours; transforms are linear, so the
luminance of a band is the band of the luminance.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.arguments import check_count, import_extra
from cofuse.images import Fusion, Levels, Stack, luminance

__all__ = ["fuse_dwt", "fuse_laplacian"]

Band = NDArray[np.float32]


def fuse_laplacian(stack: Stack, *, sigma: float = 0.0, levels: int = 4, window: int = 3) -> Fusion:
    """Fuse by Laplacian pyramids [1]_: strongest detail by windowed salience, mean of the top [2]_.

    Parameters
    ----------
    stack
        K ≥ 1 frames, grey or RGB; they are streamed.
    sigma
        Recorded, not used: nothing is denoised, and the largest of K details is noisier than one.
    levels
        Detail bands of the pyramid; fewer where the picture is too small to be halved so often.
    window
        Side of the square over which magnitudes of detail are averaged to salience; 1 takes the
        largest magnitude, coefficient by coefficient.

    References
    ----------
    .. [1] P. Burt, E. Adelson, "The Laplacian pyramid as a compact image code", IEEE Trans.
       Commun. 31, 1983.
    .. [2] P. Burt, R. Kolczynski, "Enhanced image capture through fusion", ICCV 1993.
    """
    check_sigma(sigma)
    check_count("levels", levels)
    check_count("window", window, odd=True)
    started = time.perf_counter()
    levels = min(levels, int(np.log2(min(stack.shape[:2]))))
    merged = _Merged(window)
    for frame in stack:
        *details, top = _laplacian_pyramid(stack.to_levels(frame), levels)
        merged.add(details, top)
    image = stack.from_levels(_collapse(merged.details, merged.mean_top()))
    return Fusion(image, sigma=sigma, seconds={"fuse": time.perf_counter() - started})


def fuse_dwt(
    stack: Stack,
    *,
    sigma: float = 0.0,
    levels: int = 4,
    wavelet: str = "db4",
    window: int = 3,
) -> Fusion:
    """Fuse by discrete wavelet transforms [1]_: strongest coefficient, mean of the approximation.

    Parameters
    ----------
    stack
        K ≥ 1 frames, grey or RGB; they are streamed.
    sigma
        Recorded, not used: nothing is denoised, and the largest of K details is noisier than one.
    levels
        Depth of the decomposition; less where the picture is shorter than the wavelet.
    wavelet
        A discrete wavelet by its name in PyWavelets.
    window
        Side of the square over which magnitudes are averaged before they are compared, the
        paper's area-based selection; 1 compares single coefficients.

    Notes
    -----
    The transform is that of PyWavelets (extra ``bench``), with mirrored borders.

    References
    ----------
    .. [1] H. Li, B. Manjunath, S. Mitra, "Multisensor image fusion using the wavelet transform",
       Graph. Models Image Process. 57, 1995.
    """
    check_sigma(sigma)
    check_count("levels", levels)
    check_count("window", window, odd=True)
    pywt = import_extra("pywt", package="PyWavelets", purpose="wavelet fusion")
    if wavelet not in pywt.wavelist(kind="discrete"):
        raise CofuseError(
            f"wavelet is {wavelet!r}; expected a discrete one of PyWavelets, such as db1 or sym4"
        )
    started = time.perf_counter()
    taps = pywt.Wavelet(wavelet).dec_len
    levels = min(levels, pywt.dwt_max_level(min(stack.shape[:2]), taps))
    merged = _Merged(window)
    for frame in stack:
        coarse, *rest = pywt.wavedec2(stack.to_levels(frame), wavelet, level=levels, axes=(0, 1))
        merged.add([band for triple in rest for band in triple], coarse)
    details = iter(merged.details)
    triples = list(zip(details, details, details, strict=True))
    fused = pywt.waverec2([merged.mean_top(), *triples], wavelet, axes=(0, 1))
    # An odd side comes back one pixel longer.
    fused = np.asarray(fused, dtype=np.float32)[: stack.height, : stack.width]
    image = stack.from_levels(fused)
    return Fusion(image, sigma=sigma, seconds={"fuse": time.perf_counter() - started})


class _Merged:
    """What is kept of the frames seen so far: the most salient details, the sum of the tops."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.details: list[Band] = []
        self._salience: list[Band] = []
        self._total: NDArray[np.float64] | None = None
        self._frames = 0

    def add(self, details: list[Band], top: Levels) -> None:
        """Take one more frame in; of equally salient details the earlier frame's stay."""
        salience = [_mean_magnitude(luminance(band), self.window) for band in details]
        self._frames += 1
        if self._total is None:
            self._total = top.astype(np.float64)
            self.details, self._salience = list(details), salience
            return
        self._total += top
        for kept, so_far, band, here in zip(
            self.details, self._salience, details, salience, strict=True
        ):
            better = here > so_far
            np.copyto(so_far, here, where=better)
            np.copyto(kept, band, where=better[..., None] if band.ndim == 3 else better)

    def mean_top(self) -> Levels:
        """Return the mean of the coarse residues."""
        assert self._total is not None, "a stack has at least one frame"
        return (self._total / self._frames).astype(np.float32)


def _laplacian_pyramid(levels: Levels, depth: int) -> list[Band]:
    """Return ``depth`` detail bands, finest first, and the coarse residue."""
    import cv2

    pyramid: list[Band] = []
    fine = levels
    for _ in range(depth):
        coarse = np.asarray(cv2.pyrDown(fine), dtype=np.float32)
        pyramid.append(fine - _expand(coarse, fine.shape))
        fine = coarse
    return [*pyramid, fine]


def _collapse(details: list[Band], top: Levels) -> Levels:
    """Undo `_laplacian_pyramid`: exact but for rounding, since each band is a difference."""
    for band in reversed(details):
        top = band + _expand(top, band.shape)
    return top


def _expand(coarse: Levels, shape: tuple[int, ...]) -> Levels:
    """Stretch a level of the pyramid to the shape of the next finer one."""
    import cv2

    return np.asarray(cv2.pyrUp(coarse, dstsize=(shape[1], shape[0])), dtype=np.float32)


def _mean_magnitude(band: Band, window: int) -> Band:
    """Average |band| over a square; at the borders over the part of it inside the picture."""
    import cv2

    magnitude = np.abs(band)
    if window == 1:
        return magnitude
    # Every position has the same count of pixels in all frames: sums compare as means do.
    border = cv2.BORDER_CONSTANT
    return np.asarray(cv2.boxFilter(magnitude, -1, (window, window), borderType=border), np.float32)
