"""Memory and time of whole runs: files in, aligned, fused, one file out; each in its own process.

    python benchmarks/memory.py --cases 24x10,24x100,8GB,100x5 --sigma 0,10

A case is MEGAPIXELSxFRAMES with an optional ceiling (24x10@1GB); 8GB stands for eight gigabytes of
frames under a ceiling of one, as in 24x112@1GB. Frames are RGB, 8 bits, made of noise at several
scales, each sharp in one band of rows and a few pixels out of place. Their files go again at the
end. Peak: the largest resident memory of the child and all its children together (Linux), as the
kernel counts it for the child alone and as samples show it for all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil

from cofuse.files import read_stack, write_image
from cofuse.fusion.memory import Work, plan_fusion
from cofuse.images.memory import format_size, parse_size


def make_frames(folder: Path, megapixels: float, count: int, sigma: float) -> list[Path]:
    """Write a synthetic stack as TIFF files."""
    width = round(math.sqrt(megapixels * 1e6 * 3 / 2))
    height = round(megapixels * 1e6 / width)
    rng = np.random.default_rng(0)
    scene = np.full((height + 16, width + 16, 3), 110.0, np.float32)
    for scale, contrast in ((1, 12.0), (4, 16.0), (32, 30.0)):
        shape = -(-(height + 16) // scale), -(-(width + 16) // scale), 3
        small = rng.standard_normal(shape, np.float32) * np.float32(contrast)
        large = cv2.resize(small, (shape[1] * scale, shape[0] * scale))
        scene += large[: height + 16, : width + 16]
    blurred = cv2.GaussianBlur(scene, (0, 0), 3.0)
    rows = np.arange(height)[:, None, None]
    # Noise repeats from frame to frame, shifted: making it anew takes longer than fusing.
    noise = rng.standard_normal(scene.shape, np.float32) * np.float32(sigma)
    paths = []
    for number in range(count):
        top, left = (int(n) for n in rng.integers(0, 6, 2))
        cut = slice(top, top + height), slice(left, left + width)
        sharp = np.abs(rows + 0.5 - (number + 0.5) * height / count) <= height / count
        frame = np.where(sharp, scene[cut], blurred[cut])
        if sigma:
            frame += np.roll(noise, 977 * number, axis=0)[:height, :width]
        paths.append(folder / f"frame-{number:03}.tif")
        write_image(paths[-1], np.rint(frame).clip(0, 255).astype(np.uint8))
    return paths


def run_case(frames: Path, output: Path, ceiling: int | None, sigma: float | None) -> None:
    """Do what the command line does, and print what it took; runs in a child process."""
    from cofuse import fuse
    from cofuse.alignment import align_stack, aligned

    seconds: dict[str, float] = {}
    peaks: dict[str, int] = {}

    def done(stage: str, start: float) -> None:
        seconds[stage] = time.perf_counter() - start
        # Not getrusage: its figure is that of the parent where this was larger at the start.
        status = Path("/proc/self/status").read_text("ascii")
        peaks[stage] = 1024 * int(status.split("VmHWM:")[1].split()[0])

    start = time.perf_counter()
    stack = read_stack(frames)
    alignment = align_stack(stack)
    done("align", start)
    start = time.perf_counter()
    stack = aligned(stack, alignment)
    work = Work(stack.shape, stack.dtype, len(stack))
    plan = plan_fusion(work, max_memory=ceiling)
    result = fuse(stack, sigma=sigma, max_memory=ceiling)
    done("fuse", start)
    start = time.perf_counter()
    write_image(output, result.image)
    done("write", start)
    facts = {"seconds": seconds | result.seconds, "peaks": peaks, "sigma": result.sigma}
    print(json.dumps(facts | {"plan": asdict(plan)}))


def measure(command: list[str]) -> tuple[dict[str, Any], int, float, float]:
    """Run a child; return what it printed, its peak, its processor time and wall time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        try:
            me = psutil.Process(child.pid)
            peak = max(peak, sum(p.memory_info().rss for p in (me, *me.children(recursive=True))))
        except psutil.Error:
            pass
        time.sleep(0.05)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise SystemExit(f"the child failed with {child.returncode}")
    facts = json.loads(output.splitlines()[-1])
    peak = max(peak, *facts["peaks"].values())
    return facts, peak, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    """Make stacks, run the cases, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="24x10")
    parser.add_argument("--sigma", default="0,10", help="noise of the frames, told to the fusion")
    parser.add_argument("--estimate", action="store_true", help="let the noise be estimated")
    parser.add_argument("--scratch", type=Path, help="folder for the frames (default: temporary)")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, output, ceiling, sigma = options.child
        run_case(
            Path(folder),
            Path(output),
            int(ceiling) or None,
            None if sigma == "None" else float(sigma),
        )
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the frames go then as well
    print("| frames | noise | ceiling | peak | planned | processor | wall | stages |")
    print("|" + "---|" * 8)
    for case in options.cases.split(","):
        size, _, limit = ("24x112@1GB" if case == "8GB" else case).partition("@")
        ceiling = parse_size(limit) if limit else 0
        megapixels, count = size.split("x")
        for sigma in map(float, options.sigma.split(",")):
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                frames = Path(folder) / "frames"
                frames.mkdir()
                make_frames(frames, float(megapixels), int(count), sigma)
                told = None if options.estimate else sigma
                child = [str(frames), f"{folder}/fused.tif", str(ceiling), str(told)]
                os.environ["OPENBLAS_NUM_THREADS"] = "1"
                facts, peak, cpu, wall = measure([sys.executable, __file__, "--child", *child])
            seconds: dict[str, float] = facts["seconds"]
            peaks: dict[str, int] = facts["peaks"]
            stages = [f"{name} {t:.0f} s" for name, t in seconds.items()]
            stages += [f"to {name} {format_size(most)}" for name, most in peaks.items()]
            plan: dict[str, int] = facts["plan"]
            stages += ["kept: " + " ".join(n[5:] for n, yes in plan.items() if yes is True)]
            words = size, f"{sigma:g}", limit or "default", format_size(peak)
            words += format_size(plan["peak"]), f"{cpu:.0f} s", f"{wall:.0f} s"
            print("|", " | ".join(words), "|", ", ".join(stages), "|", flush=True)


if __name__ == "__main__":
    main()
