"""``cofuse simulate``: a stack with a known truth from one sharp picture."""

from __future__ import annotations

from pathlib import Path

from cofuse.cli.console import Flag, Output, Whole, empty_folder
from cofuse.simulation import Simulation, sample_picture, simulate_stack

__all__ = ["simulate", "write_simulation"]


def simulate(
    picture: Path | None = None,
    *,
    output: Output,
    frames: Whole = 5,
    sigma: float = 0.0,
    max_radius: float = 6.0,
    foreground: Path | None = None,
    seed: Whole = 0,
    overwrite: Flag = False,
    quiet: Flag = False,
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
    overwrite
        Write into a folder that is not empty.
    quiet
        No summary.
    """
    from cofuse.files import read_image

    sharp = sample_picture() if picture is None else read_image(picture)
    simulation = simulate_stack(
        sharp,
        frames=frames,
        sigma=sigma,
        max_radius=max_radius,
        foreground=None if foreground is None else read_image(foreground),
        seed=seed,
    )
    write_simulation(simulation, empty_folder(output, overwrite=overwrite), overwrite=overwrite)
    if not quiet:
        print(f"{frames} frames with sigma {sigma:g}, truth and source map: {output}")


def write_simulation(simulation: Simulation, folder: Path, *, overwrite: bool) -> Path:
    """Write frames, truth and source map; return the folder of the frames.

    The frames have a folder to themselves, so that it can be fused as it is.
    """
    from cofuse.files import write_image
    from cofuse.files.previews import index_picture

    suffix = ".tif" if simulation.truth.dtype.kind == "f" else ".png"
    digits = max(2, len(str(len(simulation.frames))))
    stack = empty_folder(folder / "stack", overwrite=overwrite)
    for number, frame in enumerate(simulation.frames, start=1):
        write_image(stack / f"frame-{number:0{digits}}{suffix}", frame, overwrite=overwrite)
    write_image(folder / f"truth{suffix}", simulation.truth, overwrite=overwrite)
    index = index_picture(simulation.source_map, len(simulation.frames))
    write_image(folder / "true-source-map.png", index, overwrite=overwrite)
    return stack
