"""Training the joint model: the scenes it learns from, the network, the training, the command."""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cofuse
from cofuse.cli.learn import learn as learn_command
from cofuse.errors import CofuseError
from cofuse.files import read_image, write_image
from cofuse.images import luminance
from cofuse.joint import JointModel, load_model
from cofuse.metrics import psnr
from cofuse.progress import Progress
from cofuse.simulation import sample_picture
from tests.command_line import contents, run

pytest.importorskip("torch", reason="torch is not installed")

import torch

from cofuse.learning.end_to_end import (
    Training,
    TrainingSettings,
    losses,
    pick_device,
    train,
    training,
)
from cofuse.learning.end_to_end.network import JointNetwork, mix, split_bands
from cofuse.learning.end_to_end.scenes import SceneMaker

pytestmark = pytest.mark.extra("torch")

#: As small as a training can be, so that it takes a second.
TINY = TrainingSettings(
    steps=4, batch=2, side=64, stages=3, filters=48, coarse_filters=8, validate_every=2
)


def pictures(side: int = 72) -> list[np.ndarray]:
    """Cuts of the sample pictures in grey levels."""
    greys = [luminance(sample_picture(n).astype(np.float32)) for n in ("coffee", "astronaut")]
    return [grey[y : y + side, 150 : 150 + side] for grey in greys for y in (30, 110, 150)]


def maker(seed: int = 0, side: int = 96, kind: type[SceneMaker] = SceneMaker) -> SceneMaker:
    return kind(torch.from_numpy(np.stack(pictures(side))), seed=seed)


