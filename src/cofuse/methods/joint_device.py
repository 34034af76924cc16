"""The joint model on a device: the same choice and pictures as on the CPU, made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cofuse.images import Pixels, to_opponent
from cofuse.joint import JointModel
from cofuse.joint_fusion import JointResult
from cofuse.joint_noise import ModelNoise
from cofuse.noise import NoiseLaw
from cofuse.noise.brightness import NoiseModel
from cofuse.progress import Progress
from cofuse.selection import Choice

if TYPE_CHECKING:
    from cofuse.images import Stack
    from cofuse.kernels.joint_gpu import DeviceFusion
    from cofuse.methods.joint import JointRun, Taker

__all__ = ["device_fusion", "weigh_on_device"]


def weigh_on_device(
    run: JointRun,
    model: JointModel,
    noise: NoiseLaw,
    levels: NDArray[np.float64],
    take: Taker,
    image: Pixels | None,
    *,
    restore: bool,
) -> Choice:
    """Run the model on frames, as `JointRun.weigh` does.

    An ``image`` given takes the restored picture in native values, made on the device; otherwise
    ``take`` takes mixture and restored planes.
    """
    stack = run.stack
    shape = stack.height, stack.width
    index = np.empty(shape, np.uint8 if len(stack) <= 256 else np.uint16)
    confidence = np.empty(shape, np.float32)
    with run.stage("fusion"):
        work = device_fusion(
            stack,
            model,
            noise.model,
            levels,
            restore=restore,
            weigh_all=run.settings.weights == "all",
            device=run.device,
        )
        work.keep_frames()
        scale = np.array(work.conversion.factors, np.float32)
        done = 0
        for here, tile in work.tiles():
            work.transfer.download(tile.index, index[here], tile.chosen)
            work.transfer.download(tile.confidence, confidence[here], tile.chosen)
            if image is not None and tile.restored is not None:
                work.transfer.download(work.native(tile.restored), image[here])
                if run.preview is not None:
                    run.preview(*here, image[here])
            else:
                planes = [
                    None if some is None else some.cpu().numpy().transpose(1, 2, 0) / scale
                    for some in (tile.mixed, tile.restored)
                ]
                assert planes[0] is not None, "there is always a mixture"
                take(here, JointResult(index[here], confidence[here], planes[0], planes[1]))
            done += tile.index.numel()
            stage = "fusion" if restore else "choice"
            run.progress(Progress(stage, done, shape[0] * shape[1]))
    return Choice(index, confidence)


def device_fusion(
    stack: Stack,
    model: JointModel,
    noise: NoiseModel,
    levels: NDArray[np.float64],
    *,
    restore: bool,
    weigh_all: bool,
    device: str,
) -> DeviceFusion:
    """Prepare a stack's fusion on a device; ``levels`` as `ModelNoise.of` takes them."""
    from cofuse.kernels.gpu_frames import Conversion
    from cofuse.kernels.joint_gpu import DeviceFusion

    model_noise = ModelNoise.of(levels)
    opponent = to_opponent(np.eye(3, dtype=np.float32)[None])[0].T
    conversion = Conversion(
        stack.white,
        stack.dtype,
        tuple((1.0 / (model_noise.scale * model_noise.units)).tolist()),
        opponent.tolist(),
        bend=noise._bend,
        reach=noise._reach,
        gain=noise.gain,
        root=noise._root,
    )
    return DeviceFusion(
        model,
        [stack.part_reader(number) for number in range(len(stack))],
        (stack.height, stack.width),
        model_noise,
        conversion,
        restore=restore,
        weigh_all=weigh_all,
        device=device.removeprefix("torch-"),
    )
