"""`fuse_files`: one line of Python is the command line."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cofuse
from cofuse.evaluation.simulation import sample_picture
from cofuse.jobs import Request
from tests.command_line import run


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray[Any, Any]]:
    """Three frames in the folder stack of the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("stack").mkdir()
    picture = sample_picture("coffee")[100:196, 100:220]
    frames = list(cofuse.simulate_stack(picture, frames=3, seed=1).frames)
    for number, frame in enumerate(frames):
        cofuse.write_image(f"stack/{number}.png", frame)
    return frames


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """What two runs have in common."""
    return {name: value for name, value in report.items() if name not in ("seconds", "output")}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ()),
        ({"preset": "fast", "sigma": 10, "align": False}, ("--preset", "fast", "--sigma", "10")),
    ],
)
def test_it_does_what_the_command_does(stack, options, words, capsys):
    more = ("--no-align",) if options.get("align") is False else ()
    outcome = cofuse.fuse_files("stack", "one.png", report="one.json", **options)
    assert run("fuse", "stack", "-o", "two.png", "--report", "two.json", *words, *more) == 0
    reports = [json.loads(Path(name).read_text()) for name in ("one.json", "two.json")]
    for report in reports:
        report["options"]["maps"].pop("report")
        report["options"].pop("output", None)
    assert without_times(reports[0]) == without_times(reports[1])
    for name in ("one.png", "two.png"):
        np.testing.assert_array_equal(outcome.fusion.image, cofuse.read_image(name))
    assert outcome.report["frames"]["count"] == len(outcome.stack) == 3
    assert outcome.stack[0].shape == outcome.fusion.image.shape  # frames can still be read


def test_it_takes_several_files_and_paths(stack):
    files = sorted(Path("stack").iterdir())
    outcome = cofuse.fuse_files(files[:2], Path("out.png"), align=False, depth_map="depth.png")
    assert outcome.stack.names == ("0.png", "1.png")
    assert outcome.depth is not None and Path("depth.png").exists()


def test_numbers_may_be_numbers(stack):
    options = {"preset": "fast", "align": False, "sigma": 0}
    cofuse.fuse_files("stack", "out.tif", bit_depth=16, max_memory=2 * 10**9, **options)
    assert cofuse.read_image("out.tif").dtype == np.uint16


def test_it_never_overwrites_unless_asked(stack):
    cofuse.fuse_files("stack", "out.png", preset="fast", align=False)
    with pytest.raises(cofuse.CofuseError, match="exists"):
        cofuse.fuse_files("stack", "out.png", preset="fast", align=False)
    cofuse.fuse_files("stack", "out.png", preset="fast", align=False, overwrite=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"overwite": True}, "no option `overwite`; did you mean `overwrite`"),
        ({"zzz": 1}, "no option `zzz`$"),
        ({"align_only": True}, "align with cofuse.align_stack"),
        ({"sigma": "much"}, "`sigma` is 'much'"),
    ],
)
def test_wrong_options_are_refused(stack, options, words):
    with pytest.raises(cofuse.CofuseError, match=words):
        cofuse.fuse_files("stack", "out.png", **options)
    assert not Path("out.png").exists()


def test_no_two_groups_share_an_option():
    groups = [vars(value) for value in vars(Request((), Path())).values() if is_dataclass(value)]
    names = [name for group in groups for name in group]
    assert len(groups) == 5 and len(set(names)) == len(names)
