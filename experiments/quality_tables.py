"""The quality tables: which trials fill which cells."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.methods import label
from experiments.pictures import CHANGES
from experiments.quality_plan import TARGETS, QualityPlan
from experiments.quality_sheet import Cell, Sheet, count, gap, score
from experiments.trials import Trial

Trials = list[Trial]
_RIVALS = ("average", "laplacian", "gff", "dwt", "dct-variance", "focus-measure", "sf-dct")
CLEAN_METHODS = ("auto", "auto?", "paper", *_RIVALS)
DENOISED_FIRST = tuple(
    f"{denoiser}+{choice}" for denoiser in ("tv", "nlm") for choice in ("auto", "focus-measure")
)
BM3D_FIRST = ("bm3d+fast", "bm3d+gff", "bm3d+focus-measure", "bm3d+laplacian")
USER_SIGMAS, USER_FRAMES = (10, 20), 7
NLM_LAST = ("laplacian+nlm", "laplacian+nlm?", "auto+nlm", "auto+nlm?")
NLM_LAST += ("laplacian+colour-nlm", "auto+colour-nlm")
#: Side of the square that is taken out of the middle of photographs.
_PHOTO = 512
#: Methods held beside `auto` when a frame is disturbed, by noise level.
DISTURBED = {
    0: ("auto", "laplacian", "gff"),
    15: ("auto", "auto?", "laplacian", "bm3d+fast"),
}


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
                targets = [_target(method, f"{dataset}, σ = 0", n, first=not place) for n in names]
                cells += [score(trials, n, t) for n, t in zip(names, targets, strict=True)]
            restored = count(dict.fromkeys(every), "sigma") if method == "auto?" else Cell()
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
                cells += [score(trials, name) for name in ("psnr", "ssim")]
            if any(cell.trials for cell in cells):
                sheet.add(label(method), *cells)
        sheets.append(sheet)
    return sheets


def noisy_pairs(plan: QualityPlan) -> list[Sheet]:
    """MFI-WHU pairs against their truth, Lytro pairs against their clean sources."""
    sheets = []
    usual = ("auto", "auto?", "average", "gff", *DENOISED_FIRST, "gff+nlm", "paper", *BM3D_FIRST)
    for sigma in (15, 25):
        pairs = len(plan.noisy_whu)
        sheet = Sheet(
            f"MFI-WHU, σ = {sigma}",
            f"{pairs} pairs{_cut(plan)}, grey, white noise never clipped, results in 8 bits; fewer "
            "pairs where a number stands by the method. The last column is on the same pairs.",
            ("method", "PSNR", "SSIM", "over `auto` (dB)"),
        )
        for method in usual:
            trials = pair_trials(plan, method, sigma)
            what = f"mfi_whu, σ = {sigma}"
            aim = TARGETS["σ estimated over σ known", "psnr"] if method == "auto?" else None
            ours = pair_trials(plan, "auto", sigma, like=method)
            sheet.add(
                _with_number(method, trials, pairs),
                *(score(trials, name, _target(method, what, name)) for name in ("psnr", "ssim")),
                Cell() if method == "auto" else gap(trials, ours, "psnr", aim),
            )
        sheets.append(sheet)
    pairs = len(plan.noisy_lytro)
    caption = f"{pairs} pairs{_cut(plan)} against their clean sources; fewer where a number stands."
    sheet = Sheet("Lytro, σ = 15", caption, ("method", "Q_MI", "Q^AB/F"))
    for method in ("auto", "auto?", "gff", *DENOISED_FIRST, "paper", "bm3d+fast", "bm3d+gff"):
        items = plan.slow_lytro if _is_slow(method) else plan.noisy_lytro
        trials = [Trial("lytro", item, method, 15, crop=plan.crop) for item in items]
        cells = [
            score(trials, n, _target(method, "lytro, σ = 15", n))
            for n in ("q_mi_clean", "q_abf_clean")
        ]
        sheet.add(_with_number(method, trials, pairs), *cells)
    return [*sheets, sheet]


def noisy_stacks(plan: QualityPlan) -> list[Sheet]:
    """Simulated stacks with white noise."""
    columns = [f"K = {k}: {name}" for k in plan.noisy_frames for name in ("PSNR", "SSIM")]
    caption = _stack_caption(plan, noisy=True)
    sheet = Sheet("Simulated stacks, σ = 15", caption, ("method", *columns))
    rivals = ("bm3d+fast", "bm3d+gff", "bm3d of truth", "tv+auto", "nlm+auto")
    for method in ("auto", "auto?", *rivals):
        found = [stack_trials(plan, method, 15, k) for k in plan.noisy_frames]
        sheet.add(label(method), *(score(t, name) for t in found for name in ("psnr", "ssim")))
    for first, second, what in (
        ("auto?", "bm3d+fast", "over BM3D then fast, σ = 15, K = {}"),
        ("auto?", "bm3d of truth", ""),
        ("auto?", "auto", "σ estimated over σ known"),
    ):
        cells = []
        for k in plan.noisy_frames:
            pairs = (stack_trials(plan, first, 15, k), stack_trials(plan, second, 15, k))
            cells += [gap(*pairs, "psnr", TARGETS.get((what.format(k), "psnr")))]
            cells += [gap(*pairs, "ssim")]
        sheet.add(f"{label(first)} over {label(second)}", *cells)
    sigmas = (5, 25)
    columns = [f"σ = {sigma}, K = {k}: PSNR" for sigma in sigmas for k in plan.noisy_frames]
    other = Sheet("Simulated stacks, σ = 5 and 25", caption, ("method", *columns))
    for method in ("auto", "auto?", "tv+auto", "nlm+auto"):
        found = [stack_trials(plan, method, s, k) for s in sigmas for k in plan.noisy_frames]
        other.add(label(method), *(score(trials, "psnr") for trials in found))
    return [sheet, other]


def users(plan: QualityPlan) -> list[Sheet]:
    """What users do today: fuse, then denoise."""
    columns = [
        f"σ = {sigma}: {n}" for sigma in USER_SIGMAS for n in ("PSNR", "SSIM", "`auto` over")
    ]
    sheet = Sheet(
        f"The users' way: fuse {USER_FRAMES} colour frames, then non-local means",
        f"{len(plan.colour)} scenes{_cut(plan)} simulated from the package's own RGB pictures, "
        "white noise never clipped, σ known. NLM works plane by plane, colour NLM on RGB patches; "
        "σ measured: told the noise of the fused picture rather than that of a frame.",
        ("method", *columns),
    )
    for method in ("auto", "auto?", *NLM_LAST):
        cells = []
        for sigma in USER_SIGMAS:
            ours, trials = (colour_trials(plan, m, sigma) for m in ("auto", method))
            aim = TARGETS[f"over fuse then NLM, σ = {sigma}", "psnr"]
            cells += [score(trials, "psnr"), score(trials, "ssim")]
            cells += [gap(ours, trials, "psnr", aim) if "+" in method else Cell()]
        sheet.add(label(method), *cells)
    return [sheet]


def texture(plan: QualityPlan) -> list[Sheet]:
    """What became of fine detail, in the trials of the noisy tables."""
    caption = (
        "Gradient error: 0 is perfect. Residual correlation: −1 texture taken away, 0 honest. "
        "Texture kept: 1 as in the truth, less is lost detail, more is noise left in. "
        "(Definitions: `experiments/scores.py`.)"
    )
    names = ("psnr", "gradient", "correlation", "texture")
    columns = ("method", "PSNR", "gradient error", "residual correlation", "texture kept")
    methods = ("auto", "auto?", "bm3d+fast", "tv+auto", "nlm+auto")
    sheets = []
    for sigma in (15, 25):
        sheet = Sheet(f"Texture, MFI-WHU, σ = {sigma}", caption, columns)
        for method in methods:
            # All on BM3D's pairs: unlike the PSNR these are not to be compared across pairs.
            trials = pair_trials(plan, method, sigma, like="bm3d+fast")
            sheet.add(label(method), *(score(trials, name) for name in names))
        sheets.append(sheet)
    for frames in plan.noisy_frames[1:]:
        sheet = Sheet(f"Texture, simulated stacks, K = {frames}, σ = 15", caption, columns)
        for method in (*methods, "bm3d of truth"):
            trials = stack_trials(plan, method, 15, frames)
            sheet.add(label(method), *(score(trials, name) for name in names))
        sheets.append(sheet)
    for sigma in USER_SIGMAS:
        sheet = Sheet(f"Texture, {USER_FRAMES} colour frames, σ = {sigma}", caption, columns)
        for method in ("auto", "auto?", *NLM_LAST[:4]):
            trials = colour_trials(plan, method, sigma)
            sheet.add(label(method), *(score(trials, name) for name in names))
        sheets.append(sheet)
    return sheets


def rooms(plan: QualityPlan) -> list[Sheet]:
    """Pairs of rooms that were blurred after their measured depth."""
    sheet = Sheet(
        "Rooms, σ = 0",
        f"{len(plan.rooms)} RGB pairs below `real/pairs`, blurred after depth maps, with a truth.",
        ("method", "PSNR", "SSIM", "`auto` over"),
    )
    for method in ("auto?", "fast?", *_RIVALS):
        ours, trials = ([Trial("rooms", n, m) for n in plan.rooms] for m in ("auto?", method))
        over = Cell() if method == "auto?" else gap(ours, trials, "psnr", 0.0)
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
        over = Cell() if method == "auto?" else gap(ours, trials, "psnr", 0.0)
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


def pair_trials(plan: QualityPlan, method: str, sigma: float, *, like: str = "") -> Trials:
    """List a method's noisy MFI-WHU trials, on the pairs another method runs on if one is named."""
    runs = like or method
    items = plan.slow_pairs(sigma) if runs.startswith("bm3d") else plan.noisy_whu
    items = items[::3] if runs == "paper" else items
    return [Trial("mfi_whu", item, method, sigma, crop=plan.crop) for item in items]


def stack_trials(plan: QualityPlan, method: str, sigma: float, frames: int) -> Trials:
    """List a method's trials on noisy simulated stacks."""
    items, dataset = plan.noisy_stack_items(frames), f"{plan.stacks}-{frames}"
    return [Trial(dataset, item, method, sigma, crop=plan.crop) for item in items]


def colour_trials(plan: QualityPlan, method: str, sigma: float) -> Trials:
    """List a method's trials on noisy colour stacks."""
    dataset = f"colour-{USER_FRAMES}"
    return [Trial(dataset, item, method, sigma, crop=plan.crop) for item in plan.colour]


_NAMES = {"q_mi_clean": "Q_MI", "q_abf_clean": "Q^AB/F", "psnr": "PSNR", "ssim": "SSIM"}
_NAMES["inside"] = "PSNR without 8 px at each side"


def _target(method: str, what: str, name: str, *, first: bool = True) -> float | None:
    return TARGETS.get((what, name)) if method == "auto?" and first else None


def _is_slow(method: str) -> bool:
    return method == "paper" or method.startswith("bm3d")


def _with_number(method: str, trials: Iterable[Trial], usual: int) -> str:
    number = len(list(trials))
    return label(method) if number == usual else f"{label(method)} ({number} pairs)"


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
