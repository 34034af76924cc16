"""Training: the networks get the inputs that the program gives them, and courses run."""

from __future__ import annotations

import copy
import math
import multiprocessing
from contextlib import closing

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture
from cofuse.images import Stack
from cofuse.images.pixels import MIXED_BANDS
from cofuse.images.tiles import tiles_of
from cofuse.model import weighing
from cofuse.model.restoring import NoiseLeft
from cofuse.model.runtime import NAMES, load_networks, model_folder
from cofuse.model.tiling import HALO
from cofuse.model.weighing import ModelWeigher
from cofuse.sensor.law import BANDS, NoiseLaw, NoiseModel

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import torch

from cofuse.model.network import CONTEXT, TOLD, Networks
from cofuse.model.saving import read_networks
from tests.test_images_bands import split as split_by_program
from training import course as courses
from training.bands import (
    mixed,
    noise_inputs,
    noise_levels,
    octave_levels,
    split,
)
from training.course import CourseSettings, train
from training.restoring import Noisy, levels_left
from training.weighing import Stacks, mixing_loss, shares, weights_of
from training.world.camera import Scenes
from training.world.canvas import Canvas
from training.world.making import World

pytestmark = [pytest.mark.extra("torch"), pytest.mark.extra("onnx")]

BLACK = torch.zeros((1, 3, 8, 8), dtype=torch.uint8)


class Certain(Canvas):
    """A canvas without errors of estimates."""

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.zeros(self.batch, *shape)


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    picture = sample_picture("coffee")
    cuts = [picture[k : k + 80, 2 * k : 2 * k + 80] for k in range(0, 192, 16)]
    return torch.from_numpy(np.stack(cuts)).permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="module")
def networks() -> Networks:
    """Networks that answer to all of their inputs."""
    torch.manual_seed(5)
    made = Networks()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    return made.eval()


# --- noise levels and bands ---


@pytest.mark.parametrize("floor", [1.0, 0.3, 0.0])
def test_levels_of_white_noise_are_its_own_in_every_octave(floor):
    """The same law as that of an estimate: a mean of three channels has a root of three less."""
    sigma, light = 0.04, 0.8
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn((2, 2, 3, 512, 512), generator=generator)
    noise *= sigma * math.sqrt(floor + (1 - floor) * 2 * light)
    clean = torch.full_like(noise, light)
    levels = noise_levels(Certain(BLACK, 0), noise, clean, torch.full((2,), floor))
    assert levels.shape == (2, 2, BANDS)
    # The coarsest octave has 768 numbers a frame: its error is 2.5 %, and below twice that.
    expected = torch.full_like(levels, sigma / math.sqrt(3))
    torch.testing.assert_close(levels, expected, rtol=0.05, atol=0)


@pytest.mark.parametrize("side", [64, 80, 96, 112])
def test_levels_are_measured_at_all_sides_that_networks_take(side):
    noise = torch.randn((1, 1, 3, side, side), generator=torch.Generator().manual_seed(9))
    levels = noise_levels(Certain(BLACK, 0), noise, torch.full_like(noise, 0.5), torch.ones(1))
    # Of the finest octave there are enough numbers even so.
    assert levels[0, 0, 0].item() == pytest.approx(1 / math.sqrt(3), rel=0.05)
    assert torch.isfinite(levels).all()


def test_estimates_err_by_a_tenth_or_two():
    noise = torch.randn((400, 1, 3, 32, 32), generator=torch.Generator().manual_seed(2))
    clean, floor = torch.full_like(noise, 0.5), torch.ones(400)
    exact = noise_levels(Certain(BLACK, 0), noise, clean, floor)
    rough = noise_levels(Canvas(BLACK, 0, batch=400), noise, clean, floor)
    error = (rough / exact).log().flatten(1)
    assert 0.12 < float(error.std()) < 0.22 and abs(float(error.mean())) < 0.03
    assert 0.05 < float((error - error.mean(1, keepdim=True)).std()) < 0.1


@pytest.mark.parametrize("size", [(30, 47), (64, 16)])
def test_pictures_are_split_as_the_program_splits_them(size):
    pictures = torch.rand((2, 3, *size), generator=torch.Generator().manual_seed(3))
    ours = split(pictures)
    assert len(ours) == MIXED_BANDS
    for number in range(2):
        theirs = split_by_program(pictures[number].permute(1, 2, 0).numpy().copy())
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one[number].permute(1, 2, 0), other, rtol=0, atol=1e-5)