@pytest.fixture(autouse=True)
def little_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validate on few stacks: the tests ask that it is done, not how well a model does."""
    monkeypatch.setattr(training, "_VALIDATION_STACKS", 1)
    monkeypatch.setattr(training, "_VALIDATION_DRAWS", 1)
    monkeypatch.setattr(training, "_VALIDATION", ((1, 15.0), (2, 0.0), (5, 15.0)))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Work on pictures this small is done before more threads have started."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- scenes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_scenes_have_their_shapes_and_the_range_of_pictures(count: int) -> None:
    scenes = maker(count)
    for side in (64, 52):
        drawn = scenes.draw(3, count, side=side)
        assert drawn.frames.shape == drawn.radius.shape == (3, count, side, side)
        assert drawn.truth.shape == (3, side, side)
        assert torch.isfinite(drawn.frames).all()
        # Pictures lie between black and white; frames may be a tenth brighter, and where they
        # are shifted by part of a pixel they swing over by a fifth of a step.
        assert drawn.truth.min() >= -1e-2
        assert drawn.truth.max() <= 255 + 1e-2
        assert drawn.frames.min() > -60
        assert drawn.frames.max() < 340
        assert drawn.radius.min() >= 0
        assert drawn.radius.max() <= 64 * 1.15  # planes of focus lie a little beyond the ends


def test_scenes_repeat_with_the_seed_and_differ_without() -> None:
    def draw(seed: int) -> list[Any]:
        scenes = maker(seed)
        return [scenes.draw(2, count, side=64).frames for count in (2, 3, 5)]

    for one, same, other in zip(draw(5), draw(5), draw(6), strict=True):
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


class HardMasks(SceneMaker):
    """Never softens masks; nor, which is drawn alike, lets any end before the border."""

    def whole(self, low: int, high: int) -> int:
        return 0 if (low, high) == (0, 2) else super().whole(low, high)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_masked_scenes_are_the_truth_where_they_are_in_focus(count: int) -> None:
    scenes = maker(count, kind=HardMasks)
    for _ in range(6):
        scene = scenes.take_pictures(2, 96)
        drawn = scenes.masked(scene, count)
        assert drawn.truth is scene
        in_focus = drawn.radius <= 0.5
        truth = drawn.truth[:, None].expand_as(drawn.frames)
        assert torch.equal(drawn.frames[in_focus], truth[in_focus])
        assert in_focus.any(1).all(), "every place is in focus in some frame"
        blurred = drawn.radius > 1.5
        assert (drawn.frames[blurred] - truth[blurred]).abs().mean() > 1


class NarrowBlur(SceneMaker):
    """Blurs by a quarter of what others do, so that small pictures have places far from it."""

    def blur_radius(self, batch: int) -> Any:
        return super().blur_radius(batch) / 4


def test_layered_scenes_are_the_truth_where_all_around_is_in_focus() -> None:
    scenes, seen = maker(1, side=170, kind=NarrowBlur), 0
    for count in (2, 3, 5):
        pairs = scenes.take_pictures(8, 170), scenes.take_pictures(8, 170)
        drawn = scenes.layered(*pairs, count)
        truth = drawn.truth[:, None].expand_as(drawn.frames)
        # No blur reaches farther than twice 16 pixels: layers may lie beyond the planes of focus.
        around = torch.nn.functional.max_pool2d(drawn.radius, 65, 1, 32)
        sharp = around <= 0.5
        seen += int(sharp.sum())
        error = (drawn.frames - truth)[sharp].abs()
        assert not sharp.any() or error.max() < 0.1
        # Elsewhere frames are what the truth is, blurred: their means hardly differ.
        assert (drawn.frames - truth).mean().abs() < 10
    assert seen > 1000


def test_scenes_of_one_frame_are_in_focus_everywhere() -> None:
    scenes = maker(2)
    for _ in range(8):
        drawn = scenes.draw(2, 1, side=64)
        assert (drawn.radius == 0).all()
        assert torch.equal(drawn.frames[:, 0], drawn.truth)


def test_passer_by_stands_in_one_frame_only() -> None:
    scenes = maker(3)
    frames = torch.zeros(4, 5, 96, 96)
    seen = scenes.with_passer_by(frames, torch.full((4, 96, 96), 200.0))
    changed = (seen > 0).flatten(2).any(2).sum(1)
    assert (changed <= 1).all()
    assert changed.sum() > 0


def test_shifted_frames_are_the_frames_somewhere_else() -> None:
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(50.0), indexing="ij")
    plane = 100 + rows + 2 * columns
    moved = maker(4).misaligned(plane.expand(2, 3, 40, 50).contiguous())
    offsets = (moved - plane)[..., 4:-4, 4:-4].flatten(2)
    # A slope that is shifted is raised by the same everywhere: at most by a row and a column.
    assert (offsets.amax(2) - offsets.amin(2) < 0.01).all()
    assert offsets.abs().max() <= 3 + 0.01
    assert offsets[:, :, 0].unique().numel() == 6


@pytest.mark.parametrize("count", [2, 5])
def test_curved_scenes_show_everything_as_the_least_blurred_frame_does(count: int) -> None:
    drawn = maker(count, side=128).curved(maker(1, side=128).take_pictures(4, 128), count)
    best = drawn.radius.argmin(1, keepdim=True)
    assert torch.equal(torch.gather(drawn.frames, 1, best)[:, 0], drawn.truth)
    # Blur grows with the distance from the plane of focus; it takes detail away.
    far = (drawn.radius > 4).float()
    gone = (drawn.frames - drawn.truth[:, None]).square()
    assert (gone * far).sum() / far.sum() > 10 * (gone * (drawn.radius < 0.5)).mean()


def test_grain_is_as_strong_as_it_says_and_told_to_nobody() -> None:
    scenes = maker(3)
    grain = torch.stack([scenes.grain(4, 3, 64, 64) for _ in range(40)])
    strength = grain.std((-1, -2))
    assert strength.max() <= 3.1 and strength.mean() > 0.8
    assert grain.mean().abs() < 0.05


@pytest.mark.parametrize("quality", [60, 75, 90, 98])
def test_compression_is_that_of_jpeg(quality: int) -> None:
    picture = pictures(96)[0].round()
    scenes = maker()
    scenes.number = lambda low, high: float(quality)  # type: ignore[method-assign]
    scenes.whole = lambda low, high: 0  # type: ignore[method-assign]
    ours = scenes.compressed(torch.from_numpy(picture)[None, None])[0, 0].numpy()
    file = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(file, "JPEG", quality=quality)
    theirs = np.asarray(Image.open(file))
    # Decoders differ by a level here and there, where a value lies between two.
    assert psnr(ours.astype(np.uint8), theirs) > 48
    losses = [psnr(image.astype(np.uint8), picture.astype(np.uint8)) for image in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], abs=0.1)
    assert np.array_equal(ours, ours.round())


# --- the network ---------------------------------------------------------------------------------


def network(seed: int = 0) -> JointNetwork:
    """A small network in which no part does nothing, as some do before training."""
    torch.manual_seed(seed)
    made = JointNetwork(3, 48, 8)
    with torch.no_grad():
        for values in made.parameters():
            values.add_(0.02 * torch.randn(values.shape))
    return made


@pytest.mark.parametrize("count", [2, 3, 5])
def test_order_of_frames_only_renames_them(count: int) -> None:
    scenes = maker(count)
    frames = scenes.draw(2, count, side=61).frames + 15 * scenes.normal(2, count, 61, 61)
    sigma = 10 + 10 * scenes.uniform(2, count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    with torch.no_grad():
        straight = network()(frames, sigma)
        shuffled = network()(frames[:, order], sigma[:, order])
    # Pictures of some hundred grey levels in float32, summed in another order.
    torch.testing.assert_close(shuffled.choice, straight.choice[:, order], atol=2e-3, rtol=1e-4)
    torch.testing.assert_close(shuffled.mixed, straight.mixed, atol=5e-3, rtol=0)
    torch.testing.assert_close(shuffled.restored, straight.restored, atol=2e-2, rtol=0)


@pytest.mark.parametrize("size", [(48, 48), (61, 50)])
def test_network_keeps_sizes_and_constant_pictures(size: tuple[int, int]) -> None:
    frames = torch.full((1, 3, *size), 120.0)
    with torch.no_grad():
        output = network()(frames, torch.full((1, 3), 15.0))
    assert output.choice.shape == (1, 3, *size)
    for picture in (output.mixed, output.restored):
        torch.testing.assert_close(picture, frames[:, 0], atol=1e-2, rtol=0)


def test_without_restoring_the_mixture_is_the_picture() -> None:
    frames = maker().draw(1, 2, side=64).frames
    with torch.no_grad():
        made = network()
        brief, long = made(frames, torch.ones(1, 2), restore=False), made(frames, torch.ones(1, 2))
    assert torch.equal(brief.restored, brief.mixed)
    assert torch.equal(brief.mixed, long.mixed)
    assert not torch.equal(long.restored, long.mixed)


def test_bands_add_up_and_equal_weights_make_the_mean() -> None:
    frames = maker().draw(2, 4, side=64).frames
    bands = split_bands(frames)
    torch.testing.assert_close(sum(bands), frames, atol=1e-3, rtol=0)
    mixture = mix(bands, torch.zeros(2, 4, len(bands), 64, 64), torch.ones(2, 4))
    torch.testing.assert_close(mixture.picture, frames.mean(1), atol=1e-3, rtol=0)
    # The mean of four has half the noise of one.
    expected = torch.full((2, 64, 64), float(np.log(0.5)))
    torch.testing.assert_close(mixture.fine, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(mixture.coarse, expected, atol=1e-5, rtol=0)


# --- training ------------------------------------------------------------------------------------


def same_weights(one: Training, other: Training) -> bool:
    first, second = one.arrays(), other.arrays()
    return all(np.array_equal(first[name], second[name]) for name in first | second)


@pytest.mark.slow
def test_training_betters_the_untrained_model() -> None:
    seen: list[Progress] = []
    settings = replace(TINY, steps=20, validate_every=10)
    run = train(pictures(), settings, device="cpu", progress=seen.append)
    still = replace(settings, steps=1, rate=1e-12)
    untrained = train(pictures(), still, device="cpu")
    assert [row["step"] for row in run.curve] == [10, 20]
    assert run.curve[-1]["mean"] > run.curve[0]["mean"] > untrained.curve[0]["mean"]
    assert run.curve[-1]["mean"] > untrained.curve[0]["mean"] + 0.7
    assert [step.done for step in seen] == list(range(1, 21))
    assert {(step.stage, step.total) for step in seen} == {("training", 20)}
    assert run.seconds > 0
    assert not run.stopped_early
    # What is measured of a row is its mean.
    numbers = {name: value for name, value in run.curve[0].items() if name not in ("step", "mean")}
    assert run.curve[0]["mean"] == pytest.approx(np.mean(list(numbers.values())))
    assert {"K=2 sigma=0", "K=2 sigma=0 copied", "K=5 sigma=15"} <= set(numbers)
    model = JointModel.from_arrays(run.arrays())
    assert model.stages == 3


def test_training_repeats_with_the_seed() -> None:
    short = replace(TINY, steps=2)
    one, two, other = (
        train(pictures(), replace(short, seed=seed), device="cpu") for seed in (3, 3, 4)
    )
    assert same_weights(one, two)
    assert one.curve == two.curve
    assert not same_weights(one, other)


class Interrupted(Exception):
    pass


def test_training_goes_on_from_its_checkpoint_as_if_never_interrupted(tmp_path: Path) -> None:
    def interrupt(step: Progress) -> None:
        if step.done == 3:
            raise Interrupted

    whole = train(pictures(), TINY, device="cpu")
    file = tmp_path / "state.pt"
    with pytest.raises(Interrupted):
        train(pictures(), TINY, device="cpu", checkpoint=file, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
    steps: list[int] = []
    resumed = train(
        pictures(), TINY, device="cpu", checkpoint=file, progress=lambda s: steps.append(s.done)
    )
    assert steps == [3, 4]
    assert same_weights(whole, resumed)
    assert resumed.curve == whole.curve
    # What is done stays done, and what was best is still known.
    again = train(pictures(), TINY, device="cpu", checkpoint=file, progress=pytest.fail)
    assert same_weights(whole, again)
    assert again.step == 4
    with pytest.raises(CofuseError, match=r"state\.pt is from a training with other settings"):
        train(pictures(), replace(TINY, seed=9), device="cpu", checkpoint=file)


def test_training_stops_when_it_no_longer_improves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = []

    def worse(run: Training, _: Any) -> float:
        return -float(len(kept))

    def validate(run: Training, validation: Any) -> None:
        kept.append(run.average.state_dict()["stages.0.fidelity"].clone())
        whole(run, validation)

    whole = training._validate
    monkeypatch.setattr(training, "_psnr", worse)
    monkeypatch.setattr(training, "_validate", validate)
    settings = replace(TINY, steps=50, validate_every=1, patience=2)
    file = tmp_path / "state.pt"
    run = train(pictures(), settings, device="cpu", checkpoint=file)
    assert run.stopped_early
    assert run.step == len(run.curve) == len(kept) == 3
    assert np.array_equal(run.arrays()["stages.0.fidelity"], kept[0]), "the first was the best"
    # A training that has stopped stays so.
    again = train(pictures(), settings, device="cpu", checkpoint=file, progress=pytest.fail)
    assert again.stopped_early
    assert same_weights(run, again)


def test_pictures_are_cut_from_the_middle_to_one_size() -> None:
    cut = training.same_size([np.arange(20.0).reshape(4, 5), np.ones((6, 4)), np.ones((4, 9))])
    assert cut.shape == (3, 4, 4)
    np.testing.assert_array_equal(cut[0], np.arange(20.0).reshape(4, 5)[:, :4])


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"batch": 0},
        {"side": 47},
        {"stages": 0},
        {"filters": 12},
        {"patience": 0},
        {"validate_every": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(CofuseError, match=next(iter(change))):
        replace(TINY, **change)


def test_devices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == "cpu"
    with pytest.raises(CofuseError, match="no cuda device"):
        pick_device("cuda")
    with pytest.raises(CofuseError, match="'tpu'; expected auto, cuda, mps, cpu"):
        pick_device("tpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == "cuda"


# --- the command ---------------------------------------------------------------------------------

LITTLE = ("--end-to-end", "--steps", "4", "--batch", "2", "--side", "64", "--device", "cpu")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with three pictures to learn from and a smaller one."""
    for name, picture in zip("abc", pictures(), strict=False):
        write_image(tmp_path / f"{name}.png", picture.round().astype(np.uint8))
    write_image(tmp_path / "small.png", pictures(50)[0].round().astype(np.uint8))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_writes_a_model_and_a_card_that_can_be_used(place, capsys):
    given = ("learn", "a.png", "b.png", "c.png", "-o", "mine.npz", *LITTLE)
    assert run(*given, "--checkpoint", "state.pt") == 0
    out, err = capsys.readouterr()
    model = load_model(place / "mine.npz")
    line = (
        rf"model of {model.parameters} parameters from 3 pictures, 4 steps in \d+ s on cpu, "
        r"best at step 4 \(validation \d+\.\d\d dB\): mine\.npz, mine\.md\n"
    )
    assert re.fullmatch(line, out)
    assert err == ""
    usual = load_model("joint")
    assert model.stages == usual.stages and model.parameters == usual.parameters
    card = model.card
    assert card["cofuse"] == cofuse.__version__ and card["device"] == "cpu"
    assert card["pictures"] == 3 and len(card["pictures_sha256"]) == 64
    assert card["settings"]["steps"] == card["steps_done"] == 4 and not card["stopped_early"]
    assert card["settings"]["side"] == 64 and card["settings"]["batch"] == 2
    text = (place / "mine.md").read_text("utf-8")
    assert text.startswith("# Model card: mine") and "3 sharp pictures" in text
    best = card["validation"][-1]
    assert f"| 4 | {best['K=1 sigma=15']:.2f} |" in text
    assert sorted(contents(place)) == [
        "a.png", "b.png", "c.png", "mine.md", "mine.npz", "small.png", "state.pt",
    ]  # fmt: skip
    # The model fuses, and is not the shipped one.
    for name, setting in (("x", ("--set", "model=mine.npz")), ("y", ())):
        fusing = ("fuse", "a.png", "a.png", "-o", f"{name}.png", "--sigma", "10", "--quiet")
        assert run(*fusing, *setting) == 0
    assert not np.array_equal(read_image(place / "x.png"), read_image(place / "y.png"))
    # Going on from the end of a training gives its model again.
    again = ("learn", "a.png", "b.png", "c.png", "-o", "again.npz", *LITTLE, "--json")
    assert run(*again, "--checkpoint", "state.pt") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["validation"] == card["validation"] and report["steps_done"] == 4
    repeated = load_model(place / "again.npz")
    assert all(np.array_equal(repeated.arrays[n], a) for n, a in model.arrays.items())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a.png", "-o", "m.npz"), ("one picture",)),
        (("a.png", "small.png", "-o", "m.npz"), ("50 pixels", "64")),
        (("a.png", "b.png", "-o", "m.npz", "--device", "tpu"), ("'tpu'", "auto, cuda, mps, cpu")),
        (("a.png", "b.png", "-o", "old.npz"), ("old.npz exists", "--overwrite")),
        (("a.png", "b.png", "-o", "carded.npz"), ("carded.md exists", "--overwrite")),
        (("a.png", "b.png", "-o", "none/m.npz"), ("none", "does not exist")),
        (("a.png", "b.png", "-o", "a.png", "--overwrite"), ("a.png", "pictures")),
        (("-o", "m.npz"), ("no pictures",)),
        (("a.png", "b.png", "-o", "m.npz", "--separable"), ("--separable", "--end-to-end")),
        (("a.png", "b.png", "-o", "m.npz", "--steps", "0"), ("steps is 0",)),
        (("a.png", "b.png", "-o", "m.npz", "--batch", "-1"), ("batch is -1",)),
        (("a.png", "b.png", "-o", "m.npz", "--side", "40"), ("side 40", "48")),
        (("a.png", "b.png", "-o", "m.npz", "--seed", "-1"), ("--seed is -1",)),
        (("a.png", "b.png", "-o", "m.npz", "--steps", "many"), ("many",)),
        (("a.png", "b.png", "-o", "m.npz", "--frames", "6"), ("frames", "6", "1, 2, 3")),
        (("a.png", "b.png", "-o", "m.npz", "--rate", "0"), ("rate is 0",)),
        (("a.png", "b.png", "-o", "m.npz", "--start-from", "none"), ("none", "joint")),
    ],
)
def test_command_refuses(place, refused, arguments, words):
    (place / "old.npz").write_bytes(b"precious")
    (place / "carded.md").write_bytes(b"precious too")
    given = list(LITTLE)
    for option in ("--steps", "--batch", "--side", "--device"):
        if option in arguments:
            del given[given.index(option) : given.index(option) + 2]
    refused("learn", *arguments, *given, words=words)


