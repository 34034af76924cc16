"""Slabs: how frames are cut, what is written, and which frame a pixel came from in the end."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

import cofuse
from cofuse.errors import CofuseError
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.jobs.slabs import slab_folder, slab_ranges
from tests.command_line import PLAN, run


@given(
    count=st.integers(1, 200),
    size=st.integers(2, 40),
    data=st.data(),
)
def test_slabs_cover_all_frames_in_order(count, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    ranges = slab_ranges(count, size, overlap)
    assert ranges[0].start == 0 and ranges[-1].stop == count
    assert all(r.step == 1 and 0 < len(r) <= size for r in ranges)
    assert all(len(r) == size for r in ranges[:-1])
    for before, after in pairwise(ranges):
        assert before.stop - after.start == overlap  # hence no frame is missing
        assert after.stop > before.stop  # hence none is there for nothing
    assert set().union(*ranges) == set(range(count))
    assert (len(ranges) == 1) == (count <= size)


@pytest.mark.parametrize(("size", "overlap"), [(1, 0), (0, 0), (-2, 0), (3, 3), (3, -1), (3, 9)])
def test_slabs_that_cannot_be_cut(size, overlap):
    with pytest.raises(CofuseError, match="expected"):
        slab_ranges(9, size, overlap)


NAMES = [("x.tif", "x-slabs"), ("a/x.ome.tif", "a/x-slabs"), ("b.c.png", "b.c-slabs")]


@pytest.mark.parametrize(("output", "folder"), NAMES)
def test_folder_is_named_after_the_picture(output, folder):
    assert slab_folder(Path(output)) == Path(folder)


@pytest.fixture(scope="module")
def scene() -> Simulation:
    grey = cv2.cvtColor(sample_picture("coffee"), cv2.COLOR_RGB2GRAY)
    return simulate_stack(grey, frames=7, shape=(96, 112), max_radius=6, seed=5)


@pytest.fixture
def place(tmp_path: Path, scene: Simulation, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with frames f1.png to f7.png, and the working directory."""
    for k, frame in enumerate(scene.frames):
        write_image(tmp_path / f"f{k + 1}.png", frame)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLABS = ("fuse", "f*.png", "--no-align", "--sigma", "0")


def test_slabs_and_the_picture_are_written(place, scene, capsys):
    asked = ("-o", "x.png", "--slab", 3, "--slab-overlap", 1, "--source-map", "s.png", "--json")
    assert run(*SLABS, *asked) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert sorted(p.name for p in Path("x-slabs").iterdir()) == [
        f"slab-00{n}.tif" for n in (1, 2, 3)
    ]
    for n, start in enumerate((0, 2, 4)):
        expected = cofuse.fuse(scene.frames[start : start + 3], sigma=0).image
        assert np.array_equal(tifffile.imread(f"x-slabs/slab-00{n + 1}.tif"), expected)
    slabs = [tifffile.imread(f"x-slabs/slab-00{n}.tif") for n in (1, 2, 3)]
    assert np.array_equal(read_image("x.png"), cofuse.fuse(slabs, sigma=0).image)
    # The map names the frames themselves, the overlap's by either slab.
    index = np.rint(read_image("s.png") / 255 * 6).astype(int)
    assert np.mean(np.abs(index - scene.source_map) <= 1) > 0.85
    assert set(np.unique(index)) >= {0, 1, 3, 5, 6}
    assert len(report["shares"]) == 7
    shares = [(index == k).mean() for k in range(7)]
    assert [share["share"] for share in report["shares"]] == pytest.approx(shares)
    assert report["options"]["fusing"]["slab"] == 3
    whole = cofuse.fuse(scene.frames, sigma=0).image
    assert psnr(read_image("x.png"), scene.truth) > psnr(whole, scene.truth) - 2


def test_map_of_many_frames_counts_on_beyond_a_byte(place, scene):
    """Indices within a slab have eight bits, those of 300 frames do not."""
    dull = cv2.GaussianBlur(scene.truth, (0, 0), 5)[:40, :48]
    frames = np.repeat(dull[None], 300, axis=0)
    frames[290:293] = scene.truth[:40, :48]
    tifffile.imwrite("many.tif", frames, photometric="minisblack")
    asked = ("-o", "x.png", "--slab", 60, "--source-map", "s.png", "--hot-pixels", "off")
    assert run("fuse", "many.tif", "--no-align", "--sigma", 0, *asked, "--quiet") == 0
    shades = read_image("s.png")
    assert shades.dtype == np.uint16
    index = np.rint(shades / 65535 * 299).astype(int)
    assert np.mean((index >= 290) & (index < 293)) > 0.7


