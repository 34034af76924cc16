"""What the README shows in Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cofuse
from cofuse.evaluation.simulation import sample_picture
from tests.command_line import contents

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.fixture
def example() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    return str(code)


def test_the_example_runs_with_files_and_with_arrays(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("stack").mkdir()
    picture = sample_picture("coffee")[100:164, 100:180]
    simulation = cofuse.simulate_stack(picture, frames=3, seed=1)
    for number, frame in enumerate(simulation.frames):
        cofuse.write_image(f"stack/{number}.png", frame)
    of_files: dict[str, object] = {}
    exec(example, of_files)
    written = contents(tmp_path)
    assert "fused.png" in written and capsys.readouterr().out

    given = 'cofuse.read_stack("stack/")  # or a list of NumPy arrays'
    assert given in example
    of_arrays: dict[str, object] = {"given": list(simulation.frames)}
    exec(
        example.replace(given, "given")
        .replace("fused.png", "again.png")
        .replace("all.tif", "more.tif"),
        of_arrays,
    )
    assert contents(tmp_path)["again.png"] == written["fused.png"]
    assert of_arrays["depth"].position.shape == of_files["depth"].position.shape
