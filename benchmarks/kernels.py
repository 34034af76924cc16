"""How fast the compiled kernels are: beside a matrix product, NumPy, and with a second thread.

    python -m benchmarks.kernels [--quick]
    python -m benchmarks.kernels --from results/kernels.json --update-docs docs/performance.md

Rates are on one processor, in CPU time, with NumPy's matrix product (`sgemm`, OpenBLAS with one
thread) timed right before each, so that their quotient does not depend on what else the machine
does. The reference in NumPy is timed on a smaller picture. The gain of a second thread is the
quotient of the shortest wall times, and means little on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.kernel_cases import KernelCase, kernel_cases, sgemm_case
from benchmarks.measuring import machine_facts, processors
from benchmarks.tables import Tables, add_output_options, deliver, markdown_table

#: A timing is the mean of as many calls as fill this many seconds.
_LEAST_SECONDS = 0.1
#: Sides of the matrices; the fastest of them is what the kernels are compared with.
SGEMM_SIDES = (512, 1024, 2048)


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
