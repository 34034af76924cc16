"""The networks in torch, as files, and run from them: the same numbers everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cofuse.images.pixels import MIXED_BANDS
from cofuse.model.runtime import NAMES, load_networks, model_folder

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import torch

from cofuse.model.network import CONTEXT, FEATURES, FILTERS, TOLD, Networks
from cofuse.model.rounding import Rounded, RoundedConv, kernel_steps, rounded_kernels
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
    """Something for a network to work on, as it is given in life; bytes are steps."""
    generator = torch.Generator().manual_seed(height * width)

    def values(channels: int, halvings: int = 0) -> torch.Tensor:
        size = height >> halvings, width >> halvings
        return torch.rand((1, channels, *size), generator=generator)

    def steps(channels: int, halvings: int) -> torch.Tensor:
        return (255 * values(channels, halvings)).to(torch.uint8)

    features = [steps(n, i + 2) for i, n in enumerate(FEATURES)]
    pools = [255 * values(2 * n, i + 2) for i, n in enumerate(FEATURES)]
    filtered, light = values(FILTERS, 2), values(1, 2) - 0.5
    told = torch.rand((1, TOLD), generator=generator)
    return {
        "filter": [values(1) - 0.5],
        "compare": [filtered, filtered + 0.5, light, torch.full((1, 1), 0.3)],
        "relate": [filtered, light, *(values(FILTERS, 2) for _ in range(4)), values(1, 2), told],
        "look": [steps(FEATURES[0], 2)],
        "share": pools,
        "weigh": [*features, *(one.flip(1) for one in features)],
        "border": [values(2) - 0.5, values(2), values(MIXED_BANDS, 2) - 0.5, steps(CONTEXT, 2)],
        "restore": [values(3), 0.1 * values(2 * MIXED_BANDS, 1)],
    }[name]


def made_by(network: torch.nn.Module, inputs: list[torch.Tensor]) -> list[np.ndarray]:
    with torch.inference_mode():
        made = network(*(planes.float() for planes in inputs))
    return [planes.numpy() for planes in (made if isinstance(made, tuple) else (made,))]


def assert_alike(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """The same planes, but for values that lie between two steps and are rounded the other way."""
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape and np.abs(theirs).max() > 0.01
        apart = np.abs(ours.astype(np.float32) - theirs) / np.ptp(theirs)
        # A step is 1/255 of a plane's range, and there are several roundings.
        assert apart.max() < 0.05 and apart.mean() < 5e-3


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
    assert_alike(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_files_do_what_torch_reads_in_them(name):
    inputs = inputs_of(name, 48, 80)
    expected = made_by(read_networks(model_folder("auto")).get_submodule(name), inputs)
    assert_alike(load_networks("auto")(name, *(planes.numpy() for planes in inputs)), expected)


def test_what_is_written_is_read_bit_for_bit_but_for_rounded_kernels(written, tmp_path):
    networks, folder = written
    again = read_networks(folder)
    before, after = networks.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert {key.split(".")[0] for key in before} == set(NAMES)
    assert not again.training
    rounded = {
        f"{name}.{kind}": part
        for name, part in networks.named_modules()
        if isinstance(part, RoundedConv)
        for kind in ("weight", "bias")
    }
    assert len(rounded) > 60
    for key, value in before.items():
        if key not in rounded:
            assert torch.equal(value, after[key])
        elif key.endswith("weight"):
            torch.testing.assert_close(after[key], rounded_kernels(value), rtol=1e-6, atol=0)
        else:
            step = kernel_steps(rounded[key].weight).max()
            assert (value - after[key]).abs().max() < step
    write_networks(again, tmp_path)
    third = read_networks(tmp_path).state_dict()
    for key in before:
        torch.testing.assert_close(after[key], third[key], rtol=1e-6, atol=1e-7)


def test_rounded_planes_are_whole_steps_in_range_and_gradients_pass_where_they_are():
    rounded = Rounded().eval()
    rounded.step.fill_(0.5)
    planes = torch.tensor([-3.0, 0.0, 0.2, 0.3, 99.9, 200.0], requires_grad=True)
    steps = rounded.steps(planes)
    assert steps.tolist() == [0, 0, 0, 1, 200, 255]
    assert rounded.planes(steps).tolist() == [0, 0, 0, 0.5, 100.0, 127.5]
    rounded(planes).sum().backward()
    assert planes.grad.tolist() == [0, 1, 1, 1, 1, 0]
    signed = Rounded(signed=True).eval()
    assert signed(torch.tensor([-100.0, -0.1, 0.1, 100.0])).tolist() == pytest.approx(
        [-128 * 0.05, -0.1, 0.1, 127 * 0.05]
    )


def test_steps_follow_the_largest_value_while_training_alone():
    rounded = Rounded().train()
    for _ in range(2000):
        rounded(torch.tensor([0.0, 51.0]))
    assert float(rounded.step) == pytest.approx(0.2, rel=1e-3)
    rounded.eval()(torch.tensor([1e6]))
    assert float(rounded.step) == pytest.approx(0.2, rel=1e-3)


def test_kernels_have_seven_bits_and_a_sign_in_every_channel():
    kernels = torch.randn(5, 4, 3, 3) * torch.logspace(-3, 3, 5).view(-1, 1, 1, 1)
    whole = rounded_kernels(kernels) / kernel_steps(kernels)
    torch.testing.assert_close(whole, whole.round(), rtol=0, atol=1e-4)
    assert (whole.abs().amax((1, 2, 3)) - 63).abs().max() < 1e-4
    assert ((rounded_kernels(kernels) - kernels).abs() <= 0.501 * kernel_steps(kernels)).all()


def test_features_halve_from_a_quarter_on_and_scores_are_those_of_every_pixel():
    networks = shaken(1)
    filtered, light = made_by(networks.filter, inputs_of("filter", 48, 80))
    assert filtered.shape == (1, FILTERS, 12, 20) and light.shape == (1, 1, 12, 20)
    features = made_by(networks.look, inputs_of("look", 48, 80))
    expected = [(1, n, 48 >> (i + 2), 80 >> (i + 2)) for i, n in enumerate(FEATURES)]
    assert [one.shape for one in features] == expected
    scores, context = made_by(networks.weigh, inputs_of("weigh", 48, 80))
    assert scores.shape == (1, MIXED_BANDS, 12, 20) and context.shape == (1, CONTEXT, 12, 20)
    (scores,) = made_by(networks.border, inputs_of("border", 48, 80))
    assert scores.shape == (1, MIXED_BANDS, 48, 80)
    (restored,) = made_by(networks.restore, inputs_of("restore", 48, 80))
    assert restored.shape == (1, 3, 48, 80)


def test_the_mean_light_is_kept_beside_what_is_filtered():
    networks, (frame,) = shaken(2), inputs_of("filter", 48, 80)
    _, light = made_by(networks.filter, [frame])
    mean = frame.reshape(12, 4, 20, 4).mean((1, 3)).numpy()
    np.testing.assert_allclose(light[0, 0], mean, rtol=0, atol=1e-6)


def test_new_networks_keep_to_coarse_scores():
    """What looks closely begins with no opinion: the frame itself is of no matter."""
    border = Networks().eval().border
    lights, details, coarse, context = inputs_of("border", 48, 80)
    first = made_by(border, [lights, details, coarse, context])[0]
    other = made_by(border, [1 - lights, 1 - details, coarse, context])[0]
    assert np.array_equal(first, other)
    # Scores of each coarse pixel, enlarged smoothly: their means stay, up to the picture's border.
    coarse = coarse[0].numpy()
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
