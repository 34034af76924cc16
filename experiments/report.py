"""The report of the letter's experiments, in Markdown: claims, figures, tables, what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.claims import METRICS, REFERENCES, judge
from experiments.letter import LETTER_SECONDS, OURS, RIVALS, TWO_SIGMAS, Plan, read_times
from experiments.methods import label
from experiments.statistics import Row, difference, markdown, mean, pick, scores_by_item, values
from experiments.trials import machine, write_whole

#: What the experiments themselves do otherwise than the letter, or had to choose.
_CHOICES = """
- σ is a standard deviation. White Gaussian noise is added to the grey frames, the same for every
  method, its seed the number of the scene; the noisy frames stay unclipped floats.
- Every method is told σ. SF-DCT denoises the frames by total variation first.
- Fused pictures are rounded and clipped to 8 bits before scoring. Q_MI and Q^AB/F are taken twice:
  against the noisy sources, rounded and clipped to 8 bits, and against the clean ones.
- The letter's overlap p = 1 is read as stride n − 1 (`paper`) and as stride 1; the latter is run
  with noise at n = 7 and σ = 15 only. SR-KSVD runs at stride 2 outside Table 1.
- To bound the time, on MFI-WHU `paper` with noise and SR-KSVD without run on every third pair, and
  on simulated stacks `paper` runs at σ = 0 and 15 and SR-KSVD on two frames; the tables give the
  number of scenes, and the lead of `fast` on those same scenes.
- SF-DCT uses blocks of n × n; `fast` uses its separable operator at n = 7 and the full learned
  operator at any other n; what restores is the same at every n.
- Everything is grey. Intervals are Student's 95 % intervals over scenes.
- Times are CPU seconds of one process on one core, without loading, reading and scoring.
- A picture equal to its truth counts as 100 dB.
- Where the letter is silent or misprinted, docs/reproduction.md says what was done.
"""

_VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}


def write(plan: Plan, rows: dict[str, list[Row]]) -> Path:
    """Draw the figures and write the report; return its path."""
    from experiments.figures import draw_all

    out = plan.results / "report"
    draw_all(plan, rows, out)
    times = read_times(rows["table1"])
    found = judge(pick(rows["figure3"]), pick(rows["figure4"]), times)
    total = sum(map(len, rows.values()))
    failed = [row for group in rows.values() for row in group if "error" in row]
    parts = [f"# The letter's experiments ({plan.form})"]
    parts += [f"{len(plan.pairs[1])} pairs of {plan.pairs[0]} for the figures, {total} trials."]
    parts += [f"Computed on: {machine()}."]
    parts += [f"**Failed:** {row['trial']}: {row['error']}" for row in failed]
    parts += ["## The claims", *map(_claim, found)]
    parts += ["## Fig. 1 and 2: one scene, σ = 0 and σ = 15"]
    parts += [f"![one scene by all methods](figure{number}.png)" for number in (1, 2)]
    parts += ["## Fig. 3: over the patch size", "![](figure3.svg)", *_figure3(rows["figure3"])]
    parts += ["## Fig. 4: over the noise", "![](figure4.svg)", *_figure4(rows["figure4"])]
    parts += ["## Table 1: time for one pair", _time_table(times)]
    parts += ["## Beyond the letter: known truth, more frames"]
    parts += [*_truth_tables(plan, rows["truth"]), "## Departures from the letter", _CHOICES]
    write_whole(out / "report.md", "\n\n".join(part.strip() for part in parts) + "\n")
    return out / "report.md"


def _claim(claim: dict[str, Any]) -> str:
    """Write one claim with its verdict, and where it fails.

    The verdict is on the letter's method read literally (`paper`), under both scorings; the other
    forms are judged beside it.
    """
    body, where = [], []
    for variant in claim["variants"]:
        name, scoring = label(variant["method"]), variant["scoring"]
        count = f"{variant['points_for']} of {variant['points']}"
        body.append([name, scoring, _VERDICTS[variant["holds"]], count])
        if shown := variant.get("measured") or variant["against"]:
            where += [f"- {name}, {scoring}", *(f"  - {text}" for text in shown)]
    title = f"**{claim['claim']}** {claim['verdict'].capitalize()}."
    table = markdown(title, ["method", "scoring", "verdict", "points for it"], body)
    listed = "\nPoints against it, or measured:\n\n" + "\n".join(where) if where else ""
    return table + listed


def _figure3(rows: list[Row]) -> list[str]:
    """Mean scores over n, a table for each σ, metric and kind of sources."""
    tables = []
    for sigma in values(pick(rows), "sigma"):
        for reference in ("clean",) if sigma == 0 else REFERENCES:
            for metric, title in METRICS.items():
                against = "" if sigma == 0 else f", against the {reference} sources"
                title = f"{title} at σ = {sigma:g}{against}"
                tables.append(_grid(title, pick(rows, sigma=sigma), "n", f"{metric}_{reference}"))
    return tables


def _figure4(rows: list[Row]) -> list[str]:
    """Mean scores over σ, then the paired differences of ours to the rivals."""
    rows = pick(rows)
    means, gaps = [], []
    sigmas = sorted(values(rows, "sigma"))
    for reference in REFERENCES:
        for metric, title in METRICS.items():
            score, name = f"{metric}_{reference}", f"{title} against the {reference} sources"
            means.append(_grid(name, rows, "sigma", score))
            body = []
            for own in OURS:
                for rival in RIVALS:
                    cells = []
                    for sigma in sigmas:
                        pair = (
                            scores_by_item(rows, score, method=method, sigma=sigma)
                            for method in (own, rival)
                        )
                        cells.append(difference(*pair).text(sign="+"))
                    body.append([f"{label(own)} less {label(rival)}", *cells])
            header = ["paired difference", *(f"σ = {sigma:g}" for sigma in sigmas)]
            gaps.append(markdown(f"**{name}: paired differences**", header, body))
    return means + gaps


def _time_table(times: list[dict[str, Any]]) -> str:
    """Return the seconds a pair, with ratios and the letter's own."""
    body = []
    for entry in sorted(times, key=lambda entry: entry["sigma"]):
        method, place = entry["method"], TWO_SIGMAS.index(entry["sigma"])
        ratios = [entry["ratios"][rival].text(3) for rival in ("sr-ksvd", "sr-ksvd-dense")]
        cells = [entry["cpu"].text(3), entry["wall"].text(3), *ratios, "–"]
        if letter := LETTER_SECONDS.get(method):
            rival = LETTER_SECONDS["sr-ksvd"][place]
            cells[-1] = f"{letter[place]:.3f} s, {letter[place] / rival:.2f}"
        body.append([label(method), f"{entry['sigma']:g}", *cells])
    header = ["method", "σ", "CPU s", "wall s", "CPU, times SR-KSVD stride 2"]
    header += ["CPU, times SR-KSVD stride 1", "letter: seconds, times SR-KSVD"]
    return markdown("", header, body)