def test_every_band_is_mixed_with_its_own_weights():
    frames = torch.rand((2, 3, 3, 24, 30), generator=torch.Generator().manual_seed(4))
    # The finest band of the first frame, the next of the second, and all else of the third.
    weights = torch.zeros((2, 3, MIXED_BANDS, 24, 30))
    weights[:, 0, 0] = weights[:, 1, 1] = weights[:, 2, 2:] = 1
    made = mixed(split(frames.flatten(0, 1)), weights)
    for i, band in enumerate(made):
        torch.testing.assert_close(band, split(frames[:, min(i, 2)])[i], rtol=0, atol=1e-6)
    # Bands add up to their picture.
    torch.testing.assert_close(sum(split(frames[:, 0])), frames[:, 0], rtol=0, atol=1e-5)


def law_of(count: int, colour: bool) -> tuple[NoiseLaw, torch.Tensor, float]:
    """Make a law that differs by frame, plane and octave; return it, its levels and its floor."""
    rng = np.random.default_rng(6)
    model = NoiseModel(2.0, 0.2)
    levels = model.stabilised_sigma * rng.uniform(0.3, 3.0, (count, 3 if colour else 1, BANDS))
    law = NoiseLaw(model=model, levels=levels, errors=np.zeros_like(levels))
    at_mid_grey = levels * float(model.sigma_at(127.5)) / model.stabilised_sigma / 255
    grey = at_mid_grey[:, 0] / (math.sqrt(3) if colour else 1)
    told = torch.tensor(grey, dtype=torch.float32)[None]
    return law, told, 2.0**2 / float(model.sigma_at(127.5)) ** 2


@pytest.mark.parametrize("colour", [True, False])
def test_levels_for_the_networks_are_those_of_the_program(colour):
    law, levels, floor = law_of(3, colour)
    numbers = noise_inputs(levels)
    assert numbers.shape == (3, TOLD)
    told = weighing.noise_told(law)
    np.testing.assert_allclose(numbers, told.levels, rtol=1e-5)
    assert told.floor == pytest.approx(floor)


# --- weights ---


def test_weights_are_those_of_the_program(monkeypatch):
    """In training and at work, with the same networks from files, frames weigh the same.

    Up to the borders; weights of less than a thousandth are none in the program. A value between
    two steps of rounding would be rounded the other way by the last bit of a float, and change
    what all later networks make of it: so frames are two, whose mean is exact, and luminance is
    made the same way.
    """
    monkeypatch.setattr(weighing, "light", lambda levels: levels / np.float32(256) - 0.5)
    used, networks = load_networks("auto"), read_networks(model_folder("auto"))
    law, levels, floor = law_of(2, colour=False)
    picture = sample_picture("coffee")[:288, :304, 1]
    pictures = np.stack([picture, cv2.blur(picture, (5, 5))])
    stack = Stack.from_arrays(list(pictures))
    frames = torch.from_numpy(pictures)[None, :, None].expand(-1, -1, 3, -1, -1) / 256
    with torch.inference_mode():
        _, exact = weights_of(networks, frames, levels, torch.tensor([floor]))
    ours = exact[0].numpy()
    theirs = np.zeros_like(ours)
    (tile,) = tiles_of((288, 304), 304, HALO)
    seen = ModelWeigher(used, weighing.noise_told(law), 304, 128).look(stack, tile)
    for part, numbers in seen.parts():
        made = seen.weigh(part, {k: stack.part_levels(k, part.around) for k in numbers})
        for number, own in zip(numbers, made, strict=True):
            theirs[(number, slice(None), *part.here)] = own
    assert np.ptp(theirs, axis=0).max() > 0.5, "nothing would be compared"
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3)


def test_shares_of_coarse_weights_are_those_of_the_program():
    generator = torch.Generator().manual_seed(3)
    scores = 4 * torch.randn((5, MIXED_BANDS, 12, 20), generator=generator)
    ours = shares(scores[None].softmax(1))[0, :, 0].numpy()
    theirs = weighing._shares(scores.numpy().copy())
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)
    assert np.array_equal(ours > 0, theirs > 0)
    assert (ours == 0).any(), "nothing would be left out"
    np.testing.assert_allclose(ours.sum(axis=0), 1, rtol=0, atol=1e-6)


