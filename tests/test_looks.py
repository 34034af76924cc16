"""Real stacks looked at: lost and phantom where the answer is known, hard places, the command."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import tifffile

from cofuse import write_image
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from experiments import looks
from experiments.looks_sheet import Place, hardest_places, sheet
from experiments.looks_stacks import grey_levels, real_stacks
from experiments.realness import Frames, energy, steps


def wave(amplitude: float, shape: tuple[int, int] = (160, 200)) -> np.ndarray:
    """Stripes of 6 pixels, in the middle of the band that counts as detail."""
    column = 128 + amplitude * np.sin(2 * np.pi * np.arange(shape[1]) / 6)
    return np.tile(column.astype(np.float32), (shape[0], 1))


# --- lost and phantom ---


def test_energy_of_stripes_is_what_the_gaussians_leave_of_them():
    omega = 2 * np.pi / 6
    passed = np.exp(-(omega**2) / 2) - np.exp(-((3 * omega) ** 2) / 2)
    amplitude = 30 / np.sqrt(3)  # the stripes are then 0 and 15 levels, which rounding leaves alone
    expected = (amplitude * passed) ** 2 / 2
    assert energy(wave(amplitude))[40:-40, 40:-40] == pytest.approx(expected, rel=0.02)


def test_a_frame_loses_nothing_of_itself_and_invents_nothing():
    picture = sample_picture("coffee")[:160, :200]
    assert Frames([picture]).judge(picture).shares == (0.0, 0.0)


@pytest.mark.parametrize(("contrast", "is_lost"), [(0.75, False), (0.67, True)])
def test_detail_is_lost_below_half_of_its_energy(contrast, is_lost):
    """Half of the energy is 0.71 of the contrast; a flat part has the frames' quietest tenth."""
    sharp = wave(40.0)
    sharp[:, :60] = 128
    faint = 128 + contrast * (sharp - 128)
    judged = Frames([sharp]).judge(faint)
    assert judged.lost[40:-40, 100:-40].mean() == is_lost
    assert not judged.clear[:, :30].any() and judged.clear[:, 90:].all()


def test_the_frame_that_has_most_counts_at_every_place():
    left, right = wave(40.0), wave(40.0)
    left[:, 100:], right[:, :100] = 128, 128
    both = np.where(np.arange(200) < 100, left, right)
    known = Frames([left, right])
    assert known.judge(both).shares[0] == 0.0
    assert known.judge(left).shares[0] == pytest.approx(0.5, abs=0.05)


def test_grain_is_no_detail():
    rng = np.random.default_rng(0)
    grain = 128 + rng.normal(scale=2.0, size=(160, 200)).astype(np.float32)
    assert not Frames([grain]).judge(np.full_like(grain, 128)).clear.any()


def test_a_phantom_is_a_step_larger_by_more_than_four_levels_than_any_near_by():
    frame = np.full((40, 50), 100, np.uint8)
    frame[:, 25:] = 110
    known = Frames([frame, np.full_like(frame, 100)])
    assert known.judge(frame).shares[1] == 0.0
    for height, share in ((14, 0.0), (15, 39 / (39 * 49))):
        seam = np.full_like(frame, 100)
        seam[:, 25:] += np.uint8(height)
        assert known.judge(seam).phantom.mean() == pytest.approx(share)
    far = np.full_like(frame, 100)
    far[:, 30:] = 105  # no frame has a step within 3 x 3 pixels of this one
    assert known.judge(far).phantom.sum() == 39


def test_steps_are_the_largest_of_any_colour_across_or_down():
    picture = np.zeros((3, 3, 3), np.uint8)
    picture[1, 1] = (10, 0, 30)
    assert steps(picture).tolist() == [[0, 30], [30, 30]]


# --- sheets ---


