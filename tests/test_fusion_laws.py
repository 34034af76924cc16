"""Laws of the preset ``auto``, at the sizes and counts at which shortcuts would break them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cofuse import Fusion, fuse
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.images.pixels import REACH
from cofuse.images.tiles import MULTIPLE
from cofuse.model.runtime import TORCH_ON_CPU
from cofuse.model.tiling import HALO, RESTORED_HALO
from cofuse.sensor import NoiseLaw
from tests.test_fusion_mixing import fused_in_tiles

Array = np.ndarray[Any, Any]


def scene(seed: int, count: int = 6, shape: tuple[int, int] = (280, 380)) -> Simulation:
    picture = sample_picture(("astronaut", "chelsea", "coffee", "yard")[seed % 4])
    return simulate_stack(picture, frames=count, seed=seed, shape=shape, max_radius=10)


def in_floats(frames: Any) -> list[Array]:
    """Frames whose results are not rounded, so that the least change is seen."""
    return [(frame / 255).astype(np.float32) for frame in frames]


@pytest.mark.parametrize("sigma", [0, 10])
@pytest.mark.parametrize(("side", "count", "colour"), [("top", 3, True), ("right", 2, False)])
def test_what_is_cut_off_changes_nothing_far_away(
    side: str, count: int, colour: bool, sigma: float
) -> None:
    frames = in_floats(scene(2, count, (316, 380)).frames)
    frames = [frame if colour else frame[..., 1] for frame in frames]
    # What is weighed from within its reach is mixed within another, and restored within a third.
    reach = HALO + REACH + (RESTORED_HALO if sigma else 0)
    width = frames[0].shape[1]
    # Networks see pixels in blocks: these begin where they did.
    cut = 2 * MULTIPLE
    if side == "top":
        kept, far = slice(cut, None), slice(cut + reach, None)
        one, other = fuse(frames, sigma=sigma), fuse([f[kept] for f in frames], sigma=sigma)
        near = slice(cut, cut + 8)
        expected, made = one.image[far], other.image[reach:]
        beside = one.image[near], other.image[:8]
    else:
        far = slice(0, width - cut - reach)
        one, other = fuse(frames, sigma=sigma), fuse([f[:, :-cut] for f in frames], sigma=sigma)
        expected, made = one.image[:, far], other.image[:, far]
        beside = one.image[:, -cut - 8 : -cut], other.image[:, -8:]
    assert made.size > 0
    # Convolutions may sum in another order: a few roundings of values up to 1.
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-6)
    assert np.abs(np.subtract(*beside)).max() > 1e-4


@pytest.mark.parametrize("sigma", [0, 10])
@pytest.mark.parametrize(("side", "part"), [(64, 48), (160, 128), (1024, 112)])
def test_tiles_do_not_show(side: int, part: int, sigma: float) -> None:
    frames = in_floats(scene(1, 3, (293, 333)).frames)
    whole = fuse(frames, sigma=sigma)
    parts = fused_in_tiles(
        frames, NoiseLaw.white(sigma, frames=3, colour=True), side=side, part=part, white=1.0
    )
    assert np.array_equal(parts.image, whole.image)
    assert np.array_equal(parts.source_map, whole.source_map)
    np.testing.assert_allclose(parts.confidence, whole.confidence, rtol=0, atol=1e-6)


def assert_devices_agree(one: Fusion, other: Fusion) -> None:
    """Hold that pictures of values from 0 to 1 are as good as the same.

    A value between two steps of rounding may be rounded the other way, and others after it: a
    little noise, of less than what rounding to bytes makes.
    """
    apart = 255 * (one.image - other.image)
    assert np.sqrt(np.mean(apart**2)) < 0.1
    assert np.mean(np.abs(apart) < 0.15) > 0.99
    assert np.mean(one.source_map == other.source_map) > 0.999
    assert np.mean(np.abs(one.confidence - other.confidence) < 0.02) > 0.99


@pytest.mark.extra("torch")
@pytest.mark.extra("onnx")
@pytest.mark.parametrize("sigma", [0, 10])
def test_devices_agree_with_the_cpu(sigma: float) -> None:
    frames = in_floats(scene(3, 3, (210, 170)).frames)
    one = fuse(frames, sigma=sigma, device="cpu")
    other = fuse(frames, sigma=sigma, device=TORCH_ON_CPU)
    assert (one.device, other.device) == ("cpu", TORCH_ON_CPU)
    assert_devices_agree(one, other)
