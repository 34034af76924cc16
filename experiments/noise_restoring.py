"""What knowing the noise is worth to restoring, for noise as cameras and files make it.

``python -m experiments.noise_restoring --data DIR [--pairs N]`` adds noise of several kinds to both
frames of MFI-WHU pairs, fuses them, and prints the PSNR in colour against the truth of the kind

default
    as `fuse` does it that is told nothing,
true law
    told the levels that the noise really has in every frame, plane and band
    (`experiments.noise_truth`, over all blocks),
true σ
    told nothing but its true standard deviation, as if it were white,
1.4 σ
    told 1.4 times that.

All but the first as differences from it, over the same pairs. MFI-WHU has dark outermost pixels
where it is blurred, so a second table leaves out 8 pixels at each side.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse import CofuseError, Stack, fuse, read_image
from cofuse.metrics import psnr
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import NoiseLaw
from experiments import runner
from experiments.noise_tables import markdown
from experiments.noise_truth import even, kinds_of, spread, true_levels
from experiments.pictures import WHU_PAIRS, scene_files
from experiments.statistics import difference, mean

__all__ = ["SETTINGS", "WAYS", "restored", "true_law"]

Array = NDArray[Any]
Row = dict[str, Any]

#: Kinds of noise and their levels.
SETTINGS = (
    ("white", 10.0),
    ("white", 20.0),
    ("blurred", 20.0),
    ("jpeg", 10.0),
    ("bayer", 10.0),
    ("bayer", 20.0),
    ("camera_jpeg", 10.0),
    ("camera_jpeg", 20.0),
)
WAYS = ("default", "true law", "true σ", "1.4 σ")
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
    return NoiseLaw(model, levels, np.zeros_like(levels))


def restored(
    data: Path, tools: Path, item: int, setting: tuple[str, float], ways: Sequence[str]
) -> Row:
    """Fuse one pair with one kind of noise in several ways, and score the results."""
    kind, level = setting
    add = kinds_of(tools)[kind]
    *clean, sharp = (even(read_image(file)) for file in scene_files(data, "mfi_whu", item))
    made = [
        add(frame, level, number, np.random.default_rng((item, number)))
        for number, frame in enumerate(clean, 1)
    ]
    noisy, truths = zip(*made, strict=True)
    stack = Stack.from_arrays(noisy)
    law = true_law(kind, noisy, truths)
    sigma = float(np.sqrt(np.mean([(a.astype(float) - b) ** 2 for a, b in made])))
    told: dict[str, dict[str, Any]] = {
        "default": {},
        "true law": {"noise": law},
        "true σ": {"sigma": sigma},
        "1.4 σ": {"sigma": 1.4 * sigma},
    }
    goal = add(sharp, level, 0, np.random.default_rng(0))[1]
    inner = np.s_[_BORDER:-_BORDER, _BORDER:-_BORDER]
    row: Row = {"setting": setting, "item": item, "sigma": sigma, "found": float("nan")}
    for way in ways:
        result = fuse(stack, **told[way])
        row[way] = psnr(result.image, goal)
        row[f"{way} inside"] = psnr(result.image[inner], goal[inner])
        if way == "default":
            row["found"] = result.sigma
    return row


def report(rows: Sequence[Row], ways: Sequence[str]) -> str:
    """Tabulate the scores of whole pictures, and without their borders."""
    tables = []
    items = len({row["item"] for row in rows})
    for where, title in (
        ("", "whole pictures"),
        (" inside", f"{_BORDER} px at each side left out"),
    ):
        body = []
        for setting in dict.fromkeys(row["setting"] for row in rows):
            chosen = [row for row in rows if row["setting"] == setting]
            scores = [{row["item"]: row[way + where] for row in chosen} for way in ways]
            gaps = [difference(score, scores[0]).text(2, sign="+") for score in scores[1:]]
            sigmas = [mean([row[name] for row in chosen]).mean for name in ("sigma", "found")]
            told = f"{sigmas[0]:.1f} / {sigmas[1]:.1f}"
            first = mean(scores[0].values()).text(2)
            body.append([f"{setting[0]} {setting[1]:g}", told, first, *gaps])
        header = ["noise", "σ true / found", f"{ways[0]}, dB", *(f"{way}, dB" for way in ways[1:])]
        tables.append(markdown(f"PSNR of {items} pairs, {title}", header, body))
    return "\n".join(tables)


def main(arguments: Sequence[str] | None = None) -> int:
    """Restore what the command line asks for and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, default=os.environ.get("COFUSE_DATA"), help="picture collections")
    add("--tools", type=Path, help="folder of real_noise.py (default: tools beside --data)")
    add("--pairs", type=int, default=12, help="pairs, evenly over the set")
    add("--ways", nargs="+", choices=WAYS, default=WAYS, help="the first is compared with")
    add("--out", type=Path, help="Markdown file to write as well")
    add("--workers", type=int, default=len(runner.cores()), help="processes (default: one a core)")
    given = parser.parse_args(arguments)
    if given.data is None or not Path(given.data).is_dir():
        parser.error("name the folder of the picture collections with --data or COFUSE_DATA")
    data = Path(given.data).resolve()
    tools = given.tools or data.parent / "tools"
    try:
        kinds_of(tools)  # a missing folder is named before any work
    except CofuseError as error:
        parser.error(str(error))
    tasks = [(item, setting) for setting in SETTINGS for item in spread(WHU_PAIRS, given.pairs)]
    with runner._pool(min(given.workers, len(tasks))) as pool:
        futures = [pool.submit(restored, data, tools, *task, given.ways) for task in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            print(f"{done} of {len(tasks)} pairs", file=sys.stderr, flush=True)
    text = report([future.result() for future in futures], given.ways)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