def test_weights_add_up_and_are_none_where_a_frame_is_left_out(networks):
    frames = torch.rand((2, 3, 3, 64, 80), generator=torch.Generator().manual_seed(1))
    given = torch.full((2, 3, BANDS), 0.02), torch.ones(2)
    # Coarsely the second frame of each stack is nothing on the right; there is more beyond.
    scores = torch.zeros((2, 3, MIXED_BANDS, 20, 24))
    scores[:, 1, ..., 10:] = -20
    context = torch.full((6, CONTEXT, 20, 24), 128.0)
    sure = copy.deepcopy(networks)
    sure.weigh.forward = lambda *_: (scores.flatten(0, 1), context)
    with torch.no_grad():
        coarse, exact = weights_of(sure, frames, *given)
    for weights in (coarse, exact):
        assert weights.shape == (2, 3, MIXED_BANDS, 64, 80) and float(weights.min()) >= 0
        torch.testing.assert_close(weights.sum(1), torch.ones(2, MIXED_BANDS, 64, 80))
    # Shares are smoothly enlarged: they end two pixels beyond the last coarse one.
    assert not exact[:, 1, ..., 42:].any() and bool((exact[:, 1, ..., :42] > 0).all())
    # Far from there, where all are the same to a glance, a closer look changes little.
    assert bool((exact[:, 1, ..., :28] > 0.1).all())


# --- steps ---


def test_parts_of_stacks_are_the_same_stacks_flipped_and_cut(photos):
    world = World(photos, seed=3)
    stacks = Stacks.draw(world, 4, 2, 32)
    parts = list(stacks.parts(world.canvas))
    assert len(parts) == 4
    for number, part in enumerate(parts):
        whole, some = stacks.scenes, part.scenes
        own = slice(number % 2, None, 2)
        assert torch.equal(part.levels, stacks.levels[own])
        assert torch.equal(some.floor, whole.floor[own])
        found = {}
        for name in ("frames", "clean", "truth"):
            before, after = getattr(whole, name)[own], getattr(some, name)
            ways = [
                turn.flip(flips)[..., -after.shape[-2] :, -after.shape[-1] :]
                for turn in (before, before.transpose(-1, -2))
                for flips in ([], [-1], [-2], [-1, -2])
            ]
            assert all(16 <= length <= 32 for length in after.shape[-2:])
            found[name] = [torch.equal(way, after) for way in ways]
        assert any(map(all, zip(*found.values(), strict=True))), "all are turned and cut alike"


def two_frames() -> Stacks:
    """The sharp picture, and a blurred one; no noise."""
    sharp = torch.from_numpy(sample_picture("coffee")[:64, :64].copy()).permute(2, 0, 1)[None] / 255
    soft = torch.nn.functional.avg_pool2d(sharp, 7, 1, 3)
    frames = torch.stack([sharp, soft], 1)
    scenes = Scenes(frames, frames, sharp, torch.ones(1))
    return Stacks(scenes, torch.zeros(1, 2, BANDS))


def weighed(share: float) -> torch.Tensor:
    """The same weights of two frames everywhere, in all bands."""
    return torch.tensor([share, 1 - share]).view(1, 2, 1, 1, 1).expand(1, 2, 4, 64, 64)


def test_the_loss_falls_with_every_step_towards_the_sharp_frame():
    scenes = two_frames().scenes
    losses = [mixing_loss(scenes, *[weighed(share)] * 2).item() for share in (0.0, 0.5, 0.9, 1.0)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] - 1
    # The truth itself: only what counts as no error is left, of exact weights and of coarse ones.
    assert losses[-1] == pytest.approx(1.3 * math.log(3e-6), abs=1e-3)


def test_noise_that_the_weights_average_out_is_worth_something():
    truth = two_frames().scenes.truth
    clean = truth[:, None].expand(-1, 2, -1, -1, -1)
    noise = 0.05 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(8))
    scenes = Scenes(clean + noise, clean, truth, torch.ones(1))
    losses = [mixing_loss(scenes, *[weighed(share)] * 2).item() for share in (1.0, 0.5)]
    # Two frames have half of the noise's power, and the picture is right either way.
    assert losses[0] - losses[1] == pytest.approx(1.3 * math.log(2), abs=0.1)


# --- pictures to restore ---


@pytest.mark.parametrize("count", [1, 3])
def test_levels_of_noise_to_take_out_are_those_of_the_program(count):
    """White noise in three channels, of which as much is left as equal weights leave."""
    sigma = 12.0
    noise = torch.randn((4, 3, 512, 512), generator=torch.Generator().manual_seed(2))
    even = torch.full((4, MIXED_BANDS, 512, 512), count**-0.5)
    ours = levels_left(Certain(BLACK, 0, batch=4), noise * sigma / 255, even)
    left = NoiseLeft(NoiseLaw.white(sigma, frames=count, colour=True))
    equal = np.full((count, MIXED_BANDS, 2, 2), 1 / count, np.float32)
    theirs = (left.scales(range(count), equal)[0, 0] * left.typical).ravel()
    assert ours.shape == (4, 2 * MIXED_BANDS, 256, 256)
    assert float((ours - ours[..., :1, :1]).abs().max()) < 1e-6, "the same everywhere"
    # Coarse octaves have few numbers in a picture.
    np.testing.assert_allclose(ours[..., 0, 0].mean(0), theirs, rtol=0.03)


