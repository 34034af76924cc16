"""Where networks run, and how: ONNX Runtime on the processor, torch on a device.

torch takes seconds to load, and most machines have no use for it: nothing loads it before there are
signs of a device, or somebody asks for one.
"""

from __future__ import annotations

import ctypes.util
import platform
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofuse.errors import CofuseError
from cofuse.images.tiles import processors

#: What may be asked for.
DEVICES = ("auto", "cpu", "cuda", "mps")
#: The devices' own code on the CPU: slow, and for tests.
TORCH_ON_CPU = "torch-cpu"

#: What networks need there: torch runs them, onnx reads their files.
_PACKAGES = ("torch", "onnx")

#: Pixels of all frames below which the CPU is done before a device is ready.
_WORTH_A_DEVICE = 4_000_000


def has_signs_of(device: str) -> bool:
    """Look for a device and for what networks need there, without loading torch."""
    if any(find_spec(name) is None for name in _PACKAGES):
        return False
    if device == "mps":
        return sys.platform == "darwin" and platform.machine() == "arm64"
    nodes = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")  # the last under Windows' Linux
    if any(Path(node).exists() for node in nodes):
        return True
    return ctypes.util.find_library("nvcuda" if sys.platform == "win32" else "cuda") is not None


def resolve_device(
    device: str = "auto",
    *,
    pixels: int | None = None,
    signs: Callable[[str], bool] = has_signs_of,
) -> str:
    """Turn a wish into a device that is there: ``"cpu"``, ``"cuda"`` or ``"mps"``.

    ``"auto"`` takes CUDA if there is any, unless the frames have few ``pixels``, and falls back to
    the CPU without a word. A device asked for by name must be there. torch is asked only where
    there are ``signs`` of the device.
    """
    if device not in (*DEVICES, TORCH_ON_CPU):
        raise CofuseError(f"`device` is {device!r}; expected one of {', '.join(DEVICES)}")
    if device in ("cpu", TORCH_ON_CPU):
        return device
    if device == "auto":
        small = pixels is not None and pixels < _WORTH_A_DEVICE
        return "cuda" if not small and signs("cuda") and _torch_has("cuda") else "cpu"
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise CofuseError(
            f"device {device} was asked for, but {missing[0]} is not installed; install it with "
            "pip install 'cofuse[gpu]', or use `device='cpu'`"
        )
    if not (signs(device) and _torch_has(device)):
        wanted = "an NVIDIA GPU with its driver" if device == "cuda" else "a Mac with Apple silicon"
        raise CofuseError(
            f"device {device} was asked for, but torch finds none here; expected {wanted} and a "
            "torch made for it, otherwise use `device='cpu'`"
        )
    return device


def _torch_has(device: str) -> bool:
    try:
        import torch
    except (ImportError, OSError):  # a broken installation, or one for another system
        return False
    if device == "mps":
        return bool(torch.backends.mps.is_available())
    return bool(torch.cuda.is_available())


#: Floats, or bytes: numbers of steps (`model.rounding`).
Planes = NDArray[Any]
#: Takes the name of a network and its inputs, returns its outputs; all are (1, channels, h, w).
Networks = Callable[..., list[Planes]]

MODELS = Path(__file__).parent.parent / "data" / "models"
#: How many dimensions each input of a network has: planes have 4, what it is told has 2.
_INPUTS = {
    "filter": [4],
    "compare": [4, 4, 4, 2],
    "relate": [4] * 7 + [2],
    "look": [4],
    "share": [4] * 3,
    "weigh": [4] * 6,
    "border": [4] * 4,
    "restore": [4, 4],
}
NAMES = tuple(_INPUTS)
#: The networks that weigh frames; the other one restores, and takes twice as long to load as these.
WEIGHING, RESTORING = NAMES[:-1], NAMES[-1:]


def model_folder(name: str) -> Path:
    """Find a model that the package ships, by name, or one's own, by its folder."""
    folder = MODELS / name if name in known_models() else Path(name)
    missing = [f"{part}.onnx" for part in NAMES if not (folder / f"{part}.onnx").is_file()]
    if missing:
        raise CofuseError(
            f"{name} is no model: {folder} has no {', '.join(missing)}; expected one of "
            f"{', '.join(known_models())}, or a folder with the networks of a training"
        )
    return folder


@cache
def known_models() -> tuple[str, ...]:
    """Names of the models that the package ships."""
    return tuple(sorted(path.name for path in MODELS.iterdir() if (path / "look.onnx").is_file()))


def load_networks(model: str, device: str = "cpu", *, names: tuple[str, ...] = NAMES) -> Networks:
    """Load a model's networks, some by name, to run on a device as `resolve_device` names it."""
    folder = model_folder(model)
    return _on_processor(folder, names) if device == "cpu" else _on_device(folder, device)


@cache
def _on_processor(folder: Path, names: tuple[str, ...]) -> Networks:
    import onnxruntime

    _share_memory()
    sessions = {}
    for name in names:
        file = folder / f"{name}.onnx"
        options = onnxruntime.SessionOptions()
        # Frames and parts are weighed side by side, each on a thread of its own; the large tiles
        # of the network that restores come one after the other.
        options.intra_op_num_threads = processors() if name == "restore" else 1
        # Threads that wait sleep: other work is done between two tiles, and by other programs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # All networks use the same memory: fresh pages for what lies between two layers take longer
        # than many a layer. A plan of it would be made anew for every size of tiles.
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False
        try:
            session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors have no class of their own in common
            raise CofuseError(
                f"{file} cannot be read as a network; expected one that a training wrote"
            ) from error
        if [len(given.shape) for given in session.get_inputs()] != _INPUTS[name]:
            raise CofuseError(
                f"{file} is another network; expected the one that a training wrote there"
            )
        sessions[name] = session

    def run(name: str, *inputs: Planes) -> list[Planes]:
        named = {f"input{i}": planes for i, planes in enumerate(inputs)}
        return [np.asarray(planes) for planes in sessions[name].run(None, named)]

    return run


@cache
def _share_memory() -> None:
    """Let ONNX Runtime keep one store of memory for all networks of the process."""
    import onnxruntime

    where = onnxruntime.OrtMemoryInfo(
        "Cpu",
        onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        0,
        onnxruntime.OrtMemType.DEFAULT,
    )
    onnxruntime.create_and_register_allocator(where, None)


@lru_cache(maxsize=2)
def _on_device(folder: Path, device: str) -> Networks:
    import torch

    from cofuse.model.saving import read_networks

    place = "cpu" if device == TORCH_ON_CPU else device
    networks = read_networks(folder).to(place)

    def run(name: str, *inputs: Planes) -> list[Planes]:
        network = networks.get_submodule(name)
        with torch.inference_mode():
            made = network(*(torch.from_numpy(planes).to(place) for planes in inputs))
        return [planes.cpu().numpy() for planes in (made if isinstance(made, tuple) else [made])]

    return run
