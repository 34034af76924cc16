"""Other people's methods, to be compared with: each takes a `Stack` and returns a `Fusion`.

`METHODS` holds them by name. They know little of noise; `resolve_method` joins them with a
denoiser: ``"bm3d+gff"`` denoises the frames and fuses them, ``"gff+nlm"`` fuses them and denoises
the result.
"""

from __future__ import annotations

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.blending import (
    fuse_average,
    fuse_dwt,
    fuse_guided_filter,
    fuse_laplacian,
)
from cofuse.evaluation.baselines.copying import (
    fuse_dct_variance,
    fuse_focus_measure,
    fuse_sf_dct,
    fuse_single_best,
)
from cofuse.evaluation.baselines.denoising import DENOISERS, Method, denoise_then, then_denoise
from cofuse.evaluation.baselines.sr_ksvd import fuse_sr_ksvd

__all__ = ["DENOISERS", "METHODS", "Method", "denoise_then", "resolve_method", "then_denoise"]

#: The methods by name; heavy packages are imported when a method first runs.
METHODS: dict[str, Method] = {
    "average": fuse_average,
    "single-best": fuse_single_best,
    "laplacian": fuse_laplacian,
    "dwt": fuse_dwt,
    "dct-variance": fuse_dct_variance,
    "gff": fuse_guided_filter,
    "focus-measure": fuse_focus_measure,
    "sf-dct": fuse_sf_dct,
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
