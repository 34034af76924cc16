"""Laws that a fusion should keep, whatever its model: how far the preset ``auto`` is from them.

``python -m experiments.laws`` makes stacks from the pictures that come with the package and prints
what changes when nothing should: the frames in another order, one of them given twice, mirrored,
cut, or cut by one row and column more. Of two pictures that should be equal it tells the root mean
square of their difference and the share of pixels that differ by more than one grey level, and of
mirrored and cut ones the PSNR against the truth as well, where it is lower.

Then it adds white noise of 0 to 5 grey levels in steps of a half and prints the PSNR by default,
nothing told: it should fall smoothly.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse import fuse
from cofuse.evaluation.simulation import SAMPLE_NAMES, Simulation, sample_picture, simulate_stack
from experiments.statistics import markdown

Picture = NDArray[Any]
Frames = Sequence[Picture]

#: Levels of noise between which no step may show.
SIGMAS = tuple(0.5 * step for step in range(11))
#: Rows and columns that are cut off at each side, on no grid of the model, and those near a new
#: border that are not compared.
_CUT, _RIM = 13, 64


class Change(NamedTuple):
    """What became of a picture that should have stayed as it is, in grey levels.

    ``lost`` is by how much its PSNR fell, in dB.
    """

    rms: float
    share: float
    lost: float = 0.0


def made_scene(
    seed: int, frames: int = 5, shape: tuple[int, int] = (280, 380), sigma: float = 0.0
) -> Simulation:
    """Make a stack from a picture of the package."""
    picture = sample_picture(SAMPLE_NAMES[seed % len(SAMPLE_NAMES)])
    return simulate_stack(
        picture, frames=frames, seed=seed, shape=shape, max_radius=10, sigma=sigma
    )


def order(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Give the frames in another order."""
    mixed = np.random.default_rng(0).permutation(len(frames))
    return _change(_fused(frames, told), _fused([frames[k] for k in mixed], told), truth)


def copies(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Give one of the frames twice."""
    more = [*frames, frames[1].copy()]
    return _change(_fused(frames, told), _fused(more, told), truth)


def mirror(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Mirror all frames, both ways."""
    turned = _fused([np.ascontiguousarray(frame[::-1, ::-1]) for frame in frames], told)
    return _change(_fused(frames, told), turned[::-1, ::-1], truth)


def crop(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Cut off rows and columns at each side."""
    inner = np.s_[_CUT:-_CUT, _CUT:-_CUT]
    far = np.s_[_RIM:-_RIM, _RIM:-_RIM]
    whole = _fused(frames, told)[inner][far]
    part = _fused([np.ascontiguousarray(frame[inner]) for frame in frames], told)[far]
    return _change(whole, part, truth[inner][far])


def size(frames: Frames, truth: Picture, **told: Any) -> Change:
    """Cut off one row and one column, at sizes small and large; the worst."""
    worst = Change(0.0, 0.0)
    short = min(truth.shape[:2])
    for side in (16, 24, 31, 32, 48, 63, 64, 96, 127, 128, 192, 255, 256):
        if side < short:
            large, small = (
                _fused([np.ascontiguousarray(frame[:n, :n]) for frame in frames], told)
                for n in (side + 1, side)
            )
            change = _change(large[:side, :side], small, truth[:side, :side])
            worst = Change(*map(max, worst, change))
    return worst


#: The laws by what is done to the frames.
LAWS: dict[str, Callable[..., Change]] = {
    "another order": order,
    "a copy": copies,
    "mirrored": mirror,
    "cut": crop,
    "a row and a column less": size,
}


def errors_by_noise(scenes: Sequence[Simulation], sigmas: Sequence[float] = SIGMAS) -> list[float]:
    """Mean squared error by default, nothing told, of stacks with the same noise at every level."""
    errors = []
    for sigma in sigmas:
        found = []
        for seed, scene in enumerate(scenes):
            rng = np.random.default_rng(seed)
            frames = [
                (frame + sigma * rng.standard_normal(frame.shape)).astype(np.float32)
                for frame in scene.frames
            ]
            image = fuse(frames, white=255.0).image
            found.append(float(np.mean((image.astype(float) - scene.truth) ** 2)))
        errors.append(float(np.mean(found)))
    return errors


def _fused(frames: Frames, told: dict[str, Any]) -> Picture:
    return fuse(frames, **told).image.astype(np.float64)


def _change(before: Picture, after: Picture, truth: Picture) -> Change:
    apart = np.abs(before - after)
    wrong = [float(np.mean((picture - truth) ** 2)) for picture in (before, after)]
    # Errors below half a level do not show, and a tiny picture may have none.
    lost = 10 * float(np.log10(max(wrong[1], 0.25) / max(wrong[0], 0.25)))
    share = float(np.mean(apart > 1.0))
    return Change(float(np.sqrt(np.mean(apart**2))), share, max(0.0, lost))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how far `auto` is from every law."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    body = []
    for sigma in (10.0, 0.0):
        scenes = [made_scene(seed, sigma=sigma) for seed in range(4)]
        for name, law in LAWS.items():
            found = [law(scene.frames, scene.truth, sigma=sigma) for scene in scenes]
            worst = Change(*(max(values) for values in zip(*found, strict=True)))
            cells = [f"{worst.rms:.3f}", f"{100 * worst.share:.3f}", f"{worst.lost:.2f}"]
            body.append([name, f"{sigma:g}", *cells])
    header = ["frames", "σ", "RMS, levels", "off by more than 1, %", "PSNR lost, dB"]
    print(markdown(f"## Worst of {len(scenes)} stacks", header, body), flush=True)
    levels = [10 * np.log10(255**2 / error) for error in errors_by_noise(scenes)]
    rows = [[f"{sigma:g}", f"{level:.2f}"] for sigma, level in zip(SIGMAS, levels, strict=True)]
    print(markdown(f"## Noise, nothing told, {len(scenes)} stacks", ["σ", "PSNR, dB"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
