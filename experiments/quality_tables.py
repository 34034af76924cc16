"""The quality tables: which trials fill which cells."""

from __future__ import annotations

from experiments.methods import label
from experiments.quality_plan import TARGETS, QualityPlan
from experiments.quality_sheet import Cell, Sheet
from experiments.trials import Trial

Trials = list[Trial]
_RIVALS = ("average", "laplacian", "gff", "dwt", "dct-variance", "focus-measure", "sf-dct")
CLEAN_METHODS = ("auto", "auto?", "paper", *_RIVALS)


def clean(plan: QualityPlan) -> list[Sheet]:
    """Lytro and MFI-WHU pairs without noise."""
    caption = (
        "Grey, float frames, results rounded to 8 bits. `restored`: how many results σ estimated "
        "took for noisy (none should)."
    )
    sheets = []
    for dataset, name, groups, names in (
        ("lytro", "Lytro", plan.lytro, ("q_mi_clean", "q_abf_clean")),
        ("mfi_whu", "MFI-WHU", plan.whu, ("psnr", "inside", "ssim")),
    ):
        columns = [f"{group} ({len(items)}): {_NAMES[n]}" for group, items in groups for n in names]
        sheet = Sheet(f"{name}, σ = 0", caption, ("method", *columns, "restored"))
        for method in (*CLEAN_METHODS, *(("sr-ksvd-dense",) if plan.sr_ksvd else ())):
            cells, every = [], []
            thin = method == "sr-ksvd-dense"
            for place, (_, items) in enumerate(groups):
                chosen = () if thin and place else items[::3] if thin else items
                trials = [Trial(dataset, item, method) for item in chosen]
                every += trials
                aims = TARGETS if method == "auto?" and not place else {}
                cells += [Cell(trials, n, aims.get((f"{dataset}, σ = 0", n))) for n in names]
            restored = (
                Cell(list(dict.fromkeys(every)), "sigma", count_only=True)
                if method == "auto?"
                else Cell()
            )
            sheet.add(f"{label(method)}{' (every third pair)' * thin}", *cells, restored)
        sheets.append(sheet)
    return sheets


def stacks(plan: QualityPlan) -> list[Sheet]:
    """Simulated stacks without noise."""
    sheets = []
    for mode, where in (("", "in planes of focus"), ("-between", "between planes of focus")):
        columns = [f"K = {k}: {name}" for k in plan.clean_frames for name in ("PSNR", "SSIM")]
        title = f"Simulated stacks, layers {where}, σ = 0"
        sheet = Sheet(title, _stack_caption(plan), ("method", *columns))
        for method in (*CLEAN_METHODS, *(("sr-ksvd-dense",) if plan.sr_ksvd else ())):
            cells = []
            for frames in plan.clean_frames:
                left_out = method == "sr-ksvd-dense" and (frames > 2 or mode)
                items = () if left_out else plan.stack_items
                dataset = f"{plan.stacks}-{frames}{mode}"
                trials = [Trial(dataset, item, method) for item in items]
                cells += [Cell(trials, name) for name in ("psnr", "ssim")]
            if any(cell.trials for cell in cells):
                sheet.add(label(method), *cells)
        sheets.append(sheet)
    return sheets


def noisy_stacks(plan: QualityPlan) -> list[Sheet]:
    """Simulated stacks with white noise."""
    columns = [f"K = {k}: {name}" for k in plan.noisy_frames for name in ("PSNR", "SSIM")]
    caption = _stack_caption(plan, noisy=True)
    sheet = Sheet("Simulated stacks, σ = 15", caption, ("method", *columns))
    rivals = ("bm3d+fast", "bm3d+gff", "bm3d of truth", "tv+auto", "nlm+auto")
    for method in ("auto", "auto?", *rivals):
        found = [stack_trials(plan, method, 15, k) for k in plan.noisy_frames]
        sheet.add(label(method), *(Cell(t, name) for t in found for name in ("psnr", "ssim")))
    for first, second, what in (
        ("auto?", "bm3d+fast", "over BM3D then fast, σ = 15, K = {}"),
        ("auto?", "bm3d of truth", ""),
        ("auto?", "auto", "σ estimated over σ known"),
    ):
        cells = []
        for k in plan.noisy_frames:
            ours, others = (stack_trials(plan, method, 15, k) for method in (first, second))
            cells += [Cell(ours, "psnr", TARGETS.get((what.format(k), "psnr")), others)]
            cells += [Cell(ours, "ssim", against=others)]
        sheet.add(f"{label(first)} over {label(second)}", *cells)
    return [sheet]


def rooms(plan: QualityPlan) -> list[Sheet]:
    """Pairs of rooms that were blurred after their measured depth."""
    sheet = Sheet(
        "Rooms, σ = 0",
        f"{len(plan.rooms)} RGB pairs below `real/pairs`, blurred after depth maps, with a truth.",
        ("method", "PSNR", "SSIM", "`auto` over"),
    )
    for method in ("auto?", "fast?", *_RIVALS):
        ours, trials = ([Trial("rooms", n, m) for n in plan.rooms] for m in ("auto?", method))
        over = Cell() if method == "auto?" else Cell(ours, "psnr", 0.0, trials)
        sheet.add(label(method), Cell(trials, "psnr"), Cell(trials, "ssim"), over)
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
        over = Cell() if method == "auto?" else Cell(ours, "psnr", 0.0, trials)
        every = [Cell([trial], "psnr") for trial in trials]
        sheet.add(label(method), *every, Cell(trials, "psnr"), over)
    return [sheet]


def single(plan: QualityPlan) -> list[Sheet]:
    """Photographs kept aside for this, one frame each, in colour."""
    side = plan.crop or 512
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
            cells += [Cell(trials, "psnr", aim), Cell(trials, "ssim")]
        sheet.add("BM3D" if method.startswith("bm3d") else label(method), *cells)
    return [sheet]


def stack_trials(plan: QualityPlan, method: str, sigma: float, frames: int) -> Trials:
    """List a method's trials on noisy simulated stacks."""
    items, dataset = plan.noisy_stack_items(frames), f"{plan.stacks}-{frames}"
    return [Trial(dataset, item, method, sigma, crop=plan.crop) for item in items]


_NAMES = {"q_mi_clean": "Q_MI", "q_abf_clean": "Q^AB/F", "psnr": "PSNR", "ssim": "SSIM"}
_NAMES["inside"] = "PSNR without 8 px at each side"


def _cut(plan: QualityPlan) -> str:
    return f" (the middle {plan.crop} × {plan.crop} pixels of each)" if plan.crop else ""


def _stack_caption(plan: QualityPlan, *, noisy: bool = False) -> str:
    source = "test (BSD68)" if plan.stacks == "stack" else "training"
    text = f"{len(plan.stack_items)} scenes simulated from {source} pictures, grey, with defocus "
    text += "spread, up to 6 pixels of blur"
    if not noisy:
        return text + "."
    tall = f"; K = 10 on {len(plan.tall_stacks)} of them" if 10 in plan.noisy_frames else ""
    return text + f"{_cut(plan)}; white noise never clipped, σ known where not said{tall}."
