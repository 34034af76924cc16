"""Which device is taken, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cofuse
from cofuse.errors import CofuseError
from cofuse.model import runtime
from cofuse.model.runtime import resolve_device
from tests.command_line import run
from tests.waiting import PATIENCE

FRAMES = np.random.default_rng(0).integers(0, 255, (2, 40, 48), np.uint8)


def there(monkeypatch: pytest.MonkeyPatch, *, signs: bool, device: bool) -> list[str]:
    """Make signs of a device and the device itself be there or not; lists what torch is asked."""
    asked: list[str] = []
    monkeypatch.setattr(runtime, "find_spec", lambda name: object())  # torch seems to be there
    monkeypatch.setattr(runtime, "_may_have", lambda name: signs)
    monkeypatch.setattr(runtime, "_has", lambda name: asked.append(name) or device)
    return asked


def test_auto_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, signs=True, device=True)
    assert resolve_device("auto") == resolve_device("cuda") == "cuda"
    assert resolve_device("cpu") == "cpu"


def test_auto_asks_torch_only_after_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = there(monkeypatch, signs=False, device=True)
    assert resolve_device("auto") == "cpu" and asked == []
    asked = there(monkeypatch, signs=True, device=False)
    assert resolve_device("auto") == "cpu" and asked == ["cuda"]


def test_auto_leaves_little_work_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = there(monkeypatch, signs=True, device=True)
    assert resolve_device("auto", pixels=1000) == "cpu" and asked == []
    assert resolve_device("auto", pixels=10**8) == "cuda"
    assert resolve_device("cuda", pixels=1000) == "cuda"


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_asked_for_must_be_there(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, signs=True, device=False)
    with pytest.raises(CofuseError, match=f"device {device} was asked for.*`device='cpu'`"):
        resolve_device(device)


def test_missing_torch_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    with pytest.raises(CofuseError, match=r"pip install 'cofuse\[gpu\]'"):
        resolve_device("cuda")
    assert resolve_device("auto") == "cpu"


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(
        CofuseError, match="`device` is 'tpu'; expected one of auto, cpu, cuda, mps"
    ):
        cofuse.fuse(FRAMES, device="tpu")


def test_the_letter_stays_on_the_cpu() -> None:
    with pytest.raises(CofuseError, match="the preset paper runs on no device"):
        cofuse.fuse(FRAMES, preset="paper", device="cuda")
    assert cofuse.fuse(FRAMES, preset="paper", sigma=0).device == "cpu"


def test_a_broken_torch_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not runtime._has("cuda")


@pytest.mark.extra("torch")
def test_small_stacks_are_fused_without_torch() -> None:
    code = (
        "import sys, numpy as np, cofuse\n"
        "frames = np.random.default_rng(0).integers(0, 255, (2, 24, 24), np.uint8)\n"
        "cofuse.fuse(frames, sigma=10)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == "False", done.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, frame in enumerate(FRAMES):
        cofuse.write_image(tmp_path / f"{number}.png", frame)
    return tmp_path


def test_command_line_refuses_a_device_that_is_not_there(
    refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(monkeypatch, signs=False, device=False)
    refused("fuse", "0.png", "1.png", "-o", "out.png", "--device", "cuda", words=("cuda", "cpu"))
    refused(
        "fuse", "0.png", "-o", "out.png", "--preset", "paper", "--device", "mps", words=("paper",)
    )


def test_report_says_the_device(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("fuse", "0.png", "1.png", "-o", "out.png", "--no-align", "--sigma", "9", "--json")
    assert code == 0
    assert json.loads(capsys.readouterr().out)["device"] == "cpu"
