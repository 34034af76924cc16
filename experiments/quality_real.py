"""The quality tables of real scenes that have a truth, and of single photographs."""

from __future__ import annotations

from experiments.quality_plan import TARGETS, QualityPlan
from experiments.quality_sheet import Cell, Sheet, gap, label, score
from experiments.quality_trials import Trial

__all__ = ["misaligned", "rooms", "single"]

_RIVALS = ("average", "laplacian", "gff", "dwt", "dct-variance", "focus-measure", "sf-dct")
#: Side of the square that is taken out of the middle of photographs.
_PHOTO = 512


def rooms(plan: QualityPlan) -> list[Sheet]:
    """Pairs of rooms that were blurred after their measured depth."""
    sheet = Sheet(
        "Rooms, σ = 0",
        f"{len(plan.rooms)} RGB pairs below `real/pairs`, blurred after depth maps, with a truth.",
        ("method", "PSNR", "SSIM", "`auto` over"),
    )
    for method in ("auto?", "fast?", *_RIVALS):
        ours, trials = ([Trial("rooms", n, m) for n in plan.rooms] for m in ("auto?", method))
        over = Cell((), "") if method == "auto?" else gap(ours, trials, "psnr", 0.0)
        sheet.add(label(method), score(trials, "psnr"), score(trials, "ssim"), over)
    return [sheet]


def misaligned(plan: QualityPlan) -> list[Sheet]:
    """Stacks whose parallax no alignment of whole frames undoes."""
    sheet = Sheet(
        "Parallax, σ = 0",
        "RGB stacks below `real/misaligned`, five frames each, aligned to the third, where the "
        "truth lies. PSNR in the area that all frames cover.",
        ("method", *(f"{n:02}" for n in plan.misaligned), "mean", "`auto` over"),
    )
    for method in ("auto?", "fast?", "reference", *_RIVALS):
        ours, trials = (
            [Trial("misaligned", n, m) for n in plan.misaligned] for m in ("auto?", method)
        )
        over = Cell((), "") if method == "auto?" else gap(ours, trials, "psnr", 0.0)
        every = [score([trial], "psnr") for trial in trials]
        sheet.add(label(method), *every, score(trials, "psnr"), over)
    return [sheet]


def single(plan: QualityPlan) -> list[Sheet]:
    """Photographs kept aside for this, one frame each, in colour."""
    side = plan.crop or _PHOTO
    sheet = Sheet(
        "Single photographs",
        f"{len(plan.photos)} RGB photographs kept aside for this, the middle {side} × {side} "
        "pixels, white noise never clipped. BM3D is told σ and looks at all colours together.",
        ("method", "σ = 15: PSNR", "SSIM", "σ = 25: PSNR", "SSIM"),
    )
    for method in ("auto?", "auto", "bm3d of truth"):
        cells = []
        for sigma in (15, 25):
            trials = [Trial("photo", n, method, sigma, crop=side) for n in plan.photos]
            aim = TARGETS[f"photo, σ = {sigma}", "psnr"] if method == "auto?" else None
            cells += [score(trials, "psnr", aim), score(trials, "ssim")]
        sheet.add("BM3D" if method.startswith("bm3d") else label(method), *cells)
    return [sheet]
