"""``cofuse batch``: what it takes for a stack, what it does once, and how it fails."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cofuse.cli import main
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.jobs.frames import Frames
from cofuse.jobs.grouping import cut_at_pauses, find_groups, time_taken
from cofuse.jobs.run import Job

FAST = ("--preset", "fast", "--sigma", "0", "--no-align", "--hot-pixels", "off")


@pytest.fixture(scope="module")
def frames() -> list[np.ndarray[Any, Any]]:
    grey = cv2.cvtColor(sample_picture(), cv2.COLOR_RGB2GRAY)
    return list(simulate_stack(grey, frames=2, sigma=0.0, shape=(48, 48), seed=4).frames)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fill(place: Path, frames: list[np.ndarray[Any, Any]]) -> Any:
    """Write pictures, sharp now here, now there."""

    def write(folder: str, *names: str) -> Path:
        (place / folder).mkdir(parents=True, exist_ok=True)
        for k, name in enumerate(names or ("a.png", "b.png")):
            write_image(place / folder / name, frames[k % 2])
        return place / folder

    return write


def run(*arguments: object) -> int:
    """Run the command in this process, the fast way."""
    return main(["batch", *map(str, arguments), *FAST])


def listed(folder: str = "out") -> list[str]:
    """The files of a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def states(out: str = "out") -> dict[str, str]:
    """How every stack stands by the summary."""
    facts = json.loads(Path(out, "batch.json").read_text("utf-8"))
    return {stack["name"]: stack["state"] for stack in facts["stacks"]}


