"""The joint model in plain NumPy on whole pictures: slow, short, and the oracle of the kernels.

Planes are (channels, H, W), frames (K, H, W), scores (K, 1 + bands, H, W). Pictures are in units
of the stack's noise; arrays go by the model's names less the part's prefix.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "choose",
    "convolve",
    "halve",
    "mix",
    "reweigh",
    "slope",
    "stage",
    "upsample",
    "weigh",
]

Array = NDArray[Any]
Arrays = Mapping[str, Array]


def convolve(planes: Array, filters: Array, *, stride: int = 1) -> Array:
    """Correlate planes (c, H, W) with filters (o, c, n, n), nothing beyond the border."""
    n = filters.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(planes, (n, n), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    return np.asarray(np.einsum("cyxij,ocij->oyx", windows, filters, optimize=True))


def upsample(planes: Array) -> Array:
    """Enlarge twofold: every pixel becomes four, a quarter towards its neighbours each."""
    for axis in (1, 2):
        padded = np.pad(planes, [(int(i == axis),) * 2 for i in range(3)], mode="edge")
        before, here, after = (
            np.take(padded, np.arange(planes.shape[axis]) + i, axis) for i in range(3)
        )
        pair = np.stack([0.25 * before + 0.75 * here, 0.75 * here + 0.25 * after], axis + 1)
        shape = list(planes.shape)
        shape[axis] *= 2
        planes = pair.reshape(shape)
    return planes


def halve(picture: Array) -> Array:
    """Halve a picture with the weights 1 3 3 1, the counterpart of enlarging it; edges repeat."""
    height, width = picture.shape
    padded = np.pad(picture, ((1, 1 + height % 2), (1, 1 + width % 2)), mode="edge")
    weights = np.array([1.0, 3.0, 3.0, 1.0]) / 8.0
    return np.asarray(convolve(padded[None], np.outer(weights, weights)[None, None], stride=2)[0])


def weigh(
    frames: Array, relative: Sequence[float], unit: float, arrays: Arrays
) -> tuple[Array, Array]:
    """Scores of every frame at every pixel, and what all together tell every stage there.

    The guides are (channels, H, W), those of the first stage first.
    """
    levels = 1 + max(int(name.split(".")[1]) for name in arrays if name.startswith("levels."))
    height, width = frames.shape[1:]
    whole = (0, 0), (0, -height % 2**levels), (0, -width % 2**levels)
    padded = np.pad(frames, whole, mode="edge")
    pairs = [np.stack([frame, padded.mean(axis=0)]) for frame in padded]
    logs = [np.array([1.0, np.log(unit), np.log(noise)]) for noise in relative]
    features = [_features(pair, log, levels, arrays) for pair, log in zip(pairs, logs, strict=True)]
    shared = []
    for level, own in enumerate(zip(*features, strict=True)):
        part = _part(arrays, level)
        bias = part["own_bias"] + part["noise_bias"] * np.log(unit)
        shared.append(convolve(_pooled(own), part["shared.weight"]) + bias[:, None, None])
    answers = [_answer(own, shared, arrays) for own in features]
    scores = [
        _placed(answer, pair, log, arrays)
        for answer, pair, log in zip(answers, pairs, logs, strict=True)
    ]
    guides = _shuffled(convolve(_pooled(answers), arrays["guide"]))
    return np.stack(scores)[..., :height, :width], guides[..., :height, :width]


def _analysed(pair: Array, log: Array, filters: Array, bias: Array, reach: int) -> Array:
    """Compressed coefficients; filters of an even side are applied at every second pixel."""
    signal = np.pad(pair, ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    stride = 2 - filters.shape[-1] % 2
    coefficients = convolve(signal, _mean_free(filters), stride=stride)
    return np.asarray(np.maximum(_compress(coefficients**2) + (log @ bias)[:, None, None], 0.0))


def _features(pair: Array, log: Array, levels: int, arrays: Arrays) -> list[Array]:
    """Encode one frame, given beside the mean of all."""
    features = [_analysed(pair, log, arrays["analysis"], arrays["analysis_bias"], 3)]
    for level in range(1, levels):
        part = _part(arrays, level)
        c, h, w = features[-1].shape
        finer = features[-1].reshape(c, h // 2, 2, w // 2, 2).mean((2, 4))
        descended = convolve(_edged(finer), part["descend.weight"])
        features.append(np.maximum(descended + part["descend_bias"][:, None, None], 0.0))
    return features


def _answer(features: list[Array], shared: list[Array], arrays: Arrays) -> Array:
    """Decode one frame's features, coarsest level first."""
    answer: Array | None = None
    for level in reversed(range(len(features))):
        part = _part(arrays, level)
        total = convolve(_edged(features[level]), part["own.weight"]) + shared[level]
        if answer is not None:
            total = total + upsample(convolve(answer, part["ascend.weight"]))
        smooth = convolve(_edged(np.maximum(total, 0.0)), part["smooth.weight"])
        answer = np.maximum(smooth + part["smooth_bias"][:, None, None], 0.0)
    assert answer is not None, "there is at least one level"
    return answer


