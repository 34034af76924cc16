"""The joint model on a torch device, here mostly torch's own CPU, against the other two forms."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cofuse
from cofuse.devices import TORCH_ON_CPU
from cofuse.errors import CofuseError
from cofuse.images import Stack, from_opponent, to_opponent
from cofuse.joint import AGREEMENT_SCALES, BAND_WINDOWS, BANDS, GUIDES, JointModel, load_model
from cofuse.joint_fusion import fuse_planes
from cofuse.kernels import joint_reference, reference
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import BANDS as NOISE_BANDS
from cofuse.operators import load_operator
from tests.test_joint_kernels import doubles, frames_of, random_model
from tests.waiting import PATIENCE

pytest.importorskip("torch", reason="torch is not installed")

import torch

from cofuse.kernels import gpu, joint_gpu, joint_gpu_mixing
from cofuse.kernels.gpu_frames import Conversion, Transfer
from cofuse.kernels.joint_gpu_mixing import Agreement
from cofuse.kernels.joint_gpu_stages import DeviceMixture, DeviceStage
from cofuse.kernels.joint_gpu_weigher import DeviceWeigher
from cofuse.methods.joint_device import device_fusion

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 40)

pytestmark = pytest.mark.extra("torch")
with_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def stack_of(
    count: int, shape: tuple[int, ...], dtype: Any = np.uint8, seed: int = 0, sigma: float = 12.0
) -> Stack:
    """Frames of one scene, each sharp in its own stripe, with noise."""
    rng = np.random.default_rng(seed)
    height, width = shape[:2]
    coarse = rng.uniform(20, 230, (height // 6 + 1, width // 6 + 1, *shape[2:]))
    scene = coarse.repeat(6, 0).repeat(6, 1)[:height, :width]
    soft = (scene + np.roll(scene, 3, 0) + np.roll(scene, 3, 1) + np.roll(scene, 5, 0)) / 4
    owner = np.arange(width) * count // width
    frames = []
    for k in range(count):
        mine = (owner == k).reshape(1, -1, *(1,) * (len(shape) - 2))
        levels = np.where(mine, scene, soft) + rng.normal(0, sigma, shape)
        white = {"u1": 255, "u2": 65535}.get(np.dtype(dtype).str[1:], 1.0)
        frames.append((levels.clip(0, 255) / 255 * white).astype(dtype))
    return Stack.from_arrays(frames)


def tensor(values: Array) -> Any:
    return torch.from_numpy(np.array(values, np.float32, order="C"))


@given(st.integers(1, 3), SIDES, SIDES, SEEDS)
@settings(deadline=None, max_examples=6)
def test_weigher_equals_the_reference(count: int, height: int, width: int, seed: int) -> None:
    model = random_model(seed)
    frames = frames_of(count, height, width, seed)
    relative = list(np.random.default_rng(seed).uniform(0.5, 2, count))
    expected, guides = joint_reference.weigh(
        frames.astype(np.float64), relative, 5.0, doubles(model.part("weigher"))
    )
    weigher = DeviceWeigher(model.part("weigher"), 5.0, relative, "cpu")
    padded = np.pad(frames, ((0, 0), (0, -height % 32), (0, -width % 32)), mode="edge")
    scores, pool = weigher.scores(tensor(padded), (0, 0), (height, width), guide=True)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=0, atol=2e-4)
    told = torch.nn.functional.conv2d(pool[None], tensor(model.part("weigher")["guide"]))
    told = torch.nn.functional.pixel_shuffle(told, 2)[0, :, :height, :width]
    np.testing.assert_allclose(told.numpy(), guides, rtol=0, atol=2e-4)


def test_weights_too_large_for_a_device_are_an_error() -> None:
    arrays = random_model(3, stages=3, filters=6).arrays
    name = "weigher.place.weight"
    large = JointModel.from_arrays({**arrays, name: np.full_like(arrays[name], 254.5)})
    with pytest.raises(CofuseError, match="weights beyond"):
        fusion_of(stack_of(2, (40, 50)), model=large)


@given(SIDES, SIDES, st.sampled_from([3, 5, 7]), SEEDS)
@settings(deadline=None, max_examples=6)
def test_stages_equal_the_reference(height: int, width: int, side: int, seed: int) -> None:
    arrays = random_model(seed, side=side).part("stages.1")
    x, y, fine, coarse, *guides = frames_of(4 + GUIDES, height, width, seed)
    fine, coarse = 0.1 * fine - 0.5, 0.1 * coarse - 0.5
    guide = np.stack(guides) * 0.3 - 1.0
    expected = joint_reference.stage(
        *(x.astype(np.float64), (y.astype(np.float64), fine, coarse), 0.3, guide, doubles(arrays))
    )
    mixture = DeviceMixture(tensor(y)[None], tensor(fine), tensor(coarse))
    told = np.pad(guide, ((0, 0), (0, height % 2), (0, width % 2)))
    halved = torch.nn.functional.pixel_unshuffle(tensor(told), 2)
    step = DeviceStage(arrays, [0.3], "cpu").step(tensor(x)[None], mixture, halved)
    np.testing.assert_allclose(step[0].numpy(), expected, rtol=0, atol=2e-4)


@given(st.integers(1, 4), SIDES, SIDES, SEEDS)
@settings(deadline=None, max_examples=6)
def test_mixing_equals_the_reference(count: int, height: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = frames_of(count, height, width, seed)
    scores = rng.normal(0, 3, (count, 1 + BANDS, height, width)).astype(np.float32)
    relative = rng.uniform(0.5, 2, count)
    expected = joint_reference.mix(frames.astype(np.float64), scores, relative, BAND_WINDOWS)
    lows = joint_gpu_mixing.smoothed(tensor(frames[:, None]), BAND_WINDOWS)
    mixture = joint_gpu_mixing.mix(lows, tensor(scores[:, 1:]), tensor(relative))
    found = mixture.pictures[0], mixture.fine, mixture.coarse
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=0, atol=1e-4)
    index, confidence = joint_gpu_mixing.choose(tensor(scores))
    best, lead = joint_reference.choose(scores.astype(np.float64))
    np.testing.assert_array_equal(index.numpy(), best)
    np.testing.assert_allclose(confidence.numpy(), lead, rtol=0, atol=1e-5)
    arrays = random_model(seed).part("agreement")
    again = joint_reference.reweigh(
        *(frames.astype(np.float64), frames[0].astype(np.float64), scores.astype(np.float64)),
        *(doubles(arrays), AGREEMENT_SCALES),
    )
    agreement = Agreement(arrays, AGREEMENT_SCALES, "cpu")
    corrected = agreement.scores(tensor(frames), tensor(frames[0]), tensor(scores))
    np.testing.assert_allclose(corrected.numpy(), again[:, 1:], rtol=0, atol=2e-4)


@given(
    st.floats(1, 20),
    st.sampled_from([0.0, 0.3, 2.0]),
    st.sampled_from(["uint8", "uint16", "float32"]),
    SEEDS,
)
@settings(deadline=None, max_examples=20)
def test_pixels_become_planes_as_on_the_cpu(
    floor: float, gain: float, dtype: str, seed: int
) -> None:
    stack = stack_of(1, (9, 7, 3), np.dtype(dtype), seed)
    noise = NoiseModel(floor, gain)
    opponent = to_opponent(np.eye(3, dtype=np.float32)[None])[0].T.tolist()
    law = {"bend": noise._bend, "reach": noise._reach, "gain": gain, "root": noise._root}
    conversion = Conversion(stack.white, stack.dtype, (0.1, 0.2, 0.3), opponent, **law)
    expected = to_opponent(noise.stabilise(stack.to_levels(stack[0]))) * np.float32([0.1, 0.2, 0.3])
    native = Transfer("cpu").upload(conversion.host(stack[0]))
    planes = conversion.planes(native, torch.empty((3, 9, 7)))
    np.testing.assert_allclose(planes.permute(1, 2, 0).numpy(), expected, rtol=0, atol=1e-4)
    planes *= 1.01
    back = from_opponent(np.float32(planes.permute(1, 2, 0).numpy() / np.float32([0.1, 0.2, 0.3])))
    expected = stack.from_levels(noise.restore_mean(back))
    found = conversion.native(planes).numpy().view(stack.dtype)
    step = 1 if stack.dtype.kind == "u" else 1e-5
    assert np.abs(found.astype(np.float64) - expected.astype(np.float64)).max() <= step


def both(stack: Stack, **options: Any) -> tuple[cofuse.Fusion, cofuse.Fusion]:
    """Fuse on the CPU and by the devices' code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            cofuse.fuse(stack, device="cpu", **options),
            cofuse.fuse(stack, device=TORCH_ON_CPU, **options),
        )


