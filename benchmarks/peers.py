"""cofuse beside other programs on the same stacks: CPU time, wall time, memory, quality.

    python -m benchmarks.peers                       # all cases, as docs/performance.md has them
    python -m benchmarks.peers --quick               # small, about two minutes
    python -m benchmarks.peers --cases "stack3*" --megapixels 1 --frames 4 --repeats 1
    python -m benchmarks.peers --from results/peers.json --update-docs docs/performance.md

Every program reads the same files and writes one TIFF, each run in a process of its own on the same
processors; contenders take turns, so what else the machine does hits all alike. The rows "cofuse
auto" and "cofuse fast" are told the noise, and neither align (but where frames moved) nor mend hot
pixels, for the others do none of this.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import measuring
from benchmarks.contenders import Contender, contenders_for, peer_versions
from benchmarks.quality import score
from benchmarks.stacks import MadeStack, StackRecipe, make_stack

CASES = {
    "pair520": StackRecipe(0.27, 2, shape=(520, 520), grey=True, radius=12.0),
    "pair520-noisy": StackRecipe(0.27, 2, shape=(520, 520), grey=True, radius=12.0, sigma=15.0),
    "stack3": StackRecipe(3.1, 7),
    "stack3-moved": StackRecipe(3.1, 7, moved=True),
    "stack24": StackRecipe(24.0, 10),
    "stack24-moved": StackRecipe(24.0, 10, moved=True),
    "stack24-noisy": StackRecipe(24.0, 10, sigma=15.0),
}
#: What ``--quick`` makes of the larger cases.
QUICK = {"megapixels": 0.5, "frames": 4}


def chosen_cases(options: argparse.Namespace) -> dict[str, StackRecipe]:
    """Cases by the names or patterns asked for, with sizes overridden."""
    patterns = options.cases.split(",")
    chosen = {name: r for name, r in CASES.items() if any(fnmatch(name, p) for p in patterns)}
    if not chosen:
        raise SystemExit(f"no case {options.cases}; there are {', '.join(CASES)}")
    changes: dict[str, Any] = dict(QUICK) if options.quick else {}
    if options.quick:
        # With the sizes made equal, the larger stacks say nothing that the smaller do not.
        chosen = {name: r for name, r in chosen.items() if "24" not in name} or chosen
    changes |= {
        name: value for name in ("megapixels", "frames") if (value := getattr(options, name))
    }
    for name, recipe in chosen.items():
        mine = {} if recipe.shape and not options.megapixels else changes
        shape = None if options.megapixels else recipe.shape
        chosen[name] = replace(recipe, shape=shape, **mine)
    return chosen


def run_contender(
    contender: Contender, stack: MadeStack, scratch: Path, options: Any, *, scored: bool
) -> dict[str, Any]:
    """Run one contender once, and score what it wrote."""
    assert contender.commands is not None, "those that are not there are not run"
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        output = Path(folder) / "fused.tif"
        working = Path(folder) / "working"
        working.mkdir()
        taken: measuring.Measurement | None = None
        for command in contender.commands(stack, working, output, options.threads):
            part = measuring.run_measured(command, threads=options.threads, timeout=options.timeout)
            taken = part if taken is None else taken.then(part)
        assert taken is not None, "a contender has at least one command"
        if not output.exists():
            raise measuring.Failure("nothing was written")
        facts: dict[str, Any] = {"cpu": taken.cpu, "wall": taken.wall, "peak": taken.peak}
        facts["load"] = taken.load
        try:
            facts |= score(output, stack.truth, moved=stack.recipe.moved) if scored else {}
        except measuring.Failure as failure:  # its times count all the same
            facts["unscored"] = str(failure)
    return facts


def run_case(
    name: str, recipe: StackRecipe, options: argparse.Namespace, scratch: Path
) -> dict[str, Any]:
    """Make a stack and let all contenders take turns on it."""
    stack = make_stack(recipe, scratch / name)
    runs: list[dict[str, Any]] = []
    contenders = contenders_for(recipe, options.peers_python)
    if options.only:
        contenders = [c for c in contenders if any(part in c.name for part in options.only)]
    absent = {c.name: c.absent for c in contenders if c.commands is None}
    for repeat, contender in product(range(options.repeats), contenders):
        if contender.name in absent:
            continue
        try:
            # The same frames give the same picture: the first is scored.
            run = run_contender(contender, stack, scratch, options, scored=repeat == 0)
            runs.append({"contender": contender.name, "repeat": repeat} | run)
            said = f"{run['cpu']:.1f} CPU s"
        except measuring.Failure as failure:
            absent[contender.name] = f"failed ({str(failure).splitlines()[0][:60]})"
            said = str(failure)
        print(f"{name}: {contender.name}: {said}", file=sys.stderr, flush=True)
    shutil.rmtree(scratch / name)
    names = [contender.name for contender in contenders]
    return {"recipe": recipe.facts(), "contenders": names, "absent": absent, "runs": runs}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all cases."""
    facts = measuring.machine_facts()
    facts["versions"] |= peer_versions(options.peers_python)
    settings = {n: getattr(options, n) for n in ("repeats", "threads", "quick")}
    results = {"kind": "peers", "machine": facts, "settings": settings, "cases": {}}
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        scratch = Path(folder).resolve()
        for name, recipe in chosen_cases(options).items():
            results["cases"][name] = run_case(name, recipe, options, scratch)
            # What was measured stays, whatever comes next.
            measuring.write_results(options, results)
    return results