def _truth_tables(plan: Plan, rows: list[Row]) -> list[str]:
    """PSNR and SSIM of pairs and stacks with truth; Q_MI and Q^AB/F of the triples."""

    def of(dataset: str, items: tuple[int, ...]) -> list[Row]:
        return [row for row in pick(rows, dataset=dataset) if row["trial"]["item"] in items]

    tables = []
    name, items = plan.truth_pairs
    for sigma in plan.truth_pair_sigmas:
        title = f"{name}, {len(items)} pairs with truth, σ = {sigma:g}"
        tables.append(_truth_table(title, pick(of(name, items), sigma=sigma)))
    kind, items = plan.stacks
    for frames in plan.stack_frames:
        for metric, name, digits in (("psnr", "PSNR (dB)", 2), ("ssim", "SSIM", 4)):
            title = f"Simulated stacks of K = {frames}, {len(items)} scenes: {name}"
            tables.append(_grid(title, of(f"{kind}-{frames}", items), "sigma", metric, digits))
    name, items = plan.triples
    wanted = {f"{m}_{r}": f"{t}, {r} sources" for r in REFERENCES for m, t in METRICS.items()}
    for sigma in TWO_SIGMAS:
        chosen, body = pick(of(name, items), sigma=sigma), []
        for method in values(chosen, "method"):
            cells = [mean(scores_by_item(chosen, s, method=method).values()) for s in wanted]
            body.append([label(method), *(cell.text() for cell in cells)])
        title = f"**{name}, {len(items)} scenes of three frames, σ = {sigma:g}**"
        tables.append(markdown(title, ["method", *wanted.values()], body))
    return tables


def _truth_table(title: str, rows: list[Row]) -> str:
    """List the methods of one σ; where one ran on fewer pairs, `fast` is compared on those."""
    fast = scores_by_item(rows, "psnr", method="fast")
    body = []
    for method in values(rows, "method"):
        own = scores_by_item(rows, "psnr", method=method)
        similar = mean(scores_by_item(rows, "ssim", method=method).values())
        gap = "–" if method == "fast" else difference(fast, own).text(2, sign="+")
        cells = [mean(own.values()).text(2), similar.text(4), str(len(own)), gap]
        body.append([label(method), *cells])
    header = ["method", "PSNR (dB)", "SSIM", "pairs", "`fast` is better by (dB), same pairs"]
    return markdown(f"**{title}**", header, body)


def _grid(title: str, rows: list[Row], over: str, score: str, digits: int = 4) -> str:
    """Tabulate mean scores: a row for each method, a column for each value of a field."""
    points = sorted(values(rows, over))
    body = []
    for method in values(rows, "method"):
        found = [scores_by_item(rows, score, method=method, **{over: point}) for point in points]
        body.append([label(method), *(mean(f.values()).text(digits) for f in found)])
    sign = "σ" if over == "sigma" else over
    return markdown(f"**{title}**", ["method", *(f"{sign} = {p:g}" for p in points)], body)
