"""``cofuse simulate`` and ``cofuse demo``: stacks with a known truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cofuse.cli.application import IntoFolder, Output, Printing, Quiet, Whole, check_empty
from cofuse.evaluation.metrics import psnr, ssim
from cofuse.evaluation.simulation import Simulation, demo_simulation, sample_picture, simulate_stack
from cofuse.files import read_image, read_stack, write_image
from cofuse.files.previews import side_by_side
from cofuse.files.transaction import Transaction
from cofuse.files.writing import index_picture
from cofuse.fusion import fuse


def simulate(
    picture: Path | None = None,
    *,
    output: Output,
    frames: Whole = 5,
    sigma: float = 0.0,
    max_radius: float = 6.0,
    foreground: Path | None = None,
    seed: Whole = 0,
    overwrite: IntoFolder = False,
    quiet: Quiet = False,
) -> None:
    """Make a multi-focus stack with real defocus spread, and its truth, from a sharp picture.

    Parameters
    ----------
    picture
        The sharp picture; without one, a picture that comes with cofuse.
    output
        The folder to write: stack/frame-01.png and so on, truth.png, true-source-map.png.
    frames
        Number of frames, 1 to 100.
    sigma
        White noise to add, in 8-bit grey levels, 0 to 128.
    max_radius
        Radius in pixels of the widest blur disc, at most half the picture's shorter side.
    foreground
        A picture to texture the objects in front with.
    seed
        Seed of the scene and the noise.
    """
    check_empty(output, overwrite=overwrite)
    sharp = sample_picture() if picture is None else read_image(picture)
    simulation = simulate_stack(
        sharp,
        frames=frames,
        sigma=sigma,
        max_radius=max_radius,
        foreground=None if foreground is None else read_image(foreground),
        seed=seed,
    )
    with Transaction(overwrite=overwrite) as transaction:
        write_simulation(simulation, output, transaction)
    if not quiet:
        print(f"{frames} frames with sigma {sigma:g}, truth and source map: {output}")


def write_simulation(simulation: Simulation, folder: Path, transaction: Transaction) -> list[Path]:
    """Write frames, truth and source map; return the frames where they are written.

    The frames have a folder to themselves, so that it can be fused as it is.
    """
    suffix = ".tif" if simulation.truth.dtype.kind == "f" else ".png"
    digits = max(2, len(str(len(simulation.frames))))
    frames = []
    for number, frame in enumerate(simulation.frames, start=1):
        path = folder / "stack" / f"frame-{number:0{digits}}{suffix}"
        frames.append(write_image(transaction.place(path), frame))
    write_image(transaction.place(folder / f"truth{suffix}"), simulation.truth)
    index = index_picture(simulation.source_map, len(simulation.frames))
    write_image(transaction.place(folder / "true-source-map.png"), index)
    return frames


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
