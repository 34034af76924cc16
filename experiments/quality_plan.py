"""Which pictures the quality tables use, how many of them, and what is aimed at.

Tuning has seen the even Lytro pairs, the MFI-WHU pairs n ≢ 1 (mod 6) and the training pictures.
The odd Lytro pairs, the MFI-WHU pairs n ≡ 1 (mod 6) and the test pictures are kept aside, to be
reported and nothing else: a plan of the subset ``tuning`` names none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.pictures import LYTRO_PAIRS, WHU_PAIRS

Items = tuple[int, ...]
Groups = tuple[tuple[str, Items], ...]

SUBSETS = ("report", "tuning")
LYTRO_SEEN = tuple(n for n in LYTRO_PAIRS if n % 2 == 0)
LYTRO_KEPT = tuple(n for n in LYTRO_PAIRS if n % 2)
WHU_SEEN = tuple(n for n in WHU_PAIRS if n % 6 != 1)
WHU_KEPT = tuple(n for n in WHU_PAIRS if n % 6 == 1)
#: Every 15th photograph is seen by no training; the scenes with a truth below ``real``.
PHOTOS_KEPT = tuple(range(0, 374, 15))
ROOMS = (1, 5, 7, 9, 11, 13, 15, 21, 27, 29, 33, 35, 37, 39, 51, 63, 71, 83, 93, 95)
MISALIGNED = (2, 6, 13, 21, 26, 29)

#: The least that is aimed at, by what is measured and the score; PSNR in decibels.
TARGETS: dict[tuple[str, str], float] = {
    ("lytro, σ = 0", "q_abf_clean"): 0.760,
    ("mfi_whu, σ = 0", "psnr"): 44.0,
    ("mfi_whu, σ = 0", "inside"): 47.0,
    ("photo, σ = 15", "psnr"): 34.0,
    ("photo, σ = 25", "psnr"): 31.4,
    ("over BM3D then fast, σ = 15, K = 2", "psnr"): 0.5,
    ("over BM3D then fast, σ = 15, K = 5", "psnr"): 2.0,
    ("over BM3D then fast, σ = 15, K = 10", "psnr"): 3.0,
    ("σ estimated over σ known", "psnr"): -0.1,
}


@dataclass(frozen=True)
class QualityPlan:
    """The scenes of every table; the defaults are those of the full report.

    BM3D takes 5 to 20 s of CPU time for a picture: ``tall_stacks`` (ten frames) are fewer for that.
    ``crop`` cuts noisy scenes to a square in their middle (0: whole).
    """

    data: Path | None
    output: Path
    workers: int = 1
    quick: bool = False
    subset: str = "report"
    lytro: Groups = (
        ("all", LYTRO_PAIRS),
        ("even, seen in tuning", LYTRO_SEEN),
        ("odd, kept aside", LYTRO_KEPT),
    )
    whu: Groups = (("n ≡ 1 mod 6, kept aside", WHU_KEPT), ("others, seen in tuning", WHU_SEEN))
    stacks: str = "stack"
    stack_items: Items = (3, 11, 19, 27, 35, 43, 51, 59)
    tall_stacks: Items = (3, 19, 35, 51)
    photos: Items = PHOTOS_KEPT
    rooms: Items = ROOMS
    misaligned: Items = MISALIGNED
    clean_frames: Items = (2, 3, 5, 10, 20)
    noisy_frames: Items = (1, 2, 5, 10)
    crop: int = 0
    sr_ksvd: bool = True

    def noisy_stack_items(self, frames: int) -> Items:
        """Name the scenes that noisy stacks of so many frames are made of."""
        return self.tall_stacks if frames >= 10 else self.stack_items


def plan_of(
    data: Path | None,
    output: Path,
    *,
    workers: int = 1,
    quick: bool = False,
    subset: str = "report",
) -> QualityPlan:
    """Make the plan the command line asks for."""
    plan = QualityPlan(data, output, workers, quick, subset)
    if subset == "tuning":
        plan = replace(
            plan,
            lytro=(("even, seen in tuning", LYTRO_SEEN),),
            whu=(("n ≢ 1 mod 6, seen in tuning", WHU_SEEN),),
            stacks="train",
            stack_items=(3, 53, 103, 153, 203, 253, 303, 353),
            tall_stacks=(3, 103, 203, 303),
            photos=tuple(n + 1 for n in PHOTOS_KEPT),
        )
    return _quick(plan) if quick else plan


def is_kept_aside(dataset: str, item: int) -> bool:
    """Whether a scene may be reported on but not tuned on."""
    kind = dataset.partition("-")[0]
    if kind == "lytro":
        return item in LYTRO_KEPT
    if kind == "mfi_whu":
        return item in WHU_KEPT
    if kind == "photo":
        return item in PHOTOS_KEPT
    return kind == "stack"


def _quick(plan: QualityPlan) -> QualityPlan:
    """Keep a few scenes of everything, the noisy ones cut small."""
    return replace(
        plan,
        lytro=tuple((name, items[::7]) for name, items in plan.lytro),
        whu=tuple((name, items[::9]) for name, items in plan.whu),
        stack_items=plan.stack_items[::4],
        tall_stacks=plan.tall_stacks[:1],
        photos=plan.photos[::12],
        rooms=plan.rooms[::7],
        misaligned=plan.misaligned[:1],
        clean_frames=(2, 5),
        noisy_frames=(1, 2, 5),
        crop=128,
        sr_ksvd=False,
    )
