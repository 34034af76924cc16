"""The networks in torch, as files, and run from them: the same numbers everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cofuse import fuse
from cofuse.devices import TORCH_ON_CPU
from cofuse.mixing import MIXED_BANDS
from cofuse.model.runtime import NAMES, load_networks, model_folder
from cofuse.simulation import sample_picture, simulate_stack

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import torch

from cofuse.model.network import FEATURES, FOLDED, TOLD, Networks
from cofuse.model.saving import read_networks, write_networks

pytestmark = [pytest.mark.extra("torch"), pytest.mark.extra("onnx")]

#: Sides that differ, so that rows taken for columns would show, and are no powers of two.
SIZES = [(16, 16), (48, 80), (112, 32)]


def shaken(seed: int = 0) -> Networks:
    """Networks of random numbers everywhere; new ones have some of nothing but zeros."""
    torch.manual_seed(seed)
    networks = Networks()
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return networks.eval()


def inputs_of(name: str, height: int, width: int) -> list[torch.Tensor]:
    """Something for a network to work on, as it is given in life."""
    generator = torch.Generator().manual_seed(height * width)

    def values(channels: int, halvings: int = 0) -> torch.Tensor:
        size = height >> halvings, width >> halvings
        return torch.rand((1, channels, *size), generator=generator)

    features = [values(n, i + 1) for i, n in enumerate(FEATURES)]
    return {
        "look": [values(1), values(3), torch.rand((1, TOLD), generator=generator)],
        "share": [torch.cat([one, one.flip(1)], 1) for one in features],
        "weigh": [values(FOLDED, 1) - 0.5, *features, *(one.flip(1) for one in features)],
    }[name]


def made_by(network: torch.nn.Module, inputs: list[torch.Tensor]) -> list[np.ndarray]:
    with torch.inference_mode():
        made = network(*inputs)
    return [planes.numpy() for planes in (made if isinstance(made, tuple) else (made,))]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Networks, Path]:
    networks, folder = shaken(), tmp_path_factory.mktemp("model")
    write_networks(networks, folder)
    return networks, folder


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_files_on_the_processor_do_what_torch_does(written, name, size):
    networks, folder = written
    inputs = inputs_of(name, *size)
    expected = made_by(networks.get_submodule(name), inputs)
    found = load_networks(str(folder))(name, *(planes.numpy() for planes in inputs))
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape and np.abs(theirs).max() > 0.01
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_files_do_what_torch_reads_in_them(name):
    inputs = inputs_of(name, 48, 80)
    expected = made_by(read_networks(model_folder("auto")).get_submodule(name), inputs)
    found = load_networks("auto")(name, *(planes.numpy() for planes in inputs))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


def test_what_is_written_is_read_bit_for_bit(written, tmp_path):
    networks, folder = written
    again = read_networks(folder)
    before, after = networks.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert {key.split(".")[0] for key in before} == set(NAMES)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not again.training
    write_networks(again, tmp_path)
    third = read_networks(tmp_path).state_dict()
    assert all(torch.equal(before[key], third[key]) for key in before)


def test_features_halve_from_size_to_size_and_scores_are_those_of_every_pixel():
    networks = shaken(1)
    folded, *features = made_by(networks.look, inputs_of("look", 48, 80))
    assert folded.shape == (1, FOLDED, 24, 40)
    expected = [(1, n, 48 >> (i + 1), 80 >> (i + 1)) for i, n in enumerate(FEATURES)]
    assert [one.shape for one in features] == expected
    (scores,) = made_by(networks.weigh, inputs_of("weigh", 48, 80))
    assert scores.shape == (1, MIXED_BANDS, 48, 80)


def test_new_networks_weigh_all_frames_the_same():
    networks = Networks().eval()
    inputs = inputs_of("weigh", 48, 80)
    first, second = (made_by(networks.weigh, given) for given in (inputs, [2 * x for x in inputs]))
    assert np.array_equal(first, second)


def test_what_stands_for_a_reference_is_no_matter_where_there_is_none():
    frame, stack, told = inputs_of("look", 48, 80)
    other = stack.clone()
    other[:, 2] = 1 - stack[:, 2]
    look = shaken(3).look
    for is_any, same in ((0.0, True), (1.0, False)):
        told[:, 3:] = is_any
        first, second = (made_by(look, [frame, given, told]) for given in (stack, other))
        alike = [np.array_equal(a, b) for a, b in zip(first, second, strict=True)]
        assert alike == [same] * len(alike)


@pytest.mark.parametrize("sigma", [0.0, 12.0])
def test_torch_on_the_processor_makes_the_same_picture(sigma):
    made = simulate_stack(sample_picture("coffee"), frames=3, seed=4, shape=(200, 300), sigma=sigma)
    # As floats, so that nothing is rounded to whole levels.
    frames = [frame.astype(np.float32) for frame in made.frames]
    first, second = (
        fuse(frames, sigma=sigma, white=255.0, device=device) for device in ("cpu", TORCH_ON_CPU)
    )
    assert (first.device, second.device) == ("cpu", TORCH_ON_CPU)
    assert np.abs(first.image - second.image).max() < 0.1
    assert np.mean(first.source_map == second.source_map) > 0.999
    np.testing.assert_allclose(first.confidence, second.confidence, rtol=0, atol=1e-2)
