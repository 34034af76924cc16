"""How fast the joint model is on a CUDA device, part by part, beside what the device could do.

    python -m benchmarks.gpu [--megapixels 24] [--frames 10] [--output FILE] [--from FILE]

The floor of a part is the larger of two times: its bytes over the bandwidth, and its operations
over the rate of float32 products, both as measured in the same run. Products count once, though the
kernels make three of halves for each: the rate is a third of what the device does with halves.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from benchmarks.tables import Tables, add_output_options, deliver, markdown_table, ratio
from cofuse.images import Stack, from_opponent, to_opponent
from cofuse.joint import LEVEL_CHANNELS, load_model
from cofuse.kernels import (
    gpu_frames,
    joint_gpu,
    joint_gpu_layers,
    joint_gpu_mixing,
    joint_gpu_stages,
    joint_gpu_weigher,
)
from cofuse.kernels.joint_gpu import DeviceFusion
from cofuse.kernels.joint_gpu_layers import exact, mirrored
from cofuse.kernels.joint_gpu_stages import DeviceStage
from cofuse.methods import joint_device
from cofuse.methods.joint_device import device_fusion
from cofuse.noise.brightness import NoiseModel

SIGMA = 15.0


def milliseconds(work: Callable[[], Any], repeats: int = 5, warm: int = 2) -> float:
    """Median time on the device."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return float(np.median(times))


def peaks() -> dict[str, float]:
    """What the device can do: bytes and operations a second."""
    values, copy = (torch.empty(1 << 29, device="cuda").normal_() for _ in range(2))
    found = {"bytes": 2 * values.nbytes / milliseconds(lambda: copy.copy_(values)) * 1e3}
    side = 8192
    a, b = (torch.empty((side, side), device="cuda").normal_() for _ in range(2))
    with exact():
        found["float32"] = 2 * side**3 / milliseconds(lambda: a @ b) * 1e3
    a, b = a.half(), b.half()
    found["halves"] = 2 * side**3 / milliseconds(lambda: a @ b) * 1e3
    found["three_halves"] = found["halves"] / 3
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    up = milliseconds(lambda: device.copy_(host, non_blocking=True))
    down = milliseconds(lambda: host.copy_(device, non_blocking=True))
    return found | {"up": host.nbytes / up * 1e3, "down": host.nbytes / down * 1e3}


