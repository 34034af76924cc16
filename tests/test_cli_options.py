"""Options that cannot be meant: one line and exit code 2, before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cofuse.cli.application import COMMANDS, app
from cofuse.files import write_image
from tests.command_line import contents, run

LONG = "n" * 300
QUICK = ("--no-align", "--preset", "fast")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few frames, to be in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for stack in ("one", "two"):
        (tmp_path / "s" / stack).mkdir(parents=True)
        for name in "ab":
            write_image(f"s/{stack}/{name}.png", rng.integers(0, 255, (24, 20), np.uint8))
    return tmp_path


FUSE = ("fuse", "s/one", *QUICK)
OUTPUTS = ("--source-map", "--depth-map", "--confidence-map", "--point-cloud", "--report")


@pytest.mark.parametrize(
    "name", [".", "/", "", "..", "s", "s/one/", LONG, f"{LONG}.png", f"{LONG}/x.png"]
)
def test_names_that_no_file_can_have(place, refused, name):
    refused(*FUSE, "-o", name)
    for option in (*OUTPUTS, "--save-transforms"):
        aligned = ("fuse", "s/one") if option == "--save-transforms" else FUSE
        refused(*aligned, "-o", "x.png", f"{option}={name}")
    refused("learn", "s/one", "-o", name)
    refused("operators", "show", "dct-4", "-o", name)
    for option in ("--csv", "--report"):
        refused("evaluate", "s/one/a.png", "--sources", "s/one", f"{option}={name}")


@pytest.mark.parametrize("name", [LONG, f"{LONG}/x"])
def test_names_that_no_folder_can_have(place, refused, name):
    told = ("nnnnnnnn",)
    refused("batch", "s", "-o", name, *QUICK, words=told)
    refused("batch", name, "-o", "out", *QUICK, words=told)
    refused("compare", "s/one", "-o", name, "--methods", "average", words=told)
    refused("compare", "s/one", "-o", "out", "--truth", name, words=told)
    refused("compare", "s/one", "-o", "out", "--external", f"a={name}", words=told)
    refused("simulate", "s/one/a.png", "-o", name, words=told)
    refused("simulate", name, "-o", "out", words=told)
    refused("demo", "-o", name, words=told)
    refused("fuse", "s/one", "-o", name, "--align-only", words=told)
    refused("fuse", name, "-o", "x.png", words=told)
    refused(*FUSE, "-o", "x.png", "--operator", name, words=told)
    refused("fuse", "s/one", "-o", "x.png", "--set", f"model={name}", words=told)
    refused("fuse", "s/one", "-o", "x.png", "--transforms", name, words=told)
    refused("evaluate", "s/one/a.png", "--scenes", name, words=told)
    refused("evaluate", name, "--sources", "s/one", words=told)
    refused("operators", "show", name, words=told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fuse", "s/one", "-o", "x.png", "--sigma", "1e30"), ("--sigma is 1e+30", "0 to 128")),
        (("fuse", "s/one", "-o", "x.png", "--sigma", "1e9"), ("--sigma", "0 to 128")),
        (("fuse", "s/one", "-o", "x.png", "--sigma", "128.1"), ("--sigma is 128.1",)),
        (("compare", "s/one", "-o", "c", "--sigma", "1e9"), ("--sigma", "0 to 128")),
        (("fuse", "s/one", "-o", "x.png", "--white", "1e-300"), ("--white is 1e-300", "1 to")),
        (("fuse", "s/one", "-o", "x.png", "--white", "1e300"), ("--white is 1e+300",)),
        (("fuse", "s/one", "-o", "x.png", "--white", "nan"), ("--white is nan",)),
        (("compare", "s/one", "-o", "c", "--white", "1e-300"), ("--white is 1e-300",)),
        (("fuse", "s/one", "-o", "x.png", "--max-memory", "9" * 400), ("memory",)),
        (("simulate", "-o", "out", "--max-radius", "1e21"), ("--max-radius is 1e+21", "0 to 160")),
        (("simulate", "-o", "out", "--max-radius", "3000"), ("--max-radius is 3000", "0 to 160")),
        (("simulate", "-o", "out", "--frames", "100000"), ("--frames is 100000", "1 to 100")),
        (("simulate", "-o", "out", "--sigma", "1e30"), ("--sigma is 1e+30", "0 to 128")),
        (("learn", "s/one", "-o", "o.npz", "--patches", "99999999999"), ("--patches", "1000000")),
        (("learn", "s/one", "-o", "o.npz", "--rows", "1000000"), ("--rows is 1000000", "4096")),
        (("learn", "s/one", "-o", "o.npz", "--rounds", "1000000"), ("--rounds", "10000")),
    ],
)
def test_numbers_beyond_reason_are_told_their_bounds(place, refused, arguments, words):
    refused(*arguments, words=words)


def test_fractions_are_no_whole_numbers(place, refused):
    refused("fuse", "s/one", "-o", "x.png", "--reference", "2.7", words=("--reference", "'2.7'"))
    seen = 0
    for command in COMMANDS:
        if command == "operators":
            continue
        for argument in app[command].assemble_argument_collection():
            if argument.parse and argument.name.startswith("--") and "int" in str(argument.hint):
                refused(command, f"{argument.name}=2.7", "-o", "out", words=("2.7",))
                seen += 1
    assert seen >= 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--denoise", "2"), ("--denoise is 2",)),
        (("--sigma", "1e9"), ("--sigma",)),
        (("--max-memory", "much"), ("much",)),
        (("--operator", "no-such", "--preset", "fast"), ("no-such",)),
        (("--operator", "dct-4"), ("filters of its own",)),
        (("--set", "model=no-such"), ("no-such",)),
        (("--set", "window=0"), ("window",)),
        (("--set", "restoring_operator=no-such", "--preset", "fast"), ("no-such",)),
        (("--preset", "fast", "--device", "cuda"), ("--device cpu",)),
        (("--denoise", "0.5", "--preset", "paper"), ("letter",)),
        (("--quality", "0"), ("--quality is 0", "1 to 100")),
        (("--reference", "0"), ("--reference is 0",)),
        (("--frames", "some"), ("--frames is 'some'",)),
        (("--white", "0"), ("--white is 0",)),
        (("--least", "0"), ("--least is 0",)),
    ],
)
def test_a_batch_is_refused_as_a_whole_for_what_is_wrong_with_every_stack(
    place, refused, options, words
):
    refused("batch", "s", "-o", "out", *options, words=words)
    refused("batch", "s", "-o", "out", *options, "--dry-run", words=words)


def test_what_concerns_one_stack_fails_that_stack(place, capsys):
    write_image("s/two/c.png", np.zeros((24, 20), np.uint8))
    assert run("batch", "s", "-o", "out", *QUICK, "--frames", "3", "--quiet") == 1
    said = capsys.readouterr().err
    assert "one: failed: the frames '3' are not among the 2" in said
    assert "two.tif" in contents(Path("out"))


def test_advice_in_a_batch_names_its_own_options(place, capsys):
    Path("out").mkdir()
    Path("out/one.tif").write_bytes(b"precious")
    assert run("batch", "s", "-o", "out", *QUICK) == 1
    out, err = capsys.readouterr()
    assert "one.tif exists; pass --overwrite to replace it" in err
    assert "one.tif exists; pass --overwrite to replace it" in out
    assert Path("out/one.tif").read_bytes() == b"precious"