def test_noise_is_taken_out_of_the_slabs_once(place, scene, capsys):
    noisy = simulate_stack(
        cv2.cvtColor(sample_picture("coffee"), cv2.COLOR_RGB2GRAY),
        frames=5,
        shape=(96, 112),
        sigma=15,
        seed=5,
    )
    for k, frame in enumerate(noisy.frames):
        write_image(f"n{k}.png", frame)
    asked = ("-o", "x.png", "--slab", 2, "--json", "--no-align")
    assert run("fuse", "n*.png", *asked) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert "one frame" not in err  # the fifth is a slab of its own
    assert report["sigma_estimated"] is True and abs(report["sigma"] - 15) < 4
    best = max(psnr(frame, noisy.truth) for frame in noisy.frames)
    assert psnr(read_image("x.png"), noisy.truth) > best + 3
    # What noise is to stay stays: the slabs are fused as they are.
    assert run("fuse", "n*.png", "-o", "y.png", "--slab", 2, "--denoise", 0.5, "--no-align") == 0
    slabs = [tifffile.imread(f"y-slabs/slab-00{n}.tif") for n in (1, 2, 3)]
    assert np.array_equal(read_image("y.png"), cofuse.fuse(slabs, sigma=0).image)


def test_slabs_of_an_earlier_run_are_kept_unless_told_otherwise(place, refused, capsys):
    assert run(*SLABS, "-o", "x.png", "--slab", 2, "--quiet") == 0
    Path("x-slabs/notes.txt").write_text("mine")
    Path("x.png").unlink()
    refused(*SLABS, "-o", "x.png", "--slab", 4, words=("x-slabs", "--overwrite"))
    assert run(*SLABS, "-o", "x.png", "--slab", 4, "--overwrite", "--quiet") == 0
    # Slabs of the earlier run do not stay among the new ones.
    assert sorted(p.name for p in Path("x-slabs").iterdir()) == [
        "notes.txt",
        "slab-001.tif",
        "slab-002.tif",
    ]


def test_one_slab_is_the_picture(place, scene):
    assert run(*SLABS, "-o", "x.png", "--slab", 9, "--quiet") == 0
    assert [p.name for p in Path("x-slabs").iterdir()] == ["slab-001.tif"]
    assert np.array_equal(read_image("x.png"), cofuse.fuse(scene.frames, sigma=0).image)


def test_slabs_are_checked_before_the_work(place, refused):
    refused(*SLABS, "-o", "x.png", "--slab", 1, words=("1 frames", "2 or more"))
    refused(*SLABS, "-o", "x.png", "--slab", 3, "--slab-overlap", 3, words=("share 3", "0 to 2"))
    refused(*SLABS, "-o", "x.png", "--slab-overlap", 1, words=("--slab-overlap", "--slab"))
    Path("x-slabs").write_text("a file")
    refused(*SLABS, "-o", "x.png", "--slab", 3, "--overwrite", words=("x-slabs is a file",))
    folder = Path("y-slabs")
    folder.mkdir()
    for k in range(1, 4):
        write_image(folder / f"slab-00{k}.tif", read_image(f"f{k}.png"))
    # The frames to fuse are themselves slabs: they are not to be replaced.
    again = ("fuse", "y-slabs", "-o", "y.png", "--slab", 2, "--overwrite", "--no-align")
    refused(*again, words=("slab-001.tif", "frames"))


def test_slabs_have_metadata_and_depth_of_the_frames(place, scene):
    for k, frame in enumerate(scene.frames):
        deep = frame.astype(np.uint16) * 257
        tifffile.imwrite(f"d{k}.tif", deep, extratags=[(271, 2, 0, "Canon", True)])
    asked = ("-o", "x.png", "--bit-depth", 8, "--slab", 4, "--depth-map", "z.png", "--quiet")
    assert run("fuse", "d*.tif", "--no-align", "--sigma", 0, *asked) == 0
    with tifffile.TiffFile("x-slabs/slab-002.tif") as tif:
        assert tif.pages[0].tags[271].value == "Canon" and tif.pages[0].dtype == np.uint16
    assert read_image("x.png").dtype == np.uint8
    position = read_image("z.png") / 65535 * 6
    assert np.mean(np.abs(position - scene.source_map) < 1.5) > 0.8


def test_plan_comes_before_the_slabs(place, capsys):
    assert run(*SLABS, "-o", "x.png", "--slab", 4) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(PLAN, err) and out.startswith("7 frames")
