"""`fuse`: from a stack to one sharp, clean picture.

The noise level σ is always in 8-bit grey levels (0-255 scale), whatever the depth of the frames.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cofuse.arguments import MOST_SIGMA, check, check_callback, check_number, check_sigma
from cofuse.errors import CofuseError
from cofuse.fusion.presets import (
    AutoSettings,
    FastSettings,
    FusionSettings,
    PaperSettings,
    Work,
    check_method,
    plan_fusion,
    preset_name,
    resolve_preset,
)
from cofuse.images import Fusion, Levels, Stack
from cofuse.model.runtime import resolve_device
from cofuse.operators import AnalysisOperator
from cofuse.operators.patches import patch_positions
from cofuse.progress import Preview, ProgressCallback, silent
from cofuse.sensor.law import NoiseLaw

if TYPE_CHECKING:
    from cofuse.fusion.mixing import Weigher

#: Thumbnails of fewer pixels say nothing about half a picture.
_FEWEST = 16
#: A frame shows another scene if over half of the picture it differs from the median of all by
#: more than this share of it and this many grey levels: exposures that are matched or flicker
#: differ by less, and so do the surroundings of blurred outlines.
_SHARE, _LEVELS = 0.25, 8.0


def fuse(
    frames: Stack | Sequence[ArrayLike],
    *,
    sigma: float | None = None,
    noise: NoiseLaw | None = None,
    denoise: float = 1.0,
    preset: str | FusionSettings = "auto",
    align: bool = False,
    operator: AnalysisOperator | str | Path | None = None,
    white: float | None = None,
    max_memory: int | None = None,
    device: str = "auto",
    progress: ProgressCallback = silent,
    preview: Preview | None = None,
) -> Fusion:
    """Fuse frames focused at different distances into one sharp picture, and remove their noise.

    Parameters
    ----------
    frames
        A `Stack`, or a sequence of arrays of one shape, (H, W) or (H, W, 3), and one dtype:
        uint8, uint16, float32 or float64. They are never written to. A single frame is restored,
        with a warning.
    sigma
        Standard deviation of the noise in 8-bit grey levels (0-255 scale) whatever the depth, up
        to 128; 0 for clean frames, None to estimate it and how it differs between frames, colours
        and frequencies and grows with brightness.
    noise
        All of that instead of ``sigma``, as `estimate_noise` finds it in these frames or in others
        of the same camera and sensitivity.
    denoise
        How much of the noise to take out: 1 all of it, 0 nothing, numbers between blend the two.
    preset
        ``"auto"``, ``"fast"``, ``"paper"``, or settings of your own.
    align
        Whether to bring the frames into place and to one brightness first (`align_stack`), and to
        cut off what not all of them cover; the result is then smaller than the frames, unless they
        lay right already.
    operator
        An operator (or its name or file) to use in place of that of ``fast`` or ``paper``; the
        model of ``auto`` has filters of its own.
    white
        The value of white when ``frames`` are arrays; see `Stack`.
    max_memory
        Most bytes of memory that this process should have: tiles are smaller where they must be,
        and what cannot fit is refused at once. Default: at most 60 % of what is free. Frames that
        are no arrays are kept in a temporary file. ``paper`` holds whole pictures in floats.
    device
        ``"cuda"`` or ``"mps"`` to run the trained networks there (needs the extra ``gpu``), not
        with ``paper``; ``"cpu"``, or ``"auto"`` for CUDA if there is any and it is worth its while.
    progress
        Called with a `Progress` now and then; may raise to cancel.
    preview
        Called with rows, columns and pixels of every part of the picture that is ready, not with
        ``paper``; where there is noise, before and after it is taken out.

    Returns
    -------
    Fusion
        Its ``image`` has the dtype and range of the frames, and their shape unless they were cut.

    Examples
    --------
    The left half is sharp in one frame, the right half in the other:

    >>> import numpy as np, cofuse
    >>> sharp = np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)
    >>> soft = np.full_like(sharp, 127)
    >>> left, right = sharp.copy(), sharp.copy()
    >>> left[:, 32:], right[:, :32] = soft[:, 32:], soft[:, :32]
    >>> result = cofuse.fuse([left, right], sigma=0)
    >>> result.image.shape, result.image.dtype, result.device
    ((64, 64), dtype('uint8'), 'cpu')
    >>> result.source_map[32, 8].item(), result.source_map[32, 56].item()
    (0, 1)
    """
    stack = Stack.of(frames, white=white)
    settings = resolve_preset(preset)
    law = _given_noise(stack, sigma, noise)
    if max_memory is not None:
        check_number("max_memory", max_memory, 1, unit="bytes")
    operator = check_method(settings, denoise=denoise, device=device, operator=operator)
    check("align", align, "True or False", lambda given: given in (True, False))
    check_callback("progress", progress)
    if preview is not None:
        check_callback("preview", preview)
    if len(stack) == 1:
        warnings.warn("one frame only: there is nothing to fuse, it is restored", stacklevel=2)
    pixels = len(stack) * stack.height * stack.width
    if align:
        from cofuse.alignment import align_stack, aligned

        stack = stack.read_once()
        stack = aligned(stack, align_stack(stack, progress=progress))
    work = Work(
        stack.shape,
        stack.dtype,
        len(stack),
        preset_name(settings),
        in_memory=stack.in_memory,
        restores=(law is None or law.overall > 0) and denoise > 0,
    )
    plan = plan_fusion(work, max_memory=max_memory, begun=stack.at_hand)
    if operator is not None:
        patch_positions(stack.shape, operator.patch_size, 1)  # refuses a picture below patch size
    # Frames are looked at several times: each is decoded and brought into place once.
    stack = stack.kept()
    if isinstance(settings, PaperSettings):
        from cofuse.fusion.paper import PaperRun

        assert operator is not None, "it has one"
        paper = PaperRun(stack=stack, settings=settings, progress=progress, operator=operator)
        return paper.fuse(law, denoise)
    from cofuse.fusion.mixing import MixingRun

    place = resolve_device(device, pixels=pixels)
    return MixingRun(
        stack=stack,
        taken=distinct_frames(stack),
        progress=progress,
        weigher=_weigher(settings, operator, place, plan.side),
        model=settings.model,
        device=place,
        preview=preview,
    ).fuse(law, denoise)


def _weigher(
    settings: AutoSettings | FastSettings, operator: AnalysisOperator | None, device: str, side: int
) -> Callable[[NoiseLaw], Weigher]:
    """What makes the weigher of a preset, once the noise is known."""
    if isinstance(settings, AutoSettings):
        from cofuse.model.runtime import WEIGHING, load_networks
        from cofuse.model.tiling import part_side
        from cofuse.model.weighing import ModelWeigher, noise_told

        networks = load_networks(settings.model, device, names=WEIGHING)
        return lambda law: ModelWeigher(networks, noise_told(law), side, part_side(side))
    from cofuse.fusion.fast import ActivityWeigher

    assert operator is not None, "it has one"
    return lambda law: ActivityWeigher(operator, settings.window, law)


def _given_noise(stack: Stack, sigma: float | None, noise: NoiseLaw | None) -> NoiseLaw | None:
    """Describe the noise of these frames as it was given; None where it is to be estimated."""
    if noise is None:
        if sigma is None:
            return None
        check_sigma(sigma)
        return NoiseLaw.white(sigma, frames=len(stack), colour=stack.is_colour)
    check("noise", noise, "a NoiseLaw", lambda given: isinstance(given, NoiseLaw))
    if sigma is not None:
        raise CofuseError(
            "`sigma` and `noise` were both given; expected one of them: a noise law has its level"
        )
    law = noise.for_stack(len(stack), colour=stack.is_colour)
    check_number("noise", law.overall, 0, MOST_SIGMA, unit="8-bit grey levels")
    return law


def distinct_frames(stack: Stack) -> list[int]:
    """Find the numbers of the frames that take part; those of other brightness are warned of.

    A copy tells nothing that its original does not, not even about the noise, which is the same.
    A frame of another brightness nearly everywhere shows another scene or none, as with a closed
    shutter or a flash that failed.
    """
    if len(stack) == 1:
        return [0]
    with stack.ahead(stack.thumbnail) as coming:
        thumbnails = list(coming)
    kept: list[int] = []
    # The reference comes first: of it and its copies it is the one that stays.
    for number in sorted(range(len(stack)), key=lambda number: number != stack.reference):
        alike = (k for k in kept if np.array_equal(thumbnails[number], thumbnails[k]))
        if not any(np.array_equal(stack[number], stack[k]) for k in alike):
            kept.append(number)
    kept.sort()
    others = _of_other_brightness([thumbnails[number] for number in kept])
    for place in others:
        warnings.warn(
            f"{stack.names[kept[place]]} differs from the other frames in brightness nearly "
            "everywhere; it is left out",
            stacklevel=2,
        )
    return [number for place, number in enumerate(kept) if place not in others]


def _of_other_brightness(thumbnails: Sequence[Levels]) -> list[int]:
    """Numbers of those unlike the median of all over half of the picture.

    Of two nobody knows which is the odd one, and of all, as in a row of exposures, none is.
    """
    if len(thumbnails) < 3 or thumbnails[0].size < _FEWEST:
        return []
    usual = np.median(thumbnails, axis=0)
    allowed = _SHARE * np.abs(usual) + _LEVELS
    odd = [float(np.median(np.abs(own - usual) / allowed)) > 1.0 for own in thumbnails]
    return [] if all(odd) else [number for number, is_odd in enumerate(odd) if is_odd]
