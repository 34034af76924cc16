"""Every fused kernel against the plain form of the same layer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cofuse.images import to_opponent
from cofuse.joint import AGREEMENT_SCALES, BAND_WINDOWS, BANDS
from cofuse.kernels import (
    gpu_frames,
    joint_gpu_layers,
    joint_gpu_mixing,
    joint_gpu_stages,
    joint_gpu_weigher,
)
from cofuse.kernels.gpu_frames import Conversion
from cofuse.kernels.joint_gpu_layers import exact
from cofuse.kernels.joint_gpu_mixing import Agreement
from cofuse.kernels.joint_gpu_stages import DeviceMixture, DeviceStage
from cofuse.kernels.joint_gpu_weigher import DeviceWeigher
from cofuse.noise.brightness import NoiseModel
from tests.test_joint_kernels import random_model


def check(device: str) -> None:
    """Compare all; raises what is wrong."""
    model = random_model(1, filters=10)
    rng = np.random.default_rng(0)

    def some(*shape: int, scale: float = 3.0) -> Any:
        return torch.as_tensor(rng.normal(0, scale, shape).astype(np.float32), device=device)

    weigher = model.part("weigher")
    relative = [0.8, 1.3]
    whole = DeviceWeigher(weigher, 5.0, relative, device)
    stage = DeviceStage(model.part("stages.0"), [0.1, -0.3, 0.2], device)
    agreement = Agreement(model.part("agreement"), AGREEMENT_SCALES, device)
    frames, scores = some(2, 12, 20), some(2, 1 + BANDS, 12, 20)
    looks = some(2, 32, 64) + 30
    colours, noise = some(2, 3, 12, 20), torch.tensor(relative, device=device)
    # Wider than what one program makes, and of odd sides.
    pictures, left = some(3, 29, 151) + 10, some(2, 29, 151, scale=0.3) - 0.5
    guide = some(12, 15, 76, scale=0.3)
    native = torch.as_tensor(rng.integers(0, 256, (9, 11, 3)), dtype=torch.uint8, device=device)
    opponent = to_opponent(np.eye(3, dtype=np.float32)[None])[0].T.tolist()
    law = NoiseModel(3.0, 0.4)
    bent = {"bend": law._bend, "reach": law._reach, "gain": law.gain, "root": law._root}

    def mixed() -> Any:
        mixture = joint_gpu_mixing.mix(
            joint_gpu_mixing.smoothed(colours, BAND_WINDOWS), scores[:, 1:], noise
        )
        return torch.cat([mixture.pictures, mixture.fine[None], mixture.coarse[None]])

    def converted(pixels: Any, dtype: Any, **law: float) -> Any:
        conversion = Conversion(200.0, np.dtype(dtype), (0.1, 0.2, 0.3), opponent, **law)
        return conversion.planes(pixels, torch.empty((3, 12, 16), device=device))

    def weighed(number: int) -> Any:
        return whole.scores(looks, (2, 4), (20, 41), guide=True)[number]

    layers: dict[str, Callable[[], Any]] = {
        "scores": lambda: weighed(0),
        "guide": lambda: weighed(1),
        "stage": lambda: stage.step(pictures, DeviceMixture(pictures + 1, *left), guide),
        "planes": lambda: converted(native, np.uint8),
        "stabilised": lambda: converted(native, np.uint8, **bent),
        "words": lambda: converted(native.to(torch.int16) * 257, np.uint16),
        "levels": lambda: converted(native.float(), np.float32),
        "index": lambda: joint_gpu_mixing.choose(scores)[0].float(),
        "confidence": lambda: joint_gpu_mixing.choose(scores)[1],
        "mixture": mixed,
        "agreement": lambda: agreement.scores(frames, frames[0], scores),
        "box": lambda: joint_gpu_layers.box(frames, 5, square=True),
    }
    plain = {"is": False}
    really = joint_gpu_layers.fused

    def fused(values: Any) -> bool:
        return not plain["is"] and really(values)

    modules: list[Any] = [
        gpu_frames,
        joint_gpu_layers,
        joint_gpu_mixing,
        joint_gpu_stages,
        joint_gpu_weigher,
    ]
    for module in modules:
        module.fused = fused
    try:
        for name, layer in layers.items():
            with exact():
                plain["is"] = False
                assert really(frames), f"nothing is fused on {device}, {os.environ.keys()}"
                one = layer().cpu().numpy()
                plain["is"] = True
                other = layer().cpu().numpy()
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4, err_msg=name)
    finally:
        for module in modules:
            module.fused = really
