"""Which device is taken, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
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


class FakeTorch(ModuleType):
    """A torch that finds a device or not, and counts how often it is asked."""

    def __init__(self, *, finds: bool) -> None:
        super().__init__("torch")
        self.__spec__ = ModuleSpec("torch", None)
        self.finds, self.asked = finds, 0
        self.cuda = self.backends = self.mps = self

    def is_available(self) -> bool:
        self.asked += 1
        return self.finds


@pytest.fixture
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Put a torch in place that finds a device unless the test says otherwise, and an onnx."""
    fake = FakeTorch(finds=getattr(request, "param", True))
    for name in ("torch", "onnx"):
        monkeypatch.setitem(sys.modules, name, fake)
    return fake


without_device = pytest.mark.parametrize("torch", [False], indirect=True)


def signs(_: str) -> bool:
    return True


def test_auto_takes_what_is_there(torch: FakeTorch) -> None:
    assert resolve_device("auto", signs=signs) == resolve_device("cuda", signs=signs) == "cuda"
    assert resolve_device("cpu") == "cpu"


def test_auto_asks_torch_only_after_signs(torch: FakeTorch) -> None:
    assert resolve_device("auto", signs=lambda _: False) == "cpu" and not torch.asked


@without_device
def test_auto_does_without_a_device_that_torch_does_not_find(torch: FakeTorch) -> None:
    assert resolve_device("auto", signs=signs) == "cpu" and torch.asked == 1


def test_auto_leaves_little_work_to_the_cpu(torch: FakeTorch) -> None:
    assert resolve_device("auto", pixels=1000, signs=signs) == "cpu" and not torch.asked
    assert resolve_device("auto", pixels=10**8, signs=signs) == "cuda"
    assert resolve_device("cuda", pixels=1000, signs=signs) == "cuda"


@without_device
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_asked_for_must_be_there(device: str, torch: FakeTorch) -> None:
    with pytest.raises(CofuseError, match=f"device {device} was asked for.*`device='cpu'`"):
        resolve_device(device, signs=signs)


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
    assert resolve_device("auto", signs=signs) == "cpu"


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


@without_device
def test_command_line_refuses_a_device_that_is_not_there(refused: Any, torch: FakeTorch) -> None:
    refused("fuse", "0.png", "1.png", "-o", "out.png", "--device", "cuda", words=("cuda", "cpu"))
    refused(
        "fuse", "0.png", "-o", "out.png", "--preset", "paper", "--device", "mps", words=("paper",)
    )


def test_report_says_the_device(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("fuse", "0.png", "1.png", "-o", "out.png", "--no-align", "--sigma", "9", "--json")
    assert code == 0
    assert json.loads(capsys.readouterr().out)["device"] == "cpu"
