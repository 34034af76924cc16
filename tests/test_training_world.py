"""The world of made stacks: what it promises of frames, truth, blur, noise and files."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cofuse.evaluation.simulation import sample_picture

pytest.importorskip("torch", reason="torch is not installed")

import torch

from experiments.world_sheet import sheet
from training.world.camera import capture
from training.world.canvas import Canvas, WorldSettings
from training.world.frames import Exposure, Motion, Plan
from training.world.jpeg import compressed
from training.world.lens import Aperture, Lens, blurred
from training.world.making import KINDS, World
from training.world.scenes import masked, photographic
from training.world.sensor import DEMOSAICINGS, STANDARD, Mosaic, NoiseLevel, Tone, grain
from training.world.specimens import elsewhere, liveliest

pytestmark = pytest.mark.extra("torch")

BLACK = torch.zeros((1, 3, 8, 8), dtype=torch.uint8)
#: Nothing that would make a frame differ from what it shows.
PERFECT = WorldSettings(noiseless=1.0, quiet=0.0, jpeg=0.0, moved=0.0, unsteady=0.0)


def only(kind: str, settings: WorldSettings) -> WorldSettings:
    return replace(settings, **{name: float(name == kind) for name in KINDS})


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    pictures = [sample_picture(name)[:180, :180] for name in ("coffee", "astronaut")]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


def canvas_of(batch: int, side: int, seed: int = 0) -> Canvas:
    """A canvas that has no photographs."""
    return Canvas(BLACK, seed, batch=batch, side=side)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frames", [1, 2, 5])
def test_scenes_have_the_promised_shapes_and_ranges(photos, kind, frames):
    busy = replace(only(kind, WorldSettings()), moved=0.7, unsteady=0.7, repeated=0.5)
    world = World(photos, seed=frames, settings=busy)
    for _ in range(3):
        scenes = world.draw(2, frames, 64)
        assert scenes.frames.shape == scenes.clean.shape == (2, frames, 3, 64, 64)
        assert scenes.truth.shape == (2, 3, 64, 64)
        for values in (scenes.frames, scenes.clean, scenes.truth):
            assert values.dtype == torch.float32
            assert float(values.min()) >= 0 and float(values.max()) <= 1
        assert float(scenes.floor.min()) >= 0 and float(scenes.floor.max()) <= 1
        assert scenes.floor.shape == (2,)


def test_a_seed_repeats_everything(photos):
    first, second = (World(photos, seed=7) for _ in range(2))
    for _ in range(4):
        one, other = first.draw(2, 3, 48), second.draw(2, 3, 48)
        for name in ("frames", "clean", "truth", "floor"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(first.draw_pictures(2, 48).frames, second.draw_pictures(2, 48).frames)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_frames_are_the_clean_ones_to_rounding(photos, kind):
    world = World(photos, settings=only(kind, PERFECT))
    for _ in range(3):
        scenes = world.draw(2, 3, 48)
        assert float((scenes.frames - scenes.clean).abs().max()) <= 0.5 / 255 + 1e-6


def test_pictures_to_restore(photos):
    world = World(photos, settings=replace(PERFECT, grey=1.0))
    pictures = world.draw_pictures(2, 64)
    assert pictures.frames.shape == pictures.clean.shape == (2, 1, 3, 64, 64)
    assert torch.equal(pictures.clean[:, 0, 0], pictures.clean[:, 0, 2])
    assert float((pictures.frames - pictures.clean).abs().max()) <= 0.5 / 255 + 1e-6


def test_a_ground_in_truth_is_everywhere_as_its_least_blurred_frame(photos):
    settings = replace(PERFECT, objects=0, largest_blur=16.0)
    canvas = Canvas(photos, 0, batch=2, side=64)
    for _ in range(3):
        views = photographic(Plan(canvas, settings, 4))
        apart = (views[:, :-1] - views[:, -1:]).abs().amax(2).amin(1)
        assert float(apart.max()) < 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_what_is_lit_is_what_is_cut_out_in_the_end(seed):
    plan = Plan(canvas_of(1, 40, seed), replace(PERFECT, largest_blur=16.0), 1)
    planes = 1 + torch.rand((2, 3, plan.torus.side, plan.torus.side))
    lit = plan.lit(planes)
    assert lit.shape == planes.shape
    assert torch.equal(*(plan.cut(plan.middle(each)) for each in (lit, planes)))
    assert int((lit > 0).sum()) == 2 * 3 * 40 * 40, "all else is dark"


def test_blurred_half_of_the_light_is_lost_at_the_border_and_none_far_from_it():
    plan = Plan(canvas_of(1, 96), replace(PERFECT, largest_blur=16.0), 1)
    kernel = Aperture(plan.torus, gaussian=1.0).kernel(torch.full((1, 1, 1, 1), 8.0))
    white = plan.lit(torch.ones((1, 3, plan.torus.side, plan.torus.side)))
    left = plan.cut(plan.middle(blurred(white, kernel)))[0, 0]
    for turned in (left, left.flip(-1), left.flip(-2), left.transpose(-1, -2)):
        torch.testing.assert_close(left, turned, rtol=0, atol=1e-5)
    # The border lies between two pixels: half of a kernel is beyond, and half its middle row less.
    edges = torch.stack([left[0, 48], left[48, 0]])
    torch.testing.assert_close(edges, torch.full((2,), 0.5), rtol=0, atol=0.06)
    assert 0.2 < float(left[0, 0]) < 0.32
    assert float(left[48, 48]) > 0.999 and (left[48].diff()[:40] >= -1e-6).all()


def test_masked_frames_give_the_truth_back(photos):
    settings = replace(PERFECT, largest_blur=16.0)
    for frames in (1, 2, 3):
        views = masked(Plan(Canvas(photos, 0, batch=2, side=64), settings, frames))
        apart = (views[:, :-1] - views[:, -1:]).abs().amax(2)
        assert float(apart.amin(1).max()) == 0.0, "each place is an exact copy in one frame"
        assert frames == 1 or float(apart.amax(1).mean()) > 0


@pytest.mark.parametrize("radius", [0.4, 0.9, 3.0, -3.0, 17.0])
def test_blur_keeps_the_energy_of_lights(radius):
    canvas = canvas_of(8, 80, seed=3)
    kernel = Aperture(canvas, gaussian=0.25).kernel(torch.full((1, 1, 1, 1), radius))
    assert float(kernel.min()) >= 0
    light = 40.0 * (canvas.uniform(0, 1, 3, 80, 80) > 0.99)
    before, after = light.sum((2, 3)), blurred(light, kernel).sum((2, 3))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-2)
    if radius == 0.4:
        torch.testing.assert_close(blurred(light, kernel), light, rtol=0, atol=1e-4)


class Plain(Canvas):
    """A canvas on which nothing that may happen does, and all sizes are the least."""

    def some(self, probability: float, *shape: int) -> torch.Tensor:
        return torch.zeros(self.batch, *(shape or (1, 1, 1)), dtype=torch.bool)

    def log_uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.full((self.batch, *(shape or (1, 1, 1))), low)


def test_a_lens_spreads_light_as_far_as_a_disc():
    lens = Lens(Plain(BLACK, 0, side=96), 24.0, soft=0.0)
    point = torch.zeros(1, 1, 96, 96)
    point[..., 48, 48] = 1
    away = torch.arange(96) - 48.0
    for radius in (3.3, 6.5, 13.0):
        seen = lens.show(point, torch.full((1, 1, 96, 96), radius))[0, 0, 0]
        spread = float((seen * (away[:, None] ** 2 + away**2)).sum())
        assert spread == pytest.approx(radius**2 / 2, rel=0.08)


@pytest.mark.parametrize("way", DEMOSAICINGS)
def test_demosaicing_gives_plain_colours_and_grey_slopes_back(way):
    mosaic = Mosaic(canvas_of(1, 24, seed=1))
    colour = torch.tensor([0.7, 0.4, 0.1]).view(3, 1, 1).expand(3, 24, 24)
    place = torch.arange(24) / 24
    slope = (0.3 * place[:, None] + 0.5 * place).expand(3, 24, 24)
    for picture in (colour, slope):
        found = mosaic.developed(mosaic.seen(picture), way)
        inner = (..., slice(3, -3), slice(3, -3))
        torch.testing.assert_close(found[inner], picture[inner], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("quality", "code", "share", "most"),
    [(60, 0, (1, 1), 0.4), (85, 2, (2, 2), 0.7), (92, 1, (1, 2), 0.7)],
)
def test_jpeg_is_what_the_library_makes(quality, code, share, most):
    """But for coefficients half-way between two steps; the library's chroma is rounded more."""
    picture = np.ascontiguousarray(sample_picture("astronaut")[:160, :160])
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality, subsampling=code)
    theirs = np.asarray(Image.open(file), np.float32)
    frames = torch.from_numpy(picture).permute(2, 0, 1)[None, None] / 255
    ours = compressed(frames, torch.tensor([float(quality)]), share)[0, 0] * 255
    apart = np.abs(ours.permute(1, 2, 0).numpy() - theirs)
    assert apart.mean() < most


