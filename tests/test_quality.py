"""The quality tables: who may see which picture, what methods are given, a small run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from cofuse import write_image
from cofuse.evaluation.simulation import sample_picture
from experiments import quality
from experiments.methods import Denoised, run_method
from experiments.pictures import situation
from experiments.quality_plan import (
    LYTRO_KEPT,
    LYTRO_SEEN,
    TARGETS,
    WHU_KEPT,
    WHU_SEEN,
    is_kept_aside,
    plan_of,
)
from experiments.scores import HIGHEST_PSNR, scores_of

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
    plan = replace(plan_of(tmp_path, tmp_path, subset="tuning"), whu=(("one", (1,)),))
    with pytest.raises(RuntimeError, match="kept aside"):
        quality.run(plan, ["clean"], pool=ThreadPoolExecutor(1))


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


def test_noise_is_the_same_every_time():
    white, again = (situation(None, "sample-2", 1, 10) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(white.stack, again.stack, strict=True))
    assert white.stack.dtype == np.float32 and white.sigma == 10
    assert np.std(white.stack[1] - white.clean[1]) == pytest.approx(10.0, rel=0.02)


def test_layers_between_planes_are_nowhere_quite_sharp():
    exact, between = (
        situation(None, name, 0, crop=128) for name in ("sample-2", "sample-2-between")
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


def test_denoised_frames_are_kept(tmp_path):
    calls = []

    def denoise(levels, sigma, denoiser):
        calls.append(sigma)
        return levels + 1

    levels, denoised = np.zeros((4, 5), np.float32), Denoised(tmp_path, denoise=denoise)
    assert [denoised(levels, s, "bm3d").sum() for s in (5, 5, 6)] == [20, 20, 20]
    assert calls == [5, 6]


# --- the whole ---


@pytest.mark.slow
def test_a_small_run_on_pictures_made_up(tmp_path, capsys):
    pytest.importorskip("bm3d")
    data = tmp_path / "data"
    (data / "natural" / "test").mkdir(parents=True)
    grey = sample_picture("chelsea")[..., 1]
    for number, left in ((3, 0), (4, 60), (35, 120), (36, 180)):
        part = grey[60:180, left : left + 130]
        write_image(data / "natural" / "test" / f"test{number:03}.png", part)
    plan = replace(
        plan_of(data, tmp_path / "out", quick=True),
        stack_items=(3, 35),
        tall_stacks=(3,),
        clean_frames=(2,),
        noisy_frames=(1, 2),
        crop=64,
    )
    pool = ThreadPoolExecutor(1)
    assert quality.run(plan, ["stacks", "noisy-stacks"], pool=pool) == 0
    printed = capsys.readouterr().out
    assert "### Simulated stacks, layers between planes of focus, σ = 0" in printed
    assert "NLM, then `auto`" in printed and "nan" not in printed
    assert "BM3D, then `fast`" in printed and "BM3D of the noisy truth" in printed
    written = (tmp_path / "out" / "noisy-stacks-quick.md").read_text("utf-8")
    assert written.split("## noisy-stacks")[1].strip() in printed
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert quality.run(plan, ["noisy-stacks"], pool=pool) == 0
    output = capsys.readouterr()
    assert "trials computed" not in output.err and "### Simulated stacks, σ = 15" in output.out
