"""What restoring reaches with noise as cameras and files make it, and what knowing it is worth.

``python -m experiments.noise_restoring --data DIR [--pairs N]`` adds noise of several kinds to both
frames of MFI-WHU pairs that tuning did not see, fuses them, and prints the PSNR against the truth
of the kind

default
    as `fuse` does it that is told nothing,
true law
    told the levels that the noise really has in every frame, plane and band
    (`experiments.noise_truth`, over all blocks),
BM3D 1, BM3D 1.4, BM3D 2
    not ours: every frame by BM3D that is told so many times the true standard deviation, then the
    choice of the preset ``fast``,
BM3D
    the best of these three for the kind of noise.

All but the first as differences from it, over the same pairs. MFI-WHU has dark outermost pixels
where it is blurred, so a second table leaves out 8 pixels at each side. ``--crop 320`` cuts all
frames to squares of that side, for BM3D takes 40 s a frame. What it denoised is kept in ``--kept``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cofuse import Fusion, Stack, fuse, read_image
from cofuse.evaluation.metrics import psnr, ssim, to_grey
from cofuse.sensor.law import NoiseLaw, NoiseModel
from experiments.methods import Denoised
from experiments.noise_truth import GRADED, even, folders, kinds_of, true_levels
from experiments.pictures import scene_files, to_8_bit
from experiments.quality_plan import WHU_KEPT
from experiments.statistics import difference, markdown, mean
from experiments.trials import denoising_version, run_all

Array = NDArray[Any]
Row = dict[str, Any]


class Setting(NamedTuple):
    """A kind of noise, its level, and whether the pictures are grey."""

    kind: str
    level: float
    grey: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.level:g}{', grey' * self.grey}"


SETTINGS = (
    Setting("white", 15.0, grey=True),
    Setting("white", 25.0, grey=True),
    *(
        Setting(kind, level)
        for kind in ("white", "blurred", "jpeg", "bayer", "camera_jpeg")
        for level in (10.0, 20.0)
    ),
)
WAYS = ("default", "true law", "BM3D", "BM3D 1", "BM3D 1.4", "BM3D 2")
#: What BM3D is best told of noise that is not white, in units of its true standard deviation: the
#: best of three or within 0.1 dB of it on the first pair, for every kind and level
#: (``--pairs 1 --crop 320 --ways "BM3D 1" "BM3D 1.4" "BM3D 2"``).
_BEST_TOLD = 1.4
#: Kinds whose noise comes from a sensor: its variance is 0.3 + 0.7 I / 128 times that at mid-grey.
_GROWING = ("shot", "bayer", "camera_jpeg")
_BORDER = 8


def true_law(kind: str, noisy: Sequence[Array], truths: Sequence[Array]) -> NoiseLaw:
    """Describe the noise that frames of known truth really have."""
    pairs = list(zip(noisy, truths, strict=True))
    variance = np.mean([np.mean((a.astype(float) - b) ** 2) for a, b in pairs])
    model = NoiseModel(float(np.sqrt(variance)))
    if kind in _GROWING:
        variance /= 0.3 + 0.7 * np.mean(truths) / 128
        model = NoiseModel(float(np.sqrt(0.3 * variance)), float(0.7 * variance / 128))
    levels = np.stack([true_levels(a, b, model)[1] for a, b in pairs])
    return NoiseLaw(model=model, levels=levels, errors=np.zeros_like(levels))


def restored(
    data: Path,
    tools: Path,
    item: int,
    setting: Setting,
    ways: Sequence[str],
    crop: int = 0,
    kept: Path | None = None,
) -> Row:
    """Fuse one pair with one kind of noise in several ways, and score the results."""
    add = kinds_of(tools)[setting.kind]
    files = scene_files(data, "mfi_whu", item)
    *clean, sharp = (_picture(file, grey=setting.grey) for file in files)
    made = [
        add(frame, setting.level, number, np.random.default_rng((item, number)))
        for number, frame in enumerate(clean, 1)
    ]
    goal = add(sharp, setting.level, 0, np.random.default_rng(0))[1]
    window = _middle(goal.shape, crop)
    goal = _plain(goal[window])
    noisy, truths = (
        [_plain(frame[window]) for frame in frames] for frames in zip(*made, strict=True)
    )
    squares = [(a.astype(float) - b) ** 2 for a, b in zip(noisy, truths, strict=True)]
    sigma = float(np.sqrt(np.mean(squares)))
    stack = Stack.from_arrays(noisy)
    inner = np.s_[_BORDER:-_BORDER, _BORDER:-_BORDER]
    row: Row = {"setting": setting, "item": item, "sigma": sigma, "found": float("nan")}
    for way in ways:
        if way == "default":
            result = fuse(stack)
        elif way == "true law":
            result = fuse(stack, noise=true_law(setting.kind, noisy, truths))
        else:
            best = 1.0 if setting.kind == "white" else _BEST_TOLD
            factor = float(way.removeprefix("BM3D") or best)
            result = _by_bm3d(stack, factor * sigma, kept)
        picture = to_8_bit(result.image)
        row[way] = psnr(picture, goal)
        row[f"{way} inside"] = psnr(picture[inner], goal[inner])
        if way == "default":
            row |= {"found": result.sigma, "ssim": ssim(picture, goal)}
    return row


def _by_bm3d(stack: Stack, sigma: float, kept: Path | None) -> Fusion:
    """Denoise every frame by BM3D and fuse them by the choice of the preset fast."""
    denoised = Denoised(kept, denoising_version())
    frames = [denoised(stack.to_levels(frame), sigma, "bm3d") for frame in stack]
    return fuse(Stack.from_arrays(frames, white=255.0), sigma=0.0, preset="fast")


def _picture(file: Path, *, grey: bool) -> Array:
    """Read a picture with even sides; a grey one has one channel."""
    picture = even(read_image(file))
    return to_grey(picture)[..., None] if grey else picture


def _plain(picture: Array) -> Array:
    return np.ascontiguousarray(picture[..., 0] if picture.shape[2] == 1 else picture)


def _middle(shape: Sequence[int], side: int) -> tuple[slice, ...]:
    """Name a square in the middle, on the grid of JPEG and mosaics."""
    if not side:
        return (slice(None), slice(None))
    starts = [max(0, length - side) // 2 // 16 * 16 for length in shape[:2]]
    return tuple(slice(start, start + side) for start in starts)


def report(rows: Sequence[Row], ways: Sequence[str], crop: int = 0) -> str:
    """Tabulate the scores of whole pictures, and without their borders."""
    tables = []
    items = len({row["item"] for row in rows})
    whole = f"the middle {crop} x {crop} px" if crop else "whole pictures"
    for where, title in (("", whole), (" inside", f"{_BORDER} px at each side left out")):
        body = []
        for setting in dict.fromkeys(row["setting"] for row in rows):
            chosen = [row for row in rows if row["setting"] == setting]
            scores = [{row["item"]: row[way + where] for row in chosen} for way in ways]
            gaps = [difference(score, scores[0]).text(2, sign="+") for score in scores[1:]]
            sigmas = [mean([row[name] for row in chosen]).mean for name in ("sigma", "found")]
            told = f"{sigmas[0]:.1f} / {sigmas[1]:.1f}"
            first = mean(scores[0].values()).text(2)
            alike = mean([row["ssim"] for row in chosen]).mean if "ssim" in chosen[0] else np.nan
            body.append([str(setting), told, first, f"{alike:.4f}", *gaps])
        header = ["noise", "σ true / found", f"{ways[0]}, dB", "SSIM, whole"]
        header += [f"{way}, dB" for way in ways[1:]]
        tables.append(markdown(f"## PSNR of {items} pairs, {title}", header, body))
    return "\n".join(tables)


def main() -> None:
    """Restore what the command line asks for and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--pairs", type=int, default=12, help="the first so many pairs that tuning did not see")
    add("--kinds", nargs="+", choices=GRADED, help="kinds of noise (default: all)")
    add("--crop", type=int, default=0, help="side of the square in the middle (default: whole)")
    add("--ways", nargs="+", choices=WAYS, default=WAYS[:2], help="the first is compared with")
    add("--kept", type=Path, default=Path("results") / "quality" / "denoised")
    given, data, tools = folders(parser)
    settings = [s for s in SETTINGS if not given.kinds or s.kind in given.kinds]
    rest = (given.ways, given.crop, given.kept)
    pairs = WHU_KEPT[: given.pairs]
    tasks = [(data, tools, item, setting, *rest) for item in pairs for setting in settings]
    print(report(run_all(restored, tasks, given.workers, "pairs"), given.ways, given.crop))


if __name__ == "__main__":
    main()
