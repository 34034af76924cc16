"""Other people's methods, to be compared with: each takes a `Stack` and returns a `Fusion`.

`METHODS` lists them by name. Most have no model of noise; `resolve_method` joins them with a
denoiser: ``"bm3d+gff"`` denoises the frames and fuses them, ``"gff+nlm"`` fuses them and denoises
the result. Packages that only some methods need come with the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import copying, mixing
from cofuse.evaluation.baselines.denoising import DENOISERS, PlaneDenoiser, denoise_picture
from cofuse.evaluation.baselines.sr_ksvd import fuse_sr_ksvd
from cofuse.images import Fusion, Stack

__all__ = ["DENOISERS", "METHODS", "Method", "resolve_method", "told_noise"]

#: ``(stack, *, sigma=0.0, …) -> Fusion``
Method = Callable[..., Fusion]


def told_noise(
    fuse: Callable[..., Fusion],
    *,
    before: PlaneDenoiser | None = None,
    after: PlaneDenoiser | None = None,
) -> Method:
    """Give a method that knows nothing of noise the argument ``sigma``; the result records it.

    A denoiser ``before`` works on every frame, which is then fused as if it were clean. A denoiser
    ``after`` works on the result and is given ``sigma``, the noise of one frame. That is right
    where pixels are copied; methods that average leave less, methods that pick the largest detail
    more, neither of it white. Pictures are rounded to the type of the stack once, in the end.
    """

    def method(stack: Stack, *, sigma: float = 0.0, **settings: Any) -> Fusion:
        check_sigma(sigma)
        if sigma == 0 or not (before or after):
            return replace(fuse(stack, **settings), sigma=sigma)
        readers = [lambda k=k: stack.to_levels(stack[k]) for k in range(len(stack))]
        levels = Stack(readers, white=255.0, names=stack.names)
        if before:  # and keep all frames: a method may read one more than once
            frames = [denoise_picture(frame, sigma, before) for frame in levels]
            levels = Stack.from_arrays(frames, white=255.0, names=stack.names)
        fusion = fuse(levels, **settings)
        image = denoise_picture(fusion.image, sigma, after) if after else fusion.image
        return replace(fusion, image=stack.from_levels(image), sigma=sigma)

    return method


#: The methods by name; heavy packages are imported when a method first runs.
METHODS: dict[str, Method] = {
    "average": told_noise(mixing.fuse_average),
    "laplacian": told_noise(mixing.fuse_laplacian),
    "dwt": told_noise(mixing.fuse_dwt),
    "dct-variance": told_noise(copying.fuse_dct_variance),
    "gff": told_noise(mixing.fuse_guided_filter),
    "focus-measure": told_noise(copying.fuse_focus_measure),
    # The method has no model of noise; total variation is the usual remedy.
    "sf-dct": told_noise(copying.fuse_sf_dct, before=DENOISERS["tv"]),
    "sr-ksvd": fuse_sr_ksvd,
}


def resolve_method(name: str) -> Method:
    """Find a method by its name, ``"gff"``, or by a pair, ``"bm3d+gff"`` or ``"gff+nlm"``."""
    match name.split("+"):
        case [method] if method in METHODS:
            return METHODS[method]
        case [denoiser, method] if denoiser in DENOISERS and method in METHODS:
            return told_noise(METHODS[method], before=DENOISERS[denoiser])
        case [method, denoiser] if denoiser in DENOISERS and method in METHODS:
            return told_noise(METHODS[method], after=DENOISERS[denoiser])
    raise CofuseError(
        f"no method {name!r}; expected one of {', '.join(METHODS)}, or one of them with a denoiser "
        f"({', '.join(DENOISERS)}) before or after it, as in bm3d+gff or gff+bm3d"
    )
