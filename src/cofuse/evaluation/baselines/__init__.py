"""Other people's methods, to be compared with: each takes a `Stack` and returns a `Fusion`.

`METHODS` holds them by name. They know little of noise; `denoise_then` and `then_denoise` put a
denoiser before or after one, and `resolve_method` reads such pairs from names: ``"bm3d+gff"``
denoises the frames and fuses them, ``"gff+nlm"`` fuses them and denoises the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from cofuse.arguments import check_sigma
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines.denoising import DENOISERS, PlaneDenoiser, denoise_picture
from cofuse.images import Fusion, Stack

__all__ = ["DENOISERS", "METHODS", "Method", "denoise_then", "resolve_method", "then_denoise"]

#: ``(stack, *, sigma=0.0, …) -> Fusion``
Method = Callable[..., Fusion]


class _Methods(Mapping[str, Method]):
    """The methods by name; a method's module is imported when the method is first asked for."""

    def __init__(self, places: dict[str, tuple[str, str]]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Method:
        module, function = self._places[name]
        method: Method = getattr(import_module(f"{__name__}.{module}"), function)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


#: The methods by name. Listing the names imports nothing.
METHODS: Mapping[str, Method] = _Methods(
    {
        "average": ("simple", "fuse_average"),
        "single-best": ("simple", "fuse_single_best"),
        "laplacian": ("pyramids", "fuse_laplacian"),
        "dwt": ("pyramids", "fuse_dwt"),
        "dct-variance": ("decision_maps", "fuse_dct_variance"),
        "gff": ("guided_filter", "fuse_guided_filter"),
        "focus-measure": ("decision_maps", "fuse_focus_measure"),
        "sf-dct": ("sf_dct", "fuse_sf_dct"),
        "sr-ksvd": ("sr_ksvd", "fuse_sr_ksvd"),
    }
)


def denoise_then(method: Method, denoiser: PlaneDenoiser) -> Method:
    """Make the method that denoises every frame and then fuses them as if they were clean.

    The denoised frames are float32 grey levels, rounded to the type of the stack only once, in
    the end. They are all kept, since a method may read a frame more than once. With ``sigma`` 0
    the result is the method's own.
    """

    def fuse(stack: Stack, *, sigma: float = 0.0) -> Fusion:
        check_sigma(sigma)
        if sigma == 0:
            return method(stack)
        started = time.perf_counter()
        frames = [denoise_picture(stack.to_levels(frame), sigma, denoiser) for frame in stack]
        clean = Stack.from_arrays(frames, white=255.0, names=stack.names)
        seconds = {"denoise": time.perf_counter() - started}
        fusion = method(clean)
        return _finish(stack, fusion, sigma, seconds | fusion.seconds)

    return fuse


def then_denoise(method: Method, denoiser: PlaneDenoiser) -> Method:
    """Make the method that fuses the noisy frames and denoises the result.

    The denoiser is told ``sigma``, the noise of one frame. That is right where pixels are copied;
    methods that average leave less, methods that pick the largest detail more, neither of it
    white. With ``sigma`` 0 the result is the method's own.
    """

    def fuse(stack: Stack, *, sigma: float = 0.0) -> Fusion:
        check_sigma(sigma)
        if sigma == 0:
            return method(stack)
        # In grey levels, so that the fused picture is not rounded before it is denoised.
        readers = [lambda k=k: stack.to_levels(stack[k]) for k in range(len(stack))]
        fusion = method(Stack(readers, white=255.0, names=stack.names))
        started = time.perf_counter()
        clean = replace(fusion, image=denoise_picture(fusion.image, sigma, denoiser))
        seconds = fusion.seconds | {"denoise": time.perf_counter() - started}
        return _finish(stack, clean, sigma, seconds)

    return fuse


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


def _finish(stack: Stack, fusion: Fusion, sigma: float, seconds: dict[str, float]) -> Fusion:
    """Turn a fusion in grey levels into one in the type of the stack."""
    image = stack.from_levels(fusion.image)
    return replace(fusion, image=image, sigma=sigma, seconds=seconds)