def test_jpeg_of_full_quality_changes_next_to_nothing(photos):
    frames = photos[:, None, :, :61, :53] / 255
    same = compressed(frames, torch.full((2,), 100.0))
    apart = 255 * (same - frames).abs()
    # Luminance and chrominance are whole numbers, before the cosines and after them.
    assert float(apart.mean()) < 0.7 and float(apart.max()) < 3.01


def test_noise_has_the_level_that_was_asked_for():
    for seed in range(12):
        noise = grain(canvas_of(2, 64, seed), 2)
        spread = noise.square().mean((1, 2, 3, 4)).sqrt()
        torch.testing.assert_close(spread, torch.ones(2), rtol=1e-3, atol=0)
    level = NoiseLevel(torch.full((1, 1, 1, 1, 1), 0.05), torch.full((1, 1, 1, 1, 1), 0.25))
    value = torch.tensor([0.0, 0.5]).view(1, 1, 1, 1, 2)
    assert level.at(value).flatten().tolist() == pytest.approx([0.025, 0.05])


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("specimen", [True, False])
def test_floor_says_how_the_noise_of_a_file_grows(linear, specimen):
    """Noise at mid-grey as asked, and that in the shade as the floor tells, whatever its way."""
    settings = replace(PERFECT, noiseless=0.0, loudest=4.0, grey=0.0)
    values = torch.linspace(0.2, 0.8, 96).expand(1, 2, 3, 96, 96)
    shade, middle = (slice(8, 24), slice(40, 56))
    light = STANDARD.light(values) if linear else values
    for seed in range(6):
        canvas = canvas_of(1, 96, seed)
        shot = capture(canvas, settings, light, linear=linear, specimen=specimen)
        noise = (shot.frames - shot.clean).square().mean((0, 1, 2, 3))
        level = shot.clean.mean((0, 1, 2, 3))
        floor = float(shot.floor)
        told = [floor + (1 - floor) * float(level[at].mean()) / 0.5 for at in (shade, middle)]
        found = [float(noise[at].mean()) for at in (shade, middle)]
        if found[1] > (0.6 / 255) ** 2:
            assert found[0] / found[1] == pytest.approx(told[0] / told[1], rel=0.35), seed


