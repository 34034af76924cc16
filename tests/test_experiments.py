"""The experiments: statistics, claims, plans and cached trials, on tiny simulated pictures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cofuse import CofuseError
from experiments import letter
from experiments.claims import judge
from experiments.letter import Plan
from experiments.pictures import noisy, scene
from experiments.reproduce import plan_from
from experiments.statistics import Mean, difference, mean, scores_by_item
from experiments.trials import Trial, code_version, load, run_trials, solve, worker_pool

TINY = Trial("sample-2", 1, "average")


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
    trial = {
        "dataset": "lytro", "item": item, "sigma": sigma, "method": method, "n": n, "repeat": 0,
    }  # fmt: skip
    return {"trial": trial, "scores": scores, "seconds": {"cpu": 1.0, "wall": 1.0}}


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
        trial = entry["trial"]
        if (trial["method"], trial["n"], trial["sigma"]) == ("paper", 5, 15):
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
        if entry["trial"]["method"] == "paper" and entry["trial"]["n"] == 9:
            entry["scores"]["q_mi_clean"] += 1.0
    for entry in fourth:
        if entry["trial"]["method"] == "paper" and entry["trial"]["sigma"] == 5:
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
    frames, _ = scene(None, "sample-2", 1)
    weak, strong = (noisy(frames, sigma, seed=1) for sigma in (5, 20))
    for k, frame in enumerate(frames):
        np.testing.assert_allclose(strong[k] - frame, 4 * (weak[k] - frame), atol=1e-3)
    assert max(float(f.max()) for f in strong) > 255 or min(float(f.min()) for f in strong) < 0


def test_collections_need_a_folder():
    with pytest.raises(CofuseError, match="--data"):
        scene(None, "lytro", 1)
    with pytest.raises(CofuseError, match="no collection 'nothing'"):
        scene(Path("/"), "nothing", 1)


def test_plans(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("COFUSE_DATA", raising=False)
    full = plan_from(["--data", str(tmp_path)])
    assert full.pairs == ("lytro", tuple(range(1, 21))) and full.results == Path("results")
    assert len(full.truth_pairs[1]) == 60 and full.workers >= 1
    quick = plan_from(["--data", str(tmp_path), "--quick", "--workers", "3"])
    assert len(quick.pairs[1]) == 4 and len(quick.sizes) == 3 and quick.workers == 3
    assert plan_from(["--simulated"]).data is None
    for arguments, words in (([], "--data"), (["--simulated", "--workers", "0"], "--workers")):
        with pytest.raises(SystemExit):
            plan_from(arguments)
        assert words in capsys.readouterr().err


def test_the_full_run_holds_what_the_letter_measured(tmp_path):
    plan = Plan(tmp_path, tmp_path)
    fourth, third = letter.figure4_trials(plan), letter.figure3_trials(plan)
    assert {c.sigma for c in fourth} == {0, 5, 10, 15, 20} and {c.n for c in fourth} == {7}
    assert {c.n for c in third} == {5, 6, 7, 8, 9} and {c.sigma for c in third} == {0, 15}
    for found in (third, fourth, letter.figures12_trials(plan), letter.truth_trials(plan)):
        assert {"sf-dct", "sr-ksvd", "paper", "fast"} <= {c.method for c in found}
        assert len(set(found)) == len(found)
    timed = letter.table1_trials(replace(plan, repeats=2))
    first, second = (
        [c.method for c in timed if (c.item, c.sigma, c.repeat) == (1, 0, repeat)]
        for repeat in (1, 2)
    )
    assert first == second[::-1] and len(first) == 6


# --- trials and their cache ---


def test_the_key_tells_settings_inputs_and_code_apart(tmp_path):
    for name, content in (("one", b"x"), ("two", b"y")):
        (tmp_path / name / "lytro").mkdir(parents=True)
        for side in "AB":
            (tmp_path / name / "lytro" / f"lytro-01-{side}.jpg").write_bytes(content)
    trial, here = Trial("lytro", 1, "paper"), tmp_path / "one"
    keys = [trial.key(here, "1"), trial.key(here, "2"), trial.key(tmp_path / "two", "1")]
    for change in ({"n": 5}, {"sigma": 15}, {"method": "paper-dense"}, {"repeat": 1}, {"crop": 9}):
        keys.append(replace(trial, **change).key(here, "1"))
    assert len(set(keys)) == len(keys)
    assert keys[0] == Trial("lytro", 1, "paper").key(here, "1")


def test_a_trial_is_scored_and_timed(tmp_path):
    record = solve(TINY, None, tmp_path / "a.json", tmp_path)
    scores = record["scores"]
    assert {"q_mi_clean", "q_abf_clean", "q_mi_noisy", "q_abf_noisy", "psnr", "ssim"} < set(scores)
    assert scores["q_mi_clean"] == scores["q_mi_noisy"] and record["seconds"]["wall"] > 0
    assert load(tmp_path / "a.json", TINY) == record
    assert scores_by_item([record], "psnr", method="average") == {
        ("sample-2", 1, 0): scores["psnr"]
    }


def test_a_failed_trial_is_recorded_and_tried_again(tmp_path):
    record = solve(replace(TINY, dataset="sample-0"), None, tmp_path / "a.json", tmp_path)
    assert record["error"].startswith("CofuseError: `frames` is 0")
    assert load(tmp_path / "a.json", TINY) is None


def test_a_trial_of_changed_source_is_a_failure(tmp_path):
    record = solve(TINY, None, tmp_path / "a.json", tmp_path, "another version")
    assert record["error"] == "RuntimeError: the source was changed during the run; run it again"
    now = code_version(TINY.method)
    assert "error" not in solve(TINY, None, tmp_path / "a.json", tmp_path, now)


def test_a_kept_picture_that_is_gone_is_made_again(tmp_path):
    trial = replace(TINY, keep=True)
    solve(trial, None, tmp_path / "a.json", tmp_path)
    assert load(tmp_path / "a.json", trial) is not None
    (tmp_path / "a.png").unlink()
    assert load(tmp_path / "a.json", trial) is None


def test_a_rivals_record_outlives_a_change_of_ours():
    assert code_version("auto") == code_version("auto?") != code_version("gff")
    assert code_version("gff") == code_version("bm3d+gff") != code_version("bm3d+fast")


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path, capsys):
    trials = [replace(TINY, item=item) for item in (1, 2)] + [Trial("sample-0", 1, "average")]

    def run(wanted):
        with worker_pool(2) as pool:
            records = run_trials(wanted, data=None, output=tmp_path, pool=pool)
        return records, capsys.readouterr().err

    first, told = run(trials)
    assert "FAILED" in told and "3 of 3 trials computed" in told
    second, told = run(trials)
    assert "1 of 1 trials computed, 2 reused" in told  # only what failed is tried again
    assert [second[trial] for trial in trials[:2]] == [first[trial] for trial in trials[:2]]
    for path in (tmp_path / "trials").glob("*.json"):
        if json.loads(path.read_text())["trial"]["item"] == 2:
            path.unlink()
    assert "1 of 1 trials computed, 1 reused" in run(trials[:2])[1]
    assert run(trials[:2])[1] == ""
