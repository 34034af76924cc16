"""Options drawn at random, silly ones too: every command ends with 0, 1 or 2, and in one line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest

from cofuse.cli import main
from cofuse.cli.application import app
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import write_image
from tests.command_line import contents

#: Values that are seldom right: for numbers, and for anything.
NUMBERS = ["-1", "0", "1", "2", "3", "2.7", "0.5", "1e9", "1e30", "1e-300", "nan", "inf", "-inf"]
NUMBERS += ["1e400", "9" * 30, "9" * 400, "100000", "99999999999", "1000000", "128", "1e-9", "0x10"]
WORDS = ["", ".", "/", "..", "-", "x", "a" * 300, "no/such.png", "ü", "a\nb", "`sigma`"]
WORDS += ["auto", "all", "a=b", "window=1", "window=0", "stride=1e9", "epsilon=3", "model=x", "1GB"]
WORDS += ["1B", "(a)(", "(.+)"]
WORDS += ["1-", "2-1", "1,1", "a.png", "stack", "out.png", "/dev/null", "a=stack/0.png", "dct-4"]
#: Values that are right, by the option's name.
RIGHT: dict[str, list[str]] = {
    "--sigma": ["0", "5", "128"],
    "--preset": ["fast", "fast", "auto"],
    "--denoise": ["0", "0.5", "1"],
    "--methods": ["average", "fast,average"],
    "--metrics": ["q_mi", "q_abf,q_mi"],
    "--frames": ["1-2", "2", "3"],
    "--reference": ["1", "2"],
    "--white": ["255", "200.5"],
    "--format": ["png", "tif"],
    "--pattern": ["(.).png"],
    "--rounds": ["1"],
    "--patches": ["200"],
    "--rows": ["64", "81"],
    "--patch-size": ["4"],
    "--max-radius": ["2"],
    "--sources": ["stack"],
    "--truth": ["stack/0.png"],
    "--operator": ["dct-4"],
    "--external": ["a=stack/0.png"],
    "--set": ["window=5", "window=1", "smallest_region=0"],
}
#: Files to write, by the option's name.
OUTPUTS = {
    "--source-map": "s.png",
    "--depth-map": "d.png",
    "--confidence-map": "c.png",
    "--point-cloud": "p.ply",
    "--report": "r.json",
    "--plot": "n.png",
    "--csv": "t.csv",
    "--save-transforms": "j.json",
}
#: Commands, what they are given first, and what keeps them quick or is always needed.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "fuse": ("stack", ["--no-align", "--preset=fast", "--output=out.png"]),
    "batch": (".", ["--no-align", "--preset=fast", "--output=out"]),
    "noise": ("stack", ["--no-align"]),
    "learn": ("stack/0.png", ["--rounds=1", "--patches=200", "--output=out.npz"]),
    "simulate": ("stack/0.png", ["--output=out"]),
    "evaluate": ("stack/0.png", ["--sources=stack"]),
    "compare": ("stack", ["--methods=average", "--output=out"]),
    "operators show": ("dct-4", ["--output=out.png"]),
}


def some_value(name: str, hint: Any, draw: random.Random) -> str:
    """A value for an option, right or silly."""
    kinds = {hint, *get_args(hint), *(inner for kind in get_args(hint) for inner in get_args(kind))}
    if draw.random() < 0.25:
        return draw.choice(NUMBERS + WORDS)
    choices = [kind for kind in kinds if isinstance(kind, str)]
    right = RIGHT.get(name) or choices or (NUMBERS if kinds & {int, float} else WORDS)
    return OUTPUTS.get(name) or draw.choice(right)


def command_line(draw: random.Random) -> list[str]:
    """Draw a command and some of its own options."""
    command = draw.choice(list(COMMANDS))
    found = app
    for word in command.split():
        found = found[word]
    arguments = [
        argument
        for argument in found.assemble_argument_collection()
        if argument.parse and argument.name.startswith("--") and argument.index is None
    ]
    given: dict[str, str] = {}
    for argument in draw.sample(arguments, k=min(len(arguments), draw.choice([0, 1, 1, 2, 2, 3]))):
        value = some_value(argument.name, argument.hint, draw)
        if argument.hint is bool:
            given[argument.name] = draw.choice(argument.names)
        else:
            given[argument.name] = f"{argument.name}={value}"
    first, usual = COMMANDS[command]
    for option in usual:
        name = option.split("=")[0].replace("--no-", "--")
        given.setdefault(name, option)
    if draw.random() < 0.03:
        first = draw.choice(WORDS)
    return [*command.split(), first, *given.values()]


@pytest.fixture(scope="module")
def frames() -> list[Any]:
    """A small stack."""
    picture = sample_picture("coffee")[100:140, 100:148]
    return list(simulate_stack(picture, frames=3, max_radius=2).frames)


def fuzz(
    frames: list[Any],
    folder: Path,
    seed: int,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> dict[int, int]:
    """Run random command lines, each in a folder to itself; count their exit codes."""
    draw = random.Random(seed)
    codes = {0: 0, 1: 0, 2: 0}
    for number in range(count):
        tokens = command_line(draw)
        # Two levels down: what a command writes to .. is still in the test's own folder.
        place = folder / str(number) / "here"
        (place / "stack").mkdir(parents=True)
        monkeypatch.chdir(place)
        for k, frame in enumerate(frames):
            write_image(f"stack/{k}.png", frame)
        stack = contents(place / "stack")
        capfd.readouterr()
        try:
            code = main(tokens)
        except BaseException as error:
            raise AssertionError(f"{tokens} ended with {type(error).__name__}: {error}") from error
        out, err = capfd.readouterr()
        assert code in ((0, 1, 2) if tokens[0] == "batch" else (0, 2)), (tokens, err)
        codes[code] += 1
        lines = err.splitlines()
        errors = [line for line in lines if line.startswith("cofuse: error: ")]
        assert errors == ([lines[-1]] if code == 2 else []), (tokens, err)
        assert all(line.startswith("cofuse: ") for line in lines), (tokens, err)
        assert "Traceback" not in out + err and "Error:" not in err, (tokens, err)
        left = contents(folder / str(number))
        assert not [name for name in left if ".cofuse" in name], (tokens, "left behind")
        assert contents(place / "stack").items() >= stack.items(), (tokens, "a frame was changed")
        if code == 2:
            assert left.keys() == {"here", "here/stack", *(f"here/stack/{n}" for n in stack)}, (
                tokens
            )
    return codes


def test_random_options_end_well(frames, tmp_path, monkeypatch, capfd):
    codes = fuzz(frames, tmp_path, 1, 150, monkeypatch, capfd)
    assert codes[0] >= 40 and codes[2] >= 40, codes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 12))
def test_many_random_options_end_well(frames, tmp_path, monkeypatch, capfd, seed):
    fuzz(frames, tmp_path, seed, 250, monkeypatch, capfd)
