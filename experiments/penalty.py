"""What the flexible penalty is worth: the same small denoiser trained with it and with ℓ₁.

    python -m experiments.penalty --data DIR [--steps 300]
    python -m experiments.penalty --data DIR --full --steps 1500 --device cuda

Single frames, white noise of σ = 15, trained on `natural/train` and judged on its kept twentieth;
needs torch. The small denoiser has three stages of 32 fine and 16 coarse filters, with ``--full``
the five of 64 and 24 that the shipped model has. Both penalties start from the same filters and
see the same crops and noise. ℓ₁ stands as its smooth form √(1 + (u/b)²) with learned filters,
strengths and widths.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cofuse.files import picture_files, read_image

SIGMA = 15.0
#: Stages, fine and coarse filters, side of the crops and how many make a step.
SMALL = 3, 32, 16, 72, 8
FULL = 5, 64, 24, 128, 16


def main() -> None:
    import torch

    from cofuse.learning.end_to_end import network as networks
    from cofuse.learning.end_to_end.training import same_size

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    count, fine, coarse, side, batch = FULL if given.full else SMALL
    pictures = same_size(
        [read_image(path) for path in picture_files([given.data / "natural" / "train"])]
    ).to(given.device)
    kept = [index % 20 == 0 for index in range(len(pictures))]
    kept_pictures = pictures[torch.tensor(kept)]
    used = pictures[~torch.tensor(kept)]
    flexible = networks.penalty_slope

    def of_l1(u, tall, narrow, strength, inverse_width):
        return tall * u * strength[0] * torch.rsqrt(1.0 + (u * narrow) ** 2 * inverse_width[0])

    for name, slope in (("flexible", flexible), ("l1", of_l1)):
        networks.penalty_slope = slope
        torch.manual_seed(0)
        stages = torch.nn.ModuleList(networks.Stage(fine, coarse) for _ in range(count))
        stages = stages.to(given.device)
        optimiser = torch.optim.Adam(stages.parameters(), lr=5e-3)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, given.steps)
        random = torch.Generator(given.device).manual_seed(1)

        def restore(clean, random=random, stages=stages):
            noisy = clean / SIGMA + torch.randn(clean.shape, generator=random, device=clean.device)
            nothing = torch.zeros_like(noisy)
            mixture = networks.Mixture(noisy, nothing, nothing)
            level = torch.log(clean.new_full((len(clean),), SIGMA / 20.0))
            x = noisy
            for stage in stages:
                x = stage(x, mixture, level, clean.new_zeros(len(clean), 3, *clean.shape[1:]))
            return x * SIGMA

        for _ in range(given.steps):
            index = torch.randint(len(used), (batch,), generator=random, device=given.device)
            at = torch.randint(used.shape[1] - side, (2,), generator=random, device=given.device)
            top, left = at.tolist()
            crop = used[index, top : top + side, left : left + side]
            loss = torch.log((restore(crop) - crop).square().mean((1, 2))).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(stages.parameters(), 1.0)
            optimiser.step()
            decay.step()
        random.manual_seed(2)
        with torch.no_grad():
            errors = (restore(kept_pictures) - kept_pictures).square().mean((1, 2))
        print(f"{name}: {float((10 * torch.log10(255**2 / errors)).mean()):.2f} dB", flush=True)
    networks.penalty_slope = flexible


if __name__ == "__main__":
    main()
