"""The report, made of the experiments' JSON alone: ``index.html`` and ``summary.md``."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from experiments import tables
from experiments.cases import write_json
from experiments.claims import claims
from experiments.letter import STEPS, read
from experiments.tables import Table

__all__ = ["departures", "write"]

_LETTER_NOTES = Path(__file__).parents[1] / "docs" / "reproduction.md"

#: What the experiments themselves do otherwise than the letter, or had to choose.
_CHOICES = (
    "σ is a standard deviation. White Gaussian noise is added to the grey frames, the same for "
    "every method, its seed the number of the scene; the noisy frames stay unclipped floats.",
    "Every method is told σ. SF-DCT denoises the frames by total variation first.",
    "Fused pictures are rounded and clipped to 8 bits before scoring. Q_MI and Q^AB/F are taken "
    "twice: against the noisy sources, rounded and clipped to 8 bits, and against the clean ones.",
    "The letter's overlap p = 1 is read as stride n − 1 (paper) and as stride 1 (paper, stride "
    "1); the latter is run with noise at n = 7 and σ = 15 only. SR-KSVD runs at stride 2 outside "
    "Table 1.",
    "To bound the time, on MFI-WHU paper with noise and SR-KSVD without run on every third pair, "
    "and on simulated stacks paper runs at σ = 0 and 15 and SR-KSVD on two frames; the tables give "
    "the number of scenes, and fast's lead on those same scenes.",
    "SF-DCT uses blocks of n × n; fast uses its separable operator at n = 7 and the full learned "
    "operator at any other n; its denoiser's patches stay 7 × 7.",
    "Everything is grey. Intervals are Student's 95 % intervals over scenes.",
    "Times are CPU seconds of one process on one core, without compiling, reading and scoring.",
    "A picture equal to its truth counts as 100 dB.",
)

_VERDICTS = {True: "holds", False: "does not hold", None: "not measured"}
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.7rem}h2{margin-top:2.5rem;border-bottom:1px solid #ddd}h3{font-size:1rem}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:.5rem 0 1rem}
td,th{border-bottom:1px solid #e4e4e4;padding:.25rem .7rem;text-align:right;vertical-align:top}
table.numbers td{white-space:nowrap}
td:first-child,th:first-child,table.text td,table.text th{text-align:left}
img{max-width:100%;height:auto}.scroll{overflow-x:auto}summary{cursor:pointer}
td ul,details ul{margin:0;padding-left:1.1rem}
.holds{color:#00695c;font-weight:600}.not{color:#b3261e;font-weight:600}.failed{color:#b3261e}
"""


def write(results: Path) -> Path:
    """Draw the figures and write both files; return the page's path."""
    out = results / "report"
    found = claims(results)
    write_json(results / "claims.json", found)
    contents = {step.name: read(results, step.name) for step in STEPS}
    for step in STEPS:
        step.draw(contents[step.name], out)
    machine, times = contents["table1"]["machine"], tables.time_table(results)
    third, fourth = tables.figure3_tables(results), tables.figure4_tables(results)
    beyond = tables.truth_tables(results)
    page = [
        f"<h1>The letter's experiments ({escape(contents['figure4']['form'])})</h1>",
        f"<p>{escape(_extent(contents))} Computed on: {escape(machine)}.</p>",
        _failures(contents),
        "<h2>The claims</h2>",
        "<p>A verdict is on the letter's method read literally (paper), under both scorings; the "
        "other forms are judged beside it. A difference is “not clear” where its 95 % interval "
        "holds zero.</p>",
        *map(_claim, found),
        "<h2>Fig. 1 and 2: one scene, σ = 0 and σ = 15</h2>",
        _image("figure1.png", "one scene without noise, by all methods"),
        _image("figure2.png", "the same scene at σ = 15, by all methods"),
        "<h2>Fig. 3: over the patch size</h2>",
        _image("figure3.svg", "both metrics over the patch size"),
        _folded("Fig. 3 in numbers", third),
        "<h2>Fig. 4: over the noise</h2>",
        _image("figure4.svg", "both metrics over the noise level"),
        _folded("Fig. 4 in numbers, and paired differences", fourth),
        "<h2>Table 1: time</h2>",
        _html(times),
        "<h2>Beyond the letter: known truth, more frames</h2>",
        _image("truth.svg", "PSNR and SSIM of simulated stacks"),
        *map(_html, beyond),
        "<h2>Departures from the letter</h2>",
        *map(_html, departures()),
        "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in _CHOICES) + "</ul>",
    ]
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'>"
    head += f"<title>cofuse: the letter's experiments</title><style>{_STYLE}</style>"
    body = "\n".join(page)
    (out / "index.html").write_text(
        f"<!doctype html><html lang=en><head>{head}</head><body>\n{body}\n</body></html>\n", "utf-8"
    )
    parts = [_claims_markdown(found)]
    for heading, group in (
        ("Fig. 3", third),
        ("Fig. 4", fourth),
        (f"Table 1 ({machine})", [times]),
        ("Beyond the letter", beyond),
    ):
        parts += [f"## {heading}", *map(_markdown, group)]
    (out / "summary.md").write_text("\n\n".join(parts) + "\n", "utf-8")
    return out / "index.html"