def test_pictures_kept_for_validation_must_be_large_enough_too(refused):
    words = ("50 pixels", "64")
    refused("learn", "small.png", "a.png", "b.png", "-o", "m.npz", *LITTLE, words=words)


def test_model_and_card_must_be_two_files(refused):
    refused("learn", "a.png", "b.png", "-o", "m.md", *LITTLE, words=("m.md",))


@pytest.mark.parametrize(
    "file", ["a.png", "text.pt", "other.pt", "none/state.pt", "folder", "m.npz"]
)
def test_command_refuses_a_checkpoint_that_is_none(place, refused, file):
    (place / "text.pt").write_text("no checkpoint")
    torch.save({"step": 1}, place / "other.pt")
    (place / "folder").mkdir()
    little = ("learn", "a.png", "b.png", "-o", "m.npz", *LITTLE)
    refused(*little, "--checkpoint", file, words=(file.partition("/")[0],))


def test_command_refuses_a_checkpoint_of_another_training(place, refused):
    little = ("learn", "a.png", "b.png", "-o", "m.npz", "--checkpoint", "state.pt", *LITTLE)
    assert run(*little, "--seed", "1", "--quiet") == 0
    refused(*little, "--seed", "2", "--overwrite", words=("state.pt", "other settings"))


def test_overwrite_replaces_model_and_card(place):
    for name in ("m.npz", "m.md"):
        (place / name).write_bytes(b"old")
    little = ("learn", "a.png", "b.png", "-o", "m.npz", *LITTLE, "--quiet", "--overwrite")
    assert run(*little) == 0
    assert load_model(place / "m.npz").parameters > 0
    assert (place / "m.md").read_text("utf-8").startswith("# Model card: m")