def agree(one: cofuse.Fusion, other: cofuse.Fusion, levels: float = 1e-3) -> None:
    """Check that two fusions are the same but for rounding."""
    scale = {"u1": 255, "u2": 65535}.get(one.image.dtype.str[1:], 1.0) / 255
    step = 1 if one.image.dtype.kind == "u" else 0
    assert one.image.dtype == other.image.dtype and one.image.shape == other.image.shape
    apart = np.abs(one.image.astype(np.float64) - other.image.astype(np.float64))
    assert apart.max() <= max(step, levels * scale), apart.max()
    assert one.source_map is not None and other.source_map is not None
    assert one.confidence is not None and other.confidence is not None
    assert one.source_map.dtype == other.source_map.dtype
    unlike = one.source_map != other.source_map
    assert one.confidence[unlike].max(initial=0) < 1e-3  # ties
    np.testing.assert_allclose(one.confidence, other.confidence, rtol=0, atol=1e-3)
    assert one.device == "cpu" and other.device == TORCH_ON_CPU


@pytest.mark.parametrize(
    ("count", "shape", "dtype"),
    [
        (1, (33, 47), np.float32),
        (2, (64, 71, 3), np.uint8),
        (5, (41, 66), np.uint16),
        (3, (50, 39, 3), np.float32),
        (2, (5, 3), np.float64),
    ],
)
def test_restored_pictures_equal_those_of_the_cpu(
    count: int, shape: tuple[int, ...], dtype: Any
) -> None:
    agree(*both(stack_of(count, shape, dtype), sigma=12))