def departures(notes: Path = _LETTER_NOTES) -> list[Table]:
    """Read the table of departures, the first one of the notes, where they are at hand."""
    if not notes.exists():
        return []
    lines = notes.read_text("utf-8").splitlines()
    starts = [k for k, line in enumerate(lines) if line.startswith("| place in the letter")]
    body = []
    for line in lines[starts[0] :] if starts else []:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    return [Table("Where the letter is silent or misprinted", body[0], body[2:])] if body else []


def _extent(contents: dict[str, Any]) -> str:
    cases = [row["case"] for row in contents["figure4"]["rows"]]
    scenes = len({case["item"] for case in cases})
    total = sum(len(content["rows"]) for content in contents.values())
    return (
        f"{scenes} pairs of {cases[0]['dataset']} for the letter's figures, {total} cases in all."
    )


def _failures(contents: dict[str, Any]) -> str:
    failed = [row for content in contents.values() for row in content["rows"] if "error" in row]
    texts = (f"<li>{escape(str(row['case']))}: {escape(row['error'])}</li>" for row in failed)
    return f"<h2 class=failed>Failed cases</h2><ul>{''.join(texts)}</ul>" if failed else ""


def _claim(claim: dict[str, Any]) -> str:
    """Write one claim with its verdict, and fold away where it fails."""
    rows = []
    for variant in claim["variants"]:
        shown = variant.get("measured") or variant["against"]
        listed = "".join(f"<li>{escape(text)}</li>" for text in shown)
        where = f"<details><summary>{len(shown)}</summary><ul>{listed}</ul></details>"
        count = f"{variant['points_for']} of {variant['points']}"
        cells = [escape(variant["label"]), escape(variant["scoring"]), _verdict(variant), count]
        cells.append(where if len(shown) > 2 else f"<ul>{listed}</ul>" if shown else "–")
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    names = ("method", "scoring", "verdict", "points for it", "points against it, or measured")
    head = "".join(f"<th>{name}</th>" for name in names)
    style = "holds" if claim["verdict"] == "holds" else "not"
    return (
        f"<h3 id={claim['name']}>{escape(claim['claim'])} "
        f"<span class={style}>{claim['verdict']}</span></h3>"
        f"<div class=scroll><table class=text><tr>{head}</tr>{''.join(rows)}</table></div>"
    )


def _verdict(variant: dict[str, Any]) -> str:
    style = {True: "holds", False: "not", None: "none"}[variant["holds"]]
    return f"<span class={style}>{_VERDICTS[variant['holds']]}</span>"


def _image(file: str, text: str) -> str:
    return f'<p><img src="{file}" alt="{escape(text)}"></p>'


def _folded(title: str, group: Iterable[Table]) -> str:
    return f"<details><summary>{escape(title)}</summary>{''.join(map(_html, group))}</details>"


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    body = (
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    kind = "text" if len(table.header) == 3 and "letter" in table.header[0] else "numbers"
    text = f"<table class={kind}><tr>{head}</tr>{''.join(body)}</table>"
    return f"<h3>{escape(table.title)}</h3><div class=scroll>{text}</div>"


def _markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return f"**{table.title}**\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _claims_markdown(found: list[dict[str, Any]]) -> str:
    lines = ["## The claims"]
    for claim in found:
        lines.append(f"**{claim['claim']}** {claim['verdict'].capitalize()}.")
        head = ["method", "scoring", "verdict", "points for it"]
        body, where = [], []
        for variant in claim["variants"]:
            shown = variant.get("measured") or variant["against"]
            verdict = _VERDICTS[variant["holds"]]
            count = f"{variant['points_for']} of {variant['points']}"
            body.append([variant["label"], variant["scoring"], verdict, count])
            if shown:
                where.append(f"- {variant['label']}, {variant['scoring']}")
                where += [f"  - {text}" for text in shown]
        rows = [head, ["---"] * len(head), *body]
        lines.append("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
        if where:
            lines.append("Points against it, or measured:\n\n" + "\n".join(where))
    return "\n\n".join(lines)
