"""``cofuse fuse``: what it prints and writes, and the one line it says when it cannot."""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile

import cofuse
from cofuse import fusion
from cofuse.cli.fuse import AligningOptions, FusingOptions, ReadingOptions
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.model.runtime import MODELS
from tests.command_line import PLAN, command, contents, run
from tests.waiting import PATIENCE

#: What a job times beside the fusion, without alignment.
AROUND = {"hot pixels", "reading", "depth", "writing"}


@pytest.fixture(scope="module")
def scene() -> Simulation:
    grey = cv2.cvtColor(sample_picture(), cv2.COLOR_RGB2GRAY)
    return simulate_stack(grey, frames=3, sigma=12.0, shape=(64, 72), seed=4)


@pytest.fixture
def place(tmp_path: Path, scene: Simulation, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with frames a.png, b.png, c.png, and the working directory."""
    for name, frame in zip("abc", scene.frames, strict=True):
        write_image(tmp_path / f"{name}.png", frame)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what it does --------------------------------------------------------------------------------


def test_fuses_files_and_says_so_in_one_line(place, scene, capsys):
    assert run("fuse", "a.png", "b.png", "c.png", "-o", "fused.png", "--no-align") == 0
    out, err = capsys.readouterr()
    line = r"3 frames of 72x64 grey uint8, sigma (\d+\.\d) \(estimated\), \d+\.\d s: fused\.png\n"
    found = re.fullmatch(line, out)
    assert found and abs(float(found[1]) - 12) < 3 and re.fullmatch(PLAN, err)
    assert err.startswith("cofuse: 3 frames of 72x64 grey uint8: ")
    image = read_image(place / "fused.png")
    assert np.array_equal(image, cofuse.fuse(scene.frames).image)
    best = max(psnr(frame, scene.truth) for frame in scene.frames)
    assert psnr(image, scene.truth) > best + 2
    assert sorted(contents(place)) == ["a.png", "b.png", "c.png", "fused.png"]


def test_given_sigma_preset_operator_and_settings_reach_the_library(place, scene):
    code = run(
        *("fuse", "a.png", "b.png", "c.png", "-o", "x.png", "--preset", "paper", "--sigma", "9"),
        *("--operator", "full-8", "--set", "stride=3", "--set", "x-step=surrogate", "--no-align"),
    )
    expected = cofuse.fuse(
        scene.frames,
        sigma=9,
        preset=cofuse.PaperSettings(stride=3, x_step="surrogate"),
        operator="full-8",
        align=False,
    )
    assert code == 0 and np.array_equal(read_image(place / "x.png"), expected.image)


def test_epsilon_can_be_set_although_it_has_no_default(place):
    assert run("fuse", "a.png", "b.png", "-o", "x.png", "--preset", "paper", "--sigma", 9) == 0
    set_epsilon = ("--preset", "paper", "--sigma", 9, "--set", "epsilon=0.5")
    assert run("fuse", "a.png", "b.png", "-o", "y.png", *set_epsilon) == 0
    assert not np.array_equal(read_image(place / "x.png"), read_image(place / "y.png"))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_multi_page_tiff_is_a_stack(place, scene, capsys, dtype):
    scale = {"uint8": 1, "uint16": 257, "float32": np.float32(1 / 255)}[dtype]
    frames = [frame.astype(dtype) * scale for frame in scene.frames]
    tifffile.imwrite("stack.tif", np.stack(frames), photometric="minisblack")
    assert run("fuse", "stack.tif", "-o", "x.tif", "--sigma", "0", "--json", "--no-align") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"]["count"] == 3 and report["frames"]["dtype"] == dtype
    image = read_image(place / "x.tif")
    assert image.dtype == dtype and np.array_equal(image, cofuse.fuse(frames, sigma=0).image)


def test_white_is_passed_on(place, scene, capsys):
    for name, frame in zip("de", scene.frames, strict=False):
        write_image(place / f"{name}.tif", frame.astype(np.float32))
    arguments = ("fuse", "d.tif", "e.tif", "-o", "x.tif", "--white", "255", "--json", "--no-align")
    assert run(*arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"]["white"] == 255.0
    assert report["sigma"] == pytest.approx(cofuse.fuse(scene.frames[:2]).sigma, abs=0.05)


def test_json_is_the_report_with_the_right_numbers(place, scene, capsys):
    arguments = ("fuse", "a.png", "b.png", "c.png", "-o", "x.png", "--report", "x.json", "--json")
    assert run(*arguments, "--preset", "paper", "--set", "stride=4", "--no-align") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert err == "" and json.loads((place / "x.json").read_text("utf-8")) == report
    result = cofuse.fuse(scene.frames, preset=cofuse.PaperSettings(stride=4))
    assert report["cofuse"] == cofuse.__version__ and report["output"] == "x.png"
    assert report["frames"] == {
        "count": 3,
        "names": ["a.png", "b.png", "c.png"],
        "width": 72,
        "height": 64,
        "colour": False,
        "dtype": "uint8",
        "white": 255.0,
        "white_found": False,
    }
    assert report["sigma"] == pytest.approx(result.sigma) and report["sigma_estimated"] is True
    assert report["sigma_counts"] == report["sigma"]
    shares = [(result.source_map == k).mean() for k in range(3)]
    assert [s["share"] for s in report["shares"]] == pytest.approx(shares)
    assert report["mean_confidence"] == pytest.approx(result.confidence.mean(), rel=1e-5)
    assert set(report["traces"]) == {"local estimate", "reconstruction"}
    assert all(trace["converged"] for trace in report["traces"].values())
    asked = report["options"]
    assert report["settings"]["stride"] == 4
    assert (asked["fusing"]["preset"], asked["aligning"]["align"]) == ("paper", False)
    stages = {"noise", "choice", "local estimate", "reconstruction"} | AROUND
    seconds = report["seconds"]
    assert set(seconds) == stages | {"total"}
    assert seconds["total"] >= sum(seconds[stage] for stage in stages)


def test_report_of_the_trained_model_names_it_and_its_stages(place, scene, capsys):
    arguments = ("fuse", "a.png", "b.png", "c.png", "-o", "x.png", "--denoise", "0.5", "--json")
    assert run(*arguments, "--no-align") == 0
    report = json.loads(capsys.readouterr().out)
    asked = report["options"]["fusing"]
    assert (asked["preset"], asked["denoise"]) == ("auto", 0.5)
    assert report["settings"] == {"model": "auto"}
    assert set(report["seconds"]) == {"noise", "fusion", "restoration", "total"} | AROUND
    assert not report["traces"]
    result = cofuse.fuse(scene.frames, denoise=0.5)
    assert np.array_equal(read_image(place / "x.png"), result.image)
    assert report["sigma"] == pytest.approx(result.sigma)


@pytest.mark.parametrize("preset", ["auto", "fast"])
def test_denoise_and_settings_reach_the_library(place, scene, preset):
    frames = ("a.png", "b.png", "c.png")
    arguments = ("fuse", *frames, "--preset", preset, "--sigma", "12", "--no-align")
    for name, denoise in (("none.png", 0), ("some.png", 0.25)):
        assert run(*arguments, "-o", name, "--denoise", denoise, "--quiet") == 0
        expected = cofuse.fuse(scene.frames, sigma=12, preset=preset, denoise=denoise)
        assert np.array_equal(read_image(place / name), expected.image)
    if preset == "fast":
        assert run(*arguments, "-o", "narrow.png", "--set", "window=3", "--quiet") == 0
        narrow = dataclasses.replace(fusion.PRESETS["fast"], window=3)
        expected = cofuse.fuse(scene.frames, sigma=12, preset=narrow)
        assert np.array_equal(read_image(place / "narrow.png"), expected.image)


@pytest.mark.extra("onnx")
def test_model_can_be_one_of_your_own(place, scene):
    import onnx

    for name in ("same", "mine"):
        shutil.copytree(MODELS / "auto", place / name)
    network = onnx.load(place / "mine" / "weigh.onnx")
    for tensor in network.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 4:
            tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(1.05), tensor.name))
    onnx.save(network, place / "mine" / "weigh.onnx")
    frames = [str(place / f"{name}.png") for name in "abc"]
    for name in ("same", "mine"):
        options = ("--sigma", "12", "--quiet", "--no-align", "-o", f"{name}.png")
        assert run("fuse", *frames, *options, "--set", f"model={name}") == 0
    # The folder that one is in is a model as any other.
    os.chdir(place / "same")
    assert run("fuse", *frames, *options[:-1], "../here.png", "--set", "model=.") == 0
    assert np.array_equal(read_image(place / "here.png"), read_image(place / "same.png"))
    usual = cofuse.fuse(scene.frames, sigma=12).image
    assert np.array_equal(read_image(place / "same.png"), usual)
    assert not np.array_equal(read_image(place / "mine.png"), usual)


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (6, 6)])
def test_pictures_below_patch_size_are_for_the_trained_model_only(place, refused, size):
    small = read_image(place / "a.png")[: size[0], : size[1]]
    write_image(place / "tiny.png", small)
    tiny = ("fuse", "tiny.png", "tiny.png", "--sigma", "0", "--no-align")
    for preset in ("fast", "paper"):
        words = (f"{size[1]}x{size[0]}", "7x7")
        refused(*tiny, "-o", "x.png", "--preset", preset, words=words, late=True)
    assert run(*tiny, "-o", "x.png", "--quiet") == 0
    assert np.array_equal(read_image(place / "x.png"), small)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_are_for_terminals_that_want_them(place, monkeypatch):
    for quiet in (False, True):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        silence = ["--quiet"] if quiet else []
        assert run("fuse", "a.png", "b.png", "-o", f"{quiet}.png", *silence) == 0
        assert ("fusion" in terminal.getvalue()) is not quiet
        assert bool(terminal.getvalue()) is not quiet


def test_one_frame_is_restored_with_a_warning(place, scene, capsys):
    assert run("fuse", "a.png", "-o", "x.png", "--sigma", "12") == 0
    out, err = capsys.readouterr()
    assert out.startswith("1 frame")
    warning = "cofuse: warning: one frame only: there is nothing to fuse, it is restored\n"
    assert re.fullmatch(PLAN + re.escape(warning), err)
    with pytest.warns(UserWarning, match="one frame"):
        expected = cofuse.fuse(scene.frames[:1], sigma=12).image
    assert np.array_equal(read_image(place / "x.png"), expected)


def test_overwrite_replaces_every_output(place):
    names = ("x.png", "map.png", "map-colours.png", "report.json", "t.json")
    for name in names:
        (place / name).write_bytes(b"old")
    outputs = ("-o", "x.png", "--source-map", "map.png", "--report", "report.json")
    outputs += ("--save-transforms", "t.json")
    assert run("fuse", "a.png", "b.png", *outputs, "--overwrite") == 0
    assert all((place / name).read_bytes() != b"old" for name in names)


def test_defaults_are_the_librarys():
    theirs = inspect.signature(fusion.fuse).parameters
    ours = {
        field.name: field.default
        for group in (ReadingOptions, AligningOptions, FusingOptions)
        for field in dataclasses.fields(group)
    }
    # Files come from cameras and are aligned unless told otherwise; arrays are taken as they are.
    assert ours["align"] is True
    shared = set(theirs) - {"frames", "progress", "preview", "sigma", "align"}
    assert shared <= set(ours)
    assert {name: ours[name] for name in shared} == {name: theirs[name].default for name in shared}
    assert theirs["sigma"].default is None and ours["sigma"] == "auto"


# --- what it refuses -----------------------------------------------------------------------------

FRAMES = ("a.png", "b.png")


def spoil(place: Path) -> None:
    """Put all kinds of wrong files beside the frames."""
    whole = (place / "a.png").read_bytes()
    (place / "empty.png").write_bytes(b"")
    (place / "short.png").write_bytes(whole[: len(whole) // 2])
    (place / "text.png").write_text("this is no picture, whatever its name says")
    (place / "nothing-here").mkdir()
    grey = read_image(place / "a.png")
    write_image(place / "small.png", grey[:-1])
    write_image(place / "colour.png", np.repeat(grey[..., None], 3, axis=2))
    write_image(place / "deep.png", grey.astype(np.uint16) * 257)
    float_grey = grey.astype(np.float32) / 255
    write_image(place / "float.tif", float_grey)
    float_grey[3, 4] = np.nan
    write_image(place / "nan.tif", float_grey)
    write_image(place / "bright.tif", grey.astype(np.float32))


def broken_models(place: Path) -> None:
    """Put folders beside the frames that were meant to be models."""
    for name in ("half", "lacking", "words"):
        shutil.copytree(MODELS / "auto", place / name)
    look = place / "half" / "look.onnx"
    look.write_bytes(look.read_bytes()[:5000])
    (place / "lacking" / "weigh.onnx").unlink()
    (place / "words" / "weigh.onnx").write_text("no network, whatever its name says")


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((), ("no frames",)),
        (("a.png", "missing.png"), ("missing.png", "does not exist")),
        (("missing-folder/",), ("missing-folder", "does not exist")),
        (("a.png", "empty.png"), ("empty.png", "empty")),
        (("a.png", "short.png"), ("short.png",)),
        (("text.png", "a.png"), ("text.png", "not a picture")),
        (("nothing-here",), ("nothing-here", "no pictures")),
        (("a.png", "small.png"), ("small.png", "72x63", "72x64")),
        (("a.png", "colour.png"), ("colour.png", "RGB", "grey")),
        (("a.png", "deep.png"), ("deep.png", "uint16", "uint8")),
        (("float.tif", "nan.tif"), ("nan.tif", "NaN")),
        (("nan.tif", "float.tif"), ("nan.tif", "NaN")),
        (("bright.tif", "bright.tif"), ("bright.tif", "white")),
        ((".",), ("all frames must agree",)),
    ],
)
def test_frames_that_do_not_work(place, refused, frames, words):
    spoil(place)
    if frames == (".",):
        for name in ("empty.png", "short.png", "text.png"):
            (place / name).unlink()
    # That pixels are damaged is seen when they are decoded: of the first frame at once.
    late = frames[1:] in (("short.png",), ("nan.tif",))
    for sigma in ("0", "10", "auto"):
        refused("fuse", *frames, "-o", "x.tif", "--sigma", sigma, words=words, late=late)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "x.png", "--sigma", "loud"), ("--sigma", "loud", "auto")),
        (("-o", "x.png", "--sigma", "-3"), ("sigma is -3",)),
        (("-o", "x.png", "--sigma=-3"), ("sigma is -3",)),
        (("-o", "x.png", "--sigma", "nan"), ("sigma is nan",)),
        (("-o", "x.png", "--sigma", "inf"), ("sigma is inf",)),
        (("-o", "x.png", "--sigma", ""), ("--sigma",)),
        (("-o", "x.png", "--preset", "fancy"), ("fancy", "auto", "fast", "paper")),
        (("-o", "x.png", "--denoise", "2"), ("denoise is 2", "0 to 1")),
        (("-o", "x.png", "--denoise=-0.5"), ("denoise is -0.5",)),
        (("-o", "x.png", "--denoise", "nan"), ("denoise is nan",)),
        (("-o", "x.png", "--denoise", "much"), ("--denoise", "much")),
        (("-o", "x.png", "--denoise", "0.5", "--preset", "paper"), ("denoise", "auto or fast")),
        (("-o", "x.png", "--set", "model=no-such"), ("no-such is no model", "auto")),
        (("-o", "x.png", "--set", "model=a.png"), ("a.png is no model", "look.onnx")),
        (("-o", "x.png", "--set", "model=."), (". is no model", "look.onnx")),
        (("-o", "x.png", "--set", "model="), ("look.onnx",)),
        (("-o", "x.png", "--set", "model=lacking"), ("lacking", "has no weigh.onnx")),
        (("-o", "x.png", "--set", "seam=3"), ("seam=3", "model")),
        (("-o", "x.png", "--set", "colour=blue"), ("colour=blue", "model")),
        (("-o", "x.png", "--preset", "fast", "--set", "window"), ("window", "NAME=VALUE")),
        (
            ("-o", "x.png", "--preset", "fast", "--set", "window=wide"),
            ("`window` is 'wide'", "whole"),
        ),
        (("-o", "x.png", "--preset", "fast", "--set", "window=2.5"), ("`window` is 2.5",)),
        (("-o", "x.png", "--preset", "fast", "--set", "window=0"), ("--set: `window` is 0",)),
        (("-o", "x.png", "--set", "window=3"), ("names no setting", "model")),
        (("-o", "x.png", "--preset", "paper", "--set", "local-weight=nan"), ("local_weight",)),
        (("-o", "x.png", "--set", "epsilon=little"), ("epsilon",)),
        (("-o", "x.png", "--white", "dark"), ("--white", "dark")),
        (("-o", "x.png", "--white", "-1"), ("white is -1",)),
        (("-o", "x.png", "--wrong", "1"), ("--wrong",)),
        (("-o", "x.png", "--operator", "full-7"), ("filters of its own", "fast or paper")),
        (("-o", "x.png", "--preset", "fast", "--operator", "no-such"), ("no-such", "full-7")),
        (("-o", "x.png", "--preset", "fast", "--operator", "a.png"), ("a.png", "no operator file")),
        (("-o", "x.png", "--preset", "fast", "--operator", "."), ()),
        (("-o", "x.png", "-o", "y.png"), ("-o",)),
        (("-o",), ("-o",)),
        ((), ("--output",)),
        (("-o", "x.gif"), ("x.gif", ".png")),
        (("-o", "x"), ("no suffix", ".png")),
        (("-o", "no-such-folder/x.png"), ("no-such-folder", "does not exist")),
        (("-o", "a.png/x.png"), ("a.png", "not a folder")),
        (("-o", "folder.png"), ("folder.png", "is a folder")),
        (("-o", "old.png"), ("old.png exists", "--overwrite")),
        (("-o", "x.png", "--report", "old.json"), ("old.json exists", "--overwrite")),
        (("-o", "x.png", "--source-map", "old.png"), ("old.png exists", "--overwrite")),
        (("-o", "x.png", "--source-map", "map.txt"), ("map.txt", ".png")),
        (("-o", "x.png", "--source-map", "none/map.png"), ("none", "does not exist")),
        (("-o", "x.png", "--report", "none/r.json"), ("none", "does not exist")),
        (("-o", "x.png", "--source-map", "x.png"), ("same",)),
        (("-o", "x.png", "--source-map", "./x.png"), ("same",)),
        (("-o", "x.png", "--report", "x.png"), ("same",)),
        (("-o", "x.png", "--source-map", "m.png", "--report", "m.png"), ("same",)),
        (("-o", "a.png"), ("a.png", "frames")),
        (("-o", "a.png", "--overwrite"), ("a.png", "frames")),
        (("-o", "./b.png", "--overwrite"), ("b.png", "frames")),
        (("-o", "link.png", "--overwrite"), ("frames",)),
        (("-o", "x.png", "--source-map", "b.png", "--overwrite"), ("b.png", "frames")),
        (("-o", "x.png", "--report", "b.png", "--overwrite"), ("b.png", "frames")),
    ],
)
def test_options_that_do_not_work(place, refused, options, words):
    (place / "old.png").write_bytes(b"precious")
    (place / "old.json").write_bytes(b"precious too")
    (place / "folder.png").mkdir()
    (place / "link.png").symlink_to("a.png")
    broken_models(place)
    refused("fuse", *FRAMES, *options, words=words)


@pytest.mark.parametrize(("model", "file"), [("half", "look.onnx"), ("words", "weigh.onnx")])
def test_damaged_models_are_named(place, refused, model, file):
    broken_models(place)
    options = ("-o", "x.png", "--no-align", "--set", f"model={model}")
    refused("fuse", *FRAMES, *options, words=(model, file, "cannot be read"), late=True)


def test_operator_larger_than_the_picture(place, refused):
    small = read_image(place / "a.png")[:8]
    write_image(place / "flat.png", small)
    arguments = ("fuse", "flat.png", "flat.png", "-o", "x.png", "--preset", "fast", "--no-align")
    refused(*arguments, "--operator", "full-9", words=("72x8", "9x9"), late=True)


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".bmp"])
def test_sixteen_bits_do_not_go_into_eight(place, refused, suffix):
    deep = read_image(place / "a.png").astype(np.uint16) * 257
    write_image(place / "deep.png", deep)
    refused("fuse", "deep.png", "deep.png", "-o", f"x{suffix}", words=("uint16", ".png"))


def test_floats_go_into_tiff_only(place, refused):
    write_image(place / "f.tif", read_image(place / "a.png").astype(np.float32) / 255)
    refused("fuse", "f.tif", "f.tif", "-o", "x.png", words=("float32", ".tif"))


def test_result_does_not_replace_a_frame_of_a_folder(place, refused):
    for name in FRAMES:
        refused("fuse", place, "-o", place / name, "--overwrite", words=("frames",))
    inner = place / "inner"
    inner.mkdir()
    (inner / "linked.png").symlink_to(place / "a.png")
    (inner / "other.png").symlink_to(place / "b.png")
    refused("fuse", inner, "-o", "a.png", "--overwrite", words=("frames",))


def test_map_of_many_frames_is_checked_before_anything_is_written(place, refused):
    pages = np.zeros((257, 8, 8), np.uint8)
    tifffile.imwrite("many.tif", pages, photometric="minisblack")
    many = ("fuse", "many.tif", "-o", "x.png", "--sigma", "0", "--no-align")
    refused(*many, "--source-map", "map.jpg", words=("map.jpg", "uint16"))
    assert run(*many, "--source-map", "map.png", "--quiet") == 0
    assert read_image(place / "map.png").dtype == np.uint16


def test_folder_without_permission(place, refused, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    refused("fuse", *FRAMES, "-o", "x.png", words=("permission",))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_read_only_folder(place, refused):
    locked = place / "locked"
    locked.mkdir(mode=0o555)
    refused("fuse", *FRAMES, "-o", locked / "x.png", words=("permission",))
    locked.chmod(0o755)


# --- the real command ----------------------------------------------------------------------------


def test_real_command_fuses_and_refuses(place):
    done = command("fuse", *FRAMES, "-o", "x.png", "--sigma", "0", "--json", cwd=place)
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["frames"]["count"] == 2
    before = contents(place)
    again = command("fuse", *FRAMES, "-o", "x.png", cwd=place)
    assert again.returncode == 2 and again.stdout == ""
    assert again.stderr.startswith("cofuse: error: x.png exists") and again.stderr.count("\n") == 1
    assert contents(place) == before


def test_debug_shows_where_an_error_came_from(place):
    done = command("fuse", "a.png", "missing.png", "-o", "x.png", "--debug", cwd=place)
    assert done.returncode != 0 and "Traceback" in done.stderr
    assert "CofuseError" in done.stderr and "missing.png" in done.stderr


def test_names_a_terminal_cannot_spell_are_no_obstacle(place, scene):
    done = subprocess.run(
        [sys.executable, "-m", "cofuse", "fuse", *FRAMES, "-o", "schärfer.png", "--sigma", "0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=place,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0 and "sch\\xe4rfer.png" in done.stdout
    assert re.fullmatch(PLAN, done.stderr)
    assert (place / "schärfer.png").exists()
