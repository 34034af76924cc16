"""How long the preset ``auto`` takes on a device, stage by stage, beside the processor.

    python -m benchmarks.gpu [--device cuda] [--megapixels 24] [--frames 10]
    python -m benchmarks.gpu --from results/gpu.json --update-docs docs/performance.md

Frames are in memory and σ is told, so that neither files nor the estimate of the noise count. Each
is run once before on a small part, so that loading does not count either. The processor uses all
its threads.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from benchmarks import measuring
from benchmarks.stacks import StackRecipe, make_stack
from cofuse import Fusion, Stack, fuse

SIGMA = 15.0
STAGES = ("fusion", "restoration")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fuse one stack on the processor and on the device; of several times the shortest counts."""
    recipe = StackRecipe(options.megapixels, options.frames, sigma=SIGMA)
    with tempfile.TemporaryDirectory() as folder:
        made = make_stack(recipe, Path(folder))
        frames = [tifffile.imread(path) for path in made.frames]
    fusions: dict[str, Fusion] = {}
    seconds: dict[str, dict[str, float]] = {}
    for device in ("cpu", options.device):
        _fused([frame[:96, :96] for frame in frames], device)
        runs = [_fused(frames, device) for _ in range(options.repeats)]
        fusions[device] = runs[0]
        seconds[device] = {stage: min(run.seconds[stage] for run in runs) for stage in STAGES}
    name = options.device
    if name == "cuda":
        import torch

        name = torch.cuda.get_device_name()
    ours, theirs = fusions["cpu"], fusions[options.device]
    apart = np.abs(ours.image.astype(float) - theirs.image)
    return {
        "kind": "gpu",
        "machine": measuring.machine_facts(),
        "device": name,
        "recipe": recipe.facts(),
        "seconds": {"cpu": seconds["cpu"], "device": seconds[options.device]},
        "largest": float(apart.max()),
        "rms": float(np.sqrt(np.mean(apart**2))),
        "same_choice": float(np.mean(ours.source_map == theirs.source_map)),
    }


def _fused(frames: list[Any], device: str) -> Fusion:
    return fuse(Stack.from_arrays(frames), sigma=SIGMA, device=device)


def tabulate(results: dict[str, Any]) -> measuring.Tables:
    """One table of the stages."""
    recipe, machine = results["recipe"], results["machine"]
    height, width = recipe["size"]
    text = f"{recipe['frames']} RGB frames of {width} × {height} pixels with noise of "
    text += f"σ = {recipe['sigma']:g}, {machine['date']}; {results['device']} beside "
    text += f"{machine['processors']} threads of {machine['processor']}. Pictures differ by "
    text += f"{results['rms']:.2f} grey levels (root of the mean square), by "
    text += f"{results['largest']:g} at most; {100 * results['same_choice']:.2f} % of the pixels "
    text += "have the same source."
    cpu, device = results["seconds"]["cpu"], results["seconds"]["device"]
    sums = [sum(times.values()) for times in (cpu, device)]
    rows = [(stage, cpu[stage], device[stage]) for stage in STAGES] + [("together", *sums)]
    head = ["stage", "processor, s", "device, s", "times as fast"]
    body = [[name, f"{a:.2f}", f"{b:.2f}", measuring.ratio(a, b)] for name, a, b in rows]
    return {"gpu": text + "\n\n" + measuring.markdown_table(head, body)}


def main(arguments: list[str] | None = None) -> None:
    """Measure, write JSON and a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--megapixels", type=float, default=24.0)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    measuring.add_output_options(parser, "gpu")
    options = parser.parse_args(arguments)
    measuring.deliver(options, measure, tabulate)


if __name__ == "__main__":
    main()
