"""``python -m training``: from photographs to a folder for ``cofuse fuse``; what it refuses."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from cofuse import read_image, write_image
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.model.runtime import NAMES, model_folder
from tests.command_line import contents, run
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
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


def train(*arguments: str) -> None:
    """Train in this process."""
    from training.command import main

    main(arguments)


def train_without(
    packages: tuple[str, ...], *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m training`` where packages cannot be imported."""
    code = (
        "import runpy, sys\n"
        f"sys.modules.update(dict.fromkeys({packages!r}))\n"
        "runpy.run_module('training', run_name='__main__', alter_sys=True)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
    )


# --- with torch ---


@pytest.mark.slow
@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
def test_what_is_trained_can_be_fused_with(place, capsys):
    train("photos", "-o", "mine", *QUICK)
    out, err = capsys.readouterr()
    assert re.fullmatch(r"\d+ steps on cpu with 4 photographs: mine\n", out)
    assert re.search(r"^step \d+, \d+ s, \d+\.\d\d dB$", err, re.MULTILINE), err
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
    train("photos", "-o", "new", "--part", "restoring", "--from-nothing", *QUICK, "--quiet")
    assert capsys.readouterr() == ("", "")
    train("photos", "-o", "more", "--start-from", "new", *QUICK, "--quiet", "--json")
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


@pytest.mark.slow
@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
def test_a_bare_machine_is_enough(place):
    """Of what cofuse needs NumPy and Pillow alone, for photographs of most cameras."""
    picture = Image.fromarray(sample_picture("coffee"))
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 3
    for k in range(2):
        picture.save(place / "photos" / f"{k + 4}.jpg", exif=turned, quality=95)
    files = sorted((place / "photos").glob("*.jpg"))
    away = ("cv2", "cyclopts", "imagecodecs", "onnxruntime", "psutil", "rawpy", "rich")
    away += ("scipy", "simplejpeg", "tifffile")
    done = train_without(away, *files, "-o", place / "mine", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    card = json.loads(done.stdout)
    planes = np.stack([read_image(file).transpose(2, 0, 1) for file in files])
    assert card["pictures_sha256"] == hashlib.sha256(planes.tobytes()).hexdigest()
    assert {f"{name}.onnx" for name in NAMES} < {path.name for path in (place / "mine").iterdir()}


@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("photos", "-o", "photos"), ("photos exists",)),
        (("photos", "-o", "text.txt"), ("text.txt exists",)),
        (("photos", "-o", "nowhere/mine"), ("nowhere/mine", "no folder to lie in")),
        (("photos/0.png", "-o", "x"), ("one picture was given",)),
        (("photos", "wide.png", "-o", "x"), ("wide.png", "97x96", "of one size")),
        (("photos", "grey.png", "-o", "x"), ("grey.png", "mode L", "expected RGB")),
        (("grey.png", "grey2.png", "-o", "x"), ("grey.png", "expected RGB")),
        (("photos", "text.txt", "-o", "x"), ("precious", "cannot be read")),
        (("photos", "half.png", "-o", "x"), ("half.png", "cannot be read", "truncated")),
        (("photos", "-o", "x", "--side", "72"), ("side", "is 72", "multiple of 16")),
        (("photos", "-o", "x", "--side", "48"), ("side", "64")),
        (("photos", "-o", "x", "--side", "112"), ("96x96 pixels", "112")),
        (("photos", "-o", "x", "--minutes", "0"), ("minutes",)),
        (("photos", "-o", "x", "--minutes", "nan"), ("minutes",)),
        (("photos", "-o", "x", "--rate", "1"), ("rate",)),
        (("photos", "-o", "x", "--part", "weigh"), ("weigh", "weighing", "restoring")),
        (("photos", "-o", "x", "--helpers", "-1"), ("helpers",)),
        (("photos", "-o", "x", "--start-from", "photos"), ("photos is no model", "look.onnx")),
        (("photos", "-o", "x", "--device", "abacus"), ("abacus", "cuda")),
        (("photos", "no-such.png", "-o", "x"), ("no-such.png",)),
        (("photos",), ("output",)),
    ],
)
def test_training_refuses(place, capsys, arguments, words):
    rng = np.random.default_rng(0)
    (place / "text.txt").write_text("precious")
    write_image(place / "wide.png", rng.integers(0, 256, (96, 97, 3), np.uint8))
    for name in ("grey.png", "grey2.png"):
        write_image(place / name, rng.integers(0, 256, (96, 96), np.uint8))
    (place / "half.png").write_bytes((place / "photos" / "0.png").read_bytes()[:9000])
    quick = ("--minutes", "0.02") if "--minutes" not in arguments else ()
    quick += ("--side", "64") if "--side" not in arguments else ()
    before = contents(place)
    with pytest.raises(SystemExit) as refusal:
        train(*arguments, *quick)
    out, err = capsys.readouterr()
    line = err.splitlines()[-1]
    assert refusal.value.code == 2 and not out and line.startswith("python -m training: error: ")
    assert all(word in line for word in words), line
    assert contents(place) == before


# --- without ---


@pytest.mark.parametrize(
    "package", ["torch", pytest.param("onnx", marks=pytest.mark.extra("torch"))]
)
def test_training_without_a_package_says_what_to_install(package):
    """Before the work begins: what was trained could not be written."""
    done = train_without((package,), "photos", "-o", "x")
    assert done.returncode == 1 and done.stderr.startswith(f"training needs {package}; install")
    assert "cofuse[gpu]" in done.stderr and done.stderr.count("\n") == 1
