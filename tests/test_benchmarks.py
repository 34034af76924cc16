"""The benchmarks' own logic: stacks, measuring, fits, tables, limits. Not how fast anything is."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile

from benchmarks import damage, dependencies, gpu, live, peers, scaling
from benchmarks.contenders import contenders_for
from benchmarks.measuring import Failure, run_measured
from benchmarks.quality import find_place, score
from benchmarks.stacks import StackRecipe, frame_motion, make_stack
from cofuse.model.runtime import TORCH_ON_CPU

ROOT = Path(__file__).resolve().parents[1]


def pictures(recipe: StackRecipe, folder: Path) -> tuple[list[np.ndarray], np.ndarray]:
    made = make_stack(recipe, folder)
    assert sorted(p.name for p in folder.iterdir()) == ["frames", "truth.tif"]
    return [tifffile.imread(p) for p in made.frames], tifffile.imread(made.truth)


def test_the_same_recipe_makes_the_same_files(tmp_path: Path) -> None:
    recipe = StackRecipe(0.05, 3, sigma=5.0, moved=True)
    for name in ("a", "b"):
        make_stack(recipe, tmp_path / name)
    first, second = (
        {p.name: p.read_bytes() for p in sorted((tmp_path / name).rglob("*.tif"))}
        for name in ("a", "b")
    )
    assert first == second
    assert len(first) == 4
    other = pictures(StackRecipe(0.05, 3, sigma=5.0, moved=True, seed=1), tmp_path / "c")
    assert not np.array_equal(other[1], tifffile.imread(tmp_path / "a" / "truth.tif"))


@pytest.mark.parametrize(("count", "radius"), [(2, 12.0), (5, 8.0), (10, 8.0)])
def test_every_frame_is_the_sharp_one_somewhere(tmp_path: Path, count: int, radius: float) -> None:
    frames, truth = pictures(StackRecipe(0.15, count, radius=radius), tmp_path)
    assert truth.shape == frames[0].shape == (316, 474, 3)
    assert 25 < truth.std() < 45
    errors = np.stack(
        [cv2.blur(np.abs(f.astype(np.float32) - truth).mean(axis=2), (9, 9)) for f in frames]
    )
    best = errors.argmin(axis=0)
    shares = np.bincount(best.ravel(), minlength=count) / best.size
    assert shares.min() > 0.3 / count
    # Every place is as good as sharp in one frame, and far from it in another.
    assert np.quantile(errors.min(axis=0), 0.9) < 1.0
    assert np.median(errors.max(axis=0)) > 2.5


def test_stacks_are_grey_noisy_or_moved_as_asked(tmp_path: Path) -> None:
    still, truth = pictures(StackRecipe(0.1, 3, shape=(200, 220), grey=True), tmp_path / "a")
    assert truth.shape == (200, 220)
    recipe = StackRecipe(0.1, 3, shape=(200, 220), grey=True, sigma=10.0)
    noisy, same = pictures(recipe, tmp_path / "b")
    assert np.array_equal(same, truth)
    assert np.std(noisy[1].astype(float) - still[1]) == pytest.approx(10.0, rel=0.03)
    recipe = StackRecipe(0.1, 3, shape=(200, 220), grey=True, moved=True)
    moved, _ = pictures(recipe, tmp_path / "c")
    assert np.array_equal(moved[1], still[1])  # the middle one stays
    motion = frame_motion(recipe, 2)
    assert np.abs(motion - np.eye(2, 3)).max() > 3
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    back = cv2.warpAffine(moved[2], motion, (220, 200), flags=flags)
    inner = slice(20, -20)
    assert np.abs(back[inner, inner].astype(float) - still[2][inner, inner]).mean() < 1.5
    assert np.abs(moved[2].astype(float) - still[2]).mean() > 5


def test_a_child_is_measured_with_its_own_children() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\n"
    hold = "block = b'x' * 120_000_000\n"
    alone = run_measured([sys.executable, "-c", burn], threads=1)
    assert 0.4 <= alone.cpu < 0.7
    assert alone.wall >= 0.4
    assert alone.peak < 60e6
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {hold + burn!r}])\n"
    both = run_measured([sys.executable, "-c", hold + burn + code], threads=1)
    assert 0.8 <= both.cpu < 1.4
    assert 240e6 < both.peak < 330e6
    together = alone.then(both)
    assert together.cpu == alone.cpu + both.cpu
    assert together.peak == both.peak


def test_a_child_has_its_processors_and_its_failure_is_told() -> None:
    code = "import os; print(len(os.sched_getaffinity(0)), os.environ['OPENBLAS_NUM_THREADS'])"
    assert run_measured([sys.executable, "-c", code], threads=1).output == "1 1\n"
    with pytest.raises(Failure, match=r"ended with 3: broken"):
        run_measured([sys.executable, "-c", "print('broken'); raise SystemExit(3)"], threads=1)
    with pytest.raises(Failure, match=r"more than 0.2 s"):
        run_measured([sys.executable, "-c", "import time; time.sleep(30)"], threads=1, timeout=0.2)


def test_exponents_are_found() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0, 16.0]
    exact = scaling.fit_exponent(sizes, [0.5 + 3 * n**1.2 for n in sizes], 0.5)
    assert exact is not None
    assert exact.exponent == pytest.approx(1.2)
    assert exact.error == pytest.approx(0.0, abs=1e-9)
    rough = scaling.fit_exponent(sizes, [1.1, 1.8, 4.4, 7.4, 17.0])
    assert rough is not None
    assert rough.error is not None
    assert abs(rough.exponent - 1.0) < 3 * rough.error
    assert 0.01 < rough.error < 0.1
    assert str(scaling.Fit(0.987, 0.014)) == "0.99 ± 0.01"
    two = scaling.fit_exponent([1, 2], [1, 4])
    assert two is not None
    assert str(two) == "2.00"
    assert scaling.fit_exponent(sizes, [0.1] * 5, 0.5) is None


def test_the_document_has_a_place_for_every_table() -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    places = set(re.findall(r"<!-- bench:(\S+) -->", text))
    expected = {f"peers-{name}" for name in peers.CASES}
    expected |= {f"scaling-{axis}" for axis in scaling.AXES} | {"gpu"}
    assert places == expected
    assert len(re.findall(r"<!-- /bench -->", text)) == len(places)


def test_a_case_lists_who_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = contenders_for(StackRecipe(24.0, 10, sigma=15.0))
    reasons = {c.name: c.absent for c in found if c.commands is None}
    assert reasons["enfuse"] == "not found (enfuse)"
    assert reasons["focus-stack"].startswith("not found")
    assert reasons["BM3D, then focus measure"].startswith("not run")
    assert [c.name for c in found if c.commands][:2] == ["cofuse auto", "cofuse fast"]


def test_a_moved_and_cut_result_is_found_in_the_truth(tmp_path: Path) -> None:
    truth = pictures(StackRecipe(0.15, 2), tmp_path)[1]
    cut = truth[9:-20, 14:-3]
    place = find_place(cut, truth)
    assert np.array_equal(place, np.array([[1, 0, 14], [0, 1, 9]], np.float32))
    tifffile.imwrite(tmp_path / "cut.tif", cut, photometric="rgb")
    assert score(tmp_path / "cut.tif", tmp_path / "truth.tif", moved=True)["psnr"] > 60
    with pytest.raises(Failure, match="shape"):
        score(tmp_path / "cut.tif", tmp_path / "truth.tif", moved=False)
    wanted = np.array([[1.01, 0, -6.4], [0, 1.01, 3.7]], np.float32)
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(truth, wanted, truth.shape[1::-1], flags=flags)
    assert np.abs(find_place(moved, truth) - wanted).max() < 0.1


@pytest.mark.slow
def test_a_small_case_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "peers.json"
    options = ["--cases", "stack3", "--megapixels", "0.1", "--frames", "3", "--repeats", "1"]
    options += ["--threads", "1", "--only", "cofuse fast", "--scratch", str(tmp_path)]
    peers.main([*options, "--output", str(output)])
    results = json.loads(output.read_text("utf-8"))
    (run,) = results["cases"]["stack3"]["runs"]
    assert run["psnr"] > 40
    assert 0.1 < run["cpu"] < 60
    assert 5e7 < run["peak"] < 1e9
    assert "| cofuse fast |" in output.with_suffix(".md").read_text("utf-8")
    document = tmp_path / "page.md"
    document.write_text("<!-- bench:peers-stack3 -->\n<!-- /bench -->\n", "utf-8")
    capsys.readouterr()
    peers.main(["--from", str(output), "--update-docs", str(document)])
    assert capsys.readouterr().out.strip() in document.read_text("utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.md", "results"]  # no frames left


@pytest.mark.slow
@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
def test_a_device_is_timed_beside_the_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", TORCH_ON_CPU, "--megapixels", "0.03", "--frames", "2"]
    gpu.main([*options, "--repeats", "1", "--output", str(tmp_path / "gpu.json")])
    table = capsys.readouterr().out
    assert "2 RGB frames of 212 × 142 pixels" in table and "| together |" in table
    results = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert all(value > 0 for times in results["seconds"].values() for value in times.values())
    # Planes that are rounded the other way move pixels by a tenth of a level.
    assert results["rms"] < 0.5 and results["same_choice"] > 0.999


def test_damage_that_no_decoder_can_miss(tmp_path: Path) -> None:
    for layout in damage.LAYOUTS:
        for kind in ("end missing", "end missing, end marker put behind"):
            assert damage.count(layout, kind, 2, tmp_path / "a.jpg") == (2, 0)


def test_calls_on_a_small_pair_are_measured() -> None:
    words = live.row(16, 10.0, "fast", calls=2)
    assert words[:3] == ["2 × 16 × 16", "10", "fast"] and len(words) == len(live.HEAD)
    assert float(words[3]) > 0 and words[-1] == "0"


def test_the_architecture_says_what_every_dependency_is_for() -> None:
    direct = dependencies.needed("cofuse")
    assert {"numpy", "onnxruntime", "cyclopts"} <= set(direct) <= set(dependencies.purposes())
    assert "attrs" in dependencies.closure(["cyclopts"]) - set(direct)
    assert dependencies.megabytes(["numpy"]) > 10