def _placed(answer: Array, pair: Array, log: Array, arrays: Arrays) -> Array:
    """Scores at full size from the answer at half size and the frame's own detail."""
    risen = convolve(_edged(answer), arrays["rise.weight"]) + arrays["rise_bias"][:, None, None]
    detail = _analysed(pair, log, arrays["detail"], arrays["detail_bias"], 2)
    planes = np.concatenate([_shuffled(np.maximum(risen, 0.0)), detail])
    placed = convolve(_edged(planes), arrays["place.weight"]) + arrays["place_bias"][:, None, None]
    return convolve(np.maximum(placed, 0.0), arrays["answer.weight"])


def choose(scores: Array) -> tuple[Array, Array]:
    """Best frame of every pixel by the first score, and the lead of its softmax probability."""
    ranked = np.sort(_softmax(scores[:, 0]), axis=0)
    second = ranked[-2] if len(ranked) > 1 else 0.0
    return scores[:, 0].argmax(axis=0), ranked[-1] - second


def mix(
    frames: Array, scores: Array, relative: Sequence[float], windows: Sequence[int]
) -> tuple[Array, Array, Array]:
    """Mix frames band by band; also half the log noise power of the finest and coarsest band."""
    lows = [frames]
    for side in windows:
        lows.append(_box(_box(lows[-1], side), side))
    bands = [*(a - b for a, b in itertools.pairwise(lows)), lows[-1]]
    weights = _softmax(scores[:, 1:])
    picture = (weights * np.stack(bands, axis=1)).sum((0, 1))
    noise = np.reshape(relative, (-1, 1, 1, 1))
    left = 0.5 * np.log(((weights * noise) ** 2).sum(axis=0) + 1e-6)
    return picture, left[0], left[-1]


def reweigh(
    frames: Array,
    picture: Array,
    scores: Array,
    arrays: Arrays,
    scales: Sequence[tuple[int, int]],
) -> Array:
    """Correct the bands' scores by how well each frame agrees with a picture; returns all."""
    residual = picture - frames
    measures = []
    for smooth, window in scales:
        low = _box(residual, smooth)
        measures.append(_compress(_box(low**2, window) * smooth**2))
    detail = picture - _box(picture, 5)
    measures.append(_box(residual * detail, 9) / (_box(detail**2, 9) + 0.3))
    absolute = np.stack(measures, axis=1)
    inputs = np.concatenate([scores, absolute, absolute - absolute.mean(axis=0)], axis=1)
    hidden = np.einsum("ji,kiyx->kjyx", arrays["hidden.weight"][..., 0, 0], inputs)
    hidden = np.maximum(hidden + arrays["hidden_bias"][:, None, None], 0.0)
    correction = np.einsum("bj,kjyx->kbyx", arrays["correction"][..., 0, 0], hidden)
    return np.concatenate([scores[:, :1], scores[:, 1:] + correction], axis=1)


def slope(u: Array, strength: Array, inverse_width: Array) -> Array:
    """φ(u) = u Σ_j a_j / (1 + w_j u²), the slope of a sum of log penalties."""
    terms = zip(strength, inverse_width, strict=True)
    return np.asarray(u * sum(a / (1.0 + w * u**2) for a, w in terms))