def test_white_pictures_have_the_levels_of_their_noise(photos):
    pictures = Noisy.draw_white(World(photos, seed=1), 24, 64, 15.0)
    assert pictures.noisy.shape == pictures.clean.shape == (24, 3, 64, 64)
    assert float((pictures.noisy - pictures.clean).std()) == pytest.approx(15 / 255, rel=0.02)
    # Estimates err by 8 % from picture to picture.
    luminance, colours = pictures.levels[:, [0, MIXED_BANDS]].mean((0, 2, 3)).tolist()
    assert luminance == pytest.approx(15 / 255 / math.sqrt(3), rel=0.06)
    assert colours == pytest.approx(15 / 255, rel=0.06)


def test_pictures_of_all_kinds_are_finite_and_have_levels_of_all_their_noise(photos):
    world = World(photos, seed=2)
    apart = []
    for _ in range(30):
        pictures = Noisy.draw(world, 3, 32)
        assert pictures.noisy.shape == pictures.clean.shape == (3, 3, 32, 32)
        assert pictures.levels.shape == (3, 2 * MIXED_BANDS, 16, 16)
        assert all(bool(torch.isfinite(planes).all()) for planes in vars(pictures).values())
        assert float(pictures.levels.min()) >= 0
        finest = octave_levels((pictures.noisy - pictures.clean).mean(1, keepdim=True))[:, 0]
        loud = finest > 2 / 255  # below, rounding is as large
        apart.append((pictures.levels[:, 0].mean((1, 2)) / finest)[loud].log())
    # Estimates err, weights are not the same everywhere, and some noise is cut off at white; some
    # levels are of noise that is not there, but there is hardly any noise beyond the levels.
    error = torch.cat(apart)
    assert len(error) > 30 and abs(float(error.median())) < 0.15 and float(error.min()) > -1


def test_parts_of_pictures_are_the_same_pictures_flipped_with_their_levels():
    clean = torch.rand((2, 3, 24, 24), generator=torch.Generator().manual_seed(6))
    pictures = Noisy(2 * clean, clean, torch.nn.functional.avg_pool2d(clean, 2))
    canvas = Canvas(BLACK, 3)
    parts = [part for _ in range(3) for part in pictures.parts(canvas)]
    assert len(parts) == 12
    for part in parts:
        assert torch.equal(part.noisy, 2 * part.clean)
        levels = torch.nn.functional.avg_pool2d(part.clean, 2)
        torch.testing.assert_close(part.levels, levels)
        before, after = (planes.flatten(-2).sort(-1).values for planes in (clean, part.clean))
        assert torch.equal(before, after)
    assert len({part.clean.numpy().tobytes() for part in parts}) > 4


def test_the_loss_of_restoring_is_that_of_what_is_made(networks):
    clean = torch.rand((2, 3, 32, 32), generator=torch.Generator().manual_seed(7)) * 0.9
    none = torch.zeros((2, 2 * MIXED_BANDS, 16, 16))
    exact, off = Noisy(clean, clean, none), Noisy(clean + 0.1, clean, none)
    # Where the levels say that there is no noise nothing is changed.
    assert torch.equal(off.restored(networks), off.noisy)
    assert exact.loss(networks).item() == pytest.approx(math.log(1e-6), abs=1e-3)
    assert off.loss(networks).item() == pytest.approx(math.log(0.01), abs=1e-3)
    with torch.no_grad():
        assert off.psnr(networks) == pytest.approx(20, abs=1e-3)


def test_steps_on_some_pictures_lower_their_loss(photos):
    torch.manual_seed(0)
    networks, pictures = Networks(), Noisy.draw_white(World(photos), 4, 32, 20.0)
    optimiser = torch.optim.AdamW(networks.restore.parameters(), lr=1e-3)
    losses = []
    for _ in range(40):
        loss = pictures.loss(networks)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    untouched = float(torch.log((pictures.noisy - pictures.clean).square().mean()))
    assert losses[-1] < losses[0] - 0.3 and losses[-1] < untouched


# --- courses ---


