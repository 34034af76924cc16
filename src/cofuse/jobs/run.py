"""One job: read, mend, align, fuse, look for the depth, write."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofuse.alignment import Alignment
from cofuse.errors import CofuseError
from cofuse.files import Metadata, plain, write_json
from cofuse.files.transaction import Transaction, clear_leftovers
from cofuse.files.writing import check_output
from cofuse.fusion import fuse
from cofuse.fusion.memory import Work, estimate_seconds, plan_fusion
from cofuse.fusion.presets import preset_name
from cofuse.images import Fusion, Pixels, Stack
from cofuse.images.memory import format_size, parse_size
from cofuse.jobs.aligned_frames import check_folder, write_aligned
from cofuse.jobs.frames import (
    Frames,
    alpha_of,
    chosen_alpha,
    in_words,
    read_frames,
    reference_metadata,
)
from cofuse.jobs.options import Request
from cofuse.jobs.outputs import (
    check_maps,
    check_outputs,
    noise_in_words,
    write_depth,
    write_picture,
    write_source_map,
    z_distance,
)
from cofuse.jobs.placing import (
    alignment_facts,
    given_alignment,
    put_in_place,
    reference_index,
    save_transforms,
)
from cofuse.jobs.report import fusion_report
from cofuse.jobs.settings import check_options, check_size, chosen_settings, given_noise
from cofuse.progress import Preview, ProgressCallback, shortage_told, silent

if TYPE_CHECKING:
    from cofuse.depth import Depth

__all__ = ["Job", "Outcome", "Plan"]


@dataclass(frozen=True)
class Plan:
    """What a job is about to do.

    Attributes
    ----------
    frames, width, height, kind
        Number and size of the frames; their kind in words.
    memory
        Bytes of memory it expects to take at most.
    seconds
        Rough guess of the time it will take.
    """

    frames: int
    width: int
    height: int
    kind: str
    memory: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.frames} frame{'s' * (self.frames != 1)} of {self.width}x{self.height} "
            f"{self.kind}: about {_words(self.seconds)}, up to {format_size(self.memory)} of memory"
        )


@dataclass(frozen=True)
class Outcome:
    """What a job did."""

    fusion: Fusion
    stack: Stack
    alignment: Alignment | None
    hot_pixels: int
    depth: Depth | None
    report: dict[str, Any] = field(repr=False)

    def summary(self, seconds: float, output: Path) -> str:
        """One line for people."""
        stack, alignment = self.stack, self.alignment
        kind = f"{'RGB' if stack.is_colour else 'grey'} {stack.dtype}"
        parts = [
            f"{len(stack)} frame{'s' * (len(stack) > 1)} of {stack.width}x{stack.height} {kind}"
        ]
        if alignment is not None and not alignment.already_aligned:
            bent = " and bent to undo parallax" if alignment.parallax else ""
            parts.append(f"moved by up to {alignment.largest_displacement():.1f} pixels{bent}")
        if alignment is not None and alignment.brightness < 1:
            share = f"{100 * alignment.brightness:.0f} %"
            parts.append(f"darkened to {share} of the reference to keep highlights")
        if self.hot_pixels:
            parts.append(f"{self.hot_pixels} hot pixels mended")
        noise = noise_in_words(
            self.fusion.sigma,
            self.report["sigma_counts"],
            estimated=self.fusion.sigma_estimated,
        )
        parts += [noise, f"{seconds:.1f} s: {output}"]
        return ", ".join(parts)


class Job:
    """A request that was looked at: the headers of all frames are read and all outputs checked.

    Everything that can be refused before the work is refused here. The results appear together,
    when all of them are written.

    Parameters
    ----------
    request
        What is asked for.
    facts
        What the report is to say besides.
    """

    def __init__(self, request: Request, *, facts: dict[str, Any] | None = None) -> None:
        self.request = request
        self._facts = facts or {}
        check_options(request)
        self.settings = chosen_settings(request.fusing)
        given = request.fusing.max_memory
        #: Most bytes that the job may have, if somebody named them.
        self.ceiling = None if given is None else parse_size(given)
        aligning, fusing = request.aligning, request.fusing
        if not aligning.align_only:
            # A wrong name is told before frames are looked for.
            check_output(request.output, overwrite=True)
        self.frames: Frames = read_frames(request.inputs, request.reading)
        stack = self.frames.stack
        check_maps(request.maps, len(stack))
        #: The noise as it was given; None where it is to be estimated.
        self.noise = given_noise(fusing.sigma, fusing.noise, len(stack), colour=stack.is_colour)
        check_size(self.settings, fusing, self.noise, stack.shape)
        self.reference = reference_index(aligning, len(stack))
        if aligning.transforms is not None:
            self.reference = given_alignment(stack, aligning, aligning.transforms).reference
        for folder in (request.output, request.output.parent):  # the first if frames are aligned
            clear_leftovers(folder)
        if aligning.align_only:
            check_folder(self)
        else:
            check_outputs(request, self.frames)
        self.plan: Plan = self._planned()
        stack[0]  # what is wrong with the first frame, and likely with all, is told at once
        #: Wall time of what is done beside fusing.
        self.seconds: dict[str, float] = {}

    def _planned(self) -> Plan:
        """Say what is about to be done; refuses what takes more memory than there may be."""
        stack = self.frames.stack
        work = self._work(stack)
        processors = os.cpu_count() or 1
        peak = plan_fusion(work, max_memory=self.ceiling).peak  # refuses before frames are read
        return Plan(
            len(stack),
            stack.width,
            stack.height,
            in_words(stack, given=self.request.reading.white is not None),
            peak,
            estimate_seconds(work, restore=self._noisy, processors=processors),
        )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[what] = time.perf_counter() - start

    @property
    def _noisy(self) -> bool:
        return self.noise is None or self.noise.overall > 0

    def _work(self, stack: Stack) -> Work:
        restores = self._noisy and self.request.fusing.denoise > 0
        return Work(
            stack.shape, stack.dtype, len(stack), preset_name(self.settings), restores=restores
        )

    def run(
        self, progress: ProgressCallback = silent, *, preview: Preview | None = None
    ) -> Outcome:
        """Do the work and write the results; ``preview`` as in `fuse`."""
        start = time.perf_counter()
        request = self.request
        overwrite = request.writing.overwrite
        with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
            picture = transaction.place(request.output)  # fails before the work, not after it
            with self.prepared(progress) as (stack, alignment, hot):
                check_maps(request.maps, len(stack))
                if self.noise is not None and alignment is not None:
                    self.noise = self.noise.only(alignment.kept)
                fusion = self._fuse(stack, progress, preview)
                with self._timed("depth"):
                    depth = self._depth(stack, fusion, alignment, progress)
            with self._timed("writing"):
                self._write(picture, stack, fusion, alignment, depth, transaction)
            facts = self._report(fusion, stack, alignment, hot)
            facts["seconds"] |= self.seconds | {"total": time.perf_counter() - start}
            if request.maps.report is not None:
                write_json(transaction.place(request.maps.report), facts)
            self.frames.check_unchanged()
        # The frames that were kept are gone: those of the outcome are read again if asked for.
        return Outcome(fusion, self._placed, alignment, hot, depth, facts)

    def _report(
        self, fusion: Fusion, stack: Stack, alignment: Alignment | None, hot: int
    ) -> dict[str, Any]:
        """What there is to tell, but for the time."""
        request, fusing = self.request, self.request.fusing
        used = dataclasses.asdict(self.settings) | {
            "preset": fusing.preset,
            "align": request.aligning.align,
            "denoise": fusing.denoise,
        }
        if fusing.operator:
            used["operator"] = fusing.operator
        facts = fusion_report(fusion, stack, used, str(request.output))
        facts["options"] = dataclasses.asdict(request)
        del facts["options"]["output"]
        facts["hot_pixels"] = hot
        facts["alignment"] = None if alignment is None else alignment_facts(alignment)
        return plain(facts | self._facts)

    def align_only(self, progress: ProgressCallback = silent) -> Alignment:
        """Write the aligned frames and do no more."""
        overwrite = self.request.writing.overwrite
        with shortage_told(progress) as progress, Transaction(overwrite=overwrite) as transaction:
            stack, alignment, _ = self._in_place(progress)
            assert alignment is not None, "checked at the start"
            write_aligned(self, stack, alignment, transaction, progress)
            self._save_transforms(alignment, transaction)
            self.frames.check_unchanged()
        return alignment

    @contextmanager
    def prepared(self, progress: ProgressCallback) -> Iterator[tuple[Stack, Alignment | None, int]]:
        """Mend and align the frames, and keep them at hand."""
        self._placed, alignment, hot = self._in_place(progress)
        with ExitStack() as shelf:
            with self._timed("reading"):
                kept = shelf.enter_context(self._placed.kept())
            yield kept, alignment, hot

    def _in_place(self, progress: ProgressCallback) -> tuple[Stack, Alignment | None, int]:
        request, stack = self.request, self.frames.stack
        return put_in_place(stack, request.reading, request.aligning, progress, self._timed)

    def _fuse(self, stack: Stack, progress: ProgressCallback, preview: Preview | None) -> Fusion:
        fusing = self.request.fusing
        return fuse(
            stack,
            noise=self.noise,
            denoise=fusing.denoise,
            preset=self.settings,
            operator=fusing.operator,
            max_memory=self.ceiling,
            device=fusing.device,
            progress=progress,
            preview=preview,
        )

    @cached_property
    def metadata(self) -> Metadata:
        """What the reference frame says of itself."""
        return reference_metadata(self.frames, self.reference, self.request.reading)

    def _save_transforms(self, alignment: Alignment | None, transaction: Transaction) -> None:
        path = self.request.aligning.save_transforms
        if path is not None and alignment is not None:
            save_transforms(transaction.place(path), alignment)

    def _depth(
        self,
        stack: Stack,
        fusion: Fusion,
        alignment: Alignment | None,
        progress: ProgressCallback,
    ) -> Depth | None:
        maps = self.request.maps
        if not maps.needs_depth:
            return None
        from cofuse.depth import estimate_depth

        kept = range(len(stack)) if alignment is None else alignment.kept
        places = [self.frames.taken[k] for k in kept]
        return estimate_depth(
            stack,
            source_map=fusion.source_map,
            source_confidence=fusion.confidence,
            picture=fusion.image,
            z_step=z_distance(maps, self.metadata, places),
            progress=progress,
        )

    def _alpha(
        self, fusion: Fusion, alignment: Alignment | None
    ) -> tuple[Pixels | None, float | None]:
        """How opaque the picture is, if any frame is not so everywhere, and what hides all."""
        alphas = alpha_of(self.frames, alignment, crop=self.request.aligning.crop)
        if alphas is None or fusion.source_map is None:
            return None, None
        try:
            check_output(self.request.output, overwrite=True, alpha=True)
        except CofuseError as error:
            warnings.warn(f"transparency is left out: {error}", stacklevel=3)
            return None, None
        return chosen_alpha(alphas, fusion.source_map), alphas.white

    def _write(
        self,
        picture: Path,
        stack: Stack,
        fusion: Fusion,
        alignment: Alignment | None,
        depth: Depth | None,
        transaction: Transaction,
    ) -> None:
        maps = self.request.maps
        alpha, opaque = self._alpha(fusion, alignment)
        write_picture(
            picture,
            fusion.image,
            self.request.writing,
            metadata=self.metadata,
            alpha=alpha,
            white=stack.white,
            opaque=opaque,
        )
        self._save_transforms(alignment, transaction)
        if maps.source_map is not None and fusion.source_map is not None:
            write_source_map(maps.source_map, fusion.source_map, stack, transaction)
        if depth is not None:
            write_depth(depth, fusion.image, stack, maps, self.metadata, transaction)


def _words(seconds: float) -> str:
    """A rough time in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