def test_defaults_of_the_command_are_the_trainings():
    ours, theirs = inspect.signature(learn_command).parameters, TrainingSettings()
    for name in ("steps", "batch", "side", "frames", "rate", "seed"):
        assert ours[name].default == getattr(theirs, name)
    assert ours["device"].default == "auto" and ours["checkpoint"].default is None


def test_command_sets_out_from_a_trained_model(place, capsys):
    first = ("learn", "a.png", "b.png", "-o", "first.npz", *LITTLE, "--quiet")
    assert run(*first) == 0
    # A step so small that it changes nothing shows where the training set out from.
    again = ("learn", "a.png", "b.png", "-o", "second.npz", *LITTLE, "--quiet")
    assert run(*again, "--start-from", "first.npz", "--rate", "1e-12", "--seed", 5) == 0
    one, two = (load_model(place / name) for name in ("first.npz", "second.npz"))
    assert all(np.allclose(one.arrays[n], two.arrays[n], atol=1e-6) for n in one.arrays)
    assert two.card["started_from"]["steps_done"] == one.card["steps_done"]
    assert "set out from a model trained before" in (place / "second.md").read_text("utf-8")


def test_training_with_single_frames_only_draws_no_stacks(monkeypatch):
    drawn = []
    draw = SceneMaker.draw
    monkeypatch.setattr(
        SceneMaker,
        "draw",
        lambda self, batch, frames, **rest: (
            drawn.append(frames) or draw(self, batch, frames, **rest)
        ),
    )
    monkeypatch.setattr(training, "_VALIDATION", ((1, 15.0),))
    settings = TrainingSettings(steps=3, batch=1, side=48, frames=(1,), validate_every=3)
    train(pictures(), settings, device="cpu")
    assert set(drawn) == {1}


def test_likeness_is_ssim_as_it_is_measured():
    from cofuse.metrics import METRICS

    random = np.random.default_rng(3)
    truth = np.clip(pictures()[0][:60, :60], 0, 255).round()
    noisy = np.clip(truth + 20 * random.standard_normal(truth.shape), 0, 255).round()
    planes = (torch.tensor(p[None], dtype=torch.float32) for p in (noisy, truth))
    ours = float(losses.ssim(*planes)[0])
    theirs = METRICS["ssim"].function(noisy.astype(np.uint8), truth.astype(np.uint8))
    assert ours == pytest.approx(float(theirs), abs=1e-4)
