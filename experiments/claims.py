"""The letter's claims, one by one, held against what was measured.

A claim *holds* where the means over all pairs say so at every point measured; differences between
methods are paired, with 95 % intervals over pairs. The verdict on a claim is that on the letter's
method read literally (`paper`) under both kinds of scoring, against the noisy sources and against
the clean ones; our other forms are judged beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from experiments.letter import LETTER_METHODS, OURS, RIVALS
from experiments.methods import LABELS
from experiments.statistics import Row, difference, mean, pick, scores_by_item, values

METRICS = {"q_mi": "Q_MI", "q_abf": "Q^AB/F"}
REFERENCES = ("noisy", "clean")
#: "About as much": within this share of the letter's own ratio.
_NEAR = 0.25
#: Paper against SR-KSVD in the letter's Table 1.
_RATIOS = {0: 1.05, 15: 1.13}

Finding = dict[str, Any]


def judge(third: list[Row], fourth: list[Row], times: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Judge all claims from the rows of both figures and the table of times."""
    both = list({json.dumps(r["trial"], sort_keys=True): r for r in third + fourth}.values())
    return [
        _claim(
            "above",
            "Ours is above both rivals in both metrics, for every n and σ.",
            _variants(lambda method, reference: _above(both, method, reference)),
        ),
        _claim(
            "best-size",
            "n = 7 is the best patch size.",
            _variants(lambda method, reference: _best_size(third, method, reference)),
        ),
        _claim(
            "falls",
            "Both metrics fall as σ grows.",
            _variants(lambda method, ref: _falls(fourth, method, ref), LETTER_METHODS),
        ),
        _claim(
            "time",
            "Ours takes about as long as SR-KSVD (1.05 and 1.13 times at σ = 0 and 15).",
            _times(times),
        ),
    ]


def _claim(name: str, text: str, variants: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the findings on a claim together; those on `paper` decide."""
    deciding = [v["holds"] for v in variants if v["method"] == "paper" and v["holds"] is not None]
    verdict = None if not deciding else "holds" if all(deciding) else "does not hold"
    return {"name": name, "claim": text, "verdict": verdict or "not measured", "variants": variants}


def _variants(
    find: Callable[[str, str], list[Finding]], methods: tuple[str, ...] = OURS
) -> list[dict[str, Any]]:
    """Judge every method under either scoring; `find` returns a finding for each point."""
    found = []
    for method in methods:
        for reference in REFERENCES:
            found.append(_variant(method, f"{reference} sources", find(method, reference)))
    return found


def _variant(method: str, scoring: str, findings: list[Finding]) -> dict[str, Any]:
    against = [f["text"] for f in findings if not f["holds"]]
    return {
        "method": method,
        "scoring": scoring,
        "holds": not against if findings else None,
        "points": len(findings),
        "points_for": len(findings) - len(against),
        "against": against,
    }


def _above(rows: list[Row], method: str, reference: str) -> list[Finding]:
    """Compare a method with each rival at every n and σ where it was measured."""
    findings = []
    for sigma in sorted(values(rows, "sigma")):
        for n in sorted(values(pick(rows, sigma=sigma, method=method), "n")):
            for metric, title in METRICS.items():
                score = f"{metric}_{reference}"
                own = scores_by_item(rows, score, method=method, n=n, sigma=sigma)
                for rival in RIVALS:
                    other = scores_by_item(rows, score, method=rival, n=n, sigma=sigma)
                    gap = difference(own, other)
                    if gap.count:
                        doubt = "" if gap.is_clear else ", not clear"
                        text = f"{title}, n = {n}, σ = {sigma:g}: {gap.text(sign='+')} against "
                        text += f"{LABELS[rival]}{doubt}"
                        findings.append({"holds": gap.mean > 0, "text": text})
    return findings


def _best_size(rows: list[Row], method: str, reference: str) -> list[Finding]:
    """Find the best n for each metric and σ, where more than one n was measured."""
    findings = []
    for sigma in sorted(values(rows, "sigma")):
        sizes = values(pick(rows, method=method, sigma=sigma), "n")
        if len(sizes) < 2 or 7 not in sizes:
            continue
        for metric, title in METRICS.items():
            scores = {
                n: scores_by_item(rows, f"{metric}_{reference}", method=method, sigma=sigma, n=n)
                for n in sizes
            }
            best = max(sizes, key=lambda n: mean(scores[n].values()).mean)
            gap = difference(scores[best], scores[7])
            doubt = "" if gap.is_clear else ", not clear"
            text = f"{title}, σ = {sigma:g}: n = {best} is best, {gap.text(sign='+')} against "
            findings.append({"holds": best == 7, "text": f"{text}n = 7{doubt}"})
    return findings


def _falls(rows: list[Row], method: str, reference: str) -> list[Finding]:
    """Compare every σ with the next higher one."""
    findings = []
    sigmas = sorted(values(pick(rows, method=method), "sigma"))
    for low, high in pairwise(sigmas):
        for metric, title in METRICS.items():
            before, after = (
                scores_by_item(rows, f"{metric}_{reference}", method=method, sigma=sigma, n=7)
                for sigma in (low, high)
            )
            change = difference(after, before)
            if change.count:
                text = f"{title}, σ = {low:g} to {high:g}: {change.text(sign='+')}"
                findings.append({"holds": change.mean < 0, "text": text})
    return findings


def _times(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare both readings of ours with both strides of SR-KSVD."""
    found = []
    for method in OURS:
        for rival in ("sr-ksvd", "sr-ksvd-dense"):
            findings = []
            for entry in table:
                ratio = entry["ratios"][rival]
                if entry["method"] == method and ratio.count:
                    claimed = _RATIOS[int(entry["sigma"])]
                    text = f"σ = {entry['sigma']:g}: {ratio.text(3)} times (letter {claimed})"
                    findings.append({"holds": abs(ratio.mean / claimed - 1) <= _NEAR, "text": text})
            variant = _variant(method, f"CPU time against {LABELS[rival]}", findings)
            found.append(variant | {"measured": [finding["text"] for finding in findings]})
    return found
