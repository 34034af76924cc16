"""``cofuse evaluate``: tables, JSON, CSV, ranks, and what it says of bad input."""

import csv
import json
import math
import re

import numpy as np
import pytest

from cofuse.cli import main
from cofuse.errors import CofuseError
from cofuse.evaluation.metrics import (
    METRICS,
    WITHOUT_TRUTH,
    choose_metrics,
    psnr,
    q_abf,
    q_mi,
    score,
    ssim,
    to_grey,
    to_scored_grey,
)
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import write_image

SHAPE = (48, 64)


@pytest.fixture(scope="module")
def simulation():
    return simulate_stack(sample_picture()[100:148, 200:264], frames=2, sigma=5.0, seed=1)


@pytest.fixture
def scene(tmp_path, simulation):
    """Frames a.png and b.png, t.png, and results near and far from the truth."""
    for name, frame in zip(("a.png", "b.png"), simulation.frames, strict=True):
        write_image(tmp_path / name, frame)
    write_image(tmp_path / "t.png", simulation.truth)
    write_image(tmp_path / "good.png", noisy(simulation.truth, 2))
    write_image(tmp_path / "bad.png", noisy(simulation.truth, 20))
    return tmp_path


def noisy(picture, sigma):
    noise = np.random.default_rng(0).normal(0, sigma, picture.shape)
    return np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def error_of(capsys, *arguments):
    code, out, err = call(capsys, "evaluate", *arguments)
    assert code == 2 and out == ""
    assert err.startswith("cofuse: error: ") and err.count("\n") == 1
    return err


def sources(scene):
    return "--sources", scene / "a.png", scene / "b.png"


def test_one_picture_without_truth(capsys, scene):
    code, out, err = call(capsys, "evaluate", scene / "good.png", *sources(scene))
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:-1]}
    assert set(rows) == set(WITHOUT_TRUTH)
    assert "more is better" in out and "(1)" not in out


def test_scores_are_those_of_the_metrics(capsys, scene, simulation):
    code, out, _ = call(
        capsys,
        "evaluate",
        scene / "good.png",
        *sources(scene),
        "--truth",
        scene / "t.png",
        "--json",
    )
    assert code == 0
    result = json.loads(out)
    scores = result["scores"][0]["scores"]
    fused = noisy(simulation.truth, 2)
    greys = [to_grey(frame) for frame in simulation.frames]
    assert scores["psnr"] == psnr(fused, simulation.truth)
    assert scores["ssim"] == ssim(fused, simulation.truth)
    assert scores["q_mi"] == q_mi(greys, to_grey(fused))
    assert scores["q_abf"] == q_abf(greys, to_grey(fused))
    assert set(scores) == set(METRICS)
    assert result["higher_is_better"] == dict.fromkeys(METRICS, True)
    assert result["scores"][0]["picture"] == str(scene / "good.png")


def test_several_pictures_are_ranked(capsys, scene):
    arguments = (
        "evaluate", scene / "bad.png", scene / "good.png", *sources(scene),
        "--truth", scene / "t.png", "--metrics", "psnr", "ssim",
    )  # fmt: skip
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    head, bad, good, _ = out.splitlines()
    assert head.split() == ["psnr", "ssim"]
    assert bad.startswith("bad ") and bad.count("(2)") == 2
    assert good.startswith("good ") and good.count("(1)") == 2
    methods = json.loads(call(capsys, *arguments, "--json")[1])["methods"]
    assert [m["mean_rank"] for m in methods] == [2, 1]


def test_folder_of_pictures_and_folder_of_sources(capsys, tmp_path, simulation):
    (tmp_path / "results").mkdir()
    (tmp_path / "frames").mkdir()
    for name, sigma in (("x", 1), ("y", 9)):
        write_image(tmp_path / "results" / f"{name}.png", noisy(simulation.truth, sigma))
    for k, frame in enumerate(simulation.frames):
        write_image(tmp_path / "frames" / f"{k}.png", frame)
    # What lies beside the frames in a folder that `cofuse simulate` wrote.
    write_image(tmp_path / "frames" / "truth.png", simulation.truth)
    write_image(tmp_path / "frames" / "source-map.png", np.zeros(SHAPE, np.uint8))
    code, out, _ = call(
        capsys, "evaluate", tmp_path / "results", "--sources", tmp_path / "frames", "--json",
        "--metrics", "q_mi,psnr",
    )  # fmt: skip
    assert code == 0
    methods = {m["method"]: m for m in json.loads(out)["methods"]}
    assert list(methods) == ["x", "y"]
    assert methods["x"]["ranks"]["psnr"] == 1
    expected = q_mi([to_grey(f) for f in simulation.frames], to_grey(noisy(simulation.truth, 1)))
    assert methods["x"]["means"]["q_mi"] == expected


