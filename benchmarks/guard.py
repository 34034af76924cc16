"""Fails when a kernel has become slow: by quotients within one run, whatever the machine.

``python -m benchmarks.guard`` ends with 1 when a compiled kernel is less than so many times as fast
as the same in NumPy; the limits are about half of what was measured when they were set. A limit
that is missed is measured once more before it counts.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.kernels import add_measuring_options, check_threads, measure, tabulate

#: How many times as fast as NumPy, at least.
LEAST_SPEED_UP = {
    "dual step, full-7": 1.1,
    "activity, full-7": 1.6,
    "activity, separable-7": 4.0,
    "hard shrinkage, dct-7": 2.4,
    "Wiener shrinkage, dct-7": 1.6,
}


def complaints(kernels: list[dict[str, Any]]) -> dict[str, str]:
    """Say of every kernel below its limits what is wrong; a kernel without limits is wrong too."""
    found = {}
    for kernel in kernels:
        name = kernel["name"]
        if name not in LEAST_SPEED_UP:
            found[name] = f"{name} has no limit in benchmarks/guard.py"
        elif kernel["speed_up"] < LEAST_SPEED_UP[name]:
            found[name] = (
                f"{name} is {kernel['speed_up']:.1f} times as fast as NumPy, expected at least "
                f"{LEAST_SPEED_UP[name]:g}"
            )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_measuring_options(parser)
    options = parser.parse_args(arguments)
    check_threads()
    results = measure(options)
    print(tabulate(results)["kernels"])
    found = complaints(results["kernels"])
    if found:
        print("measured again:", ", ".join(found), flush=True)
        options.only = list(found)
        found = complaints(measure(options)["kernels"])
    for complaint in found.values():
        print("guard:", complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