def test_tone_is_undone_by_its_inverse():
    value = torch.linspace(0, 1, 33)
    torch.testing.assert_close(STANDARD.display(STANDARD.light(value)), value, rtol=0, atol=1e-5)
    assert float(Tone(2.2, 0.4).display(STANDARD.light(torch.tensor(0.5)))) == pytest.approx(0.5)


def test_the_reference_stays_and_what_is_aligned_comes_back():
    canvas = canvas_of(2, 96, seed=5)
    reference = torch.tensor([1, 0])
    motion = Motion(canvas, reference, 3, resampled=True)
    still = copy.copy(motion)
    still.residue = torch.zeros_like(motion.residue)
    planes = canvas.field(6).expand(2, 3, 96, 96)
    depth = torch.full((2, 1, 96, 96), 0.5)
    frames = planes[:, None].expand(2, 3, 3, 96, 96)
    sensor = still.seen(frames, depth)
    aligned = still.aligned(sensor)[..., 12:-12, 12:-12]
    wanted = planes[:, None, :, 12:-12, 12:-12].expand_as(aligned)
    assert float((aligned - wanted).abs().max()) < 0.03
    assert float((sensor - planes[:, None])[..., 12:-12, 12:-12].abs().amax()) > 0.2
    rows = torch.arange(2)
    moved = motion.seen(frames, depth * 0)
    torch.testing.assert_close(moved[rows, reference], planes, rtol=0, atol=1e-3)
    assert torch.equal(motion.aligned(moved)[rows, reference], moved[rows, reference])