@pytest.mark.parametrize("options", [{"sigma": 0}, {"sigma": 12, "denoise": 0.5}, {}])
def test_other_ways_equal_those_of_the_cpu(options: dict[str, Any]) -> None:
    agree(*both(stack_of(3, (72, 80, 3)), **options))


def test_chosen_weights_equal_those_of_the_cpu() -> None:
    from dataclasses import replace

    preset = replace(cofuse.PRESETS["auto"], weights="chosen")
    agree(*both(stack_of(2, (40, 50), np.float32), sigma=12, preset=preset))


def test_frames_of_other_brightness_are_left_out_as_on_the_cpu() -> None:
    frames = list(stack_of(4, (64, 72), np.float32))
    frames[2] = frames[2] * np.float32(0.3)
    stack = Stack.from_arrays(frames)
    for device in ("cpu", TORCH_ON_CPU):
        with pytest.warns(UserWarning, match="frame 3 differs from the other frames"):
            cofuse.fuse(stack, sigma=12, device=device)
    one, other = both(stack, sigma=12)
    agree(one, other)
    assert not (other.source_map == 2).any()


def fusion_of(stack: Stack, sigma: float = 12.0, model: Any = None) -> joint_gpu.DeviceFusion:
    levels = np.full((len(stack), 3 if stack.is_colour else 1), sigma)
    return device_fusion(
        stack,
        model or random_model(3, stages=3, filters=6),
        NoiseModel(sigma),
        levels,
        restore=True,
        weigh_all=True,
        device=TORCH_ON_CPU,
    )


def test_noise_by_bands_is_removed_as_on_the_cpu() -> None:
    stack, model = stack_of(2, (58, 71, 3), np.float32), random_model(3, stages=3, filters=6)
    levels = np.random.default_rng(0).uniform(2, 30, (2, 3, NOISE_BANDS))
    options: Any = {"restore": True, "weigh_all": True}
    device = device_fusion(stack, model, NoiseModel(12.0), levels, **options, device=TORCH_ON_CPU)
    ((_, tile),) = device.tiles()
    assert tile.restored is not None
    planes = [to_opponent(stack.to_levels(frame)) for frame in stack]
    readers = [lambda rows, columns, p=p: p[rows, columns] for p in planes]
    expected = fuse_planes(model, readers, (58, 71), levels)  # type: ignore[arg-type]
    scale = np.array(device.conversion.factors, np.float32)
    restored = tile.restored.numpy().transpose(1, 2, 0) / scale
    np.testing.assert_allclose(restored, expected.restored, rtol=0, atol=0.02)
    white = fuse_planes(model, readers, (58, 71), levels.mean(axis=2))  # type: ignore[arg-type]
    assert np.abs(restored - white.restored).max() > 1, "bands matter"


def whole(fusion: joint_gpu.DeviceFusion, side: int | None) -> list[Array]:
    """All tiles, put together."""
    height, width = fusion.shape
    parts = [np.full((n, height, width), np.nan, np.float32) for n in (1, 1, 1, 1)]
    for here, tile in fusion.tiles(side):
        assert tile.restored is not None
        for out, values in zip(
            parts, (tile.index, tile.confidence, tile.mixed[0], tile.restored[0]), strict=True
        ):
            out[:, *here] = values.numpy()
    return parts


@pytest.mark.parametrize("side", [38, 70])
def test_tiles_do_not_show(side: int) -> None:
    fusion = fusion_of(stack_of(2, (75, 111)))
    for one, other in zip(whole(fusion, None), whole(fusion, side), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-4)