def planted() -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Two frames, and a picture of ours with a blurred island and a patch that no frame shows."""
    made = simulate_stack(sample_picture("coffee")[:240, :380], frames=2, seed=1)
    ours = made.truth.copy()
    ours[150:200, 20:80] = cv2.GaussianBlur(ours, (0, 0), 5)[150:200, 20:80]
    ours[40:90:8, 250:330] = 255 - ours[40:90:8, 250:330]
    return {"auto": ours, "enfuse": made.truth}, list(made.frames)


def test_places_are_where_faults_were_planted():
    results, frames = planted()
    places = hardest_places(results, frames, Frames(frames))
    by_reason = {place.why: place for place in reversed(places)}
    lost, phantom = by_reason["auto loses"], by_reason["auto has phantoms"]
    for place, (row, column) in ((lost, (175, 50)), (phantom, (65, 290))):
        assert place.top <= row < place.top + place.side
        assert place.left <= column < place.left + place.side
    assert {"methods disagree", "blurred background"} <= set(by_reason)


def test_a_sheet_shows_pixels_as_they_are():
    results, frames = planted()
    place = Place(150, 20, 320 // 3, "auto loses")
    drawn = sheet("made", results, frames, Frames(frames), [place])
    assert drawn.dtype == np.uint8 and drawn.shape[1] == 3 * 326
    large = results["auto"][150:240, 20:126].repeat(3, axis=0).repeat(3, axis=1)
    row = drawn[-(320 + 6) :][: large.shape[0], : large.shape[1]]
    assert np.array_equal(row, large)


def test_sixteen_bits_are_stretched_over_what_the_frames_hold():
    frames = [np.linspace(100, 612, 256 * 256).astype(np.uint16).reshape(256, 256)]
    levels = grey_levels(frames)(frames[0])
    assert levels.dtype == np.uint8 and levels.min() == 0 and levels.max() == 255
    assert levels[128, 0] == pytest.approx(128, abs=1)
    eight = [frame.astype(np.uint8) for frame in frames]
    assert grey_levels(eight)(eight[0]) is eight[0]


# --- stacks and the command ---


def test_stacks_are_found_and_channels_are_stacks_of_their_own(tmp_path):
    for name in ("real/bowl", "real/cells/7", "real/pairs/001", "real/cells/7/rival", "stacks/pcb"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(2):
            (tmp_path / name / f"{number}.jpg").touch()
    (tmp_path / "real" / "brain").mkdir()
    planes = np.arange(2 * 3 * 20 * 24, dtype=np.uint16).reshape(2, 3, 20, 24)
    tifffile.imwrite(
        tmp_path / "real" / "brain" / "a.ome.tif", planes, metadata={"axes": "CZYX"}, ome=True
    )
    found = {stack.name: stack for stack in real_stacks(tmp_path, tmp_path / "out")}
    assert list(found) == ["bowl", "brain/0", "brain/1", "cells/7", "pcb"]
    assert [len(stack.files) for stack in found.values()] == [2, 3, 3, 2, 2]
    assert np.array_equal(np.array(found["brain/1"].aligned()), planes[1])


@pytest.mark.slow
def test_a_whole_run_is_not_done_twice(tmp_path, capsys):
    made = simulate_stack(sample_picture("coffee")[:160, :220], frames=2, seed=3)
    folder = tmp_path / "data" / "real" / "cup"
    folder.mkdir(parents=True)
    for number, frame in enumerate(made.frames):
        write_image(folder / f"{number}.png", frame)
    out = tmp_path / "out"
    given = ["--data", str(tmp_path / "data"), "--out", str(out), "--workers", "1"]
    given += ["--methods", "auto", "laplacian", "sharpest"]
    assert looks.main(given) == 0
    table = capsys.readouterr().out
    assert "| cup (2) |" in table and (out / "sheets" / "cup.png").is_file()
    times = {file: file.stat().st_mtime_ns for file in (out / "stacks").rglob("*.tif")}
    assert len(times) == 5  # two aligned frames, three results
    assert looks.main(given) == 0
    assert capsys.readouterr().out == table
    assert times == {file: file.stat().st_mtime_ns for file in (out / "stacks").rglob("*.tif")}
