"""``cofuse evaluate``: tables, JSON, CSV, ranks, and what it says of bad input."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

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
from tests.command_line import run

SHAPE = (48, 64)
SOURCES = ("--sources", "a.png", "b.png")
TRUTH = ("--truth", "t.png")


def simulated(sigma):
    return simulate_stack(sample_picture()[100:148, 200:264], frames=2, sigma=sigma, seed=1)


@pytest.fixture(scope="module")
def simulation():
    return simulated(5.0)


def noisy(picture, sigma):
    noise = np.random.default_rng(0).normal(0, sigma, picture.shape)
    return np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)


@pytest.fixture
def place(tmp_path, simulation, monkeypatch):
    """The working directory: frames a.png, b.png, t.png, and results near and far from it."""
    monkeypatch.chdir(tmp_path)
    for name, frame in zip(("a.png", "b.png"), simulation.frames, strict=True):
        write_image(name, frame)
    write_image("t.png", simulation.truth)
    write_image("good.png", noisy(simulation.truth, 2))
    write_image("bad.png", noisy(simulation.truth, 20))
    return tmp_path


@pytest.fixture
def printed(capsys):
    """Run the command, which must succeed, and return what it prints; of JSON the content."""

    def call(*arguments):
        assert run("evaluate", *arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out) if "--json" in arguments else out

    return call


def test_one_picture_without_truth(place, printed):
    out = printed("good.png", *SOURCES)
    assert {line.split()[0] for line in out.splitlines()[1:-1]} == set(WITHOUT_TRUTH)
    assert "more is better" in out and "(1)" not in out


def test_scores_are_those_of_the_metrics(place, printed, simulation):
    result = printed("good.png", *SOURCES, *TRUTH, "--json")
    scores = result["scores"][0]["scores"]
    fused = noisy(simulation.truth, 2)
    greys = [to_grey(frame) for frame in simulation.frames]
    assert scores["psnr"] == psnr(fused, simulation.truth)
    assert scores["ssim"] == ssim(fused, simulation.truth)
    assert scores["q_mi"] == q_mi(greys, to_grey(fused))
    assert scores["q_abf"] == q_abf(greys, to_grey(fused))
    assert set(scores) == set(METRICS)
    assert result["higher_is_better"] == dict.fromkeys(METRICS, True)
    assert result["scores"][0]["picture"] == "good.png"


def test_several_pictures_are_ranked(place, printed):
    Path("same.png").write_bytes(Path("bad.png").read_bytes())
    pictures = ("bad.png", "good.png", "same.png", "t.png")
    arguments = (*pictures, *SOURCES, *TRUTH, "--metrics", "psnr", "ssim")
    head, bad, good, *_ = printed(*arguments).splitlines()
    assert head.split() == ["psnr", "ssim"]
    # Equals share the better rank; the truth's own PSNR is infinite.
    assert bad.startswith("bad ") and bad.count("(3)") == 2
    assert good.startswith("good ") and good.count("(2)") == 2
    methods = printed(*arguments, "--json")["methods"]
    assert [m["mean_rank"] for m in methods] == [3, 2, 3, 1]
    assert methods[-1]["means"] == {"psnr": None, "ssim": pytest.approx(1)}


def test_folder_of_pictures_and_folder_of_sources(place, printed, simulation):
    for folder in ("results", "frames"):
        Path(folder).mkdir()
    for name, sigma in (("x", 1), ("y", 9)):
        write_image(f"results/{name}.png", noisy(simulation.truth, sigma))
    for k, frame in enumerate(simulation.frames):
        write_image(f"frames/{k}.png", frame)
    # What lies beside the frames in a folder that `cofuse simulate` wrote.
    write_image("frames/truth.png", simulation.truth)
    write_image("frames/source-map.png", np.zeros(SHAPE, np.uint8))
    told = printed("results", "--sources", "frames", "--json", "--metrics", "q_mi,psnr")
    methods = {m["method"]: m for m in told["methods"]}
    assert list(methods) == ["x", "y"]
    assert methods["x"]["ranks"]["psnr"] == 1
    expected = q_mi([to_grey(f) for f in simulation.frames], to_grey(noisy(simulation.truth, 1)))
    assert methods["x"]["means"]["q_mi"] == expected


def test_clean_sources_give_second_columns(place, printed, simulation):
    clean = simulated(0.0).frames
    for name, frame in zip(("c.png", "d.png"), clean, strict=True):
        write_image(name, frame)
    more = ("--clean-sources", "c.png", "d.png", "--metrics", "q_mi", "--csv", "out.csv")
    out = printed("good.png", *SOURCES, *more)
    assert re.search(r"^q_mi .*\nq_mi \(clean\) ", out, re.MULTILINE)
    row = next(csv.DictReader(Path("out.csv").read_text().splitlines()))
    fused = to_grey(noisy(simulation.truth, 2))
    assert float(row["q_mi"]) == q_mi([to_grey(f) for f in simulation.frames], fused)
    assert float(row["q_mi_clean"]) == q_mi([to_grey(f) for f in clean], fused)


METHODS = ("near", "far", "mixed")


def make_scenes(simulation, *, count=2):
    """Scenes in which `near` beats `far`; `mixed` is the best in the first, the worst else."""
    for k in range(count):
        folder = Path("scenes", f"s{k}")
        folder.mkdir(parents=True)
        for j, frame in enumerate(simulation.frames):
            write_image(folder / f"frame-{j}.png", frame)
        write_image(folder / "truth.png", simulation.truth)
        for method, sigma in zip(METHODS, (3, 12, 30 if k else 1), strict=True):
            Path(method).mkdir(exist_ok=True)
            write_image(f"{method}/s{k}.{'tif' if k else 'png'}", noisy(simulation.truth, sigma))


def test_many_scenes_give_means_and_ranks(place, printed, simulation):
    make_scenes(simulation)
    arguments = (*METHODS, "--scenes", "scenes", "--metrics", "psnr,ssim")
    out = printed(*arguments, "--csv", "table.csv", "--report", "report.json")
    assert out.splitlines()[-1] == "means over 2 scenes"
    rows = list(csv.DictReader(Path("table.csv").read_text().splitlines()))
    assert [(row["method"], row["scene"]) for row in rows] == [
        (method, scene) for scene in ("s0", "s1") for method in METHODS
    ]
    result = json.loads(Path("report.json").read_text())
    for method in result["methods"]:
        own = [float(row["psnr"]) for row in rows if row["method"] == method["method"]]
        assert method["means"]["psnr"] == pytest.approx(sum(own) / 2)
    ranks = {m["method"]: m["ranks"] for m in result["methods"]}
    assert set(ranks["near"]) == {"psnr", "ssim"} and ranks["near"]["psnr"] == 1
    assert sorted(r["psnr"] for r in ranks.values()) == [1, 2, 3]
    assert printed(*arguments, "--json") == result
    assert printed(*arguments, "--quiet") == ""


def test_scenes_must_be_complete(place, refused, simulation):
    make_scenes(simulation)

    def told(*arguments):
        return refused("evaluate", *arguments, "--scenes", "scenes")

    for extra in (("--truth", "near/s0.png"), ("--sources", "near")):
        assert "--scenes brings" in told("near", *extra)
    assert "given as folders" in told("near/s0.png")
    assert "does not exist" in told("nobody")
    assert "holds no folders" in refused("evaluate", "near", "--scenes", "far")
    Path("scenes/s0/truth.png").unlink()
    assert "s1 has a truth but s0 has none" in told("near")
    Path("scenes/s1/truth.png").unlink()
    assert "compares with the truth" in told(*METHODS, "--metrics", "ssim")
    write_image("far/s0.tif", np.zeros(SHAPE, np.uint8))
    assert "keep one of them" in told(*METHODS)
    Path("near/s0.png").unlink()
    assert "holds no picture s0.png" in told(*METHODS)


def test_scene_with_two_truths_or_too_few_clean_frames(place, printed, refused, simulation):
    make_scenes(simulation, count=1)
    clean = Path("scenes/s0/clean")
    clean.mkdir()
    write_image(clean / "frame-0.png", simulation.frames[0])
    arguments = (*METHODS, "--scenes", "scenes", "--metrics", "q_mi")
    refused("evaluate", *arguments, words=("2 sources but 1 clean",))
    write_image(clean / "frame-1.png", simulation.frames[1])
    out = printed(*arguments)
    assert "q_mi (clean)" in out and "1 scene\n" in out
    write_image("scenes/s0/truth.tif", simulation.truth)
    refused("evaluate", *arguments, words=("two truths",))


def test_same_stems_are_told_apart_by_their_paths(place, printed, simulation):
    Path("other").mkdir()
    write_image("other/good.png", noisy(simulation.truth, 4))
    pictures = ["good.png", "other/good.png"]
    methods = printed(*pictures, *SOURCES, "--metrics", "q_mi", "--json")["methods"]
    assert [m["method"] for m in methods] == pictures


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("good.png", *SOURCES, "--metrics", "q_xy"), ("no metric 'q_xy'", *METRICS)),
        (("good.png", *SOURCES, "--metrics", "q_mi", "psnr"), ("psnr compares with the truth",)),
        (("good.png", *TRUTH, "--metrics", "q_mi"), ("q_mi compares with the sources",)),
        (("good.png",), ("nothing to score by",)),
        (("small.png", *SOURCES), ("64x47 RGB",)),
        (("good.png", *SOURCES, "--truth", "small.png"), ("64x47 RGB",)),
        (("grey.png", *SOURCES, *TRUTH), ("grey",)),
        (("no.png", *SOURCES), ("does not exist",)),
        (("good.png", "--sources", "no.png", "a.png"), ("does not exist",)),
        (("good.png", *SOURCES, "--truth", "no.png"), ("does not exist",)),
        (("good.png", *SOURCES, "--clean-sources", "good.png"), ("2 sources but 1 clean",)),
        (("good.png", "good.png", *SOURCES), ("given twice",)),
        (("good.png", "--sources", "a.png"), ("at least two",)),
        (SOURCES, ("no fused pictures",)),
        (("good.png", *SOURCES, "--csv", "x.json"), ("same file name",)),
        (("good.png", *SOURCES, "--csv", "t.png"), ("t.png exists", "--overwrite")),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(place, refused, simulation, arguments, words):
    write_image("small.png", simulation.truth[:-1])
    write_image("grey.png", simulation.truth[..., 0])
    table = () if "--csv" in arguments else ("--csv", "x.csv")
    refused("evaluate", *arguments, *table, "--report", "x.json", words=words)


def test_existing_outputs_are_replaced_if_told(place, printed):
    Path("table.csv").write_text("old")
    printed("good.png", *SOURCES, "--metrics", "q_mi", "--csv", "table.csv", "--overwrite")
    assert Path("table.csv").read_text().startswith("method,scene,picture,q_mi\n")


def test_depth_does_not_matter(place, printed, simulation):
    for name, picture in zip("cd", simulation.frames, strict=True):
        write_image(f"{name}.tif", picture.astype(np.uint16) * 257)
    write_image("deep.png", noisy(simulation.truth, 2).astype(np.uint16) * 257)
    plain = printed("good.png", *SOURCES, *TRUTH, "--json")
    other = printed("deep.png", "--sources", "c.tif", "d.tif", *TRUTH, "--json")
    plain, other = (told["scores"][0]["scores"] for told in (plain, other))
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
    assert choose_metrics(["all"], sources=True, truth=True) == METRICS
    assert choose_metrics(["q_y", "q_mi", "q_y"], sources=True, truth=False) == ("q_y", "q_mi")
    with pytest.raises(CofuseError, match="no metric 'x'"):
        choose_metrics(["all", "x"], sources=True, truth=True)
