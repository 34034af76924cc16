"""The kernels that are timed: what to run, the same in plain NumPy, and its operations.

Operations are counted from the shapes of the arrays: a multiplication, an addition, a division,
a comparison each count one, on the pixels of the result only; what is done twice or around the
borders counts once. Kernels that work more than they must so look slower, not faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.operators import cpu, load_operator, reference

__all__ = ["KernelCase", "kernel_cases", "sgemm_case"]

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
    """All kernels, those of the presets `fast` and `paper`, on ``side`` × ``side`` pixels."""
    rng = np.random.default_rng(0)
    picture = rng.normal(110.0, 30.0, (side, side)).astype(np.float32)
    full, separable, dct = (load_operator(name) for name in ("full-7", "separable-7", "dct-7"))
    n = full.patch_size
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
