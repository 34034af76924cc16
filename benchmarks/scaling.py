"""How cost grows with megapixels, with the number of frames, and with noise.

    python -m benchmarks.scaling                      # up to 50 megapixels and 32 frames
    python -m benchmarks.scaling --quick              # small, about two minutes
    python -m benchmarks.scaling --from results/scaling.json --update-docs docs/performance.md

Every point is a process of its own that reads a stack from files and fuses it with the noise told:
the CPU time is that of `cofuse.fuse` alone, networks loaded, decoding of the frames
included; the memory is the process's peak. Exponents are slopes of log time over log size, fitted
after the time of a tiny stack has been taken off.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import measuring
from benchmarks.stacks import StackRecipe, make_stack

#: Sides of the question: what changes, over which values, and what stays.
AXES: dict[str, tuple[Sequence[float], dict[str, Any]]] = {
    "megapixels": ((1, 2, 6, 12, 24, 50), {"frames": 4, "sigma": 0}),
    "frames": ((2, 4, 8, 16, 32), {"megapixels": 6, "sigma": 0}),
    "sigma": ((0, 5, 15, 25), {"megapixels": 6, "frames": 4}),
}
QUICK: dict[str, tuple[Sequence[float], dict[str, Any]]] = {
    "megapixels": ((0.25, 0.5, 1, 2), {"frames": 3, "sigma": 0}),
    "frames": ((2, 4, 8), {"megapixels": 0.5, "sigma": 0}),
    "sigma": ((0, 5, 15, 25), {"megapixels": 0.25, "frames": 3}),
}
#: The stack whose cost counts as the constant part.
TINY = {"megapixels": 0.01, "frames": 2}

TITLES = {
    "megapixels": "megapixels of a frame",
    "frames": "number of frames",
    "sigma": "noise σ",
}


@dataclass(frozen=True)
class Fit:
    """A slope on logarithmic scales, and its standard error (None with two points)."""

    exponent: float
    error: float | None

    def __str__(self) -> str:
        return f"{self.exponent:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def fit_exponent(
    sizes: Sequence[float], costs: Sequence[float], constant: float = 0.0
) -> Fit | None:
    """Fit cost − constant ∝ size ^ exponent; None where fewer than two points lie above it."""
    points = [(n, c - constant) for n, c in zip(sizes, costs, strict=True) if c > constant]
    if len(points) < 2:
        return None
    x, y = np.log(np.array(points, np.float64)).T
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    if len(points) == 2:
        return Fit(slope, None)
    rest = y - y.mean() - slope * x
    return Fit(slope, float(np.sqrt(rest @ rest / (len(points) - 2) / (x @ x))))


def fuse_once(folder: str, preset: str, sigma: float) -> dict[str, Any]:
    """Fuse a stack and tell what it took; runs in a child."""
    from cofuse import fuse, read_stack

    frames = read_stack(folder)
    rng = np.random.default_rng(0)
    small = [rng.integers(0, 256, (300, 300, *frames.shape[2:])).astype(np.uint8) for _ in range(3)]
    fuse(small, sigma=sigma, preset=preset)  # loads the networks
    wall, cpu = time.perf_counter(), time.process_time()
    result = fuse(frames, sigma=sigma, preset=preset)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "seconds": result.seconds}


def measure_point(
    recipe: dict[str, Any], preset: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Make a stack, fuse it in a child, some times over."""
    stack_recipe = StackRecipe(**{"sigma": 0.0} | recipe)
    runs = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        stack = make_stack(stack_recipe, Path(folder).resolve() / "stack")
        task = json.dumps([str(stack.frames[0].parent), preset, stack_recipe.sigma])
        for _ in range(options.repeats):
            command = [sys.executable, "-m", "benchmarks.scaling", "--child", task]
            taken = measuring.run_measured(command, threads=options.threads)
            facts = json.loads(taken.output.splitlines()[-1])
            runs.append(facts | {"peak": taken.peak, "load": taken.load})
    middle = {what: median([run[what] for run in runs]) for what in ("cpu", "wall", "peak")}
    print(f"{preset} {recipe}: {middle['cpu']:.1f} CPU s", file=sys.stderr, flush=True)
    return {"recipe": stack_recipe.facts(), "preset": preset, "runs": runs} | middle


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all points; those that axes share are measured once."""
    axes = QUICK if options.quick else AXES
    axes = {name: axes[name] for name in options.axes.split(",")}
    facts = measuring.machine_facts()  # first of all: the load is that of others
    known: dict[str, dict[str, Any]] = {}

    def point(recipe: dict[str, Any], preset: str) -> dict[str, Any]:
        key = json.dumps([sorted(recipe.items()), preset])
        if key not in known:
            known[key] = measure_point(recipe, preset, options)
        return known[key]

    presets = options.presets.split(",")
    tiny = {preset: point(TINY | {"sigma": 0}, preset) for preset in presets}
    found = [
        {"axis": axis, "value": value, **point(fixed | {axis: value}, preset)}
        for preset, (axis, (values, fixed)) in itertools.product(presets, axes.items())
        for value in values
    ]
    settings = {n: getattr(options, n) for n in ("repeats", "threads", "quick")}
    fixed = {axis: stays for axis, (_, stays) in axes.items()}
    results = {"kind": "scaling", "machine": facts, "settings": settings, "fixed": fixed}
    return results | {"tiny": tiny, "points": found}


def tabulate(results: dict[str, Any]) -> measuring.Tables:
    """One table an axis, with the exponents under it."""
    tables = {}
    for axis, fixed in results["fixed"].items():
        points = [point for point in results["points"] if point["axis"] == axis]
        presets = list(dict.fromkeys(point["preset"] for point in points))
        lines = [[p for p in points if p["preset"] == preset] for preset in presets]
        head = [TITLES[axis]]
        for preset in presets:
            head += [f"`{preset}` CPU s", f"`{preset}` peak MB"]
        body = []
        for at_value in zip(*lines, strict=True):
            row = [f"{at_value[0]['value']:g}"]
            for point in at_value:
                row += [f"{point['cpu']:.2f}", f"{point['peak'] / 1e6:.0f}"]
            body.append(row)
        stays = ", ".join(f"{TITLES[name]} {value:g}" for name, value in fixed.items())
        text = f"Fixed: {stays}; {results['settings']['threads']} processors"
        machine = results["machine"]
        text += f" ({machine['processor']}), {machine['date']}, load average {machine['load']:.1f}"
        text += ", a quick run at small size" * results["settings"]["quick"]
        text += ".\n\n" + measuring.markdown_table(head, body)
        if axis != "sigma":
            fits = []
            for preset, line in zip(presets, lines, strict=True):
                values, costs = ([p[what] for p in line] for what in ("value", "cpu"))
                fit = fit_exponent(values, costs, results["tiny"][preset]["cpu"])
                fits.append(f"`{preset}` {fit}")
            text += f"\n\nExponent of the CPU time: {', '.join(fits)}."
        tables[f"scaling-{axis}"] = text
    return tables


def main(arguments: list[str] | None = None) -> None:
    """Measure, fit, write JSON and tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", default="megapixels,frames,sigma")
    parser.add_argument("--presets", default="auto,fast")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="processors to run on")
    parser.add_argument("--quick", action="store_true", help="small sizes, about two minutes")
    parser.add_argument("--scratch", type=Path, help="folder for the frames (default: temporary)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    measuring.add_output_options(parser, "scaling")
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(fuse_once(*json.loads(options.child))))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the frames go then as well
    measuring.deliver(options, measure, tabulate)


if __name__ == "__main__":
    main()
