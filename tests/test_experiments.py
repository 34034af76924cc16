"""The experiments: cached cases, statistics, claims and the report, on tiny simulated pictures."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from cofuse import CofuseError
from experiments import letter, report
from experiments.cases import Case, case_key, code_version, load, solve
from experiments.claims import judge
from experiments.pictures import noisy, scene
from experiments.plan import Plan, add_arguments, plan_from
from experiments.runner import run_cases
from experiments.statistics import Mean, difference, mean, scores_by_item

TINY = Case("sample-2", 1, 0, "average")


# --- statistics ---


def test_the_interval_is_students():
    # Worked by hand: mean 2.5, s² = 5/3, t(3 degrees, 97.5 %) = 3.182446.
    result = mean([1.0, 2.0, 3.0, 4.0])
    assert result.mean == 2.5 and result.count == 4
    assert result.half == pytest.approx(3.182446305 * math.sqrt(5 / 3 / 4), rel=1e-8)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    samples = rng.normal(3.0, 2.0, (2000, 20))
    covered = sum(abs(m.mean - 3.0) <= m.half for m in map(mean, samples.tolist()))
    assert 0.93 < covered / 2000 < 0.97


def test_differences_are_paired_over_common_items():
    gap = difference({1: 3.0, 2: 5.0, 3: 9.0}, {1: 2.0, 2: 4.0, 4: 0.0})
    assert gap == Mean(1.0, 0.0, 2) and gap.is_clear
    assert gap.text(sign="+") == "+1.0000 ± 0.0000"


# --- claims, on hand-made rows ---


def row(method, sigma, n, mi, abf, item=1):
    """Make a row of an experiment with the same scores under both scorings."""
    scores = {"q_mi_noisy": mi, "q_mi_clean": mi, "q_abf_noisy": abf, "q_abf_clean": abf}
    case = {
        "dataset": "lytro", "item": item, "sigma": sigma, "method": method, "n": n, "repeat": 0,
    }  # fmt: skip
    return {"case": case, "scores": scores, "seconds": {"cpu": 1.0, "wall": 1.0}}


def rows_that_agree():
    """Rows in which every claim of the letter holds."""
    strength = {"sf-dct": 0.0, "sr-ksvd": 0.1, "paper": 0.2, "paper-dense": 0.25, "fast": 0.3}
    third = [
        row(method, sigma, n, s - abs(n - 7) / 100 + item / 9, s - abs(n - 7) / 100, item)
        for method, s in strength.items()
        for sigma in (0, 15)
        for n in (5, 7, 9)
        for item in (1, 2)
    ]  # fmt: skip
    fourth = [
        row(method, sigma, 7, s - sigma / 50 + item / 9, s - sigma / 50, item)
        for method, s in strength.items()
        for sigma in (0, 5, 15)
        for item in (1, 2)
    ]
    return third, fourth


def times(ratio):
    rivals = {"sr-ksvd": Mean(ratio, 0.01, 5), "sr-ksvd-dense": Mean(ratio, 0.01, 5)}
    return [
        {"method": method, "sigma": sigma, "ratios": rivals}
        for method in ("paper", "paper-dense", "fast")
        for sigma in (0, 15)
    ]


def verdicts(*given):
    return {claim["name"]: claim["verdict"] for claim in judge(*given)}


def test_all_claims_hold_where_they_should():
    assert set(verdicts(*rows_that_agree(), times(1.1)).values()) == {"holds"}


def test_one_point_below_a_rival_is_named():
    third, fourth = rows_that_agree()
    for entry in third:
        case = entry["case"]
        if (case["method"], case["n"], case["sigma"]) == ("paper", 5, 15):
            entry["scores"]["q_abf_noisy"] = -1.0
    above = judge(third, fourth, times(1.1))[0]
    assert above["verdict"] == "does not hold"
    wrong = [variant for variant in above["variants"] if not variant["holds"]]
    assert [(v["method"], v["scoring"]) for v in wrong] == [("paper", "noisy sources")]
    assert len(wrong[0]["against"]) == 2 and wrong[0]["points"] - wrong[0]["points_for"] == 2
    assert wrong[0]["against"][0].startswith("Q^AB/F, n = 5, σ = 15: -0.9800")


def test_another_best_size_a_rise_and_a_long_time_refute():
    third, fourth = rows_that_agree()
    for entry in third:
        if entry["case"]["method"] == "paper" and entry["case"]["n"] == 9:
            entry["scores"]["q_mi_clean"] += 1.0
    for entry in fourth:
        if entry["case"]["method"] == "paper" and entry["case"]["sigma"] == 5:
            entry["scores"]["q_abf_clean"] += 1.0
    found = {claim["name"]: claim for claim in judge(third, fourth, times(3.0))}
    assert {n: c["verdict"] for n, c in found.items()} == {
        "above": "holds",
        "best-size": "does not hold",
        "falls": "does not hold",
        "time": "does not hold",
    }
    paper = found["falls"]["variants"][5]
    assert paper["method"] == "paper"
    assert paper["against"] == ["Q^AB/F, σ = 0 to 5: +0.9000 ± 0.0000"]


# --- pictures and plans ---


def test_noise_is_one_pattern_scaled_by_sigma_and_never_clipped():
    frames = scene(None, "sample-2", 1).frames
    weak, strong = (noisy(frames, sigma, seed=1) for sigma in (5, 20))
    for k, frame in enumerate(frames):
        np.testing.assert_allclose(strong[k] - frame, 4 * (weak[k] - frame), atol=1e-3)
    assert max(float(f.max()) for f in strong) > 255 or min(float(f.min()) for f in strong) < 0


def test_collections_need_a_folder():
    with pytest.raises(CofuseError, match="--data"):
        scene(None, "lytro", 1)
    with pytest.raises(CofuseError, match="no collection 'nothing'"):
        scene(Path("/"), "nothing", 1)


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return plan_from(parser.parse_args(arguments))


def test_plans(tmp_path, monkeypatch):
    monkeypatch.delenv("COFUSE_DATA", raising=False)
    full = parsed("--data", str(tmp_path))
    assert full.pairs == ("lytro", tuple(range(1, 21))) and full.results == Path("results")
    assert len(full.truth_pairs[1]) == 60 and full.workers >= 1
    quick = parsed("--data", str(tmp_path), "--quick", "--workers", "3")
    assert len(quick.pairs[1]) == 4 and len(quick.sizes) == 3 and quick.workers == 3
    assert parsed("--simulated").data is None
    with pytest.raises(SystemExit, match="--data"):
        parsed()
    with pytest.raises(SystemExit, match="--workers"):
        parsed("--simulated", "--workers", "0")


def test_the_full_run_holds_what_the_letter_measured(tmp_path):
    plan = Plan(tmp_path, tmp_path)
    fourth, third = letter.figure4_cases(plan), letter.figure3_cases(plan)
    assert {c.sigma for c in fourth} == {0, 5, 10, 15, 20} and {c.n for c in fourth} == {7}
    assert {c.n for c in third} == {5, 6, 7, 8, 9} and {c.sigma for c in third} == {0, 15}
    for found in (third, fourth, letter.figures12_cases(plan), letter.truth_cases(plan)):
        assert {"sf-dct", "sr-ksvd", "paper", "fast"} <= {c.method for c in found}
        assert len(set(found)) == len(found)
    timed = letter.table1_cases(replace(plan, repeats=2))
    first, second = (
        [c.method for c in timed if (c.item, c.sigma, c.repeat) == (1, 0, repeat)]
        for repeat in (1, 2)
    )
    assert first == second[::-1] and len(first) == 6


# --- cases and their cache ---


def test_the_key_tells_settings_inputs_and_code_apart(tmp_path):
    (tmp_path / "lytro").mkdir()
    files = [tmp_path / "lytro" / f"lytro-01-{side}.jpg" for side in "AB"]
    for file in files:
        file.write_bytes(b"x")
    case = Case("lytro", 1, 0, "paper")
    other_folder = tmp_path / "copy"
    (other_folder / "lytro").mkdir(parents=True)
    for file in files:
        (other_folder / "lytro" / file.name).write_bytes(b"y")
    keys = [
        case_key(case, tmp_path, "1"),
        case_key(case, tmp_path, "2"),
        case_key(case, other_folder, "1"),
        case_key(replace(case, n=5), tmp_path, "1"),
        case_key(replace(case, sigma=15), tmp_path, "1"),
        case_key(replace(case, method="paper-dense"), tmp_path, "1"),
        case_key(replace(case, repeat=1), tmp_path, "1"),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == case_key(Case("lytro", 1, 0, "paper"), tmp_path, "1")


def test_a_case_is_scored_and_timed(tmp_path):
    record = solve(TINY, None, tmp_path / "case.json")
    assert set(record["scores"]) == {
        "q_mi_clean", "q_abf_clean", "q_mi_noisy", "q_abf_noisy", "psnr", "ssim",
    }  # fmt: skip
    assert record["scores"]["q_mi_clean"] == record["scores"]["q_mi_noisy"]
    assert record["seconds"]["wall"] > 0
    assert load(tmp_path / "case.json", TINY) == record
    assert scores_by_item([record], "psnr", method="average") == {
        ("sample-2", 1, 0): record["scores"]["psnr"]
    }


def test_a_failed_case_is_recorded_and_tried_again(tmp_path):
    record = solve(replace(TINY, dataset="sample-0"), None, tmp_path / "case.json")
    assert record["error"].startswith("CofuseError: `frames` is 0")
    assert load(tmp_path / "case.json", TINY) is None


def test_a_case_of_changed_source_is_a_failure(tmp_path):
    record = solve(TINY, None, tmp_path / "case.json", "another version")
    assert record["error"] == "RuntimeError: the source was changed during the run; run it again"
    now = code_version(TINY.method)
    assert "error" not in solve(TINY, None, tmp_path / "case.json", now)


def test_a_kept_picture_that_is_gone_is_made_again(tmp_path):
    case = replace(TINY, keep=True)
    solve(case, None, tmp_path / "case.json")
    assert load(tmp_path / "case.json", case) is not None
    (tmp_path / "case.png").unlink()
    assert load(tmp_path / "case.json", case) is None


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path, capsys):
    cases = [replace(TINY, item=item) for item in (1, 2)] + [Case("sample-0", 1, 0, "average")]

    def run(wanted):
        return run_cases("test", wanted, data=None, results=tmp_path, workers=2)

    first = run(cases)
    assert (first.computed, first.failed) == (3, 1)
    assert "FAILED" in capsys.readouterr().err
    second = run(cases)
    assert (second.computed, second.failed) == (1, 1)  # only what failed is tried again
    assert second.rows[:2] == first.rows[:2]
    for path in (tmp_path / "cases").glob("*.json"):
        if json.loads(path.read_text())["case"]["item"] == 2:
            path.unlink()
    assert run(cases[:2]).computed == 1
    assert run(cases[:2]).computed == 0
    assert "all 2 cases are there" in capsys.readouterr().err
    assert run([replace(TINY, sigma=5)]).computed == 1


# --- the report ---


def test_the_report_is_made_of_the_rows_alone(tmp_path):
    pytest.importorskip("matplotlib")
    third, fourth = rows_that_agree()
    truth = [row(m, s, 7, 0.5, 0.4) for m in ("fast", "paper", "gff") for s in (0, 15)]
    for entry in truth:
        entry["scores"] |= {"psnr": 30.0, "ssim": 0.9}
    groups = {"pairs": "lytro", "triples": "lytro", "stacks": ["lytro"]}
    groups |= {"pair_items": [1], "triple_items": [1], "stack_items": [1]}
    (tmp_path / "figures12").mkdir()
    cv2.imwrite(str(tmp_path / "figures12" / "a.png"), np.zeros((40, 50), np.uint8))
    shown = {"0": [{"title": "source", "file": "../figures12/a.png"}]}
    methods = ("sf-dct", "sr-ksvd", "sr-ksvd-dense", "paper", "paper-dense", "fast")
    contents = {
        "figure3": {"rows": third},
        "figure4": {"rows": fourth},
        "figures12": {"rows": [], "shown": shown},
        "truth": {"rows": truth, "groups": groups},
        "table1": {"rows": [row(m, s, 7, 0, 0) for m in methods for s in (0, 15)]},
    }
    for name, content in contents.items():
        known = {"machine": "this one", "form": "by hand"}
        (tmp_path / f"{name}.json").write_text(json.dumps(known | content))
    page = report.write(tmp_path).read_text("utf-8")
    assert "by hand" in page and "n = 7 is the best patch size." in page
    assert page.count("<table") > 10
    drawn = {"figure1.png", "figure3.svg", "figure4.svg", "truth.svg"}
    assert drawn < {path.name for path in (tmp_path / "report").iterdir()}
    text = (tmp_path / "report" / "summary.md").read_text("utf-8")
    assert "| paper (stride n − 1) | 15 | 1.000 | 1.000 | 1.000 | 1.000 |" in text
