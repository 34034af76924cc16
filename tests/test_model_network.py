"""The networks in torch, as files, and run from them: the same numbers everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cofuse import fuse
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.runtime import NAMES, TORCH_ON_CPU, load_networks, model_folder

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import torch

from cofuse.model.network import CONTEXT, FEATURES, FILTERED, TOLD, Networks
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

    features = [values(n, i + 2) for i, n in enumerate(FEATURES)]
    told = torch.rand((1, TOLD), generator=generator)
    return {
        "filter": [values(1)],
        "look": [values(FILTERED, 2), values(2 * FILTERED, 2), told],
        "share": [torch.cat([one, one.flip(1)], 1) for one in features],
        "weigh": [*features, *(one.flip(1) for one in features)],
        "border": [values(2), values(2), values(CONTEXT, 2) - 0.5],
        "restore": [values(3), 0.1 * values(2 * MIXED_BANDS, 1)],
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


def test_features_halve_from_a_quarter_on_and_scores_are_those_of_every_pixel():
    networks = shaken(1)
    (filtered,) = made_by(networks.filter, inputs_of("filter", 48, 80))
    assert filtered.shape == (1, FILTERED, 12, 20)
    features = made_by(networks.look, inputs_of("look", 48, 80))
    expected = [(1, n, 48 >> (i + 2), 80 >> (i + 2)) for i, n in enumerate(FEATURES)]
    assert [one.shape for one in features] == expected
    (context,) = made_by(networks.weigh, inputs_of("weigh", 48, 80))
    assert context.shape == (1, CONTEXT, 12, 20)
    (scores,) = made_by(networks.border, inputs_of("border", 48, 80))
    assert scores.shape == (1, MIXED_BANDS, 48, 80)
    (restored,) = made_by(networks.restore, inputs_of("restore", 48, 80))
    assert restored.shape == (1, 3, 48, 80)


def test_the_mean_light_is_kept_beside_what_is_filtered_and_nothing_is_negative():
    """Of activations 0 is no maximum of its own, which pooling relies on."""
    networks, (frame,) = shaken(2), inputs_of("filter", 48, 80)
    (filtered,) = made_by(networks.filter, [frame])
    mean = frame.reshape(12, 4, 20, 4).mean((1, 3)).numpy()
    np.testing.assert_allclose(filtered[0, -1], mean, rtol=0, atol=1e-6)
    for planes in (filtered, *made_by(networks.look, inputs_of("look", 48, 80))):
        assert planes.min() >= 0 and planes.max() > 0


def test_new_networks_keep_to_coarse_scores():
    """What looks closely begins with no opinion: the frame itself is of no matter."""
    border = Networks().eval().border
    lights, details, context = inputs_of("border", 48, 80)
    first = made_by(border, [lights, details, context])[0]
    other = made_by(border, [1 - lights, 1 - details, context])[0]
    assert np.array_equal(first, other)
    # Scores of each coarse pixel, enlarged smoothly: their means stay, up to the picture's border.
    coarse = context[0, :MIXED_BANDS].numpy()
    means = first[0].reshape(MIXED_BANDS, 12, 4, 20, 4).mean(axis=(2, 4))
    assert np.corrcoef(means.ravel(), coarse.ravel())[0, 1] > 0.9
    assert first.min() >= coarse.min() - 1e-6 and first.max() <= coarse.max() + 1e-6


@pytest.mark.parametrize("runs", ["torch", "files"])
def test_where_there_is_no_noise_every_bit_is_left(written, runs):
    networks, folder = written
    picture, noise = inputs_of("restore", 48, 80)
    noise[..., :20] = 0
    if runs == "torch":
        (restored,) = made_by(networks.restore, [picture, noise])
    else:
        (restored,) = load_networks(str(folder))("restore", picture.numpy(), noise.numpy())
    # Noise is told at half the size.
    assert np.array_equal(restored[..., :40], picture[..., :40])
    assert np.abs(restored - picture.numpy())[..., 40:].max() > 1e-3


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
