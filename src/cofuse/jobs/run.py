"""One job: read, mend, align, fuse, look for the depth, write. Or only align, or only the noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.alignment import Alignment
from cofuse.depth import estimate_depth
from cofuse.errors import CofuseError
from cofuse.files import check_format, write_json
from cofuse.files.transaction import Transaction, clear_leftovers
from cofuse.fusion import fuse
from cofuse.fusion.presets import Work, plan_fusion, preset_name
from cofuse.images import Stack
from cofuse.images.memory import format_size
from cofuse.images.pixels import white_of_type
from cofuse.jobs import outputs
from cofuse.jobs.frames import Frames, prepare_frames, read_frames, stack_in_words, timed
from cofuse.jobs.options import Request, check_options, noise_of, request_of
from cofuse.progress import Preview, Progress, ProgressCallback, shortage_told, silent
from cofuse.sensor import NoiseLaw, estimate_noise


class Job:
    """A request that was looked at: the headers of all frames are read and all outputs checked.

    Everything that can be refused before the work is refused here. The results appear together,
    when all of them are written. ``facts`` are added to the report.
    """

    def __init__(self, request: Request, *, facts: dict[str, Any] | None = None) -> None:
        self.request = request
        self._facts = facts or {}
        given = check_options(request)
        self.settings, self._max_memory = given.settings, given.max_memory
        if not request.aligning.align_only:
            # A wrong name is refused before frames are looked for.
            check_format(request.output)
        self.frames = read_frames(request)
        stack = self.frames.stack
        outputs.check_maps(request.maps, len(stack))
        #: The noise as it was given; None where it is to be estimated.
        self.noise = noise_of(stack, given.noise)
        for folder in (request.output, request.output.parent):  # the first if frames are aligned
            clear_leftovers(folder)
        self._outputs = outputs.outputs_of(self.frames)
        outputs.check_outputs(self._outputs, self.frames)
        #: What is about to be done, in one line.
        self.plan = self._planned()
        stack[0]  # a fault of the first frame, and likely of all, is found before the work

    def _planned(self) -> str:
        """Say what is about to be done; refuses work that takes more memory than allowed."""
        stack, noise = self.frames.stack, self.noise
        restores = (noise is None or noise.overall > 0) and self.request.fusing.denoise > 0
        preset = preset_name(self.settings)
        work = Work(stack.shape, stack.dtype, len(stack), preset, restores=restores)
        peak = plan_fusion(work, max_memory=self._max_memory).peak
        white = ""
        if stack.white != white_of_type(stack.dtype):
            source = "found in them" if stack.white_is_found else "from the files"
            source = source if self.request.reading.white is None else "given"
            white = f" with white at {stack.white:g} ({source})"
        return f"{stack_in_words(stack)}{white}: up to {format_size(peak)} of memory"

    def run(
        self,
        progress: ProgressCallback = silent,
        *,
        preview: Preview | None = None,
        on_aligned: Callable[[Stack, Alignment | None], None] | None = None,
    ) -> outputs.Outcome:
        """Do the work and write the results; ``progress`` and ``preview`` are as in `fuse`.

        ``on_aligned`` is called with the frames in their places, before they are fused, and with
        their alignment if there is one.
        """
        start, seconds = time.perf_counter(), dict[str, float]()
        request, frames = self.request, self.frames
        with _whole(frames, progress) as (progress, transaction):
            picture = transaction.place(request.output)  # fails before the work, not after it
            found = prepare_frames(frames, progress, seconds)
            alignment = found.alignment
            with timed("reading", seconds):
                stack = found.stack.kept()
            outputs.check_maps(request.maps, len(stack))
            if on_aligned is not None:
                on_aligned(stack, alignment)
            kept = range(len(stack)) if alignment is None else alignment.kept
            fusion = fuse(
                stack,
                noise=None if self.noise is None else self.noise.only(kept),
                denoise=request.fusing.denoise,
                preset=self.settings,
                operator=request.fusing.operator,
                max_memory=self._max_memory,
                device=request.fusing.device,
                progress=progress,
                preview=preview,
            )
            depth, z_step = None, request.maps.z_step
            with timed("depth", seconds):
                if request.maps.needs_depth:
                    depth = estimate_depth(
                        stack,
                        source_map=fusion.source_map,
                        source_confidence=fusion.confidence,
                        picture=fusion.image,
                        z_step=frames.distance(kept) if z_step is None else z_step,
                        progress=progress,
                    )
            outcome = outputs.Outcome(
                fusion=fusion,
                stack=found.stack,
                alignment=alignment,
                hot_pixels=found.hot_pixels,
                depth=depth,
                report={},
                frames=frames,
            )
            with timed("writing", seconds):
                count = 1 + len(self._outputs)
                progress(Progress("writing", 0, count))
                outputs.write_picture(picture, outcome)
                for done, output in enumerate(self._outputs, start=1):
                    progress(Progress("writing", done, count))
                    output.write(transaction, outcome)
            seconds["total"] = time.perf_counter() - start
            outcome.report.update(
                outputs.fusion_report(outcome, self.settings, seconds) | self._facts
            )
            if request.maps.report is not None:
                write_json(transaction.place(request.maps.report), outcome.report)
        return outcome

    def align_only(self, progress: ProgressCallback = silent) -> Alignment:
        """Write the aligned frames and do no more."""
        with _whole(self.frames, progress) as (progress, transaction):
            found = prepare_frames(self.frames, progress, {})
            outputs.write_aligned(self.frames, found, transaction, progress)
            for output in self._outputs:
                output.write(transaction, found)
        assert found.alignment is not None
        return found.alignment


def fuse_files(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    progress: ProgressCallback = silent,
    **options: Any,
) -> outputs.Outcome:
    """Fuse files of frames into a picture file, as ``cofuse fuse`` does with the same options.

    Parameters
    ----------
    inputs
        The frames in the order of their focus: a folder, a pattern such as ``"shots/*.tif"``, a
        multi-page TIFF, or several files.
    output
        The picture to write. Its ending names the format.
    progress
        Called with a `Progress` now and then; may raise to cancel.
    **options
        The options of ``cofuse fuse``, with underscores: ``align=False``,
        ``preset="fast"``, ``depth_map="depth.png"``, ``overwrite=True``. Defaults are the same.

    Returns
    -------
    Outcome
        ``fusion`` as `fuse` returns it, ``stack`` (the frames in their places, read again from
        their files when asked for), ``alignment``, ``hot_pixels``, ``depth`` if it was asked for,
        and the ``report`` that ``report=`` writes.
    """
    if "align_only" in options:
        raise CofuseError(
            "`align_only` writes no picture; align with cofuse.align_stack and cofuse.aligned"
        )
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    return Job(request_of(map(str, names), Path(output), **options)).run(progress)


@contextmanager
def _whole(
    frames: Frames, progress: ProgressCallback
) -> Iterator[tuple[ProgressCallback, Transaction]]:
    """Let all results appear together, if memory suffices and the frames stay as they were."""
    overwrite = frames.request.writing.overwrite
    with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
        yield progress, transaction
        frames.check_unchanged()


def noise_of_files(
    request: Request,
    *,
    output: Path | None = None,
    plot: Path | None = None,
    progress: ProgressCallback = silent,
) -> tuple[NoiseLaw, Stack]:
    """Estimate the noise of frames as fusing would; returns it and the aligned frames.

    The law is written to ``output``, as JSON, and a plot of it to ``plot``, where these are given.
    """
    check_options(request)
    from cofuse.sensor.plot import plot_noise

    rows = ((output, None, NoiseLaw.to_json), (plot, np.uint8, plot_noise))
    files = [outputs.Output(path, *how) for path, *how in rows if path is not None]
    frames = read_frames(request)
    outputs.check_outputs(files, frames)
    with _whole(frames, progress) as (progress, transaction):
        stack = prepare_frames(frames, progress, {}).stack
        law = estimate_noise(stack.kept(), progress=progress)
        for file in files:
            file.write(transaction, law)
    return law, stack