def scene(count: int, height: int, width: int) -> Stack:
    """Noisy frames in host memory, each sharp in its own stripe."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    size = -(-height // 6) * 6, -(-width // 6) * 6
    coarse = torch.rand((1, 3, size[0] // 6, size[1] // 6), device="cuda", generator=generator)
    sharp = torch.nn.functional.interpolate(coarse, scale_factor=6)[0, :, :height, :width] * 200
    soft = torch.nn.functional.avg_pool2d(sharp[None], 13, 1, 6)[0]
    owner = torch.arange(width, device="cuda") * count // width
    frames = []
    for number in range(count):
        levels = torch.where(owner == number, sharp, soft) + 25
        levels += SIGMA * torch.empty_like(levels).normal_(generator=generator)
        native = levels.clamp(0, 255).permute(1, 2, 0).to(torch.uint8).contiguous()
        frames.append(native.cpu().numpy())
    return Stack.from_arrays(frames)


def prepared(stack: Stack, device: str = "cuda") -> DeviceFusion:
    """Set the fusion of a stack up."""
    levels = np.full((len(stack), 3 if stack.is_colour else 1), SIGMA)
    return device_fusion(
        stack,
        load_model(),
        NoiseModel(SIGMA),
        levels,
        restore=True,
        weigh_all=True,
        device=device,
    )


def fused(stack: Stack) -> tuple[Any, Any, Any]:
    """All of it: host memory to host memory."""
    work = prepared(stack)
    work.keep_frames()
    image = np.empty(stack.shape, stack.dtype)
    index = np.empty(stack.shape[:2], np.uint8)
    confidence = np.empty(stack.shape[:2], np.float32)
    for here, tile in work.tiles():
        assert tile.restored is not None
        native = work.native(tile.restored)
        work.transfer.download(tile.index, index[here], tile.chosen)
        work.transfer.download(tile.confidence, confidence[here], tile.chosen)
        work.transfer.download(native, image[here])
    return image, index, confidence


def parts(stack: Stack) -> dict[str, float]:
    """Time of every part in milliseconds; each waits for the one before, so they add up to more."""
    times: dict[str, float] = {}

    def timed(owner: Any, name: str, part: str) -> tuple[Any, str, Any]:
        original = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            torch.cuda.synchronize()
            start = time.perf_counter()
            result = original(*given, **named)
            torch.cuda.synchronize()
            times[part] = times.get(part, 0.0) + 1e3 * (time.perf_counter() - start)
            return result

        setattr(owner, name, call)
        return owner, name, original

    work = prepared(stack)
    changed = [
        timed(work, "keep_frames", "upload"),
        timed(joint_device, "measure", "measuring"),
        timed(work, "_read", "planes"),
        timed(work.weigher, "scores", "weigher"),
        timed(joint_gpu, "choose", "mixing"),
        timed(joint_gpu, "smoothed", "mixing"),
        timed(joint_gpu, "mix", "mixing"),
        timed(work.agreement, "scores", "agreement"),
        *(timed(stage, "step", "stages") for stage in work.stages),
        timed(work, "native", "native"),
        timed(work.transfer, "download", "download"),
    ]
    try:
        work.keep_frames()
        joint_device.measure(work)
        image = np.empty(stack.shape, stack.dtype)
        maps = np.empty(stack.shape[:2], np.uint8), np.empty(stack.shape[:2], np.float32)
        for here, tile in work.tiles():
            work.transfer.download(work.native(tile.restored), image[here])
            work.transfer.download(tile.index, maps[0][here])
            work.transfer.download(tile.confidence, maps[1][here])
    finally:
        for owner, name, original in changed:
            setattr(owner, name, original)
    return times


def needs(stack: Stack) -> dict[str, tuple[float, float, str]]:
    """Bytes and operations of every part, and what moves its bytes."""
    pixels, frames, planes = stack.height * stack.width, len(stack), 3
    model = load_model()
    a = model.part("weigher")
    share, weigher = 1.0, 2.0 * (a["detail"][:, 0].size + a["place.weight"].size)
    weigher += 2.0 * (a["analysis"][:, 0].size + a["rise.weight"].size) / 4
    for level in range(len(LEVEL_CHANNELS)):
        share /= 4
        names = [n for n in a if n.startswith(f"levels.{level}.") and n.endswith(".weight")]
        weigher += 2.0 * share * sum(a[n].size for n in names if "shared" not in n)
    stage = model.part("stages.0")
    stages = 4.0 * model.stages * (stage["fine.filters"].size + stage["coarse.filters"].size / 4)
    agreement = model.part("agreement")
    correct = 2.0 * (agreement["hidden.weight"].size + agreement["correction"].size)
    native = stack.frame_bytes
    look, all_planes, scores = 4.0 * pixels, 4.0 * pixels * planes, 16.0 * pixels
    return {
        "upload": (frames * native, 0, "up"),
        "measuring": (frames * native, 0, "bytes"),
        "planes": (frames * (native + all_planes), 0, "bytes"),
        "weigher": (frames * (look + scores), frames * pixels * weigher, "bytes"),
        "mixing": (2 * frames * (all_planes + scores) + 2 * all_planes, 0, "bytes"),
        "agreement": (frames * (look + 2 * scores), frames * pixels * correct, "bytes"),
        "stages": (4 * model.stages * all_planes, planes * pixels * stages, "bytes"),
        "native": (all_planes + native, 0, "bytes"),
        "download": (native + 5.0 * pixels, 0, "down"),
    }


def dense_stage(found: dict[str, float]) -> dict[str, Any]:
    """One step of 64 filters on 4096 × 4096 pixels, fused and in plain torch."""
    side = 4096
    stage = DeviceStage(load_model().part("stages.0"), [math.log(0.75)], "cuda")
    x = torch.rand((1, side, side), device="cuda") * 17
    logs = torch.randn((2, side, side), device="cuda") * 0.3
    bank, results = stage.banks[0], {}

    def plain() -> Any:
        out = torch.zeros_like(x)
        bank.pull(x, logs, out)
        return out

    with exact():
        for name, work in (("fused", lambda: bank.fused_pull(x, logs)), ("plain", plain)):
            results[name] = work()
            results[name + "_ms"] = milliseconds(work, 3, 1)
    operations = 4.0 * side**2 * bank.filters.numel()
    with exact():
        part = mirrored(x, 6)[:, :268, :268].double().cpu()
        exactly = _exact_pull(part, mirrored(logs, 3)[:, :262, :262].double().cpu().exp(), bank)
    return {
        "fused_ms": results["fused_ms"],
        "plain_ms": results["plain_ms"],
        "floor_ms": 1e3 * max(operations / found["three_halves"], 12 * side**2 / found["bytes"]),
        "tflops": operations / results["fused_ms"] / 1e9,
        "fused_off": float((results["fused"][:, :256, :256].cpu() + exactly).abs().max()),
        "plain_off": float((results["plain"][:, :256, :256].cpu() + exactly).abs().max()),
    }


def _exact_pull(x: Any, stretch: Any, bank: Any) -> Any:
    """Ωᵀφ(Ωx) in double precision."""
    filters, terms = bank.filters.double().cpu(), bank.terms.double().cpu()
    u = torch.nn.functional.conv2d(x[:, None], filters)
    s = (u * stretch[1]) ** 2
    n0, n1, p1, p2, m0, m1, q1, q2 = terms[..., None, None].unbind(1)
    slope = (n0 + n1 * s) / (1 + s * (p1 + p2 * s)) + (m0 + m1 * s) / (1 + s * (q1 + q2 * s))
    return torch.nn.functional.conv_transpose2d(slope * u * stretch[0], filters)[:, 0, 6:-6, 6:-6]


def live_view() -> dict[str, float]:
    """A pair of 1920 × 1080 on the device, fused and restored: launched, and as a graph."""
    work = prepared(scene(2, 1080, 1920))
    work.keep_frames()

    def once() -> Any:
        ((_, tile),) = work.tiles()
        return work.native(tile.restored)

    eager = milliseconds(once, 10, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once()
    return {"eager_ms": eager, "graph_ms": milliseconds(graph.replay, 20, 3)}


def tolerance() -> dict[str, float]:
    """How far the device is from the CPU on smaller frames, in grey levels."""
    from cofuse.joint_fusion import fuse_planes

    stack = scene(4, 517, 771)
    levels = np.full((4, 3), SIGMA)

    def reader(number: int) -> Any:
        cut = stack.part_reader(number)
        return lambda rows, columns: to_opponent(stack.to_levels(cut(rows, columns)))

    expected = fuse_planes(load_model(), [reader(k) for k in range(4)], stack.shape[:2], levels)
    ((_, tile),) = prepared(stack).tiles()
    with doubled():
        work = prepared(stack)
        ((_, double),) = work.tiles()
    scale = np.array(work.conversion.factors)

    def picture(planes: Any) -> Any:
        return from_opponent(planes.double().cpu().numpy().transpose(1, 2, 0) / scale)

    def most(one: Any, other: Any) -> float:
        return float(np.abs(one - other).max())

    assert tile.restored is not None and expected.restored is not None
    on_device, exactly = picture(tile.restored), picture(double.restored)
    on_cpu, apart = from_opponent(expected.restored), np.abs(on_device - exactly)
    return {
        "device_cpu": most(on_device, on_cpu),
        "device_double": most(on_device, exactly),
        "cpu_double": most(on_cpu, exactly),
        "device_double_of_999_in_1000": float(np.quantile(apart, 0.999)),
        "mixed_device_cpu": most(picture(tile.mixed), from_opponent(expected.mixed)),
        "mixed_device_double": most(picture(tile.mixed), picture(double.mixed)),
        "mixed_cpu_double": most(from_opponent(expected.mixed), picture(double.mixed)),
        "confidence": float(np.abs(tile.confidence.cpu().numpy() - expected.confidence).max()),
        "chosen_otherwise": float((tile.index.cpu().numpy() != expected.index).mean()),
    }


@contextmanager
def doubled() -> Iterator[None]:
    """Let the plain layers work in double precision: what float32 is off by shows against it."""
    modules: list[Any] = [gpu_frames, joint_gpu, joint_gpu_layers, joint_gpu_mixing]
    modules += [joint_gpu_stages, joint_gpu_weigher]
    before = [
        (m, n, getattr(m, n)) for m in modules for n in ("fused", "on_device") if n in vars(m)
    ]

    def as_doubles(values: Any, device: str) -> Any:
        return torch.as_tensor(np.array(values, np.float32), device=device).double()

    for module, name, _ in before:
        setattr(module, name, as_doubles if name == "on_device" else lambda values: False)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        for module, name, original in before:
            setattr(module, name, original)


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "numpy": np.__version__,
    }
    facts["peaks"] = found = peaks()
    print(f"{facts['device']}, torch {facts['torch']}, triton {facts['triton']}")
    print(", ".join(f"{name} {value / 1e12:.3g} T/s" for name, value in found.items()))
    facts["dense_stage"] = dense_stage(found)
    print("dense stage", facts["dense_stage"], flush=True)
    height = round(math.sqrt(options.megapixels * 1e6 / 1.5) / 2) * 2
    stack = scene(options.frames, height, height * 3 // 2)
    facts["frames"], facts["width"], facts["height"] = len(stack), stack.width, stack.height
    walls = []
    for _ in range(8):
        start = time.perf_counter()
        fused(stack)
        walls.append(time.perf_counter() - start)
    facts["walls"] = walls
    facts["first_seconds"], facts["seconds"] = walls[0], float(np.median(walls[1:]))
    facts["memory"] = torch.cuda.max_memory_allocated()
    floor = 0.0
    facts["parts"] = {}
    times, need = parts(stack), needs(stack)
    for name, (moved, operations, by) in need.items():
        least = 1e3 * max(moved / found[by], operations / found["three_halves"])
        floor += least
        row = {"bytes": moved, "operations": operations, "floor_ms": least, "ms": times[name]}
        facts["parts"][name] = row
        print(
            f"{name:10} {moved / 1e9:7.2f} GB {operations / 1e12:6.2f} TFLOP  floor {least:7.2f} ms"
            f"  took {times[name]:7.2f} ms  {times[name] / least:6.1f} x",
            flush=True,
        )
    facts["floor_ms"] = floor
    print(
        f"{len(stack)} frames of {stack.width}x{stack.height}: {facts['seconds']:.3f} s (first run "
        f"{facts['first_seconds']:.1f} s), floor {floor:.1f} ms, "
        f"{facts['seconds'] * 1e3 / floor:.1f} x, {facts['memory'] / 2**30:.1f} GiB",
        flush=True,
    )
    del stack
    facts["live_view"] = live_view()
    print("live view", facts["live_view"], flush=True)
    if options.tolerance:
        facts["tolerance"] = tolerance()
        print("apart, in grey levels", facts["tolerance"], flush=True)
    return facts


def tabulate(facts: dict[str, Any]) -> Tables:
    """Make the tables: every part beside its floor, and the whole."""
    rows = [
        (
            name,
            f"{row['bytes'] / 1e9:.2f}",
            f"{row['operations'] / 1e12:.2f}" if row["operations"] else "–",
            f"{row['floor_ms']:.1f}",
            f"{row['ms']:.1f}",
            ratio(row["ms"], row["floor_ms"]),
        )
        for name, row in facts["parts"].items()
    ]
    whole = 1e3 * facts["seconds"]
    rows.append(
        (
            "all, overlapped",
            f"{sum(row['bytes'] for row in facts['parts'].values()) / 1e9:.2f}",
            f"{sum(row['operations'] for row in facts['parts'].values()) / 1e12:.2f}",
            f"{facts['floor_ms']:.1f}",
            f"{whole:.1f}",
            ratio(whole, facts["floor_ms"]),
        )
    )
    head = "part", "GB", "TFLOP", "floor, ms", "took, ms", "× floor"
    stage, live = facts["dense_stage"], facts["live_view"]
    pixels = f"{facts['frames']} frames of {facts['width']} × {facts['height']}"
    lines = [
        (f"{pixels}, host to host", f"{whole:.0f} ms"),
        ("the same, the first time, with kernels to compile", f"{facts['first_seconds']:.1f} s"),
        ("memory of the device that takes", f"{facts['memory'] / 2**30:.1f} GiB"),
        ("one bank of 64 filters of 7 × 7 on 4096 × 4096", f"{stage['fused_ms']:.2f} ms"),
        ("the same in plain torch", f"{stage['plain_ms']:.2f} ms"),
        ("a pair of 1920 × 1080 on the device", f"{live['eager_ms']:.1f} ms"),
        ("the same as a graph", f"{live['graph_ms']:.1f} ms"),
    ]
    if "tolerance" in facts:
        off = facts["tolerance"]
        lines += [
            ("device and CPU apart, grey levels", f"{off['device_cpu']:.1e}"),
            ("device and double precision apart", f"{off['device_double']:.1e}"),
            ("CPU and double precision apart", f"{off['cpu_double']:.1e}"),
        ]
    return {
        "gpu-parts": markdown_table(head, rows),
        "gpu": markdown_table((facts["device"], "measured"), lines),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, default=24.0)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--no-tolerance", dest="tolerance", action="store_false")
    add_output_options(parser, "gpu")
    options = parser.parse_args()
    deliver(options, lambda: measure_all(options), tabulate)


if __name__ == "__main__":
    main()
