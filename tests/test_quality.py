"""The quality tables: texture measures in closed form, who may see which picture, a small run."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from cofuse import write_image
from cofuse.evaluation.simulation import sample_picture
from experiments import methods, quality, trials
from experiments.methods import Denoised, run_method
from experiments.pictures import CHANGES, situation
from experiments.quality_plan import (
    LYTRO_KEPT,
    LYTRO_SEEN,
    TARGETS,
    WHU_KEPT,
    WHU_SEEN,
    is_kept_aside,
    plan_of,
)
from experiments.scores import (
    HIGHEST_PSNR,
    high_pass,
    relative_gradient_error,
    residual_correlation,
    scores_of,
    texture_kept,
    worst_window,
)


@pytest.fixture(scope="module")
def picture():
    return sample_picture("coffee")[40:200, 60:260, 1].astype(np.float64)


# --- texture, where the answer is known ---


def test_a_perfect_result_loses_no_texture(picture):
    assert relative_gradient_error(picture, picture) == 0.0
    assert residual_correlation(picture, picture) == 0.0
    assert texture_kept(picture, picture) == 1.0


def test_a_flat_result_has_lost_all_of_it(picture):
    flat = np.full_like(picture, 90.0)
    assert relative_gradient_error(flat, picture) == pytest.approx(1.0)
    assert texture_kept(flat, picture) == pytest.approx(0.0, abs=1e-12)


def test_texture_taken_away_and_exaggerated_is_told_by_the_sign(picture):
    fine = high_pass(picture)
    assert residual_correlation(picture - 0.3 * fine, picture) == pytest.approx(-1.0)
    assert residual_correlation(picture + 0.3 * fine, picture) == pytest.approx(1.0)
    assert residual_correlation(picture + 12.0, picture) == 0.0


def test_noise_left_in_is_no_texture_taken_away(picture):
    noise = np.random.default_rng(0).normal(scale=5.0, size=picture.shape)
    assert abs(residual_correlation(picture + noise, picture)) < 4 / math.sqrt(picture.size)
    assert texture_kept(picture + noise, picture) > 1.0


def test_energy_goes_with_the_square_of_contrast(picture):
    assert texture_kept(0.5 * picture + 64.0, picture) == pytest.approx(0.25)
    assert relative_gradient_error(0.5 * picture, picture) == pytest.approx(0.5)


def test_a_sinusoid_passes_as_the_gaussian_says():
    # A Gaussian of s pixels leaves exp(−(ωs)²/2) of a wave: the high-pass has the rest.
    omega = 2 * np.pi / 8
    wave = 50.0 * np.sin(omega * np.arange(160))[None].repeat(160, axis=0)
    inside = np.s_[20:-20, 20:-20]
    expected = (1.0 - math.exp(-((omega * 1.5) ** 2) / 2)) * wave[inside]
    assert np.abs(high_pass(wave)[inside] - expected).max() < 0.25


def test_a_flat_truth_has_no_texture_to_lose(picture):
    flat = np.full_like(picture, 90.0)
    assert math.isnan(relative_gradient_error(picture, flat))
    assert math.isnan(texture_kept(picture, flat))


def test_the_worst_window_is_found(picture):
    wrong = picture.copy()
    wrong[70:80, 100:110] += 40.0
    top, left, error = worst_window(wrong, picture, side=10)
    assert (top, left) == (70, 100) and error == pytest.approx(40.0)


# --- which pictures ---


def test_seen_and_kept_aside_share_no_pair():
    assert len(WHU_KEPT) == 20 and WHU_KEPT[:2] == (1, 7) and WHU_KEPT[-1] == 115
    assert len(WHU_SEEN) == 40 and not set(WHU_SEEN) & set(WHU_KEPT)
    assert len(LYTRO_SEEN) == len(LYTRO_KEPT) == 10 and not set(LYTRO_SEEN) & set(LYTRO_KEPT)
    assert is_kept_aside("lytro", 1) and not is_kept_aside("lytro", 2)
    assert is_kept_aside("mfi_whu", 7) and not is_kept_aside("mfi_whu", 9)
    assert is_kept_aside("photo", 15) and not is_kept_aside("photo", 16)
    assert is_kept_aside("stack-5-between", 3) and not is_kept_aside("train-5-between", 3)


@pytest.mark.parametrize("quick", [False, True])
def test_tuning_names_nothing_that_is_kept_aside(tmp_path, quick):
    plan = plan_of(tmp_path, tmp_path, quick=quick, subset="tuning")
    for build in quality.TABLES.values():
        trials = [trial for sheet in build(plan) for trial in sheet.trials()]
        assert trials and not [t for t in trials if is_kept_aside(t.dataset, t.item)]


def test_tuning_stops_at_a_pair_that_is_kept_aside(tmp_path):
    plan = replace(plan_of(tmp_path, tmp_path, subset="tuning"), noisy_whu=(1,))
    with pytest.raises(RuntimeError, match="kept aside"):
        quality.run(plan, ["noisy"], pool=ThreadPoolExecutor(1))


def test_the_report_holds_what_is_aimed_at(tmp_path):
    sheets = [s for build in quality.TABLES.values() for s in build(plan_of(tmp_path, tmp_path))]
    cells = [cell for sheet in sheets for _, cells in sheet.lines for cell in cells]
    # Above 0 is what is aimed at beside rivals.
    assert {cell.target for cell in cells} - {None} == {0.0, *TARGETS.values()}
    clean = next(sheet for sheet in sheets if sheet.title == "MFI-WHU, σ = 0")
    auto = dict(clean.lines)["`auto`"]
    assert [t.item for t in auto[0].trials] == list(WHU_KEPT)
    assert [t.item for t in auto[3].trials] == list(WHU_SEEN)


# --- situations ---


def test_noise_and_changes_are_what_they_say():
    white, again = (situation(None, "sample-2", 1, 10) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(white.stack, again.stack, strict=True))
    assert white.stack.dtype == np.float32 and white.sigma == 10
    double = situation(None, "sample-2", 1, 10, "double noise")
    assert np.array_equal(double.stack[0], white.stack[0])
    assert np.std(double.stack[1] - double.clean[1]) == pytest.approx(20.0, rel=0.02)
    shifted = situation(None, "sample-2", 1, change="shift 1 px")
    assert np.abs(shifted.stack[1][:, 2:] - shifted.clean[1][:, 1:-1]).max() < 0.01
    brighter = situation(None, "sample-2", 1, change="10 % brighter")
    np.testing.assert_allclose(brighter.stack[1], 1.1 * brighter.clean[1], rtol=1e-6)
    visited = situation(None, "sample-2", 1, change="moving object")
    assert 0.005 < np.mean(visited.stack[1] != visited.clean[1]) < 0.05
    assert len(CHANGES) == 5


def test_layers_between_planes_are_nowhere_quite_sharp():
    exact, between = (
        situation(None, name, 0, crop=128) for name in ("colour-2", "colour-2-between")
    )
    assert np.array_equal(exact.truth, between.truth)
    nearest = [
        np.min([np.abs(f.astype(float) - s.truth) for f in s.clean], axis=0).mean()
        for s in (exact, between)
    ]
    assert nearest[1] > 2 * nearest[0]


def test_frames_with_parallax_are_scored_where_their_reference_lies(tmp_path):
    """Three frames of one picture, moved: aligned to the middle one, that is the truth, cut."""
    picture = sample_picture("coffee")
    folder = tmp_path / "real" / "misaligned" / "07"
    (folder / "truth").mkdir(parents=True)
    for number, move in enumerate((9, 0, -6)):
        frame = picture[20 : 20 + 240, 20 + move : 20 + move + 320]
        write_image(folder / f"{number}.png", frame.astype(np.uint16) << 8)
    truth = picture[20 : 20 + 240, 20 : 20 + 320]
    write_image(folder / "truth" / "truth.png", truth)
    given = situation(tmp_path, "misaligned", 7)
    assert given.unaligned is not None and len(given.unaligned) == 3
    assert given.unaligned[1].shape == truth.shape and np.array_equal(given.unaligned[1], truth)
    # Nine columns are not in the first frame, and six not in the last.
    assert given.truth.shape[1] == pytest.approx(320 - 15, abs=2)
    assert np.array_equal(run_method("reference", 0, given, Denoised(None)).image, given.truth)
    result = run_method("fast?", 0, given, Denoised(None)).image
    assert result.shape == given.truth.shape


def test_a_border_that_is_wrong_does_not_count_inside():
    given = situation(None, "sample-2", 1)
    wrong = given.truth.copy()
    wrong[:8] //= 2
    scores = scores_of(wrong, given)
    assert scores["inside"] == HIGHEST_PSNR > scores["psnr"]


def test_denoised_frames_are_kept(tmp_path, monkeypatch):
    calls = []

    def denoise(levels, sigma, denoiser):
        calls.append(sigma)
        return levels + 1

    monkeypatch.setattr(methods, "_denoise", denoise)
    levels, denoised = np.zeros((4, 5), np.float32), Denoised(tmp_path / "denoised")
    assert [denoised(levels, s, "bm3d").sum() for s in (5, 5, 6)] == [20, 20, 20]
    assert calls == [5, 6]


# --- the whole ---


@pytest.mark.slow
def test_a_small_run_on_pictures_made_up(tmp_path, capsys, monkeypatch):
    pytest.importorskip("bm3d")
    pytest.importorskip("skimage")
    # The source may be under somebody's hands while the tests run.
    monkeypatch.setattr(trials, "_check_source", lambda method, version: None)
    data = tmp_path / "data"
    (data / "natural" / "test").mkdir(parents=True)
    grey = sample_picture("chelsea")[..., 1]
    for number, left in ((3, 0), (4, 60), (35, 120), (36, 180)):
        part = grey[60:180, left : left + 130]
        write_image(data / "natural" / "test" / f"test{number:03}.png", part)
    plan = replace(
        plan_of(data, tmp_path / "out", quick=True),
        stack_items=(3, 35),
        clean_frames=(2,),
        colour=(0,),
        crop=64,
    )
    pool = ThreadPoolExecutor(1)
    tables = ["stacks", "users", "robustness"]
    assert quality.run(plan, tables, pictures=True, pool=pool) == 0
    printed = capsys.readouterr().out
    assert "### Simulated stacks, layers between planes of focus, σ = 0" in printed
    assert "Laplacian pyramid, then NLM" in printed and "nan" not in printed
    assert "BM3D, then `fast`" in printed and "double noise" in printed
    written = (tmp_path / "out" / "users-quick.md").read_text("utf-8")
    assert written.split("## users")[1].strip() in printed
    assert len(list((tmp_path / "out" / "pictures").glob("*.png"))) >= 4
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert quality.run(plan, ["users"], pool=pool) == 0
    output = capsys.readouterr()
    assert "trials computed" not in output.err and "### The users' way" in output.out
