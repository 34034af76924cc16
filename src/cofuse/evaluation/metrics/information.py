r"""Scores from grey-level statistics: how much of the sources' information the fusion carries.

Both metrics look at joint histograms alone. They do not see where a pixel lies, and they reward
copying: the picture that repeats one source scores above every real fusion in `q_mi`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cofuse.evaluation.metrics.pictures import check_sources, row_bands, stretch

__all__ = ["q_mi", "q_ncie"]

_BINS = 256

Bins = NDArray[np.uint8]
Counts = NDArray[np.int64]


def q_mi(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Normalised mutual information of the sources and the fused picture [1]_.

    .. math:: Q_{MI} = 2 \cdot \frac{2}{K} \sum_{k=1}^{K}
              \frac{MI(S_k, F)}{H(S_k) + H(F)}

    with entropies of 256-bin histograms in bits. For K = 2 this is Hossny's definition; the factor
    2/K keeps its range for longer stacks.

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between 0 (independent) and 2 (every source determines the fused picture and is determined
        by it); more is better.

    Notes
    -----
    Each picture is first stretched so that its own range fills 0-255, and rounded. For uint8
    pictures that only renames the levels. A term whose source and fused picture are both constant
    is 0/0; it counts as 1/2, the value of any other source that is copied.

    References
    ----------
    .. [1] M. Hossny, S. Nahavandi, D. Creighton, "Comments on 'Information measure for performance
       of image fusion'", Electronics Letters 44 (18), 2008.
    """
    frames, picture = check_sources(sources, fused)
    fused_bins = _to_bins(picture)
    total = 0.0
    for frame in frames:
        shared, h_source, h_fused = _mutual_information(_to_bins(frame), fused_bins)
        total += shared / (h_source + h_fused) if h_source + h_fused > 0 else 0.5
    return 2.0 * (2.0 / len(frames)) * total


def q_ncie(sources: Sequence[ArrayLike], fused: ArrayLike) -> float:
    r"""Nonlinear correlation information entropy of the sources and the fused picture [1]_.

    .. math:: Q_{NCIE} = 1 + \sum_{i=1}^{K+1} \frac{\lambda_i}{K+1} \log_{256} \frac{\lambda_i}{K+1}

    where :math:`\lambda_i` are the eigenvalues of the matrix of pairwise nonlinear correlation
    coefficients, mutual information in units of 8 bits, of all K + 1 pictures (its diagonal is 1).

    Parameters
    ----------
    sources
        At least two grey pictures of shape (H, W), uint8 or float on the 0-255 scale.
    fused
        The fused picture, of the same shape.

    Returns
    -------
    float
        Between :math:`1 - \log_{256}(K+1)` (about 0.802 for K = 2) and 1; more is better. Values
        for different K do not compare.

    References
    ----------
    .. [1] Q. Wang, Y. Shen, J. Q. Zhang, "A nonlinear correlation measure for multivariable data
       set", Physica D 200, 2005; Q. Wang, Y. Shen, J. Jin, "Performance evaluation of image fusion
       techniques", in Image Fusion: Algorithms and Applications, 2008.
    """
    frames, picture = check_sources(sources, fused)
    binned = [_to_bins(array) for array in (*frames, picture)]
    count = len(binned)
    correlation = np.eye(count)
    for i in range(count):
        for j in range(i):
            shared, _, _ = _mutual_information(binned[i], binned[j])
            correlation[i, j] = correlation[j, i] = shared / np.log2(_BINS)
    # Rounding may leave an eigenvalue of a singular matrix a little below zero; 0 log 0 is 0.
    share = np.linalg.eigvalsh(correlation) / count
    share = share[share > 0]
    return float(1.0 + (share * np.log2(share)).sum() / np.log2(_BINS))


def _to_bins(picture: NDArray[Any]) -> Bins:
    """Stretch a picture to 0-255; for uint8 that only renames the bins, so it is left out."""
    return picture if picture.dtype == np.uint8 else stretch(picture)


def _mutual_information(first: Bins, second: Bins) -> tuple[float, float, float]:
    """Mutual information of two binned pictures and both entropies, in bits."""
    joint = np.zeros(_BINS * _BINS, dtype=np.int64)
    for band in row_bands(first.shape):
        pairs = first[band].astype(np.intp).ravel()
        pairs *= _BINS
        pairs += second[band].ravel()
        joint += np.bincount(pairs, minlength=_BINS * _BINS)
    table = joint.reshape(_BINS, _BINS)
    h_first, h_second = _entropy(table.sum(axis=1)), _entropy(table.sum(axis=0))
    return max(h_first + h_second - _entropy(joint), 0.0), h_first, h_second


def _entropy(counts: Counts) -> float:
    """Entropy in bits of a histogram given as whole counts."""
    present = counts[counts > 0].astype(np.float64)
    total = present.sum()
    return float(np.log2(total) - (present * np.log2(present)).sum() / total)
