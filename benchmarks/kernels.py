"""How fast the compiled kernels are: beside a matrix product, NumPy, and with a second thread.

    python -m benchmarks.kernels [--quick]
    python -m benchmarks.kernels --from results/kernels.json --update-docs docs/performance.md

Rates are on one processor, in CPU time, with NumPy's matrix product (`sgemm`, OpenBLAS with one
thread) timed right before each, so that their quotient does not depend on what else the machine
does. The reference in NumPy is timed on a smaller picture. The gain of a second thread is the
quotient of the shortest wall times, and means little on a busy machine.

Operations are counted from the shapes of the arrays: a multiplication, an addition, a division,
a comparison each count one, on the pixels of the result only; what is done twice or around the
borders counts once. Kernels that work more than they must so look slower, not faster.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import machine_facts, processors
from benchmarks.tables import Tables, add_output_options, deliver, markdown_table
from cofuse.operators import cpu, load_operator, reference

Floats = NDArray[np.float32]
Work = Callable[[], Any]

#: A timing is the mean of as many calls as fill this many seconds.
_LEAST_SECONDS = 0.1
#: Sides of the matrices; the fastest of them is what the kernels are compared with.
SGEMM_SIDES = (512, 1024, 2048)


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


def seconds_of(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Time one call, of several where one is short."""
    calls, start = 0, clock()
    while True:
        work()
        calls += 1
        if (spent := clock() - start) >= _LEAST_SECONDS:
            return spent / calls


def alternate(
    works: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Time several things by turns, after one uncounted call of each."""
    for work in works.values():
        work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            gc.collect()
            spent[name].append(seconds_of(work, clock))
    return spent


def measure_case(
    case: KernelCase, small: KernelCase, yardstick: KernelCase, threads: int, repeats: int
) -> dict[str, Any]:
    """One kernel beside the yardstick and, at a smaller size, beside NumPy; then in threads."""
    assert small.plain is not None, "every kernel has a reference"
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, processors(1))
        clock = time.process_time
        spent = alternate({"sgemm": yardstick.run, "kernel": case.run}, repeats, clock)
        beside = alternate({"plain": small.plain, "kernel": small.run}, max(repeats // 2, 3), clock)
        walls: dict[str, list[float]] = {"1": [], "many": []}
        for _ in range(repeats):
            for count, key in ((1, "1"), (threads, "many")):
                os.sched_setaffinity(0, everything)
                os.sched_setaffinity(0, processors(count))
                walls[key].append(seconds_of(case.run, time.perf_counter))
    finally:
        os.sched_setaffinity(0, everything)
    pairs = list(zip(spent["sgemm"], spent["kernel"], strict=True))
    scale = case.operations / yardstick.operations
    speed_ups = [p / k for p, k in zip(beside["plain"], beside["kernel"], strict=True)]
    return {
        "name": case.name,
        "operations": case.operations,
        "gflops": case.operations / median(spent["kernel"]) / 1e9,
        "sgemm_gflops": yardstick.operations / median(spent["sgemm"]) / 1e9,
        "share": median([scale * sgemm / kernel for sgemm, kernel in pairs]),
        "speed_up": median(speed_ups),
        # Other work can only make a wall time longer.
        "threads_gain": min(walls["1"]) / min(walls["many"]),
        "seconds": spent | {"plain": beside["plain"], "small": beside["kernel"], "walls": walls},
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all kernels."""
    facts = machine_facts()  # first of all: the load is that of others
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors(1))
    products = {}
    for side in SGEMM_SIDES:
        case = sgemm_case(side)
        spent = alternate({"sgemm": case.run}, options.repeats, time.process_time)["sgemm"]
        products[str(side)] = case.operations / median(spent) / 1e9
    os.sched_setaffinity(0, everything)
    yardstick = sgemm_case(int(max(products, key=lambda side: products[side])))
    cases = zip(kernel_cases(options.side), kernel_cases(options.plain_side), strict=True)
    found = [
        measure_case(case, small, yardstick, options.threads, options.repeats)
        for case, small in cases
        if not options.only or any(word in case.name for word in options.only)
    ]
    settings = {n: getattr(options, n) for n in ("side", "plain_side", "repeats", "threads")}
    return {
        "kind": "kernels",
        "machine": facts,
        "settings": settings,
        "sgemm": products,
        "kernels": found,
    }


def tabulate(results: dict[str, Any]) -> Tables:
    """One table of all kernels."""
    settings, machine = results["settings"], results["machine"]
    products = ", ".join(f"{rate:.0f} at {side}" for side, rate in results["sgemm"].items())
    text = f"One processor ({machine['processor']}), {machine['date']}; pictures of "
    text += f"{settings['side']} × {settings['side']} pixels, for the comparison with NumPy "
    text += f"{settings['plain_side']} × {settings['plain_side']}; median of "
    text += (
        f"{settings['repeats']}; load average {machine['load']:.1f}. sgemm in GFLOP/s: {products}."
    )
    threads = settings["threads"]
    head = ["kernel", "GFLOP/s", "share of sgemm", "times as fast as NumPy"]
    head += [f"{threads} threads over one"]
    body = [
        [
            kernel["name"],
            f"{kernel['gflops']:.1f}",
            f"{100 * kernel['share']:.0f} %",
            f"{kernel['speed_up']:.1f}",
            f"{kernel['threads_gain']:.2f}",
        ]
        for kernel in results["kernels"]
    ]
    return {"kernels": text + "\n\n" + markdown_table(head, body)}


def add_measuring_options(parser: argparse.ArgumentParser) -> None:
    """Add sizes and repeats."""
    parser.add_argument("--side", type=int, default=768, help="side of the pictures, even")
    parser.add_argument("--plain-side", type=int, default=256, help="side for NumPy, even")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", help="kernels whose names hold one of these words")


def check_threads() -> None:
    """Refuse to compare with a matrix product that runs in threads of its own."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        raise SystemExit("set OPENBLAS_NUM_THREADS=1 first: a rate is that of one processor")


def main(arguments: list[str] | None = None) -> None:
    """Measure, write JSON and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_measuring_options(parser)
    # Not for the guard: on small pictures the borders, which do not count, cost too much.
    parser.add_argument("--quick", action="store_true", help="smaller pictures")
    add_output_options(parser, "kernels")
    options = parser.parse_args(arguments)
    if options.quick:
        options.side = 384
    if not options.earlier:
        check_threads()
    deliver(options, lambda: measure(options), tabulate)


if __name__ == "__main__":
    main()
