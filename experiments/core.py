"""What presets and rivals reach: Lytro without noise, MFI-WHU with noise; the noise estimate.

``python -m experiments.core --data DIR`` prints four tables.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from cofuse import PRESETS, Stack, fuse, read_image
from cofuse.evaluation.baselines import METHODS
from cofuse.evaluation.baselines.denoising import denoise_tv
from cofuse.evaluation.metrics import psnr, q_abf, q_mi, ssim
from cofuse.sensor import noise_level
from experiments.pictures import LYTRO_PAIRS, WHU_PAIRS, data_folder, lytro, noisy, to_8_bit, whu


def lytro_clean(data: Path) -> None:
    """Score both presets on the 20 pairs in grey at σ = 0."""
    presets = {
        "paper, stride 6": PRESETS["paper"],
        "paper, stride 1": replace(PRESETS["paper"], stride=1),
        "fast": PRESETS["fast"],
        "fast, full-7 operator": replace(PRESETS["fast"], operator="full-7"),
    }
    print("\n| Lytro, 20 pairs, grey, sigma 0 | Q_MI | Q^AB/F |\n|---|---|---|")
    for name, preset in presets.items():
        scores = []
        for number in LYTRO_PAIRS:
            frames = lytro(data, number)
            fused = fuse(frames, sigma=0, preset=preset).image
            scores.append((q_mi(frames, fused), q_abf(frames, fused)))
        mean = np.mean(scores, axis=0)
        print(f"| {name} | {mean[0]:.4f} | {mean[1]:.4f} |", flush=True)


def rivals_clean(data: Path) -> None:
    """Score rivals on the 20 pairs, to hold them against their published figures."""
    print("\n| Lytro, grey, sigma 0 | Q_MI | Q^AB/F | lytro-01 alone |\n|---|---|---|---|")
    for name in ("gff", "dwt", "dct-variance", "focus-measure"):
        scores = []
        for number in LYTRO_PAIRS:
            frames = lytro(data, number)
            fused = METHODS[name](Stack.from_arrays(frames)).image
            scores.append((q_mi(frames, fused), q_abf(frames, fused)))
        mean, first = np.mean(scores, axis=0), scores[0]
        alone = f"{first[0]:.4f} / {first[1]:.4f}"
        print(f"| {name} | {mean[0]:.4f} | {mean[1]:.4f} | {alone} |", flush=True)


def whu_noisy(data: Path, sigma: float = 15.0) -> None:
    """Score `fast` and the plain ways on the 60 noisy pairs against their truth."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for number in WHU_PAIRS:
        frames, truth = whu(data, number)
        stack = noisy(frames, sigma, seed=number)
        sources = [stack[0], stack[1]]
        smooth = [denoise_tv(frame, sigma) for frame in sources]
        results = {
            "better source": max(sources, key=lambda frame: psnr(to_8_bit(frame), truth)),
            "plain average": np.mean(sources, axis=0),
            "total variation, then fast's choice": fuse(
                smooth, sigma=0, white=255.0, preset="fast"
            ).image,
            "fast, sigma given": fuse(stack, sigma=sigma, preset="fast").image,
            "fast, sigma estimated": fuse(stack, preset="fast").image,
        }
        for name, picture in results.items():
            picture = to_8_bit(picture)
            scores.setdefault(name, []).append((psnr(picture, truth), ssim(picture, truth)))
    print(f"\n| MFI-WHU, 60 pairs, grey, sigma {sigma:g} | PSNR | SSIM |\n|---|---|---|")
    for name, values in scores.items():
        mean = np.mean(values, axis=0)
        print(f"| {name} | {mean[0]:.2f} | {mean[1]:.4f} |", flush=True)


def noise_estimates(data: Path) -> None:
    """Compare the estimated with the added noise on the 68 test pictures."""
    pictures = [read_image(path) for path in sorted((data / "natural" / "test").iterdir())]
    rng = np.random.default_rng(0)
    print("\n| noise added to 68 pictures | mean absolute error | worst |\n|---|---|---|")
    for sigma in (0, 5, 10, 15, 25):
        errors = []
        for picture in pictures:
            levels = Stack.from_arrays([picture]).luminance(0)
            added = levels + rng.normal(scale=sigma, size=levels.shape).astype(np.float32)
            errors.append(abs(noise_level(added) - sigma))
        print(f"| {sigma} | {np.mean(errors):.2f} | {max(errors):.2f} |", flush=True)


def main() -> None:
    data = data_folder(argparse.ArgumentParser(description=__doc__))
    lytro_clean(data)
    rivals_clean(data)
    noise_estimates(data)
    whu_noisy(data)


if __name__ == "__main__":
    main()