def test_clean_sources_give_second_columns(capsys, scene, simulation):
    clean = simulate_stack(sample_picture()[100:148, 200:264], frames=2, sigma=0.0, seed=1).frames
    for name, frame in zip(("c.png", "d.png"), clean, strict=True):
        write_image(scene / name, frame)
    code, out, _ = call(
        capsys, "evaluate", scene / "good.png", *sources(scene),
        "--clean-sources", scene / "c.png", scene / "d.png", "--metrics", "q_mi",
        "--csv", scene / "out.csv",
    )  # fmt: skip
    assert code == 0
    assert re.search(r"^q_mi .*\nq_mi \(clean\) ", out, re.MULTILINE)
    row = next(csv.DictReader((scene / "out.csv").read_text().splitlines()))
    fused = to_grey(noisy(simulation.truth, 2))
    assert float(row["q_mi"]) == q_mi([to_grey(f) for f in simulation.frames], fused)
    assert float(row["q_mi_clean"]) == q_mi([to_grey(f) for f in clean], fused)


def make_scenes(root, simulation, *, count=2, truth=True):
    """Two scenes; `near` beats `far` in both, `copy` is the truth of the first and far else."""
    for k in range(count):
        place = root / "scenes" / f"s{k}"
        place.mkdir(parents=True)
        for j, frame in enumerate(simulation.frames):
            write_image(place / f"frame-{j}.png", frame)
        if truth:
            write_image(place / "truth.png", simulation.truth)
        for method, sigma in (("near", 3), ("far", 12), ("mixed", 1 if k == 0 else 30)):
            (root / method).mkdir(exist_ok=True)
            suffix = "tif" if k else "png"
            write_image(root / method / f"s{k}.{suffix}", noisy(simulation.truth, sigma))
    return root / "near", root / "far", root / "mixed"


def test_many_scenes_give_means_and_ranks(capsys, tmp_path, simulation):
    methods = make_scenes(tmp_path, simulation)
    arguments = (
        "evaluate", *methods, "--scenes", tmp_path / "scenes", "--metrics", "psnr,ssim",
    )  # fmt: skip
    table = tmp_path / "table.csv"
    report = tmp_path / "report.json"
    code, out, err = call(capsys, *arguments, "--csv", table, "--report", report)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "means over 2 scenes"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["method"], row["scene"]) for row in rows] == [
        (method, scene) for scene in ("s0", "s1") for method in ("near", "far", "mixed")
    ]
    result = json.loads(report.read_text())
    for method in result["methods"]:
        own = [float(row["psnr"]) for row in rows if row["method"] == method["method"]]
        assert method["means"]["psnr"] == pytest.approx(sum(own) / 2)
    ranks = {m["method"]: m["ranks"] for m in result["methods"]}
    assert set(ranks["near"]) == {"psnr", "ssim"} and ranks["near"]["psnr"] == 1
    assert sorted(r["psnr"] for r in ranks.values()) == [1, 2, 3]
    assert json.loads(call(capsys, *arguments, "--json")[1]) == result
    assert call(capsys, *arguments, "--quiet") == (0, "", "")


def test_scenes_must_be_complete(capsys, tmp_path, simulation):
    methods = make_scenes(tmp_path, simulation)
    scenes = ("--scenes", tmp_path / "scenes")
    for extra in (("--truth", methods[0] / "s0.png"), ("--sources", methods[0])):
        assert "--scenes brings" in error_of(capsys, methods[0], *scenes, *extra)
    assert "given as folders" in error_of(capsys, methods[0] / "s0.png", *scenes)
    assert "does not exist" in error_of(capsys, tmp_path / "nobody", *scenes)
    assert "holds no folders" in error_of(capsys, methods[0], "--scenes", methods[1])
    (tmp_path / "scenes" / "s0" / "truth.png").unlink()
    assert "s1 has a truth but s0 has none" in error_of(capsys, methods[0], *scenes)
    (tmp_path / "scenes" / "s1" / "truth.png").unlink()
    assert "compares with the truth" in error_of(capsys, *methods, *scenes, "--metrics", "ssim")
    write_image(methods[1] / "s0.tif", np.zeros(SHAPE, np.uint8))
    assert "keep one of them" in error_of(capsys, *methods, *scenes)
    (methods[0] / "s0.png").unlink()
    assert "holds no picture s0.png" in error_of(capsys, *methods, *scenes)


def test_scene_with_two_truths_or_too_few_clean_frames(capsys, tmp_path, simulation):
    methods = make_scenes(tmp_path, simulation, count=1)
    place = tmp_path / "scenes" / "s0"
    (place / "clean").mkdir()
    write_image(place / "clean" / "frame-0.png", simulation.frames[0])
    scenes = ("--scenes", tmp_path / "scenes", "--metrics", "q_mi")
    assert "2 sources but 1 clean" in error_of(capsys, *methods, *scenes)
    write_image(place / "clean" / "frame-1.png", simulation.frames[1])
    code, out, _ = call(capsys, "evaluate", *methods, *scenes)
    assert code == 0 and "q_mi (clean)" in out and "1 scene\n" in out
    write_image(place / "truth.tif", simulation.truth)
    assert "two truths" in error_of(capsys, *methods, *scenes)


