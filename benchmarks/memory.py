"""Memory and time of whole runs: files in, aligned, fused, one file out; each in its own process.

    python -m benchmarks.memory --cases 24x10,24x100,8GB,100x5 --sigma 0,10

A case is MEGAPIXELSxFRAMES with an optional ceiling (24x10@1GB); 8GB stands for eight gigabytes of
frames under a ceiling of one, as in 24x112@1GB. Frames are those of `benchmarks.stacks`, RGB, 8
bits, a few pixels out of place. The peak is that of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.measuring import processors, run_measured
from benchmarks.stacks import StackRecipe, make_stack
from cofuse.files import read_stack, write_image
from cofuse.fusion.presets import Work, plan_fusion
from cofuse.images.memory import format_size, parse_size


def run_case(frames: str, output: str, ceiling: int | None, sigma: float | None) -> None:
    """Do what the command line does, and print what it took; runs in a child process."""
    from cofuse import fuse
    from cofuse.alignment import align_stack, aligned

    stages: dict[str, str] = {}

    def done(stage: str, start: float) -> float:
        # Not getrusage: its figure is that of the parent where this was larger at the start.
        status = Path("/proc/self/status").read_text("ascii")
        peak = format_size(1024 * int(status.split("VmHWM:")[1].split()[0]))
        stages[stage] = f"{time.perf_counter() - start:.0f} s to {peak}"
        return time.perf_counter()

    start = time.perf_counter()
    stack = read_stack(frames)
    alignment = align_stack(stack)
    start = done("align", start)
    stack = aligned(stack, alignment)
    plan = plan_fusion(Work(stack.shape, stack.dtype, len(stack)), max_memory=ceiling)
    result = fuse(stack, sigma=sigma, max_memory=ceiling)
    start = done("fuse", start)
    write_image(output, result.image)
    done("write", start)
    stages |= {name: f"{seconds:.0f} s" for name, seconds in result.seconds.items()}
    print(json.dumps({"stages": stages, "plan": asdict(plan)}))


def main() -> None:
    """Make stacks, run the cases, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="24x10")
    parser.add_argument("--sigma", default="0,10", help="noise of the frames, told to the fusion")
    parser.add_argument("--estimate", action="store_true", help="let the noise be estimated")
    parser.add_argument("--scratch", type=Path, help="folder for the frames (default: temporary)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_case(*json.loads(options.child))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the frames go then as well
    print("| frames | noise | ceiling | peak | planned | processor | wall | stages |")
    print("|" + "---|" * 8)
    for case in options.cases.split(","):
        size, _, limit = ("24x112@1GB" if case == "8GB" else case).partition("@")
        megapixels, count = size.split("x")
        for sigma in map(float, options.sigma.split(",")):
            recipe = StackRecipe(float(megapixels), int(count), sigma=sigma, moved=True)
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                frames = make_stack(recipe, Path(folder).resolve() / "stack").frames[0].parent
                ceiling, told = parse_size(limit) if limit else None, sigma
                task = [str(frames), f"{folder}/fused.tif", ceiling]
                task.append(None if options.estimate else told)
                command = [sys.executable, "-m", "benchmarks.memory", "--child", json.dumps(task)]
                taken = run_measured(command, threads=len(processors()))
            facts = json.loads(taken.output.splitlines()[-1])
            words = [size, f"{sigma:g}", limit or "default", format_size(taken.peak)]
            words += [format_size(facts["plan"]["peak"]), f"{taken.cpu:.0f} s"]
            words += [f"{taken.wall:.0f} s"]
            words += [", ".join(f"{name} {text}" for name, text in facts["stages"].items())]
            print("|", " | ".join(words), "|", flush=True)


if __name__ == "__main__":
    main()
