"""Other people's methods, to be compared with: each takes a `Stack` and returns a `Fusion`.

`METHODS` holds them by name. They know little of noise; `resolve_method` joins them with a
denoiser: ``"bm3d+gff"`` denoises the frames and fuses them, ``"gff+nlm"`` fuses them and denoises
the result. What a plain installation lacks for some of them comes with the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.denoising import (
    DENOISERS,
    PlaneDenoiser,
    denoise_picture,
    denoise_tv,
)
from cofuse.evaluation.baselines.fusing import (
    fuse_average,
    fuse_dct_variance,
    fuse_dwt,
    fuse_focus_measure,
    fuse_guided_filter,
    fuse_laplacian,
    fuse_sf_dct,
)
from cofuse.evaluation.baselines.sr_ksvd import fuse_sr_ksvd
from cofuse.images import Fusion, Stack

__all__ = ["DENOISERS", "METHODS", "Method", "denoise_then", "resolve_method", "then_denoise"]

#: ``(stack, *, sigma=0.0, …) -> Fusion``
Method = Callable[..., Fusion]


def denoise_then(fuse: Callable[..., Fusion], denoiser: PlaneDenoiser) -> Method:
    """Make the method that denoises every frame and then fuses them as if they were clean.

    The denoised frames are float32 grey levels, rounded to the type of the stack only once, in
    the end. They are all kept, since a method may read a frame more than once.
    """

    def method(stack: Stack, *, sigma: float = 0.0, **settings: Any) -> Fusion:
        check_sigma(sigma)
        if sigma == 0:
            return fuse(stack, **settings)
        frames = [denoise_picture(stack.to_levels(frame), sigma, denoiser) for frame in stack]
        fusion = fuse(Stack.from_arrays(frames, white=255.0, names=stack.names), **settings)
        return replace(fusion, image=stack.from_levels(fusion.image), sigma=sigma)

    return method


def then_denoise(fuse: Callable[..., Fusion], denoiser: PlaneDenoiser) -> Method:
    """Make the method that fuses the noisy frames and denoises the result.

    The denoiser is given ``sigma``, the noise of one frame. That is right where pixels are copied;
    methods that average leave less, methods that pick the largest detail more, neither of it
    white.
    """

    def method(stack: Stack, *, sigma: float = 0.0, **settings: Any) -> Fusion:
        check_sigma(sigma)
        if sigma == 0:
            return fuse(stack, **settings)
        # In grey levels, so that the fused picture is not rounded before it is denoised.
        readers = [lambda k=k: stack.to_levels(stack[k]) for k in range(len(stack))]
        fusion = fuse(Stack(readers, white=255.0, names=stack.names), **settings)
        clean = denoise_picture(fusion.image, sigma, denoiser)
        return replace(fusion, image=stack.from_levels(clean), sigma=sigma)

    return method


def _noise_ignored(fuse: Callable[..., Fusion]) -> Method:
    """Let a method that has no use for the noise level be told it; the result records it."""

    def method(stack: Stack, *, sigma: float = 0.0, **settings: Any) -> Fusion:
        check_sigma(sigma)
        return replace(fuse(stack, **settings), sigma=sigma)

    return method


#: The methods by name; heavy packages are imported when a method first runs.
METHODS: dict[str, Method] = {
    "average": _noise_ignored(fuse_average),
    "laplacian": _noise_ignored(fuse_laplacian),
    "dwt": _noise_ignored(fuse_dwt),
    "dct-variance": _noise_ignored(fuse_dct_variance),
    "gff": _noise_ignored(fuse_guided_filter),
    "focus-measure": _noise_ignored(fuse_focus_measure),
    # The method has no model of noise; total variation is the usual remedy.
    "sf-dct": denoise_then(fuse_sf_dct, denoise_tv),
    "sr-ksvd": fuse_sr_ksvd,
}


def resolve_method(name: str) -> Method:
    """Find a method by its name, ``"gff"``, or by a pair, ``"bm3d+gff"`` or ``"gff+nlm"``."""
    match name.split("+"):
        case [method] if method in METHODS:
            return METHODS[method]
        case [denoiser, method] if denoiser in DENOISERS and method in METHODS:
            return denoise_then(METHODS[method], DENOISERS[denoiser])
        case [method, denoiser] if denoiser in DENOISERS and method in METHODS:
            return then_denoise(METHODS[method], DENOISERS[denoiser])
    raise CofuseError(
        f"no method {name!r}; expected one of {', '.join(METHODS)}, or one of them with a denoiser "
        f"({', '.join(DENOISERS)}) before or after it, as in bm3d+gff or gff+bm3d"
    )
