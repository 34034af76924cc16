"""The quality tables of real scenes, disturbed frames, real noise, ablations and cost."""

from __future__ import annotations

from experiments.quality_plan import TARGETS, VARIANTS, QualityPlan
from experiments.quality_scenes import CHANGES
from experiments.quality_sheet import Cell, Sheet, gap, label, score
from experiments.quality_tables import pair_trials, stack_trials
from experiments.quality_trials import COST_METHODS, Trial

__all__ = ["ablations", "cost", "misaligned", "real_noise", "robustness", "rooms", "single"]

_RIVALS = ("average", "laplacian", "gff", "dwt", "dct-variance", "focus-measure", "sf-dct")
#: Side of the square that is taken out of the middle of photographs.
_PHOTO = 512

#: Methods held beside `auto` when a frame is disturbed, by noise level.
DISTURBED = {
    0: ("auto", "laplacian", "gff"),
    15: ("auto", "auto?", "laplacian", "bm3d+fast"),
}
#: Kinds of real noise and their levels; the sensor's needs none.
REAL_NOISES = (
    ("poisson", (0,), "Poisson–Gaussian, gain 1, floor 3"),
    ("clipped", (10, 25), "clipped to 8 bits"),
    ("jpeg", (0, 5, 10), "JPEG quality 90"),
    ("chroma", (10,), "chroma twice luminance"),
)
_REAL_COLUMNS = (
    "noise",
    "RMS",
    "σ used",
    "`auto`, denoise = 0",
    "`auto`, σ estimated",
    "`auto`, RMS told",
    "`auto`, white alike",
    "σ estimated over denoise = 0",
)
_ABLATION_COLUMNS = (
    "variant",
    "Lytro Q_MI",
    "Q^AB/F",
    "MFI-WHU, σ = 0",
    "over `auto`",
    "MFI-WHU, σ = 15",
    "over `auto`",
    "K = 5, σ = 15",
    "over `auto`",
)


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


def robustness(plan: QualityPlan) -> list[Sheet]:
    """One frame shifted, brighter, visited or noisier."""
    sheets = []
    for sigma, methods in DISTURBED.items():
        columns = [f"K = {k}: {label(method)}" for k in plan.changed_frames for method in methods]
        sheet = Sheet(
            f"One disturbed frame, σ = {sigma}",
            f"Simulated scenes: {len(plan.changed_stacks)}, the middle frame (of two: the second) "
            "disturbed before noise is added. First line PSNR, the others its change in dB. σ is "
            "told as that of the undisturbed frames.",
            ("disturbance", *columns),
        )

        def trials(method: str, frames: int, change: str, sigma: int = sigma) -> list[Trial]:
            dataset, crop = f"{plan.stacks}-{frames}", plan.crop if sigma else 0
            return [
                Trial(dataset, item, method, sigma, change=change, crop=crop)
                for item in plan.changed_stacks
            ]

        runs = [(method, frames) for frames in plan.changed_frames for method in methods]
        sheet.add("none", *(score(trials(*run, ""), "psnr") for run in runs))
        for change in CHANGES:
            if change != "double noise" or sigma > 0:
                sheet.add(
                    change, *(gap(trials(*run, change), trials(*run, ""), "psnr") for run in runs)
                )
        sheets.append(sheet)
    return sheets


def real_noise(plan: QualityPlan) -> list[Sheet]:
    """Noise that is not white, or was clipped or compressed."""
    grey = [_real_sheet(plan, plan.stacks, plan.changed_stacks, k) for k in plan.changed_frames]
    colour = [_real_sheet(plan, "colour", plan.colour[:4], k) for k in plan.changed_frames]
    return grey + colour


def _real_sheet(plan: QualityPlan, kind: str, items: tuple[int, ...], frames: int) -> Sheet:
    is_colour = kind == "colour"
    sheet = Sheet(
        f"Real noise, {'colour' if is_colour else 'grey'}, K = {frames}",
        f"Simulated scenes: {len(items)}. σ is estimated but in one column, where the RMS of the "
        "noise is told; `white alike` is on white noise of that RMS instead.",
        _REAL_COLUMNS,
    )
    for noise, sigmas, name in REAL_NOISES:
        for sigma in sigmas if is_colour or noise != "chroma" else ():

            def trials(method: str, noise: str, sigma: int = sigma) -> list[Trial]:
                dataset, crop = f"{kind}-{frames}", plan.crop
                return [Trial(dataset, item, method, sigma, noise, crop=crop) for item in items]

            untouched, estimated = trials("untouched", noise), trials("auto?", noise)
            told, white = trials("auto", noise), trials("auto?", f"white like {noise}")
            sheet.add(
                name if noise == "poisson" else f"{name}, σ = {sigma}",
                score(estimated, "true_sigma"),
                score(estimated, "sigma"),
                *(score(found, "psnr") for found in (untouched, estimated, told, white)),
                gap(estimated, untouched, "psnr", TARGETS["over untouched", "psnr"]),
            )
    return sheet


def ablations(plan: QualityPlan) -> list[Sheet]:
    """Every variant beside `auto`."""
    lytro, whu = plan.lytro[0][1], plan.whu[0][1]
    sheet = Sheet(
        "Ablations",
        f"Variants of `auto` (`experiments/quality_plan.py`), σ known: {len(lytro)} Lytro and "
        f"{len(whu)} MFI-WHU pairs, {len(plan.stack_items)} stacks of five; after each PSNR its "
        "distance from `auto`.",
        _ABLATION_COLUMNS,
    )
    for method in ("auto", *(f"variant {name}" for name in VARIANTS)):
        pairs = [Trial("lytro", item, method) for item in lytro]
        cells = [score(pairs, "q_mi"), score(pairs, "q_abf")]
        for found, ours in (
            ([Trial("mfi_whu", item, m) for item in whu] for m in (method, "auto")),
            (pair_trials(plan, m, 15) for m in (method, "auto")),
            (stack_trials(plan, m, 15, 5) for m in (method, "auto")),
        ):
            cells.append(score(found, "psnr"))
            cells.append(Cell((), "") if method == "auto" else gap(found, ours, "psnr"))
        sheet.add(label(method), *cells)
    return [sheet]


def cost(plan: QualityPlan) -> list[Sheet]:
    """CPU time of `auto` beside that of denoising both frames."""
    item = plan.lytro[0][1][0]
    side = 2 * plan.crop or 520
    trial = Trial("lytro", item, "cost", 15, crop=2 * plan.crop, repeat=plan.cost_repeats)
    sheet = Sheet(
        "Cost, σ = 15",
        f"Lytro pair {item}, {side} × {side}, grey: CPU seconds of all threads, methods by "
        f"turns, median of {plan.cost_repeats}.",
        ("method", "CPU s"),
    )
    for method in COST_METHODS:
        sheet.add(label(method), Cell((trial,), method, digits=2))
    return [sheet]