def stage(
    x: Array,
    mixture: tuple[Array, Array, Array],
    log_unit: float,
    guides: Array,
    arrays: Arrays,
) -> Array:
    """One step x − Σ Ωᵀφ(Ωx) − β (x − y); the mixture is (y, fine, coarse) of `mix`."""
    picture, fine, coarse = mixture
    guides = guides.clip(-4.0, 4.0)
    left = np.stack([fine, coarse])
    tall = guides[0] + np.tensordot(arrays["strength_left"], left, 1)
    narrow = guides[1] - np.tensordot(arrays["width_left"], left, 1)
    f = arrays["fidelity"]
    fidelity = np.exp(f[0] + f[1] * log_unit + np.tensordot(f[2:], left, 1) + guides[2])
    pull = _pull(x, np.exp(tall), np.exp(narrow), log_unit, _named(arrays, "fine."))
    small = [halve(plane) for plane in (x, tall, narrow)]
    bank = _named(arrays, "coarse.")
    slow = upsample(_pull(small[0], np.exp(small[1]), np.exp(small[2]), log_unit, bank)[None])[0]
    pull = pull + slow[: x.shape[0], : x.shape[1]]
    return np.asarray(x - pull - fidelity * (x - picture))


def _pull(x: Array, tall: Array, narrow: Array, log_unit: float, bank: Arrays) -> Array:
    """Ωᵀφ(Ωx) of one bank of filters, borders mirrored."""
    filters = _mean_free(bank["filters"])
    reach = filters.shape[-1] // 2
    u = convolve(np.pad(x, 2 * reach, mode="reflect")[None], filters)
    tall, narrow = (np.pad(plane, reach, mode="reflect") for plane in (tall, narrow))
    strength = bank["strength"] * np.exp(bank["strength_noise"] * log_unit)
    inverse = np.exp(-2.0 * (bank["width"] + bank["width_noise"] * log_unit))
    bent = tall / narrow * slope(u * narrow, strength[..., None, None], inverse[..., None, None])
    # The adjoint of a correlation is one with the filters turned round, planes and filters swapped.
    return np.asarray(convolve(bent, filters[:, :, ::-1, ::-1].swapaxes(0, 1))[0])


def _part(arrays: Arrays, level: int) -> dict[str, Array]:
    """Arrays of one level of the weigher."""
    return _named(arrays, f"levels.{level}.")


def _named(arrays: Arrays, start: str) -> dict[str, Array]:
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def _pooled(frames: Sequence[Array]) -> Array:
    """Mean and largest of all frames' planes."""
    return np.concatenate([np.mean(frames, axis=0), np.max(frames, axis=0)])


def _shuffled(planes: Array) -> Array:
    """Four planes to one of twice the size, (4c, h, w) → (c, 2h, 2w)."""
    _, height, width = planes.shape
    apart = planes.reshape(-1, 2, 2, height, width).transpose(0, 3, 1, 4, 2)
    return apart.reshape(-1, 2 * height, 2 * width)


def _mean_free(filters: Array) -> Array:
    return np.asarray(filters - filters.mean((-2, -1), keepdims=True))


def _compress(squares: Array) -> Array:
    """Tame energies over many magnitudes, as a logarithm would."""
    return 2.0 * (1.0 + squares) ** 0.125 - 2.0


def _softmax(values: Array) -> Array:
    exponentials = np.exp(values - values.max(axis=0))
    return np.asarray(exponentials / exponentials.sum(axis=0))


def _edged(planes: Array) -> Array:
    """Repeat the outermost pixels once."""
    return np.pad(planes, ((0, 0), (1, 1), (1, 1)), mode="edge")


def _box(values: Array, side: int) -> Array:
    """Window means of the last two axes, borders mirrored."""
    widths = [(0, 0)] * (values.ndim - 2) + [(side // 2,) * 2] * 2
    padded = np.pad(values, widths, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(-2, -1))
    return np.asarray(windows.mean((-2, -1)))
