"""One job: read, mend, align, fuse, look for the depth, write. Or only align, or only the noise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofuse.alignment import Alignment
from cofuse.errors import CofuseError
from cofuse.files import (
    Metadata,
    check_destination,
    check_output,
    read_metadata,
    write_image,
    write_json,
    written_whole,
)
from cofuse.files.transaction import Transaction, clear_leftovers
from cofuse.fusion import fuse
from cofuse.fusion.presets import Work, estimate_seconds, plan_fusion, preset_name
from cofuse.images import Fusion, Stack
from cofuse.images.memory import format_size
from cofuse.images.pixels import white_of_type
from cofuse.jobs import outputs
from cofuse.jobs.frames import prepare_frames, read_frames, reference_index, stack_in_words, timed
from cofuse.jobs.options import Aligning, Reading, Request, check_options, noise_of
from cofuse.progress import Preview, ProgressCallback, shortage_told, silent
from cofuse.sensor import NoiseLaw, estimate_noise

if TYPE_CHECKING:
    from cofuse.depth import Depth


@dataclass(frozen=True)
class Outcome:
    """What a job did."""

    fusion: Fusion
    stack: Stack
    alignment: Alignment | None
    hot_pixels: int
    depth: Depth | None
    report: dict[str, Any] = field(repr=False)

    def summary(self) -> str:
        """Say in one line what was done."""
        alignment, fusion = self.alignment, self.fusion
        parts = [stack_in_words(self.stack)]
        if alignment is not None and not alignment.already_aligned:
            bent = " and bent to undo parallax" if alignment.parallax else ""
            parts.append(f"moved by up to {alignment.largest_displacement():.1f} pixels{bent}")
        if alignment is not None and alignment.brightness < 1:
            share = f"{100 * alignment.brightness:.0f} %"
            parts.append(f"darkened to {share} of the reference to keep highlights")
        if self.hot_pixels:
            parts.append(f"{self.hot_pixels} hot pixels mended")
        counts = self.report["sigma_counts"]
        parts.append(outputs.noise_in_words(fusion.sigma, counts, estimated=fusion.sigma_estimated))
        return ", ".join(parts)


class Job:
    """A request that was looked at: the headers of all frames are read and all outputs checked.

    Everything that can be refused before the work is refused here. The results appear together,
    when all of them are written. ``facts`` are what the report is to say besides.
    """

    def __init__(self, request: Request, *, facts: dict[str, Any] | None = None) -> None:
        self.request = request
        self._facts = facts or {}
        given = check_options(request)
        self.settings, self._max_memory = given.settings, given.max_memory
        if not request.aligning.align_only:
            # A wrong name is told before frames are looked for.
            check_output(request.output, overwrite=True)
        self.frames = read_frames(request.inputs, request.reading)
        stack = self.frames.stack
        outputs.check_maps(request.maps, len(stack))
        #: The noise as it was given; None where it is to be estimated.
        self.noise = noise_of(stack, given.noise)
        self.reference = reference_index(stack, request.aligning)
        for folder in (request.output, request.output.parent):  # the first if frames are aligned
            clear_leftovers(folder)
        outputs.check_outputs(request, self.frames)
        #: What is about to be done, in one line.
        self.plan = self._planned()
        stack[0]  # what is wrong with the first frame, and likely with all, is told at once

    @property
    def _noisy(self) -> bool:
        return self.noise is None or self.noise.overall > 0

    def _planned(self) -> str:
        """Say what is about to be done; refuses what takes more memory than there may be."""
        stack = self.frames.stack
        restores = self._noisy and self.request.fusing.denoise > 0
        preset = preset_name(self.settings)
        work = Work(stack.shape, stack.dtype, len(stack), preset, restores=restores)
        peak = plan_fusion(work, max_memory=self._max_memory).peak
        processors = os.cpu_count() or 1
        seconds = estimate_seconds(work, restore=self._noisy, processors=processors)
        white = ""
        if stack.white != white_of_type(stack.dtype):
            source = "found in them" if stack.white_is_found else "from the files"
            source = source if self.request.reading.white is None else "given"
            white = f" with white at {stack.white:g} ({source})"
        return (
            f"{stack_in_words(stack)}{white}: about {_rough_time(seconds)}, "
            f"up to {format_size(peak)} of memory"
        )

    @cached_property
    def metadata(self) -> Metadata:
        """What the reference frame says of itself."""
        source = self.frames.sources[self.reference]
        return read_metadata(source, raw_mode=self.request.reading.raw)

    def run(
        self,
        progress: ProgressCallback = silent,
        *,
        preview: Preview | None = None,
        on_aligned: Callable[[Stack, Alignment | None], None] | None = None,
    ) -> Outcome:
        """Do the work and write the results; ``progress`` and ``preview`` are as in `fuse`.

        ``on_aligned`` is called with the frames in their places, before they are fused, and with
        their alignment if there is one.
        """
        start = time.perf_counter()
        request, maps = self.request, self.request.maps
        overwrite = request.writing.overwrite
        with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
            picture = transaction.place(request.output)  # fails before the work, not after it
            found = prepare_frames(self.frames.stack, request.reading, request.aligning, progress)
            alignment, seconds = found.alignment, dict(found.seconds)
            with timed("reading", seconds):
                stack = found.stack.kept()
            outputs.check_maps(maps, len(stack))
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
            with timed("depth", seconds):
                places = [self.frames.taken[k] for k in kept]
                depth = self._depth(stack, places, fusion, progress)
            with timed("writing", seconds):
                alpha, opaque = outputs.fused_alpha(
                    request, self.frames, alignment, fusion.source_map
                )
                write_image(
                    picture,
                    fusion.image,
                    quality=request.writing.quality,
                    depth=request.writing.depth,
                    metadata=self.metadata,
                    alpha=alpha,
                    white=stack.white,
                    opaque=opaque,
                )
                outputs.write_transforms(request, alignment, transaction)
                outputs.write_maps(maps, fusion, stack, depth, self.metadata, transaction)
            seconds["total"] = time.perf_counter() - start
            report = outputs.fusion_report(fusion, stack, found, request, self.settings, seconds)
            report |= self._facts
            if maps.report is not None:
                write_json(transaction.place(maps.report), report)
            self.frames.check_unchanged()
        return Outcome(fusion, found.stack, alignment, found.hot_pixels, depth, report)

    def align_only(self, progress: ProgressCallback = silent) -> Alignment:
        """Write the aligned frames and do no more."""
        request, overwrite = self.request, self.request.writing.overwrite
        with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
            found = prepare_frames(self.frames.stack, request.reading, request.aligning, progress)
            alignment = found.alignment
            assert alignment is not None, "checked at the start"
            outputs.write_aligned(
                request, self.frames, found.stack, alignment, transaction, progress
            )
            outputs.write_transforms(request, alignment, transaction)
            self.frames.check_unchanged()
        return alignment

    def _depth(
        self, stack: Stack, places: Sequence[int], fusion: Fusion, progress: ProgressCallback
    ) -> Depth | None:
        """Find the depth if it is asked for; ``places`` are those of the frames in their files."""
        if not self.request.maps.needs_depth:
            return None
        from cofuse.depth import estimate_depth

        return estimate_depth(
            stack,
            source_map=fusion.source_map,
            source_confidence=fusion.confidence,
            picture=fusion.image,
            z_step=outputs.z_distance(self.request.maps, self.metadata, places),
            progress=progress,
        )


def _rough_time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    """Estimate the noise of frames as fusing would; returns it and the aligned frames.

    The law is written to ``output``, as JSON, and a plot of it to ``plot``, where these are given.
    """
    request = Request(tuple(inputs), Path(), reading, aligning)
    check_options(request)
    if plot is not None and plot.suffix.lower() != ".png":
        raise CofuseError(f"{plot} is no name of a plot; name it .png")
    frames = read_frames(inputs, reading)
    reference_index(frames.stack, aligning)
    outputs.check_distinct([path for path in (output, plot) if path], request, frames)
    if output is not None:
        check_destination(output, overwrite=overwrite)
    if plot is not None:
        check_output(plot, overwrite=overwrite)
    with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
        stack = prepare_frames(frames.stack, reading, aligning, progress).stack
        law = estimate_noise(stack.kept(), progress=progress)
        if output is not None:
            with written_whole(transaction.place(output), overwrite=False) as file:
                file.write(law.to_json().encode())
        if plot is not None:
            from cofuse.sensor.plot import plot_noise

            write_image(transaction.place(plot), plot_noise(law))
        frames.check_unchanged()
    return law, stack
