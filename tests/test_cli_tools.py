"""The other commands: learn, operators, simulate, demo; and the command line as a whole."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import cofuse
import cofuse.evaluation.simulation
from cofuse.cli.simulate import simulate as simulate_command
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.files.previews import filter_grid
from cofuse.files.writing import index_picture
from cofuse.operators import (
    SHIPPED_OPERATORS,
    AnalysisOperator,
    load_operator,
    operator_bytes,
)
from tests.command_line import command, contents, run
from tests.waiting import PATIENCE


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with one sharp picture, colour.png, and its grey version."""
    picture = sample_picture()[100:180, 200:290]
    write_image(tmp_path / "colour.png", picture)
    write_image(tmp_path / "grey.png", cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- the whole -----------------------------------------------------------------------------------

COMMANDS = ("fuse", "learn", "operators", "simulate", "demo")


def test_real_help_and_version():
    for arguments in (("--help",), ("-h",), ()):
        done = command(*arguments)
        assert done.returncode == 0 and done.stderr == ""
        assert all(name in done.stdout for name in COMMANDS) and "8-bit" in done.stdout
    done = command("--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, cofuse.__version__, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    assert run(name, "--help") == 0
    out, err = capsys.readouterr()
    assert err == "" and name in out and "Usage" in out


def test_help_of_fuse_fits_two_screens_and_begins_with_what_most_need(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    text = command("fuse", "--help").stdout
    assert text.count("\n") <= 100 and "8-bit grey levels" in text
    groups = re.findall(r"^╭─ ([A-Z][a-z ]+) ─", text, re.MULTILINE)
    assert groups == [
        *("Arguments", "Parameters", "Fusion", "Maps and reports", "Alignment"),
        "Frames and files",
    ]
    common = text[text.index("─ Parameters ") : text.index("─ Fusion ")]
    assert re.findall(r"^│ [* ] +(--[a-z-]+)", common, re.MULTILINE) == [
        *("--output", "--preset", "--sigma", "--denoise", "--align", "--frames", "--depth-map"),
        *("--bit-depth", "--overwrite", "--quiet", "--json"),
    ]


def test_real_command_refuses_without_a_traceback(tmp_path):
    for arguments, word in (
        (("paint",), "fuse"),
        (("--wrong",), "--wrong"),
        (("operators", "show", "no-such"), "no-such"),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 2 and done.stdout == "" and word in done.stderr
        assert done.stderr.startswith("cofuse: error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="needs pipes as POSIX has them")
def test_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "cofuse", "operators", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=PATIENCE)
    assert "Traceback" not in errors


# --- learn ---------------------------------------------------------------------------------------

QUICK = ("--patch-size", "3", "--rows", "12", "--patches", "300", "--rounds", "2")


@pytest.mark.parametrize("kind", [(), ("--separable",)], ids=["full", "separable"])
def test_learning_depends_on_the_seed_alone(place, kind, capsys):
    kind = (*kind, "--rows", "16") if kind else kind
    options = [text for text in QUICK if not (kind and text in ("--rows", "12"))]
    for folder, seed in (("one", 5), ("two", 5), ("three", 6)):
        (place / folder).mkdir()
        output = place / folder / "mine.npz"
        assert run("learn", "grey.png", "-o", output, *options, *kind, "--seed", seed) == 0
    one, two, three = ((place / f / "mine.npz").read_bytes() for f in ("one", "two", "three"))
    assert one == two != three
    out, err = capsys.readouterr()
    assert err == "" and len(out.splitlines()) == 3
    assert re.match(r"\d+x9 operator from 300 patches of 1 pictures?, rank 8, ", out)
    operator = load_operator(place / "one" / "mine.npz")
    assert operator.name == "mine" and operator.patch_size == 3
    assert operator.is_separable is bool(kind)
    assert operator.provenance["seed"] == 5 and operator.provenance["patches"] == 300
    assert operator.provenance["cofuse"] == cofuse.__version__
    assert operator.provenance["pictures"] == 1


def test_learned_operator_can_be_shown_and_fused_with(place, capsys):
    learning = ("learn", "colour.png", "grey.png", "-o", "mine.npz", *QUICK)
    assert run(*learning, "--name", "fine", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert run("operators", "show", "mine.npz") == 0
    out = capsys.readouterr().out
    assert out.startswith("fine: full, 12 filters of 3x3, rank 8 of 8")
    assert "fine.png" in out and (place / "fine.png").exists()
    fusing = ("fuse", "grey.png", "grey.png", "-o", "x.png", "--sigma", "0", "--quiet")
    assert run(*fusing, "--preset", "fast", "--operator", "mine.npz") == 0
    assert np.array_equal(read_image("x.png"), read_image("grey.png"))


def test_learning_takes_folders_and_prints_json(place, capsys):
    assert run("learn", place, "-o", "mine.npz", *QUICK, "--json") == 0
    course = json.loads(capsys.readouterr().out)
    assert {"objective", "coherence", "rank"} <= set(course["history"])
    assert all(len(values) == 2 for values in course["history"].values()) and course["reason"]
    assert load_operator("mine.npz").provenance["pictures"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "m.npz"), ("no pictures",)),
        (("grey.png",), ("--output",)),
        (("missing.png", "-o", "m.npz"), ("missing.png", "does not exist")),
        (("text.png", "-o", "m.npz"), ("text.png", "not a picture")),
        (("empty", "-o", "m.npz"), ("empty", "no pictures")),
        (("flat.png", "-o", "m.npz"), ("flat",)),
        (("tiny.png", "-o", "m.npz"), ("2x2", "3x3")),
        (("grey.png", "-o", "old.npz"), ("old.npz exists", "--overwrite")),
        (("grey.png", "-o", "none/m.npz"), ("none", "does not exist")),
        (("grey.png", "-o", "grey.png", "--overwrite"), ("grey.png", "pictures")),
        ((".", "-o", "grey.png", "--overwrite"), ()),
        (("grey.png", "-o", "m.npz", "--rows", "5"), ("5 rows", "8")),
        (("grey.png", "-o", "m.npz", "--rounds", "0"), ("--rounds is 0",)),
        (("grey.png", "-o", "m.npz", "--patches", "0"), ("--patches is 0", "1 to 1000000")),
        (("grey.png", "-o", "m.npz", "--patches", "-5"), ("--patches is -5",)),
        (("grey.png", "-o", "m.npz", "--patches", "3"), ("3 patches",)),
        (("grey.png", "-o", "m.npz", "--patches", "many"), ("many",)),
        (("grey.png", "-o", "m.npz", "--patch-size", "1"), ("--patch-size is 1", "2 to 32")),
        (("grey.png", "-o", "m.npz", "--patch-size", "33"), ("--patch-size is 33",)),
        (("grey.png", "-o", "m.npz", "--seed", "-1"), ("--seed is -1",)),
        (("grey.png", "-o", "m.npz", "--subspace-dimension", "9"), ("dimension is 9",)),
        (("grey.png", "-o", "m.npz", "--subspace-dimension", "-2"), ("dimension is -2",)),
        (("grey.png", "-o", "m.npz", "--separable", "--rows", "13"), ("13",)),
        (("grey.png", "-o", "m.npz", "--wrong"), ("--wrong",)),
    ],
)
def test_learning_refuses(place, refused, arguments, words):
    (place / "text.png").write_text("no picture")
    (place / "old.npz").write_bytes(b"precious")
    (place / "empty").mkdir()
    write_image(place / "flat.png", np.full((20, 20), 9, np.uint8))
    write_image(place / "tiny.png", np.zeros((2, 2), np.uint8))
    given = list(QUICK)
    for option in ("--rows", "--rounds", "--patches", "--patch-size"):
        if option in arguments:
            del given[given.index(option) : given.index(option) + 2]
    refused("learn", *arguments, *given, words=words)


def test_operators_are_learned_without_torch(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("learn", "grey.png", "-o", "m.npz", *QUICK, "--quiet") == 0


# --- operators -----------------------------------------------------------------------------------


def test_list_names_every_shipped_operator(capsys):
    assert run("operators", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == list(SHIPPED_OPERATORS)
    assert "dct-N" in lines[-1]
    assert "64 filters of 7x7, rank 48 of 48" in next(x for x in lines if x.startswith("full-7"))


@pytest.mark.parametrize("name", ["full-7", "separable-7", "dct-5", "differences-3"])
def test_show_draws_the_filters(place, capsys, name):
    assert run("operators", "show", name) == 0
    out = capsys.readouterr().out
    picture = read_image(place / f"{name}.png")
    operator = load_operator(name)
    assert picture.dtype == np.uint8 and picture.ndim == 2 and f"{name}.png" in out
    assert np.array_equal(picture, filter_grid(operator.filters))
    assert out.startswith(f"{name}: ")
    shown = out[out.index("\n{") : out.rindex("}") + 1]
    assert json.loads(shown) == json.loads(json.dumps(dict(operator.provenance)))


def test_show_writes_where_it_is_told_and_overwrites_when_told(place, refused):
    (place / "f.png").write_bytes(b"precious")
    refused("operators", "show", "dct-4", "-o", "f.png", words=("f.png exists", "--overwrite"))
    refused("operators", "show", "dct-4", "-o", "f.txt", words=("f.txt",))
    refused("operators", "show", "dct-4", "-o", "none/f.png", words=("none",))
    refused("operators", "show", words=("show",))
    refused("operators", "show", "no-such", words=("no-such",))
    assert run("operators", "show", "dct-4", "-o", "f.png", "--overwrite") == 0
    assert read_image("f.png").ndim == 2


def test_name_in_a_file_does_not_lead_out_of_the_folder(place):
    inner = place / "inner"
    inner.mkdir()
    os.chdir(inner)
    operator = AnalysisOperator(load_operator("dct-3").rows, name="../outside/way")
    Path("sly.npz").write_bytes(operator_bytes(operator))
    before = contents(place)
    assert run("operators", "show", "sly.npz") == 0
    (new,) = set(contents(place)) - set(before)
    assert Path(new).parent == Path("inner")


@pytest.mark.parametrize("content", ["nothing", "text", "half", "array", "picture", "length"])
def test_show_says_what_is_wrong(place, refused, content):
    whole = operator_bytes(load_operator("dct-4"))
    path = place / "wrong.npz"
    if content == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif content == "length":
        operator = load_operator("dct-4")
        broken = object.__new__(AnalysisOperator)
        vars(broken).update(vars(operator), rows=operator.rows * 2, factors=None)
        path.write_bytes(operator_bytes(broken))
    else:
        picture = (place / "grey.png").read_bytes()
        path.write_bytes(
            {"nothing": b"", "text": b"hello", "half": whole[:200], "picture": picture}[content]
        )
    refused("operators", "show", "wrong.npz")
    fusing = ("fuse", "grey.png", "grey.png", "-o", "x.png", "--preset", "fast")
    refused(*fusing, "--operator", "wrong.npz")


# --- simulate ------------------------------------------------------------------------------------


def test_simulated_stack_can_be_fused_back(place, capsys):
    making = ("simulate", "grey.png", "-o", "sim", "--frames", "3", "--sigma", "10", "--seed", "2")
    assert run(*making) == 0
    assert "3 frames" in capsys.readouterr().out
    names = [f"stack/frame-{k:02}.png" for k in (1, 2, 3)]
    truth = read_image("sim/truth.png")
    expected = simulate_stack(read_image("grey.png"), frames=3, sigma=10, seed=2)
    frames = [read_image(f"sim/{name}") for name in names]
    assert all(np.array_equal(a, b) for a, b in zip(frames, expected.frames, strict=True))
    assert np.array_equal(truth, expected.truth)
    index = np.rint(read_image("sim/true-source-map.png") / 255 * 2)
    assert np.array_equal(index, expected.source_map)
    assert len(list(Path("sim").rglob("*.png"))) == 5
    assert run("fuse", "sim/stack", "-o", "x.png", "--quiet") == 0
    best = max(psnr(frame, truth) for frame in frames)
    assert psnr(read_image("x.png"), truth) > best + 1


def test_simulation_without_a_picture_takes_a_shipped_one(place, capsys):
    assert run("simulate", "-o", "sim", "--frames", "1", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert np.array_equal(read_image("sim/truth.png").shape, sample_picture().shape)


def test_simulation_keeps_depth_and_takes_a_foreground(place):
    picture = read_image("colour.png").astype(np.float32) / 255
    write_image(place / "float.tif", picture)
    making = ("simulate", "float.tif", "-o", "new/sim", "--foreground", "grey.png", "--frames", 2)
    assert run(*making, "--quiet") == 0
    assert read_image("new/sim/stack/frame-02.tif").dtype == np.float32
    assert read_image("new/sim/truth.tif").shape == picture.shape


def test_simulation_defaults_are_the_librarys():
    ours = inspect.signature(simulate_command).parameters
    theirs = inspect.signature(simulate_stack).parameters
    for name in ("frames", "sigma", "max_radius", "foreground", "seed"):
        assert ours[name].default == theirs[name].default, name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("grey.png",), ("--output",)),
        (("missing.png", "-o", "sim"), ("missing.png", "does not exist")),
        (("text.png", "-o", "sim"), ("text.png", "not a picture")),
        (("tiny.png", "-o", "sim"), ("8x8", "16")),
        (("grey.png", "-o", "sim", "--frames", "0"), ("frames is 0",)),
        (("grey.png", "-o", "sim", "--frames", "two"), ("two",)),
        (("grey.png", "-o", "sim", "--sigma", "-1"), ("sigma is -1",)),
        (("grey.png", "-o", "sim", "--sigma", "nan"), ("sigma is nan",)),
        (("grey.png", "-o", "sim", "--max-radius", "-1"), ("--max-radius is -1", "0 to 40")),
        (("grey.png", "-o", "sim", "--seed", "-1"), ("seed is -1",)),
        (("grey.png", "-o", "sim", "--foreground", "missing.png"), ("missing.png",)),
        (("grey.png", "-o", "full"), ("full", "not empty", "--overwrite")),
        (("grey.png", "-o", "text.png"), ("text.png",)),
        (("grey.png", "-o", "text.png/sim"), ("text.png",)),
    ],
)
def test_simulation_refuses(place, refused, arguments, words):
    (place / "text.png").write_text("no picture")
    write_image(place / "tiny.png", np.zeros((8, 8), np.uint8))
    (place / "full").mkdir()
    (place / "full" / "diary.txt").write_text("precious")
    refused("simulate", *arguments, words=words)


def test_simulation_into_a_full_folder_only_when_told(place):
    (place / "full").mkdir()
    (place / "full" / "diary.txt").write_text("precious")
    making = ("simulate", "grey.png", "-o", "full", "--frames", "2", "--quiet", "--overwrite")
    assert run(*making) == 0 and run(*making) == 0
    assert (place / "full" / "diary.txt").read_text() == "precious"


# --- demo ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_writes_everything_and_gets_better(place, capsys, refused):
    assert run("demo", "-o", "show") == 0
    out, err = capsys.readouterr()
    assert err == ""
    folder = place / "show"
    pictures = ("comparison", "fused", "source-map", "true-source-map", "truth")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    frames = {f"stack/frame-{k:02}.png" for k in range(1, 6)}
    assert files == frames | {f"{name}.png" for name in pictures}
    decibels = [float(number) for number in re.findall(r"(\d+\.\d+) dB", out)]
    assert len(decibels) == 3 and decibels == sorted(decibels)
    assert decibels[2] > decibels[0] + 5
    fused, truth = read_image(folder / "fused.png"), read_image(folder / "truth.png")
    assert psnr(fused, truth) == pytest.approx(decibels[2], abs=0.006)
    assert str(Path("show") / "comparison.png") in out
    assert read_image(folder / "comparison.png").shape[1] > 4 * truth.shape[1]
    refused("demo", "-o", "show", words=("show", "not empty", "--overwrite"))
    refused("demo", "-o", "grey.png", words=("grey.png",))


def test_demo_goes_into_a_full_folder_only_when_told(place, monkeypatch, capsys):
    def small(**_: Any) -> Any:
        return simulate_stack(read_image("colour.png"), frames=2, sigma=15)

    monkeypatch.setattr("cofuse.cli.simulate.demo_simulation", small)
    assert run("demo") == 0
    before = contents(place)
    assert run("demo") == 2 and contents(place) == before
    assert run("demo", "--overwrite") == 0 and contents(place) == before
    assert set(before) > {"cofuse-demo", "cofuse-demo/fused.png"}


# --- pictures to look at -------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 256, 257, 5000])
def test_indices_survive_as_shades(frames):
    index = np.arange(frames).reshape(1, -1)
    shades = index_picture(index, frames)
    white = np.iinfo(shades.dtype).max
    assert shades[0, 0] == 0 and (frames == 1 or shades[0, -1] == white)
    assert np.array_equal(np.rint(shades / white * (frames - 1)), index)
    assert shades.dtype == (np.uint8 if frames <= 256 else np.uint16)
