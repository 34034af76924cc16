"""Where to work: on the CPU, or on a device that torch knows.

torch takes seconds to load, and most machines have no use for it: nothing loads it before there are
signs of a device, or somebody asks for one.
"""

from __future__ import annotations

import ctypes.util
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

from cofuse.errors import CofuseError

__all__ = ["DEVICES", "TORCH_ON_CPU", "resolve_device"]

#: What may be asked for.
DEVICES = ("auto", "cpu", "cuda", "mps")
#: The devices' own code on the CPU: slow, and for tests.
TORCH_ON_CPU = "torch-cpu"

#: What networks need there: torch runs them, onnx reads their files.
_PACKAGES = ("torch", "onnx")

#: Pixels of all frames below which the CPU is done before a device is ready.
_WORTH_A_DEVICE = 4_000_000


def resolve_device(device: str = "auto", *, pixels: int | None = None) -> str:
    """Turn a wish into a device that is there: ``"cpu"``, ``"cuda"`` or ``"mps"``.

    ``"auto"`` takes CUDA if there is any, unless the frames have few ``pixels``, and falls back to
    the CPU without a word. A device asked for by name must be there.
    """
    if device not in (*DEVICES, TORCH_ON_CPU):
        raise CofuseError(f"`device` is {device!r}; expected one of {', '.join(DEVICES)}")
    if device in ("cpu", TORCH_ON_CPU):
        return device
    if device == "auto":
        small = pixels is not None and pixels < _WORTH_A_DEVICE
        return "cuda" if not small and _may_have("cuda") and _has("cuda") else "cpu"
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise CofuseError(
            f"device {device} was asked for, but {missing[0]} is not installed; install it with "
            "pip install 'cofuse[gpu]', or use `device='cpu'`"
        )
    if not (_may_have(device) and _has(device)):
        wanted = "an NVIDIA GPU with its driver" if device == "cuda" else "a Mac with Apple silicon"
        raise CofuseError(
            f"device {device} was asked for, but torch finds none here; expected {wanted} and a "
            "torch made for it, otherwise use `device='cpu'`"
        )
    return device


def _may_have(device: str) -> bool:
    """Look for signs of a device without loading torch."""
    if any(find_spec(name) is None for name in _PACKAGES):
        return False
    if device == "mps":
        return sys.platform == "darwin" and platform.machine() == "arm64"
    nodes = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")  # the last under Windows' Linux
    if any(Path(node).exists() for node in nodes):
        return True
    return ctypes.util.find_library("nvcuda" if sys.platform == "win32" else "cuda") is not None


def _has(device: str) -> bool:
    """Ask torch."""
    try:
        import torch
    except (ImportError, OSError):  # a broken installation, or one for another system
        return False
    if device == "mps":
        return bool(torch.backends.mps.is_available())
    return bool(torch.cuda.is_available())
