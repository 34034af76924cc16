"""``cofuse demo``: the whole job on a stack made from the pictures that come with cofuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cofuse.cli.application import IntoFolder, Output, Printing, check_empty
from cofuse.cli.simulate import write_simulation
from cofuse.evaluation.metrics import psnr, ssim
from cofuse.evaluation.simulation import demo_simulation
from cofuse.files import read_stack, write_image
from cofuse.files.previews import side_by_side
from cofuse.files.transaction import Transaction
from cofuse.files.writing import index_picture
from cofuse.fusion import fuse


def demo(*, output: Output = Path("cofuse-demo"), overwrite: IntoFolder = False) -> None:
    """Simulate a noisy multi-focus stack, fuse it, and compare the result with the truth.

    Parameters
    ----------
    output
        The folder to write the stack, the results and a side-by-side picture to.
    """
    check_empty(output, overwrite=overwrite)
    simulation = demo_simulation()
    with Transaction(overwrite=overwrite) as transaction:
        stack = read_stack(write_simulation(simulation, output, transaction))
        with Printing().progress() as progress:
            result = fuse(stack, progress=progress)
        mean = stack.from_levels(np.mean([stack.to_levels(frame) for frame in stack], axis=0))
        pictures = {
            "one frame": stack[0],
            "mean of the frames": mean,
            "fused and restored": result.image,
            "truth": simulation.truth,
        }
        write_image(transaction.place(output / "fused.png"), result.image)
        assert result.source_map is not None
        index = index_picture(result.source_map, len(stack))
        write_image(transaction.place(output / "source-map.png"), index)
        write_image(transaction.place(output / "comparison.png"), side_by_side(pictures))
    best = max(range(len(stack)), key=lambda k: psnr(stack[k], simulation.truth))
    print(f"{len(stack)} frames of {stack.width}x{stack.height}, noise of sigma 15 added,")
    print(f"sigma estimated as {result.sigma:.1f} (8-bit grey levels)\n")
    print(f"{'':22}{'PSNR':>9}{'SSIM':>9}")
    rows = {"best single frame": stack[best], "mean of the frames": mean, "cofuse": result.image}
    for name, picture in rows.items():
        scores = psnr(picture, simulation.truth), ssim(picture, simulation.truth)
        print(f"{name:22}{scores[0]:6.2f} dB{scores[1]:9.4f}")
    print(f"\nlook at {output / 'comparison.png'}")