def test_the_truth_is_as_bright_as_the_reference_or_as_the_mean_of_unmatched_frames():
    canvas = canvas_of(2, 32, seed=2)
    own = torch.arange(2), torch.tensor([2, 0])
    exposure = Exposure(canvas, own[1], 3)
    torch.testing.assert_close(exposure.gain[own], torch.ones_like(exposure.gain[:, 0]))
    plain = torch.full((2, 4, 3, 32, 32), 0.3)
    views = exposure.lit(plain, matched=False)
    torch.testing.assert_close(views[:, -1], views[:, :-1].mean(1))
    assert float((views[:, :-1] - views[:, -1:]).abs().mean((2, 3, 4)).min()) > 1e-5
    views = exposure.lit(plain, matched=True)
    corrected, _ = exposure.corrected(canvas, views[:, :-1], views[:, :-1])
    torch.testing.assert_close(corrected[own], views[:, -1])
    means = corrected.mean((2, 3, 4))
    # One has been left as it is, and the others made like it but for some errors.
    assert 1e-4 < float((means / means[own][:, None] - 1).abs().max()) < 0.05


def test_the_truth_of_what_moved_lies_where_its_sharpest_frame_shows_it():
    canvas = canvas_of(2, 96, seed=5)
    motion = Motion(canvas, torch.tensor([1, 0]), 3, resampled=False)
    planes = canvas.field(12)[:, None].expand(2, 1, 3, 96, 96)
    depth = canvas.uniform(0, 1, 1, 96, 96)
    seen = motion.seen(planes.expand(2, 3, 3, 96, 96), depth)
    least = torch.zeros(2, 1, 96, 96, dtype=torch.long)
    least[..., 48:] = 2
    truth = motion.at_its_best(planes, depth, least)[:, 0]
    torch.testing.assert_close(truth[..., :48], seen[:, 0, ..., :48])
    torch.testing.assert_close(truth[..., 48:], seen[:, 2, ..., 48:])
    assert float((truth - planes[:, 0]).abs().max()) > 0.05


def test_what_is_too_thick_to_be_all_in_focus_is_as_its_liveliest_frame():
    dull = torch.full((1, 3, 64, 64), 0.2)
    lively = 0.5 + 0.2 * canvas_of(1, 64, seed=1).normal(1, 64, 64)
    frames = torch.stack([dull, lively.expand(1, 3, 64, 64), 0.9 + 0.1 * dull], 1)
    assert float((liveliest(frames) - frames[:, 1]).abs().max()) < 1e-4
    alike = torch.stack([lively.expand(1, 3, 64, 64)] * 2, 1)
    torch.testing.assert_close(liveliest(alike), alike[:, 0])


@pytest.mark.parametrize("seed", range(3))
def test_what_swims_is_elsewhere_in_every_frame_by_whole_pixels(seed):
    """Two planes say of each pixel its row and its column, from which a shift is read."""
    side, inner = 96, slice(32, -32)
    place = torch.arange(side, dtype=torch.float32)
    rows, columns = place[:, None].expand(side, side), place.expand(side, side)
    canvas = Plain(BLACK, seed, batch=2, side=side)
    texture = canvas.uniform(0, 1, side, side)[0]
    sheet = torch.stack([rows, columns, texture]).expand(2, 4, 3, side, side)
    swum = elsewhere(canvas, sheet)
    assert swum.shape == sheet.shape
    shifts = (swum - sheet)[:, :, :2, inner, inner].mean((3, 4))
    torch.testing.assert_close(shifts, shifts.round(), rtol=0, atol=1e-3)
    for frames, found in zip(swum, shifts.round().long().tolist(), strict=True):
        assert len({tuple(shift) for shift in found}) > 1, "frames differ"
        for frame, shift in zip(frames, found, strict=True):
            assert max(map(abs, shift)) < 32, "all of it comes from within the sheet"
            top, left = (32 + each for each in shift)
            expected = sheet[0, 0, :, top : top + side - 64, left : left + side - 64]
            torch.testing.assert_close(frame[2, inner, inner], expected[2], rtol=0, atol=1e-4)
            torch.testing.assert_close(frame[:, inner, inner], expected, rtol=0, atol=1e-3)


def test_a_repeated_frame_comes_beside_all_others(photos):
    world = World(photos, settings=replace(only("masked", PERFECT), repeated=1.0))
    scenes = world.draw(2, 4, 48)
    last = scenes.frames[:, -1:]
    assert bool((scenes.frames[:, :-1] == last).flatten(2).all(2).any(1).all())
    apart = (scenes.clean - scenes.truth[:, None]).abs().amax(2).amin(1)
    assert float(apart.median()) < 1e-5, "the truth is still in one of the frames"


def test_a_sheet_shows_frames_and_truth_beside_each_other(photos):
    drawn = sheet(World(photos), count=3, side=32, columns=2)
    assert drawn.dtype == np.uint8 and drawn.shape == (2 * 36, 2 * (4 * 32 + 8), 3)
