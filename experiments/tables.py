"""The tables of the report, made of the experiments' JSON, as plain text cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.cases import LABELS, OURS, RIVALS
from experiments.claims import METRICS, REFERENCES
from experiments.letter import LETTER_SECONDS, TIMED_SIGMAS, read, read_times
from experiments.statistics import Row, difference, mean, pick, scores_by_item, values

__all__ = ["Table", "figure3_tables", "figure4_tables", "time_table", "truth_tables"]


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of text; the first column names the rows."""

    title: str
    header: list[str]
    rows: list[list[str]]


def figure3_tables(results: Path) -> list[Table]:
    """Mean scores over n, a table for each σ, metric and kind of sources."""
    rows = pick(read(results, "figure3")["rows"])
    tables = []
    for sigma in values(rows, "sigma"):
        for reference in ("clean",) if sigma == 0 else REFERENCES:
            for metric, title in METRICS.items():
                against = "" if sigma == 0 else f", against the {reference} sources"
                score = f"{metric}_{reference}"
                chosen = pick(rows, sigma=sigma)
                tables.append(_grid(f"{title} at σ = {sigma:g}{against}", chosen, "n", score))
    return tables


def figure4_tables(results: Path) -> list[Table]:
    """Mean scores over σ, then the paired differences of ours to the rivals."""
    rows = pick(read(results, "figure4")["rows"])
    means, gaps = [], []
    sigmas = sorted(values(rows, "sigma"))
    for reference in REFERENCES:
        for metric, title in METRICS.items():
            score, name = f"{metric}_{reference}", f"{title} against the {reference} sources"
            means.append(_grid(name, rows, "sigma", score))
            body = []
            for own in OURS:
                for rival in RIVALS:
                    cells = [
                        difference(
                            scores_by_item(rows, score, method=own, sigma=sigma),
                            scores_by_item(rows, score, method=rival, sigma=sigma),
                        ).text(sign="+")
                        for sigma in sigmas
                    ]
                    body.append([f"{LABELS[own]} less {LABELS[rival]}", *cells])
            header = ["paired difference", *(f"σ = {sigma:g}" for sigma in sigmas)]
            gaps.append(Table(f"{name}: paired differences", header, body))
    return means + gaps


def time_table(results: Path) -> Table:
    """Return the seconds a pair, with ratios and the letter's own."""
    body = []
    for entry in read_times(results):
        method, place = entry["method"], TIMED_SIGMAS.index(entry["sigma"])
        letter = LETTER_SECONDS.get(method)
        rival = LETTER_SECONDS["sr-ksvd"][place]
        body.append(
            [
                LABELS[method],
                f"{entry['sigma']:g}",
                entry["cpu"].text(3),
                entry["wall"].text(3),
                entry["ratios"]["sr-ksvd"].text(3),
                entry["ratios"]["sr-ksvd-dense"].text(3),
                f"{letter[place]:.3f} s, {letter[place] / rival:.2f}" if letter else "–",
            ]
        )
    body.sort(key=lambda row: float(row[1]))
    header = [
        "method",
        "σ",
        "CPU s",
        "wall s",
        "CPU, times SR-KSVD stride 2",
        "CPU, times SR-KSVD stride 1",
        "letter: seconds, times SR-KSVD",
    ]
    return Table("Time for one pair", header, body)


def truth_tables(results: Path) -> list[Table]:
    """PSNR and SSIM of pairs and stacks with truth; Q_MI and Q^AB/F of the triples."""
    content = read(results, "truth")
    rows, groups = pick(content["rows"]), content["groups"]
    tables = []
    items = set(groups["pair_items"])
    pairs = [r for r in pick(rows, dataset=groups["pairs"]) if r["case"]["item"] in items]
    for sigma in values(pairs, "sigma"):
        title = f"{groups['pairs']}, {len(items)} pairs with truth, σ = {sigma:g}"
        tables.append(_truth_table(title, pick(pairs, sigma=sigma)))
    items = set(groups["stack_items"])
    for dataset in groups["stacks"]:
        chosen = [r for r in pick(rows, dataset=dataset) if r["case"]["item"] in items]
        frames = dataset.partition("-")[2]
        for metric, name, digits in (("psnr", "PSNR (dB)", 2), ("ssim", "SSIM", 4)):
            title = f"Simulated stacks of K = {frames}, {len(items)} scenes: {name}"
            tables.append(_grid(title, chosen, "sigma", metric, digits))
    items = set(groups["triple_items"])
    triples = [r for r in pick(rows, dataset=groups["triples"]) if r["case"]["item"] in items]
    for sigma in values(triples, "sigma"):
        chosen, body = pick(triples, sigma=sigma), []
        wanted = [f"{metric}_{ref}" for ref in REFERENCES for metric in METRICS]
        for method in values(chosen, "method"):
            cells = [mean(scores_by_item(chosen, s, method=method).values()) for s in wanted]
            body.append([LABELS[method], *(cell.text() for cell in cells)])
        names = [f"{title}, {ref} sources" for ref in REFERENCES for title in METRICS.values()]
        title = f"{groups['triples']}, {len(items)} scenes of three frames, σ = {sigma:g}"
        tables.append(Table(title, ["method", *names], body))
    return tables


def _truth_table(title: str, rows: list[Row]) -> Table:
    """List the methods of one σ; where one ran on fewer pairs, `fast` is compared on those."""
    fast = scores_by_item(rows, "psnr", method="fast")
    body = []
    for method in values(rows, "method"):
        own = scores_by_item(rows, "psnr", method=method)
        similar = mean(scores_by_item(rows, "ssim", method=method).values())
        gap = "–" if method == "fast" else difference(fast, own).text(2, sign="+")
        cells = [mean(own.values()).text(2), similar.text(4), str(len(own)), gap]
        body.append([LABELS[method], *cells])
    header = ["method", "PSNR (dB)", "SSIM", "pairs", "fast is better by (dB), same pairs"]
    return Table(title, header, body)


def _grid(title: str, rows: list[Row], over: str, score: str, digits: int = 4) -> Table:
    """Tabulate mean scores: a row for each method, a column for each value of a field."""
    points = sorted(values(rows, over))
    body = []
    for method in values(rows, "method"):
        cells = [
            mean(scores_by_item(rows, score, method=method, **{over: point}).values()).text(digits)
            for point in points
        ]
        body.append([LABELS[method], *cells])
    sign = "σ" if over == "sigma" else over
    return Table(title, ["method", *(f"{sign} = {point:g}" for point in points)], body)