def names(*folders: str, **how: Any) -> dict[str, list[str]]:
    """What stacks are found, and the pictures of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        groups = find_groups([Path(folder) for folder in folders], **how)
    return {group.name: [file.name for file in group.files] for group in groups}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


# --- what makes a stack --------------------------------------------------------------------------


def test_folders_and_their_folders_are_stacks(place, fill, capsys):
    fill("alone", "b2.png", "b10.png")
    fill("many/x")
    fill("many/y")
    fill("many/.hidden")
    fill("many/deep/z")
    (place / "many/notes").mkdir()
    assert run("alone", "many", "-o", "out") == 0
    out, err = capsys.readouterr()
    assert listed() == [
        *("alone.json", "alone.tif", "batch.json", "x.json", "x.tif", "y.json", "y.tif")
    ]
    assert "[2/3] x: done\n" in err and err.count("\n") == 3
    assert out.splitlines()[0].split() == ["stack", "frames", "size", "sigma", "seconds", "state"]
    assert out.splitlines()[1].split()[:4] == ["alone", "2", "48x48", "0.0"]
    assert "3 done" in out and set(states().values()) == {"done"}
    report = json.loads(Path("out/alone.json").read_text())
    assert (
        report["frames"]["names"] == ["b2.png", "b10.png"] and report["output"] == "out/alone.tif"
    )
    assert main(["fuse", "alone", "-o", "one.tif", *FAST]) == 0
    assert np.array_equal(read_image("out/alone.tif"), read_image("one.tif"))


def test_recursion_reaches_any_depth_and_goes_in_no_circle(place, fill):
    fill("a/b/c")
    (place / "a/b/c/up").symlink_to(place / "a")
    assert names("a") == {}
    assert names("a", recursive=True) == {"c": ["a.png", "b.png"]}
    assert names("a", "a/b", "a/b/c", recursive=True) == {"c": ["a.png", "b.png"]}


def test_equal_names_are_told_apart_by_the_folders_above(place, fill):
    for folder in ("d1/flower", "d2/flower", "d2/fly", "d3/Fly", "d4/batch"):
        fill(folder)
    assert list(names("d1", "d2", "d3")) == ["d1-flower", "d2-flower", "d2-fly", "d3-Fly"]
    assert run("d4", "-o", "out") == 0
    assert listed() == ["batch.json", "d4-batch.json", "d4-batch.tif"]


def test_pattern_groups_by_name(place, fill, capsys):
    fill("shots", "x_1.png", "x_10.png", "x_2.png", "y_1.png", "y_2.png", "other.png")
    assert run("shots", "-o", "out", "--pattern", r"(.+)_\d+\.png") == 0
    assert "1 of 6 pictures in shots do not match --pattern, for example other.png" in (
        capsys.readouterr().err
    )
    assert states() == {"x": "done", "y": "done"}
    found = names("shots", pattern=r"(?P<kind>.)_(?P<stack>\d+)\.png")
    assert found == {"1": ["x_1.png", "y_1.png"], "2": ["x_2.png", "y_2.png"], "10": ["x_10.png"]}


def test_pattern_looks_below_only_if_told_to(fill):
    fill("top", "p_1.png")
    fill("top/inner", "p_1.png", "p_2.png")
    pattern = r"(.)_\d\.png"
    assert names("top", pattern=pattern) == {"p": ["p_1.png"]}
    assert list(names("top", pattern=pattern, recursive=True)) == ["top-p", "inner-p"]


def shoot(folder: Path, name: str, time: str | None, fraction: str = "") -> None:
    """Write a JPEG that says when it was taken."""
    exif = Image.Exif()
    if time is not None:
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:01 {time}"
        if fraction:
            exif.get_ifd(0x8769)[0x9291] = fraction
    folder.mkdir(exist_ok=True)
    Image.new("L", (48, 48), 90).save(folder / name, exif=exif)


def test_gap_groups_by_time_and_orders_by_it(place):
    shots = place / "shots"
    shoot(shots, "z.jpg", "10:00:00", "25")
    shoot(shots, "b.jpg", "10:00:00", "75")
    shoot(shots, "a.jpg", "10:00:02", "75")
    shoot(shots, "d.jpg", "10:00:05", "00")
    shoot(shots, "c.jpg", "10:00:05", "00")
    assert time_taken(shots / "z.jpg").microsecond == 250_000
    assert names("shots", gap=2.0) == {"z": ["z.jpg", "b.jpg", "a.jpg"], "c": ["c.jpg", "d.jpg"]}
    assert len(names("shots", gap=1.99)) == 3 and len(names("shots", gap=3)) == 1
    both = names("shots", gap=2.0, pattern=r"(?:[az]|(?P<stack>[bcd]))\.jpg")
    assert both == {"b": ["b.jpg"], "c": ["c.jpg"], "d": ["d.jpg"]}
    assert names("shots", gap=5, pattern="().+") == {}


def test_gap_falls_back_to_the_time_of_the_file(place, capsys):
    shots = place / "shots"
    for k, name in enumerate(("a.jpg", "b.jpg", "c.jpg")):
        shoot(shots, name, None)
        os.utime(shots / name, (1e9 + 10 * k, 1e9 + 10 * k))
    (shots / "d.jpg").write_bytes(b"no picture at all")
    os.utime(shots / "d.jpg", (2e9, 2e9))
    assert main(["batch", "shots", "-o", "out", "--gap", "15", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "4 of 4 pictures in shots do not say when they were taken" in err
    assert out.splitlines()[1].split() == ["a", "3", "-", "-", "-", "to", "do"]
    assert "skipped" in out.splitlines()[2]


@given(st.lists(st.floats(0, 1e6), max_size=30).map(sorted), st.floats(0, 1e4))
def test_cutting_at_pauses_is_a_partition_by_the_gap(times, gap):
    parts = cut_at_pauses(times, gap)
    assert [k for part in parts for k in part] == list(range(len(times)))
    assert all(parts)
    for part in parts:
        assert all(times[k + 1] - times[k] <= gap for k in part[:-1])
    for before, after in itertools.pairwise(parts):
        assert times[after[0]] - times[before[-1]] > gap


def test_too_few_frames_are_skipped_but_pages_count(place, fill, frames, capsys):
    fill("s/one", "a.png")
    fill("s/two")
    (place / "s/paged").mkdir()
    tifffile.imwrite("s/paged/p.tif", np.stack(frames), photometric="minisblack")
    assert run("s", "-o", "out") == 0
    assert states() == {"one": "skipped", "paged": "done", "two": "done"}
    assert "one: skipped: 1 frame, fewer than 2" in capsys.readouterr().err
    assert run("s", "-o", "three", "--least", "3") == 2
    assert "3 with fewer than 3 frames" in capsys.readouterr().err


def test_results_among_the_folders_are_not_taken_for_stacks(fill):
    fill("s/one")
    fill("s/two")
    assert run("s", "-o", "s/out") == run("s", "-o", "s/out") == 0
    assert run("s/one", "s/two", "s/out", "-o", "s/out") == 0
    assert states("s/out") == {"one": "done before", "two": "done before"}


# --- maps, formats, words ------------------------------------------------------------------------


def test_maps_and_formats(fill):
    fill("one")
    assert run("one", "-o", "new/out", "--format", "png", "--depth-maps", "--source-maps") == 0
    maps = [f"one-{kind}{more}.png" for kind in ("depth", "source") for more in ("-colours", "")]
    assert listed("new/out") == sorted(["batch.json", "one.json", "one.png", *maps])
    report = json.loads(Path("new/out/one.json").read_text())
    assert report["options"]["maps"]["depth_map"] == "new/out/one-depth.png"


def test_json_tells_what_the_summary_tells(fill, capsys):
    fill("s/one")
    fill("s/few", "a.png")
    assert run("s", "-o", "out", "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert err == "" and facts == json.loads(Path("out/batch.json").read_text())
    assert facts["counts"] == {"skipped": 1, "done": 1}
    assert facts["stacks"][1]["width"] == 48 and facts["stacks"][1]["seconds"] > 0


def test_dry_run_does_nothing(fill, capsys):
    fill("s/one")
    fill("s/two")
    assert run("s/one", "-o", "out", "--quiet") == 0
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert run("s", "-o", "out", "--dry-run") == run("s", "-o", "new", "--dry-run") == 0
    assert "1 done before, 1 to do\n" in capsys.readouterr().out
    assert run("s", "-o", "out", "--dry-run", "--json") == 0
    assert [s["state"] for s in json.loads(capsys.readouterr().out)["stacks"]] == [
        *("done before", "to do")
    ]
    assert before == {path: path.stat().st_mtime_ns for path in Path().rglob("*")}


# --- done once -----------------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(fill, monkeypatch):
    fill("s/one")
    assert run("s", "-o", "out") == 0
    fill("s/two")
    ran = []
    fuse = Job.run
    monkeypatch.setattr(Job, "run", lambda job, *a: ran.append(job.request.output) or fuse(job, *a))
    # Neither memory nor --overwrite changes the picture.
    assert run("s", "-o", "out", "--max-memory", "2GB", "--overwrite") == 0
    assert states() == {"one": "done before", "two": "done"} and len(ran) == 1
    Path("out/two.tif").unlink()
    assert run("s", "-o", "out") == 0
    assert states() == {"one": "done before", "two": "done"} and len(ran) == 2


@pytest.mark.parametrize("change", ["options", "frames"])
def test_what_changed_is_done_again_only_if_told_to(fill, change, capsys):
    folder = fill("s/one")
    assert run("s", "-o", "out") == 0
    before = Path("out/one.tif").read_bytes()
    if change == "frames":
        write_image(folder / "a.png", read_image(folder / "b.png"), overwrite=True)
    options = ("--denoise", "0.5") if change == "options" else ()
    assert run("s", "-o", "out", *options) == 1
    out, err = capsys.readouterr()
    reason = f"failed: done before with other {change}; pass --overwrite"
    assert reason in out and reason in err and Path("out/one.tif").read_bytes() == before
    assert run("s", "-o", "out", *options, "--overwrite") == 0 and states() == {"one": "done"}
    assert run("s", "-o", "out", *options) == 0 and states() == {"one": "done before"}


def test_files_of_others_are_not_replaced(fill, capsys):
    fill("s/one")
    fill("s/two")
    Path("out").mkdir()
    Path("out/one.tif").write_bytes(b"precious")
    Path("out/two.json").write_text("[]")
    assert run("s", "-o", "out") == 1
    assert Path("out/one.tif").read_bytes() == b"precious" and states()["two"] == "failed"
    assert "one.tif exists" in capsys.readouterr().err
    assert run("s", "-o", "out", "--overwrite") == 0


# --- failures ------------------------------------------------------------------------------------


def test_one_failure_does_not_stop_the_others(fill, capsys):
    truncate(fill("s/broken") / "b.png")
    fill("s/sound")
    assert run("s", "-o", "out", "--quiet") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("cofuse: [1/2] broken: failed: s/broken/b.png")
    assert states() == {"broken": "failed", "sound": "done"}
    assert listed() == ["batch.json", "sound.json", "sound.tif"]
    shutil.copy("s/sound/b.png", "s/broken/b.png")
    assert run("s", "-o", "out") == 0
    assert states() == {"broken": "done", "sound": "done before"}


def test_errors_name_the_folder_of_the_results(fill, frames, capsys):
    fill("s/one")
    for name in "ab":
        write_image(f"s/one/{name}.png", frames[0].astype(np.uint16), overwrite=True)
    assert run("s", "-o", "out", "--format", "jpg") == 1
    assert "failed: out/one.jpg cannot hold values of type uint16" in capsys.readouterr().err
    assert listed() == ["batch.json"]


def test_bugs_are_recorded_and_do_not_stop_the_others(fill, monkeypatch, capsys):
    fill("s/one")
    fill("s/two")
    fuse = Job.run

    def fail(job: Job, *arguments: Any) -> Any:
        if job.request.output.stem == "one":
            raise ZeroDivisionError("by accident")
        return fuse(job, *arguments)

    monkeypatch.setattr(Job, "run", fail)
    assert run("s", "-o", "out") == 1
    err = capsys.readouterr().err
    assert "one: failed: ZeroDivisionError: by accident" in err and "Traceback" not in err
    facts = json.loads(Path("out/batch.json").read_text())
    assert "by accident" in facts["stacks"][0]["traceback"] and states()["two"] == "done"


def test_warnings_name_their_stack(fill, capsys):
    fill("s/one", "a.png")
    assert run("s", "-o", "out", "--least", "1") == 0
    assert "cofuse: warning: one: one frame" in capsys.readouterr().err


def test_interrupted_run_leaves_nothing_half_and_goes_on(fill, monkeypatch, capsys):
    fill("s/one")
    fill("s/two")
    maps = ("--depth-maps", "--source-maps")

    def interrupt(frames: Frames) -> None:
        """Come when all is written and nothing is in its place yet."""
        if next(iter(frames.files)).parent.name == "two":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Frames, "check_unchanged", interrupt)
        assert run("s", "-o", "out", *maps) == 130
    assert "interrupted" in capsys.readouterr().err
    assert "one.tif" in listed() and all(name.startswith("one") for name in listed())
    assert run("s", "-o", "out", *maps) == 0
    assert states() == {"one": "done before", "two": "done"}
    assert len([name for name in listed() if name.startswith("two")]) == 6


# --- wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("no folders",)),
        (("missing",), ("missing does not exist",)),
        (("s/one/a.png",), ("is no folder",)),
        (("empty",), ("no stacks were found",)),
        (("s", "--pattern", "(x"), ("no regular expression",)),
        (("s", "--pattern", "x"), ("no group", "brackets")),
        (("s/one", "--pattern", r"(x)\d"), ("no stacks were found",)),
        (("s", "--gap", "-1"), ("--gap is -1",)),
        (("s", "--gap", "nan"), ("--gap is nan",)),
        (("s", "--least", "0"), ("--least is 0",)),
        (("s", "--format", "gif"), ("gif",)),
        (("s", "--set", "colour=blue"), ("colour=blue",)),
        (("s", "--transforms", "t.json"), ("--transforms",)),
        (("s", "--save-transforms", "t.json"), ("--save-transforms",)),
        (("s", "--align-only"), ("--align-only",)),
        (("s", "--report", "r.json"), ("--report",)),
        (("mixed", "--gap", "1"), ("camera RAW", "--pattern")),
        (
            ("clash", "--depth-maps", "--format", "png"),
            ("two outputs have the same file name, x-depth.png",),
        ),
        (("same", "--gap", "1"), ("two stacks would be named",)),
    ],
)
def test_wrong_usage(place, fill, capsys, arguments, words):
    fill("s/one")
    fill("clash/x")
    fill("clash/x-depth")
    (place / "empty").mkdir()
    shutil.copy(fill("mixed", "a.png") / "a.png", "mixed/a.nef")
    shoot(place / "same", "a.jpg", "10:00:00")
    shoot(place / "same", "a.jpeg", "11:00:00")
    assert run(*arguments, "-o", "out") == 2
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert out == "" and last.startswith("cofuse: error: ") and not Path("out").exists()
    for word in words:
        assert word in last, last


def test_folder_of_the_results_must_be_one_and_hold_no_frames(place, fill, capsys):
    fill("s/one")
    assert run("s", "-o", "s/one/a.png") == 2
    assert "is a file" in capsys.readouterr().err
    assert run("s/one", "-o", "s/one") == 2
    assert "no stacks were found" in capsys.readouterr().err
    Path("out").mkdir()
    shutil.move("s/one/a.png", "out/one.png")
    (place / "s/one/a.png").symlink_to(place / "out/one.png")
    assert run("s", "-o", "out", "--format", "png", "--overwrite") == 2
    assert "one.png is one of the frames" in capsys.readouterr().err
    Path("out/batch.json").write_text("{}")
    assert run("s", "-o", "out") == 2
    assert "batch.json exists" in capsys.readouterr().err


def test_damaged_record_says_how_to_go_on(fill, capsys):
    fill("s/one")
    assert run("s", "-o", "out") == 0
    record = json.loads(Path("out/one.json").read_text())
    Path("out/one.json").write_text(json.dumps({"batch": record["batch"]}))
    assert run("s", "-o", "out") == 1
    assert "one.json is damaged; delete it" in capsys.readouterr().err