@pytest.mark.slow
@pytest.mark.parametrize("part", courses.PARTS)
def test_a_course_trains_its_networks_alone_and_says_how_far_it_is(photos, networks, part):
    told = []
    settings = CourseSettings(
        seconds=2.0, part=part, frames=6, side=32, rate=1e-3, validate_every=0.5
    )
    course = train(
        photos,
        settings,
        networks,
        say=lambda course: told.append(dict(course.curve[-1])),
    )
    assert course.step >= 1 and told == course.curve and len(told) >= 1
    assert told[-1]["seconds"] == 2.0 and told[-1]["left_out"] == 0
    assert all(math.isfinite(figure) for row in told for figure in row["psnr"])
    before = networks.state_dict()
    for made in (course.networks, course.average):
        after = made.state_dict()
        assert all(torch.isfinite(after[key]).all() for key in after)
        changed = {key.split(".")[0] for key in after if not torch.equal(after[key], before[key])}
        assert changed == set(courses.PARTS[part])


@pytest.mark.slow
def test_steps_that_would_make_networks_useless_are_left_out_and_counted(photos, networks):
    broken = copy.deepcopy(networks)
    with torch.no_grad():
        next(broken.border.parameters()).fill_(torch.nan)
    course = train(photos, CourseSettings(seconds=0.5, frames=6, side=32), broken)
    assert course.step == course.left_out == course.curve[-1]["left_out"] > 0
    pairs = zip(broken.parameters(), course.networks.parameters(), strict=True)
    assert all(torch.equal(before.nan_to_num(7), after.nan_to_num(7)) for before, after in pairs)


def test_parts_share_all_networks_among_them():
    names = [name for part in courses.PARTS.values() for name in part]
    assert sorted(names) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "kind"), [("weighing", Stacks), ("restoring", Noisy)])
def test_helpers_draw_beside_and_end_with_the_course(photos, part, kind):
    settings = CourseSettings(seconds=1.0, part=part, frames=4, side=32, helpers=1, seed=5)
    with closing(courses.drawn_beside(photos, settings)) as beside:
        batches = [next(beside) for _ in range(2)]
        assert len(multiprocessing.active_children()) == 1
    assert not multiprocessing.active_children()
    # With the seed of the helper, the same as would be drawn here.
    alone = courses.draws(World(photos, seed=1005), settings)
    for batch, expected in zip(batches, alone, strict=False):
        assert isinstance(batch, kind)
        made, wanted = (
            each.scenes.frames if isinstance(each, Stacks) else each.noisy
            for each in (batch, expected)
        )
        assert torch.equal(made, wanted)


@pytest.mark.slow
def test_a_course_with_a_helper_trains(photos, networks):
    settings = CourseSettings(seconds=2.0, part="restoring", frames=4, side=32, helpers=1)
    course = train(photos, settings, networks)
    assert course.step >= 1 and not multiprocessing.active_children()
    before, after = networks.restore.state_dict(), course.networks.restore.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)


def test_steps_on_one_stack_lower_its_loss():
    torch.manual_seed(0)
    networks, stacks = Networks(), two_frames()
    optimiser = torch.optim.AdamW(networks.parameters(), lr=1e-3)
    losses = []
    for _ in range(12):
        loss = stacks.loss(networks)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


def test_a_running_mean_begins_with_the_first_step_and_follows():
    made = courses.Course(Networks(), Networks())
    with torch.no_grad():
        for parameter in made.networks.parameters():
            parameter.fill_(1.0)
        for parameter in made.average.parameters():
            parameter.fill_(9.0)
    made.step = 1
    courses.follow(made)
    assert all(bool((value == 1).all()) for value in made.average.parameters())
    with torch.no_grad():
        for parameter in made.networks.parameters():
            parameter.fill_(2.0)
    made.step = 4
    courses.follow(made)
    assert all(bool((value == 1.25).all()) for value in made.average.parameters())


def test_the_rate_warms_up_and_falls_along_a_cosine():
    whole = CourseSettings(seconds=1.0, rate=2e-3)
    assert courses.rate_of(whole, 0, 0.0) == pytest.approx(2e-3 / 200, rel=0.01)
    assert courses.rate_of(whole, 500, 0.0) == pytest.approx(2e-3, rel=0.01)
    assert courses.rate_of(whole, 500, 0.5) == pytest.approx(1e-3, rel=0.01)
    assert 0 < courses.rate_of(whole, 500, 1.0) < 1e-5


def test_one_photograph_is_too_few(photos):
    with pytest.raises(CofuseError, match="one picture was given"):
        train(photos[:1], CourseSettings(seconds=1.0, side=32), Networks())
