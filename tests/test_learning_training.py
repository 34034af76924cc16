"""Training: what the networks are told there is what the program tells them, and courses run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cofuse import mixing
from cofuse.errors import CofuseError
from cofuse.mixing import MIXED_BANDS
from cofuse.model import telling, weighing
from cofuse.model.runtime import load_networks, model_folder
from cofuse.model.tiles import tiles_of
from cofuse.model.weighing import HALO, weigh_tile
from cofuse.noise.brightness import NoiseModel
from cofuse.noise.law import BANDS, NoiseLaw
from cofuse.simulation import sample_picture

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import torch

from cofuse.learning.training import CourseSettings, train
from cofuse.learning.training import course as courses
from cofuse.learning.training.steps import (
    Stacks,
    drawn,
    turned,
    weighing_loss,
    weights_of,
)
from cofuse.learning.training.told import frames_told, mixed, noise_levels, split
from cofuse.learning.world import Scenes, World
from cofuse.learning.world.chance import Chance
from cofuse.model.network import Networks
from cofuse.model.saving import read_networks, write_networks

pytestmark = [pytest.mark.extra("torch"), pytest.mark.extra("onnx")]

CPU = torch.device("cpu")


class Certain(Chance):
    """Chance without errors of estimates."""

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape)


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    picture = sample_picture("coffee")
    cuts = [picture[k : k + 80, 2 * k : 2 * k + 80] for k in range(0, 192, 16)]
    return torch.from_numpy(np.stack(cuts)).permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="module")
def networks() -> Networks:
    """Networks that answer to all that they are told."""
    torch.manual_seed(5)
    made = Networks()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    return made.eval()


# --- what is told ---


@pytest.mark.parametrize("floor", [1.0, 0.3, 0.0])
def test_levels_of_white_noise_are_its_own_in_every_octave(floor):
    """The same law as that of an estimate: a mean of three channels has a root of three less."""
    sigma, light = 0.04, 0.8
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn((2, 2, 3, 512, 512), generator=generator)
    noise *= sigma * math.sqrt(floor + (1 - floor) * 2 * light)
    clean = torch.full_like(noise, light)
    levels = noise_levels(Certain(CPU, 0), noise, clean, torch.full((2,), floor))
    assert levels.shape == (2, 2, BANDS)
    # The coarsest octave has 768 numbers a frame: its error is 2.5 %, and below twice that.
    expected = torch.full_like(levels, sigma / math.sqrt(3))
    torch.testing.assert_close(levels, expected, rtol=0.05, atol=0)


@pytest.mark.parametrize("side", [64, 80, 96, 112])
def test_levels_are_told_of_all_sides_that_networks_take(side):
    noise = torch.randn((1, 1, 3, side, side), generator=torch.Generator().manual_seed(9))
    levels = noise_levels(Certain(CPU, 0), noise, torch.full_like(noise, 0.5), torch.ones(1))
    # Of the finest octave there are enough numbers even so.
    assert levels[0, 0, 0].item() == pytest.approx(1 / math.sqrt(3), rel=0.05)
    assert torch.isfinite(levels).all()


def test_estimates_err_by_a_tenth_or_two():
    noise = torch.randn((400, 1, 3, 32, 32), generator=torch.Generator().manual_seed(2))
    clean, floor = torch.full_like(noise, 0.5), torch.ones(400)
    exact = noise_levels(Certain(CPU, 0), noise, clean, floor)
    rough = noise_levels(Chance(CPU, 0), noise, clean, floor)
    error = (rough / exact).log().flatten(1)
    assert 0.12 < float(error.std()) < 0.22 and abs(float(error.mean())) < 0.03
    assert 0.05 < float((error - error.mean(1, keepdim=True)).std()) < 0.1


@pytest.mark.parametrize("size", [(30, 47), (64, 16)])
def test_pictures_are_split_as_the_program_splits_them(size):
    pictures = torch.rand((2, 3, *size), generator=torch.Generator().manual_seed(3))
    ours = split(pictures)
    assert len(ours) == MIXED_BANDS
    for number in range(2):
        theirs = mixing.split(pictures[number].permute(1, 2, 0).numpy().copy())
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one[number].permute(1, 2, 0), other, rtol=0, atol=1e-5)


def test_frames_with_equal_weights_are_mixed_to_their_mean():
    frames = torch.rand((2, 3, 3, 24, 30), generator=torch.Generator().manual_seed(4))
    weights = torch.full((2, 3, MIXED_BANDS, 24, 30), 1 / 3)
    torch.testing.assert_close(sum(mixed(frames, weights)), frames.mean(1), rtol=0, atol=1e-5)


def law_of(count: int, colour: bool) -> tuple[NoiseLaw, torch.Tensor, float]:
    """Make a law that differs by frame, plane and octave, and say as much of it as is told."""
    rng = np.random.default_rng(6)
    model = NoiseModel(2.0, 0.2)
    levels = model.stabilised_sigma * rng.uniform(0.3, 3.0, (count, 3 if colour else 1, BANDS))
    law = NoiseLaw(model, levels, np.zeros_like(levels))
    at_mid_grey = levels * float(model.sigma_at(127.5)) / model.stabilised_sigma / 255
    grey = at_mid_grey[:, 0] / (math.sqrt(3) if colour else 1)
    told = telling.TOLD * torch.tensor(grey, dtype=torch.float32)[None]
    return law, told, 2.0**2 / float(model.sigma_at(127.5)) ** 2


@pytest.mark.parametrize("reference", [-1, 1])
@pytest.mark.parametrize("colour", [True, False])
def test_of_noise_and_reference_is_told_what_the_program_tells(colour, reference):
    law, levels, floor = law_of(3, colour)
    frames = torch.rand((1, 3, 3, 32, 48), generator=torch.Generator().manual_seed(7))
    references = torch.tensor([reference])
    luminance, stack, numbers = frames_told(frames, levels, torch.tensor([floor]), references)
    assert luminance.shape == (3, 1, 32, 48) and stack.shape == (3, 3, 32, 48)
    for number, own in enumerate(telling.frames_told(law)):
        theirs = [own.fine, own.coarse, own.floor, number == reference, reference >= 0]
        np.testing.assert_allclose(numbers[number], theirs, rtol=1e-5)


# --- weights ---


@pytest.mark.parametrize("reference", [-1, 1])
@pytest.mark.parametrize("source", ["made up", "shipped"])
def test_weights_are_those_of_the_program(networks, tmp_path, monkeypatch, reference, source):
    """In training and at work, with the same networks from files, frames weigh the same.

    Far from the borders, and with the least weights: how a picture goes on beyond its borders, and
    what counts as no weight, is the program's own affair.
    """
    monkeypatch.setattr(weighing, "_LEAST_WEIGHT", 0.0)
    if source == "shipped":
        used, networks = load_networks("auto"), _shipped()
    else:
        write_networks(networks, tmp_path)
        used = load_networks(str(tmp_path))
    law, levels, floor = law_of(3, colour=True)
    picture = sample_picture("coffee")[:288, :304].copy()
    picture = torch.from_numpy(picture).permute(2, 0, 1) / 255
    soft = torch.nn.functional.avg_pool2d(picture, 5, 1, 2)
    frames = torch.stack([picture, soft, (picture + soft) / 2])[None]
    with torch.inference_mode():
        ours = weights_of(
            networks, frames, levels, torch.tensor([floor]), torch.tensor([reference])
        )[0].numpy()
    grey = frames[0].mean(1).numpy()
    (tile,) = tiles_of((288, 304), 304, HALO)
    theirs = weigh_tile(
        used,
        lambda number, where: grey[number][where],
        telling.frames_told(law),
        None if reference < 0 else reference,
        tile,
    )
    ours, theirs = (weights[..., HALO:-HALO, HALO:-HALO] for weights in (ours, theirs))
    assert np.ptp(theirs, axis=0).max() > 1e-2, "nothing would be compared"
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)


def _shipped() -> Networks:
    return read_networks(model_folder("auto"))


# --- steps ---


def test_turned_stacks_are_the_same_stacks_in_parts(photos):
    world = World(photos, seed=3)
    stacks = drawn(world, 4, 2, 32)
    parts = list(turned(stacks, world, 2))
    assert len(parts) == 4
    for number, part in enumerate(parts):
        whole, some = stacks.scenes, part.scenes
        own = slice(number % 2, None, 2)
        assert torch.equal(part.levels, stacks.levels[own])
        assert torch.equal(some.floor, whole.floor[own])
        assert torch.equal(some.reference, whole.reference[own])
        for name in ("frames", "clean", "truth"):
            before, after = getattr(whole, name)[own], getattr(some, name)
            assert before.shape == after.shape
            # Pixels have moved, but in no channel of no frame has any changed.
            flat = [planes.flatten(-2).sort(-1).values for planes in (before, after)]
            assert torch.equal(*flat), name
        apart = some.frames - some.clean
        assert torch.equal(
            apart.flatten(-2).sort(-1).values,
            (whole.frames - whole.clean)[own].flatten(-2).sort(-1).values,
        ), "frames and what they show are turned alike"


def two_frames() -> Stacks:
    """The sharp picture, and a blurred one; no noise."""
    sharp = torch.from_numpy(sample_picture("coffee")[:64, :64].copy()).permute(2, 0, 1)[None] / 255
    soft = torch.nn.functional.avg_pool2d(sharp, 7, 1, 3)
    frames = torch.stack([sharp, soft], 1)
    scenes = Scenes(frames, frames, sharp, torch.tensor([-1]), torch.ones(1), "made up")
    return Stacks(scenes, torch.zeros(1, 2, BANDS))


def test_the_loss_falls_with_every_step_towards_the_sharp_frame(monkeypatch):
    losses = []
    for share in (0.0, 0.5, 0.9, 1.0):
        weights = torch.tensor([share, 1 - share]).view(1, 2, 1, 1, 1).expand(1, 2, 4, 64, 64)
        monkeypatch.setattr(
            "cofuse.learning.training.steps.weights_of", lambda *_, made=weights: made
        )
        losses.append(weighing_loss(Networks(), two_frames()).item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] - 1
    # The truth itself: only what counts as no error is left.
    assert losses[-1] == pytest.approx(math.log(3e-6), abs=1e-3)


def test_noise_that_the_weights_average_out_is_worth_something(monkeypatch):
    stacks = two_frames()
    clean = stacks.scenes.truth[:, None].expand(-1, 2, -1, -1, -1)
    noise = 0.05 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(8))
    scenes = Scenes(
        clean + noise, clean, stacks.scenes.truth, torch.tensor([-1]), torch.ones(1), "made up"
    )
    losses = []
    for share in (1.0, 0.5):
        weights = torch.tensor([share, 1 - share]).view(1, 2, 1, 1, 1).expand(1, 2, 4, 64, 64)
        monkeypatch.setattr(
            "cofuse.learning.training.steps.weights_of", lambda *_, made=weights: made
        )
        losses.append(weighing_loss(Networks(), Stacks(scenes, stacks.levels)).item())
    # Two frames have half of the noise's power, and the picture is right either way.
    assert losses[0] - losses[1] == pytest.approx(math.log(2), abs=0.1)


# --- courses ---


@pytest.mark.slow
def test_a_course_trains_all_networks_and_says_how_far_it_is(photos, networks, monkeypatch):
    monkeypatch.setattr(courses, "_VALIDATION", (2, 3))
    monkeypatch.setattr(courses, "_FRAMES", {2: 0.5, 3: 0.5})
    told = []
    settings = CourseSettings(2.0, frames=6, side=32, rate=1e-3, validate_every=0.5)
    course = train(
        photos,
        settings,
        start=networks,
        say=lambda course: told.append(dict(course.curve[-1])),
    )
    assert course.step >= 1 and told == course.curve and len(told) >= 1
    assert told[-1]["seconds"] == 2.0
    assert all(math.isfinite(figure) for row in told for figure in row["psnr"])
    before = networks.state_dict()
    for made in (course.networks, course.average):
        after = made.state_dict()
        assert all(torch.isfinite(after[key]).all() for key in after)
        changed = {key.split(".")[0] for key in after if not torch.equal(after[key], before[key])}
        assert changed == {"look", "share", "weigh"}


def test_steps_on_one_stack_lower_its_loss():
    torch.manual_seed(0)
    networks, stacks = Networks(), two_frames()
    optimiser = torch.optim.AdamW(networks.parameters(), lr=1e-3)
    losses = []
    for _ in range(12):
        loss = weighing_loss(networks, stacks)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


def test_a_running_mean_begins_with_the_first_step_and_follows(photos):
    made = courses.Course(CourseSettings(1.0), Networks(), Networks(), World(photos))
    with torch.no_grad():
        for parameter in made.networks.parameters():
            parameter.fill_(1.0)
        for parameter in made.average.parameters():
            parameter.fill_(9.0)
    made.step = 1
    courses._follow(made)
    assert all(bool((value == 1).all()) for value in made.average.parameters())
    with torch.no_grad():
        for parameter in made.networks.parameters():
            parameter.fill_(2.0)
    made.step = 4
    courses._follow(made)
    assert all(bool((value == 1.25).all()) for value in made.average.parameters())


def test_the_rate_warms_up_and_falls_along_a_cosine():
    whole = CourseSettings(1.0, rate=2e-3)
    assert courses._rate(whole, 0, 0.0) == pytest.approx(2e-3 / 200, rel=0.01)
    assert courses._rate(whole, 500, 0.0) == pytest.approx(2e-3, rel=0.01)
    assert courses._rate(whole, 500, 0.5) == pytest.approx(1e-3, rel=0.01)
    assert 0 < courses._rate(whole, 500, 1.0) < 1e-5


def test_one_photograph_is_too_few(photos):
    with pytest.raises(CofuseError, match="one picture was given"):
        train(photos[:1], CourseSettings(1.0, side=32))
