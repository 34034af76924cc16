"""``cofuse train``: from photographs to a folder that ``cofuse fuse`` uses; what it refuses."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofuse import read_image, write_image
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.model.runtime import NAMES, model_folder
from tests.command_line import contents, run

QUICK = ("--minutes", "0.02", "--side", "64", "--device", "cpu")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with photographs in the folder photos."""
    (tmp_path / "photos").mkdir()
    picture = sample_picture("coffee")
    for k in range(4):
        write_image(tmp_path / "photos" / f"{k}.png", picture[40 * k :, 60 * k :][:96, :96])
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- with torch ---


@pytest.mark.slow
@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
def test_what_is_trained_can_be_fused_with(place, capsys):
    assert run("train", "photos", "-o", "mine", *QUICK) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"\d+ steps on cpu with 4 photographs: mine\n", out)
    assert re.search(r"^(cofuse: )?step \d+, \d+ s, \d+\.\d\d dB$", err, re.MULTILINE), err
    names = {path.name for path in (place / "mine").iterdir()}
    assert names == {"card.json", *(f"{name}.onnx" for name in NAMES)}
    assert not [path for path in place.iterdir() if path.name.startswith(".")]
    card = json.loads((place / "mine" / "card.json").read_text("utf-8"))
    assert card["pictures"] == 4 and len(card["pictures_sha256"]) == 64
    assert card["steps"] > 0 and card["validation"][-1]["step"] == card["steps"]
    assert card["settings"]["seconds"] == pytest.approx(1.2) and card["settings"]["side"] == 64
    shipped = (model_folder("auto") / "card.json").read_text("utf-8")
    assert card["started_from"] == json.loads(shipped), "what the shipped model has seen"

    made = simulate_stack(sample_picture("coffee"), frames=2, seed=1, shape=(80, 90), sigma=8)
    for number, frame in enumerate(made.frames):
        write_image(place / f"{number}.png", frame)
    fusing = ("fuse", "0.png", "1.png", "--no-align", "--sigma", "8", "--quiet", "-o")
    assert run(*fusing, "ours.png", "--set", "model=mine", "--report", "report.json") == 0
    assert run(*fusing, "shipped.png") == 0
    report = json.loads((place / "report.json").read_text("utf-8"))
    assert report["settings"]["model"] == "mine"
    pictures = [read_image(place / name).astype(int) for name in ("ours.png", "shipped.png")]
    assert pictures[0].shape == made.truth.shape
    # Set out from the shipped model, and so near to it, but no longer the same.
    assert 0 < np.abs(pictures[0] - pictures[1]).mean() < 20


@pytest.mark.slow
@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
def test_parts_are_trained_one_by_one_from_nothing_or_from_a_folder(place, capsys):
    asked = ("train", "photos", "-o", "new", "--part", "restoring", "--from-nothing")
    assert run(*asked, *QUICK, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    asked = ("train", "photos", "-o", "more", "--start-from", "new", *QUICK, "--quiet", "--json")
    assert run(*asked) == 0
    card = json.loads(capsys.readouterr().out)
    assert card == json.loads((place / "more" / "card.json").read_text("utf-8"))
    first = json.loads((place / "new" / "card.json").read_text("utf-8"))
    assert card["started_from"] == first and not card["from_nothing"]
    shipped = (model_folder("auto") / "card.json").read_text("utf-8")
    assert first["from_nothing"] and first["started_from"] == json.loads(shipped)
    # The other part comes along as it was.
    folders = [contents(folder) for folder in (model_folder("auto"), place / "new", place / "more")]
    changed = [
        {name for name in after if before.get(name) != after[name]}
        for before, after in itertools.pairwise(folders)
    ]
    others = {f"{name}.onnx" for name in NAMES} - {"restore.onnx"}
    assert changed == [{"restore.onnx", "card.json"}, {*others, "card.json"}]


@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("photos", "-o", "photos"), ("photos exists",)),
        (("photos", "-o", "text.txt"), ("text.txt exists",)),
        (("photos", "-o", "nowhere/mine"), ("nowhere/mine", "no folder to lie in")),
        (("photos/0.png", "-o", "x"), ("1 of the photographs", "two at least")),
        (("photos", "wide.png", "-o", "x"), ("wide.png", "(96, 97, 3)", "of one size")),
        (("photos", "grey.png", "-o", "x"), ("grey.png", "(96, 96)", "8-bit colour")),
        (("photos", "deep.png", "-o", "x"), ("deep.png", "uint16", "8-bit colour")),
        (("grey.png", "grey2.png", "-o", "x"), ("grey.png", "8-bit colour")),
        (("photos", "-o", "x", "--side", "72"), ("--side is 72", "multiple of 16")),
        (("photos", "-o", "x", "--side", "48"), ("side", "64")),
        (("photos", "-o", "x", "--side", "112"), ("96x96 pixels", "112")),
        (("photos", "-o", "x", "--minutes", "0"), ("minutes",)),
        (("photos", "-o", "x", "--minutes", "nan"), ("minutes",)),
        (("photos", "-o", "x", "--rate", "1"), ("rate",)),
        (("photos", "-o", "x", "--part", "weigh"), ("weigh", "one of weighing, restoring")),
        (("photos", "-o", "x", "--helpers", "-1"), ("helpers",)),
        (("photos", "-o", "x", "--start-from", "photos"), ("photos is no model", "look.onnx")),
        (("photos", "-o", "x", "--device", "abacus"), ("abacus", "cuda")),
        (("photos", "no-such.png", "-o", "x"), ("no-such.png",)),
        (("photos",), ("output",)),
    ],
)
def test_training_refuses(place: Path, refused: Any, arguments: tuple[str, ...], words: Any):
    rng = np.random.default_rng(0)
    (place / "text.txt").write_text("precious")
    write_image(place / "wide.png", rng.integers(0, 256, (96, 97, 3), np.uint8))
    for name in ("grey.png", "grey2.png"):
        write_image(place / name, rng.integers(0, 256, (96, 96), np.uint8))
    write_image(place / "deep.png", rng.integers(0, 65536, (96, 96, 3), np.uint16))
    quick = ("--minutes", "0.02") if "--minutes" not in arguments else ()
    quick += ("--side", "64") if "--side" not in arguments else ()
    refused("train", *arguments, *quick, words=words)


# --- without ---


@pytest.mark.parametrize(
    "package", ["torch", pytest.param("onnx", marks=pytest.mark.extra("torch"))]
)
def test_training_without_a_package_says_what_to_install(place, refused, monkeypatch, package):
    """Before the work begins: what was trained could not be written."""
    monkeypatch.setitem(sys.modules, package, None)
    asked = ("train", "photos", "-o", "x", "--from-nothing", *QUICK)
    refused(*asked, words=(f"training needs {package}", "cofuse[gpu]"))
