"""The noise of frames as a job: read, mend, align, estimate, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cofuse.errors import CofuseError
from cofuse.files import check_output, check_report, write_image, written_whole
from cofuse.files.transaction import Transaction
from cofuse.images import Stack
from cofuse.jobs.checking import check_options
from cofuse.jobs.frames import read_frames
from cofuse.jobs.options import Aligning, Reading, Request
from cofuse.jobs.outputs import check_distinct
from cofuse.jobs.placing import given_alignment, put_in_place, reference_index
from cofuse.jobs.shortage import shortage_told
from cofuse.progress import ProgressCallback, silent
from cofuse.sensor import NoiseLaw, estimate_noise

__all__ = ["NoiseFound", "NoiseJob"]


@dataclass(frozen=True)
class NoiseFound:
    """The law, and the frames, as they were aligned, that it is of."""

    law: NoiseLaw
    stack: Stack


class NoiseJob:
    """Frames whose noise is to be estimated as fusing would; all that can be refused early is.

    Parameters
    ----------
    inputs, reading, aligning
        The frames, as in a `Request`.
    output, plot
        Where to write the law, as JSON, and a plot of it, if anywhere.
    overwrite
        Whether files that exist may be replaced.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        reading: Reading,
        aligning: Aligning,
        *,
        output: Path | None = None,
        plot: Path | None = None,
        overwrite: bool = False,
    ) -> None:
        self.reading, self.aligning = reading, aligning
        self.output, self.plot, self.overwrite = output, plot, overwrite
        request = Request(tuple(inputs), Path(), reading, aligning)
        check_options(request)
        if plot is not None and plot.suffix.lower() != ".png":
            raise CofuseError(f"{plot} is no name of a plot; name it .png")
        self.frames = read_frames(inputs, reading)
        stack = self.frames.stack
        reference_index(aligning, len(stack))
        if aligning.transforms is not None:
            given_alignment(stack, aligning, aligning.transforms)
        check_distinct([path for path in (output, plot) if path], request, self.frames)
        if output is not None:
            check_report(output, overwrite=overwrite)
        if plot is not None:
            check_output(plot, overwrite=overwrite)

    def run(self, progress: ProgressCallback = silent) -> NoiseFound:
        """Estimate the noise and write what was asked for."""
        with (
            shortage_told(progress) as progress,
            Transaction(overwrite=self.overwrite) as transaction,
        ):
            stack, _, _ = put_in_place(self.frames.stack, self.reading, self.aligning, progress)
            with stack.kept() as kept:
                law = estimate_noise(kept, progress=progress)
            if self.output is not None:
                with written_whole(transaction.place(self.output), overwrite=False) as file:
                    file.write(law.to_json().encode())
            if self.plot is not None:
                from cofuse.sensor.plot import plot_noise

                write_image(transaction.place(self.plot), plot_noise(law))
            self.frames.check_unchanged()
        return NoiseFound(law, stack)