def test_tiles_are_halved_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = fusion_of(stack_of(2, (70, 150)))
    expected = whole(fusion, None)
    piece, sizes = fusion.piece, []

    def short(rows: tuple[int, int], columns: tuple[int, int]) -> Any:
        sizes.append((rows[1] - rows[0], columns[1] - columns[0]))
        if max(sizes[-1]) > 80:
            raise torch.OutOfMemoryError("no more")
        return piece(rows, columns)

    monkeypatch.setattr(fusion, "piece", short)
    for one, other in zip(expected, whole(fusion, None), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-4)
    assert max(sizes[0]) == 150 and max(sizes[-1]) <= 80


def test_too_little_memory_for_any_tile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = fusion_of(stack_of(2, (40, 50)))

    def never(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no more")

    monkeypatch.setattr(fusion, "piece", never)
    with pytest.raises(torch.OutOfMemoryError):
        list(fusion.tiles())


def test_frames_are_kept_or_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, read = (fusion_of(stack_of(2, (40, 50, 3))) for _ in range(2))
    kept.keep_frames()
    assert kept.kept is not None
    monkeypatch.setattr(joint_gpu, "free_memory", lambda device: 100)
    read.keep_frames()
    assert read.kept is None
    for one, other in zip(whole(kept, None), whole(read, None), strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.sampled_from(["dct-7", "separable-7", "full-5"]), SEEDS)
@settings(deadline=None, max_examples=6)
def test_plain_loops_equal_the_reference(name: str, seed: int) -> None:
    operator = load_operator(name)
    image, guide = frames_of(2, 23, 19, seed)
    x, v = tensor(image), tensor(guide)
    close = {"rtol": 1e-4, "atol": 1e-3}
    expected = reference.activity(image, operator, threshold=0.5)
    np.testing.assert_allclose(gpu.activity(x, operator, threshold=0.5).numpy(), expected, **close)
    shape = reference.activity(image, operator).shape
    rng = np.random.default_rng(seed)
    duals = rng.normal(size=(2, len(operator.rows), *shape)).astype(np.float32)
    numbers = {"momentum": 0.4, "step": 0.1, "limit": 0.8}
    found = gpu.dual_step(tensor(duals[0]), tensor(duals[1]), x, operator, **numbers)
    wanted = reference.dual_step(duals[0], duals[1], image, operator, **numbers)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other, **close)
    pair = gpu.pairing(tensor(duals[0]), x, operator)
    np.testing.assert_allclose(pair, reference.pairing(duals[0], image, operator), rtol=1e-4)
    if name == "dct-7":
        found = gpu.hard_shrinkage(x, operator, threshold=2.5)
        wanted = reference.hard_shrinkage(image, operator, threshold=2.5)
        np.testing.assert_allclose(found.numpy(), wanted, **close)
        variances = np.linspace(0.5, 2, len(operator.rows))
        found = gpu.wiener_shrinkage(x, v, operator, variance=variances)
        wanted = reference.wiener_shrinkage(image, guide, operator, variance=variances)
        np.testing.assert_allclose(found.numpy(), wanted, **close)


@pytest.mark.slow
@pytest.mark.extra("triton")
def test_fused_kernels_equal_the_plain_ones() -> None:
    """In a process of its own: Triton decides when it is loaded that it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    code = "from tests.fused_kernels import check; check('cpu')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


@with_cuda
def test_fused_kernels_equal_the_plain_ones_on_a_device() -> None:
    from tests.fused_kernels import check

    check("cuda")


@with_cuda
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_device_makes_the_same_picture(dtype: Any) -> None:
    stack = stack_of(3, (301, 417, 3), dtype)
    one, other = (cofuse.fuse(stack, sigma=12, device=device) for device in ("cpu", "cuda"))
    step = {"u1": 1, "u2": 1}.get(np.dtype(dtype).str[1:], 1e-3 / 255)
    assert np.abs(one.image.astype(np.float64) - other.image).max() <= step
    assert one.source_map is not None and other.source_map is not None
    assert (one.source_map != other.source_map).mean() < 1e-4


@with_cuda
def test_tiles_do_not_show_on_a_device() -> None:
    stack = stack_of(2, (500, 700, 3))
    fusion = device_fusion(
        *(stack, load_model(), NoiseModel(12.0), np.full((2, 3), 12.0)),
        restore=True,
        weigh_all=True,
        device="cuda",
    )
    ((_, expected),) = fusion.tiles()
    for here, tile in fusion.tiles(200):
        assert tile.restored is not None and expected.restored is not None
        apart = (tile.restored - expected.restored[:, *here]).abs().max()
        assert float(apart) < 2e-4