def tabulate(results: dict[str, Any]) -> measuring.Tables:
    """Make a table a case: medians, and cofuse's CPU time by each contender's."""
    return {f"peers-{n}": "\n\n".join(_table(n, c, results)) for n, c in results["cases"].items()}


def _table(name: str, case: dict[str, Any], results: dict[str, Any]) -> Iterator[str]:
    recipe, machine = case["recipe"], results["machine"]
    height, width = recipe["size"]
    colour = "grey" if recipe["grey"] else "RGB"
    words = [f"{recipe['frames']} frames of {width} × {height} {colour}, 8 bits"]
    words += [f"noise σ = {recipe['sigma']:g}" if recipe["sigma"] else "no noise"]
    words += ["moved, so all align" if recipe["moved"] else "in place, no need to align"]
    repeats, threads = (results["settings"][key] for key in ("repeats", "threads"))
    words += [f"{threads} processors ({machine['processor']})"]
    words += [f"median of {repeats} run{'s' * (repeats > 1)}, {machine['date']}"]
    if case["runs"]:
        words += [f"load average up to {max(run['load'] for run in case['runs']):.1f}"]
    words += ["a quick run at small size"] * results["settings"]["quick"]
    yield f"`{name}`: {'; '.join(words)}."
    rows = {}
    for run in case["runs"]:
        rows.setdefault(run["contender"], []).append(run)

    def middle(contender: str, what: str) -> float:
        """Median of the runs that have it."""
        found = [run[what] for run in rows[contender] if what in run]
        return median(found) if found else math.nan

    ours = [c for c in ("cofuse auto", "cofuse fast") if c in rows]
    head = ["", "CPU s", "wall s", "peak MB", "PSNR dB", "SSIM"]
    head += [f"CPU of `{c.split()[1]}` / this" for c in ours]
    body = []
    for contender in case["contenders"]:
        if contender not in rows or contender in case["absent"]:
            why = case["absent"].get(contender, "not run")
            body.append([contender, why, *([""] * (len(head) - 2))])
            continue
        cpu = middle(contender, "cpu")
        line = [contender, _seconds(cpu), _seconds(middle(contender, "wall"))]
        line.append(f"{middle(contender, 'peak') / 1e6:.0f}")
        for what, digits in (("psnr", 2), ("ssim", 4)):
            value = middle(contender, what)
            line.append("–" if math.isnan(value) else f"{value:.{digits}f}")
        line += [measuring.ratio(middle(us, "cpu"), cpu) for us in ours]
        body.append(line)
    yield measuring.markdown_table(head, body)


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, write JSON and tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="*", help="names or patterns, by commas")
    parser.add_argument("--only", nargs="+", help="contenders whose names hold one of these words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="processors for every contender")
    parser.add_argument("--megapixels", type=float, help="instead of the cases' own")
    parser.add_argument("--frames", type=int, help="instead of the cases' own")
    parser.add_argument("--quick", action="store_true", help="small sizes, about two minutes")
    parser.add_argument("--peers-python", help="the Python that has ShineStacker and OpenFocus")
    parser.add_argument("--scratch", type=Path, help="folder for the frames (default: temporary)")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one command")
    measuring.add_output_options(parser, "peers")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the frames go then as well
    measuring.deliver(options, measure, tabulate)


if __name__ == "__main__":
    main()
