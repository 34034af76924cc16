"""The noise of frames as a job: read, mend, align, estimate, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cofuse.errors import CofuseError
from cofuse.files import check_output, check_report, write_image, written_whole
from cofuse.files.transaction import Transaction
from cofuse.images import Stack
from cofuse.jobs.frames import read_frames
from cofuse.jobs.options import Aligning, Reading, Request
from cofuse.jobs.outputs import check_distinct
from cofuse.jobs.placing import given_alignment, put_in_place, reference_index
from cofuse.jobs.settings import check_options
from cofuse.progress import ProgressCallback, shortage_told, silent
from cofuse.sensor import NoiseLaw, estimate_noise

__all__ = ["noise_of_files"]


def noise_of_files(
    inputs: Sequence[str],
    reading: Reading,
    aligning: Aligning,
    *,
    output: Path | None = None,
    plot: Path | None = None,
    overwrite: bool = False,
    progress: ProgressCallback = silent,
) -> tuple[NoiseLaw, Stack]:
    """Estimate the noise of frames as fusing would; all that can be refused early is.

    Parameters
    ----------
    inputs, reading, aligning
        The frames, as in a `Request`.
    output, plot
        Where to write the law, as JSON, and a plot of it, if anywhere.
    overwrite
        Whether files that exist may be replaced.
    progress
        Called now and then; may raise to cancel.

    Returns
    -------
    law, stack
        The law, and the aligned frames that it is of.
    """
    request = Request(tuple(inputs), Path(), reading, aligning)
    check_options(request)
    if plot is not None and plot.suffix.lower() != ".png":
        raise CofuseError(f"{plot} is no name of a plot; name it .png")
    frames = read_frames(inputs, reading)
    reference_index(aligning, len(frames.stack))
    if aligning.transforms is not None:
        given_alignment(frames.stack, aligning, aligning.transforms)
    check_distinct([path for path in (output, plot) if path], request, frames)
    if output is not None:
        check_report(output, overwrite=overwrite)
    if plot is not None:
        check_output(plot, overwrite=overwrite)
    with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
        stack, _, _ = put_in_place(frames.stack, reading, aligning, progress)
        with stack.kept() as kept:
            law = estimate_noise(kept, progress=progress)
        if output is not None:
            with written_whole(transaction.place(output), overwrite=False) as file:
                file.write(law.to_json().encode())
        if plot is not None:
            from cofuse.sensor.plot import plot_noise

            write_image(transaction.place(plot), plot_noise(law))
        frames.check_unchanged()
    return law, stack
