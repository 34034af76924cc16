"""``cofuse simulate``: a stack with a known truth from one sharp picture."""

from __future__ import annotations

from pathlib import Path

from cofuse.cli.application import IntoFolder, Output, Quiet, Whole, check_empty
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.files.transaction import Transaction
from cofuse.files.writing import index_picture


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
