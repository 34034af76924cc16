"""The kernels that are timed: what to run, the same in plain NumPy, and its operations.

Operations are counted from the shapes of the arrays: a multiplication, an addition, a division,
a comparison each count one, on the pixels of the result only; what is done twice or around the
borders counts once. Kernels that work more than they must so look slower, not faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.joint import BAND_WINDOWS, BANDS, GUIDES, load_model
from cofuse.joint_fusion import fuse_planes
from cofuse.kernels import cpu, joint_reference, joint_stages, reference
from cofuse.operators import load_operator

__all__ = ["KernelCase", "kernel_cases", "sgemm_case", "stage_operations", "weigher_operations"]

#: Operations of the slope of the penalty a coefficient, as `joint_stage_loops` writes it.
_SLOPE = 21
#: Frames that the weigher is timed with.
_FRAMES = 4

Floats = NDArray[np.float32]
Work = Callable[[], Any]


@dataclass(frozen=True)
class KernelCase:
    """A kernel: ``run`` compiled, ``plain`` the NumPy reference, and floating-point operations."""

    name: str
    run: Work
    plain: Work | None
    operations: float


def sgemm_case(side: int) -> KernelCase:
    """The product of two square float32 matrices: as fast as a processor computes, in practice."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((side, side), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return KernelCase(f"sgemm {side}", lambda: np.matmul(a, b, out=out), None, 2.0 * side**3)


def kernel_cases(side: int) -> Iterator[KernelCase]:
    """All kernels, on pictures of ``side`` × ``side`` pixels."""
    rng = np.random.default_rng(0)
    picture = rng.normal(110.0, 30.0, (side, side)).astype(np.float32)
    yield _stage(picture, rng)
    yield _weigher(side, rng)
    yield from _operators(picture, rng)


def _stage(picture: Floats, rng: np.random.Generator) -> KernelCase:
    """One whole stage of the joint model on one plane."""
    arrays = load_model().part("stages.0")
    x = picture / np.float32(15.0)
    side = len(x)
    fine, coarse = (rng.normal(-0.5, 0.1, x.shape).astype(np.float32) for _ in range(2))
    small = rng.normal(0.0, 0.3, (4 * GUIDES, side // 2, side // 2)).astype(np.float32)
    large = joint_reference._shuffled(small)
    mixture = joint_stages.Mixture(x[None], fine, coarse)
    return KernelCase(
        "fused stage",
        lambda: joint_stages.stage(x[None], mixture, [-0.3], small, arrays)[0],
        lambda: joint_reference.stage(x, (x, fine, coarse), -0.3, large, arrays),
        stage_operations(arrays) * x.size,
    )


def stage_operations(arrays: Mapping[str, NDArray[Any]]) -> float:
    """Operations of a stage a pixel: filters there and back, and the slope between."""
    total = 0.0
    for bank, share in (("fine", 1.0), ("coarse", 0.25)):
        count, _, rows, columns = arrays[f"{bank}.filters"].shape
        total += share * count * (2 * 2 * rows * columns + _SLOPE)
    return total


def _weigher(side: int, rng: np.random.Generator) -> KernelCase:
    """Scores of all frames, the choice and the mixture, as without noise."""
    model = load_model()
    frames = rng.normal(110.0, 30.0, (_FRAMES, side, side)).astype(np.float32)
    readers = [lambda rows, columns, own=own: own[rows, columns, None] for own in frames]
    noise = np.zeros((_FRAMES, 1))
    arrays, relative = model.part("weigher"), [1.0] * _FRAMES

    def plain() -> Any:
        scores, _ = joint_reference.weigh(frames, relative, 1.0, arrays)
        picture, *_ = joint_reference.mix(frames, scores, relative, BAND_WINDOWS)
        return joint_reference.choose(scores)[0], picture

    return KernelCase(
        f"weigher, {_FRAMES} frames",
        lambda: fuse_planes(model, readers, (side, side), noise, restore=False),
        plain,
        weigher_operations(arrays) * frames.size,
    )


def weigher_operations(arrays: Mapping[str, NDArray[Any]]) -> float:
    """Operations of the weigher's filters a pixel and frame, but for what is done once a stack.

    A level of features has a quarter of the pixels of the one before; the first, a quarter of the
    picture's. Of the filters that see a frame beside the mean of all, the frame's half counts.
    """

    def filters(name: str) -> float:
        return 2.0 * arrays[name].size

    total = filters("analysis") / 2 / 4 + filters("detail") / 2 + filters("rise.weight") / 4
    total += filters("place.weight") + filters("answer.weight")
    level = 0
    while f"levels.{level}.own.weight" in arrays:
        share = 0.25 ** (level + 1)
        for part, scale in (("own", 1.0), ("smooth", 1.0), ("descend", 1.0), ("ascend", 0.25)):
            name = f"levels.{level}.{part}.weight"
            total += share * scale * filters(name) if name in arrays else 0.0
        level += 1
    return total + 8.0 * BANDS  # the mixture: bands split by running sums, weights, sums


def _operators(picture: Floats, rng: np.random.Generator) -> Iterator[KernelCase]:
    """Kernels of the presets `fast` and `paper`."""
    full, separable, dct = (load_operator(name) for name in ("full-7", "separable-7", "dct-7"))
    side, n = len(picture), full.patch_size
    patches = float((side - n + 1) ** 2)
    rows, taps = full.rows.shape
    shape = rows, side - n + 1, side - n + 1
    dual, previous = (rng.normal(0.0, 1.0, shape).astype(np.float32) for _ in range(2))
    step = {"momentum": 0.5, "step": 0.01, "limit": 2.0}
    yield KernelCase(
        "dual step, full-7",
        lambda: cpu.dual_step(dual, previous, picture, full, **step),
        lambda: reference.dual_step(dual, previous, picture, full, **step),
        patches * rows * (4 * taps + 7),
    )
    yield KernelCase(
        "activity, full-7",
        lambda: cpu.activity(picture, full),
        lambda: reference.activity(picture, full),
        patches * rows * (2 * taps + 2),
    )
    assert separable.factors is not None, "it is separable"
    tall, wide = (len(factor) for factor in separable.factors)
    yield KernelCase(
        "activity, separable-7",
        lambda: cpu.activity(picture, separable),
        lambda: reference.activity(picture, separable),
        patches * (2 * n * tall + 2 * n * tall * wide + 2 * (tall * wide - 1)),
    )
    guide = cpu.hard_shrinkage(picture, dct, threshold=40.0)
    rows, taps = dct.rows.shape
    yield KernelCase(
        "hard shrinkage, dct-7",
        lambda: cpu.hard_shrinkage(picture, dct, threshold=40.0),
        lambda: reference.hard_shrinkage(picture, dct, threshold=40.0),
        patches * (rows * (4 * taps + 4) + taps),
    )
    yield KernelCase(
        "Wiener shrinkage, dct-7",
        lambda: cpu.wiener_shrinkage(picture, guide, dct, variance=225.0),
        lambda: reference.wiener_shrinkage(picture, guide, dct, variance=225.0),
        patches * (rows * (6 * taps + 8) + taps),
    )