def test_same_stems_are_told_apart_by_their_paths(capsys, tmp_path, scene, simulation):
    (scene / "other").mkdir()
    write_image(scene / "other" / "good.png", noisy(simulation.truth, 4))
    pictures = scene / "good.png", scene / "other" / "good.png"
    _, out, _ = call(capsys, "evaluate", *pictures, *sources(scene), "--metrics", "q_mi", "--json")
    assert [m["method"] for m in json.loads(out)["methods"]] == [str(p) for p in pictures]


def test_mistakes_are_told_and_nothing_is_written(capsys, scene, simulation):
    good, out = scene / "good.png", ("--csv", scene / "x.csv", "--report", scene / "x.json")
    small = write_image(scene / "small.png", simulation.truth[:-1])
    grey = write_image(scene / "grey.png", simulation.truth[..., 0])
    before = sorted(scene.iterdir())
    err = error_of(capsys, good, *sources(scene), *out, "--metrics", "q_xy")
    assert "no metric 'q_xy'" in err and all(name in err for name in METRICS)
    err = error_of(capsys, good, *sources(scene), *out, "--metrics", "q_mi", "psnr")
    assert "psnr compares with the truth" in err
    err = error_of(capsys, good, "--truth", scene / "t.png", "--metrics", "q_mi")
    assert "q_mi compares with the sources" in err
    assert "nothing to score by" in error_of(capsys, good, *out)
    assert "64x47 RGB" in error_of(capsys, small, *sources(scene), *out)
    assert "64x47 RGB" in error_of(capsys, good, *sources(scene), *out, "--truth", small)
    assert "grey" in error_of(capsys, grey, *sources(scene), *out, "--truth", scene / "t.png")
    assert "does not exist" in error_of(capsys, scene / "no.png", *sources(scene), *out)
    assert "does not exist" in error_of(capsys, good, "--sources", scene / "no.png", good)
    assert "does not exist" in error_of(capsys, good, *sources(scene), "--truth", scene / "no.png")
    assert "2 sources but 1 clean" in error_of(
        capsys, good, *sources(scene), *out, "--clean-sources", good
    )
    assert "given twice" in error_of(capsys, good, good, *sources(scene), *out)
    assert "at least two" in error_of(capsys, good, "--sources", scene / "a.png", *out)
    assert "no fused pictures" in error_of(capsys, *sources(scene))
    assert "same file name" in error_of(
        capsys, good, *sources(scene), "--csv", scene / "x", "--report", scene / "x"
    )
    assert sorted(scene.iterdir()) == before


def test_existing_outputs_need_overwrite(capsys, scene):
    table = scene / "table.csv"
    table.write_text("precious")
    arguments = scene / "good.png", *sources(scene), "--metrics", "q_mi", "--csv", table
    assert "--overwrite" in error_of(capsys, *arguments)
    assert table.read_text() == "precious"
    assert call(capsys, "evaluate", *arguments, "--overwrite")[0] == 0
    assert table.read_text().startswith("method,scene,picture,q_mi\n")


def test_depth_does_not_matter(capsys, scene, simulation):
    names = []
    for name, picture in (("a", simulation.frames[0]), ("b", simulation.frames[1])):
        names.append(write_image(scene / f"{name}16.tif", picture.astype(np.uint16) * 257))
    deep = write_image(scene / "deep.png", noisy(simulation.truth, 2).astype(np.uint16) * 257)
    truth = ("--truth", scene / "t.png", "--json")
    _, plain, _ = call(capsys, "evaluate", scene / "good.png", *sources(scene), *truth)
    code, other, _ = call(capsys, "evaluate", deep, "--sources", *names, *truth)
    assert code == 0
    plain, other = (json.loads(text)["scores"][0]["scores"] for text in (plain, other))
    assert other == pytest.approx(plain, rel=1e-9)


def test_white_of_deep_pictures():
    levels = np.arange(256, dtype=np.uint16).reshape(16, 16)
    np.testing.assert_array_equal(to_scored_grey(levels * 16, white=4080), levels)
    np.testing.assert_array_equal(to_scored_grey(levels / 255.0), levels)
    twelve = score(levels * 16, metrics=["psnr"], truth=levels * 16 + 16, white=4080)
    assert twelve["psnr"] == pytest.approx(20 * math.log10(255))


def test_choice_of_metrics():
    without_truth = choose_metrics([], sources=True, truth=False)
    assert without_truth == ("q_mi", "q_ncie", "q_abf", "q_y", "q_cb")
    assert choose_metrics(["all"], sources=True, truth=True) == tuple(METRICS)
    assert choose_metrics(["q_y", "q_mi", "q_y"], sources=True, truth=False) == ("q_y", "q_mi")
    with pytest.raises(CofuseError, match="no metric 'x'"):
        choose_metrics(["all", "x"], sources=True, truth=True)


def test_equals_share_the_better_rank(capsys, scene):
    pictures = [scene / f"{name}.png" for name in ("bad", "good", "t", "same")]
    pictures[3].write_bytes(pictures[0].read_bytes())
    _, out, _ = call(capsys, "evaluate", *pictures, "--truth", scene / "t.png", "--json")
    ranks = {m["method"]: m["ranks"] for m in json.loads(out)["methods"]}
    assert [ranks[name]["psnr"] for name in ("bad", "good", "t", "same")] == [3, 2, 1, 3]
