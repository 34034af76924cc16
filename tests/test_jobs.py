"""One job from files to files, through the command line: what goes in, what comes out."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cofuse
from cofuse.alignment import Transform, align_stack, aligned, alignment_from_json
from cofuse.alignment.warping import warp
from cofuse.cli.application import Printing
from cofuse.errors import CofuseError
from cofuse.evaluation.metrics import psnr
from cofuse.evaluation.simulation import Simulation, sample_picture, simulate_stack
from cofuse.files import Metadata, read_image, read_stack, write_image
from cofuse.jobs import Reading, Request
from cofuse.jobs.frames import Frames, read_frames
from cofuse.jobs.options import parse_range
from cofuse.progress import Progress
from tests.command_line import PLAN, contents, run
from tests.test_files_samples import ICC, exif_block

SOFTWARE = f"cofuse {cofuse.__version__}"
SHAPE = (160, 176)
QUICK = ("--no-align", "--sigma", "0", "--quiet")


def matrix(dx: float, dy: float, degrees: float, scale: float) -> np.ndarray:
    """Shift, turn about the picture's centre, and scale."""
    c, s = scale * np.cos(np.radians(degrees)), scale * np.sin(np.radians(degrees))
    x, y = (SHAPE[1] - 1) / 2, (SHAPE[0] - 1) / 2
    return np.array([[c, -s, x - c * x + s * y + dx], [s, c, y - s * x - c * y + dy], [0, 0, 1.0]])


#: How the frames of a stack that nobody held still lie, seen from the third.
MOVED = (
    matrix(-5, 3, 0.8, 0.985),
    matrix(2.4, -3.3, -0.4, 0.99),
    np.eye(3),
    matrix(4, 6, 0.5, 1.012),
)
FRAMES = ("f1.png", "f2.png", "f10.png", "f11.png")


@pytest.fixture(scope="module")
def scene() -> Simulation:
    return simulate_stack(sample_picture("yard"), frames=4, shape=SHAPE, max_radius=5, seed=2)


@pytest.fixture(scope="module")
def small() -> Simulation:
    """Grey, five frames, for all that alignment has no part in."""
    grey = cv2.cvtColor(sample_picture("coffee"), cv2.COLOR_RGB2GRAY)
    return simulate_stack(grey, frames=5, shape=(72, 84), max_radius=5, seed=7)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def still(place: Path, scene: Simulation) -> Path:
    """Frames that lie upon each other."""
    for name, frame in zip(FRAMES, scene.frames, strict=True):
        write_image(place / name, frame)
    return place


@pytest.fixture
def moved(place: Path, scene: Simulation) -> Path:
    """Frames that do not."""
    for name, frame, truth in zip(FRAMES, scene.frames, MOVED, strict=True):
        write_image(place / name, warp(frame, Transform(np.linalg.inv(truth))))
    return place


@pytest.fixture
def grey(place: Path, small: Simulation) -> list[str]:
    """Small frames g1.png to g5.png; their names."""
    names = [f"g{k + 1}.png" for k in range(5)]
    for name, frame in zip(names, small.frames, strict=True):
        write_image(place / name, frame)
    return names


def report_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Run a command with --json and return what it printed."""
    capsys.readouterr()
    assert run(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert not re.search(PLAN, err)
    report = json.loads(out)
    assert isinstance(report, dict)
    return report


# --- which frames --------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> tuple[str, int, list[int]]:
    """A text of ranges, the number of frames, and the indices that plain Python finds."""
    count = draw(st.integers(1, 60))
    parts, expected = [], []
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(1, count))
        step = draw(st.none() | st.integers(1, 9))
        shape = draw(st.sampled_from(("one", "closed", "open")))
        last = draw(st.integers(first, count)) if shape == "closed" else count
        last = first if shape == "one" else last
        text = {"one": f"{first}", "closed": f"{first}-{last}", "open": f"{first}-"}[shape]
        spaces = draw(st.sampled_from(("", " ")))
        parts.append(spaces + text + ("" if step is None else f":{step}") + spaces)
        expected += [n - 1 for n in range(1, count + 1) if first <= n <= last][:: step or 1]
    return ",".join(parts), count, expected


@given(ranges())
def test_ranges_mean_what_plain_python_finds(case):
    text, count, expected = case
    if len(set(expected)) < len(expected):
        with pytest.raises(CofuseError, match="twice"):
            parse_range(text, count)
    else:
        assert parse_range(text, count) == tuple(expected)


@given(st.text(alphabet="0123456789-:, x+", max_size=12), st.integers(1, 30))
def test_no_text_makes_a_range_that_is_not_among_the_frames(text, count):
    try:
        found = parse_range(text, count)
    except CofuseError as error:
        assert "expected" in str(error) or "twice" in str(error)
    else:
        assert found and all(0 <= k < count for k in found) and len(set(found)) == len(found)


WRONG = ["", "0", "0-3", "5-2", "9", "1-9", "1-:0", "a", "1;2", "-3", "1,1", "1-3,2", "9" * 5000]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:9])
def test_ranges_that_do_not_work(grey, refused, text):
    refused("fuse", *grey, "-o", "x.png", "--frames", text, words=("frames",))


def test_frames_of_a_range_are_those_that_are_fused(grey, capsys, small):
    report = report_of(capsys, "fuse", *grey, "-o", "x.png", "--frames", "2-5:2", *QUICK[:3])
    assert report["frames"]["names"] == ["g2.png", "g4.png"]
    expected = cofuse.fuse([small.frames[1], small.frames[3]], sigma=0).image
    assert np.array_equal(read_image("x.png"), expected)


def test_frames_by_pattern_list_and_standard_input_in_natural_order(still, capsys, monkeypatch):
    names = [f"out/{n}.png" for n in range(5)]
    Path("out").mkdir()
    Path("list").write_text("\n".join(["# comment", *FRAMES, ""]))
    Path("names.txt").write_text("\n".join(FRAMES))
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(FRAMES)))
    for name, given_as in zip(names, ("f*.png", ".", "@list", "names.txt", "-"), strict=True):
        report = report_of(capsys, "fuse", given_as, "-o", name, *QUICK[:3])
        assert report["frames"]["names"] == list(FRAMES), given_as
        assert report["options"]["inputs"] == [given_as]
    first = read_image(names[0])
    assert all(np.array_equal(read_image(name), first) for name in names[1:])


def test_list_is_not_written_over(still, refused):
    Path("list").write_text("\n".join(FRAMES))
    for option in ("--report", "--save-transforms"):
        refused("fuse", "@list", "-o", "x.png", option, "list", "--overwrite", words=("list",))


def test_every_frame_knows_its_file_whatever_pages_the_others_have(place, small):
    frames = small.frames
    write_image("a.tif", frames[0])
    tifffile.imwrite("b.tif", np.stack(frames[1:4]), photometric="minisblack")
    write_image("c.tif", frames[4])
    found = read_frames(Request(("a.tif", "b.tif", "c.tif"), Path()))
    assert [picture.path.name[0] for picture in found.pictures] == list("abbbc")
    found = read_frames(Request(("b.tif", "a.tif", "c.tif"), Path(), Reading(frames="3-5")))
    assert [picture.path.name[0] for picture in found.pictures] == list("bac")
    for k, n in enumerate((3, 0, 4)):
        assert np.array_equal(found.stack[k], frames[n])


# --- metadata ------------------------------------------------------------------------------------


@pytest.fixture
def deep(place: Path) -> list[np.ndarray]:
    """Frames of 16 bits d1.tif to d3.tif, on their side, each with a description; as they stand."""
    stack = simulate_stack(
        sample_picture("coffee"), frames=3, shape=(64, 72), dtype=np.uint16, seed=1
    )
    for k, frame in enumerate(stack.frames):
        tifffile.imwrite(
            f"d{k + 1}.tif",
            frame,
            photometric="rgb",
            iccprofile=ICC,
            description=f"frame {k + 1}",
            software="camera",
            metadata=None,
            extratags=[(271, 2, 0, "Canon", True), (274, 3, 1, 6, True)],
        )
    return [np.rot90(frame, -1) for frame in stack.frames]


def test_sixteen_bits_and_metadata_go_through(deep):
    assert run("fuse", "d1.tif", "d2.tif", "d3.tif", "-o", "x.tif", *QUICK) == 0
    with tifffile.TiffFile("x.tif") as tif:
        page = tif.pages[0]
        assert page.iccprofile == ICC and page.dtype == np.uint16 and page.shape == (72, 64, 3)
        tags = {tag.name: tag.value for tag in page.tags}
    assert tags["Orientation"] == 1 and tags["Make"] == "Canon" and tags["Software"] == SOFTWARE
    assert tags["ImageDescription"] == "frame 2"  # the middle one
    assert np.array_equal(tifffile.imread("x.tif"), cofuse.fuse(deep, sigma=0).image)


def test_metadata_are_those_of_the_reference(deep):
    frames = ("d1.tif", "d2.tif", "d3.tif")
    assert run("fuse", *frames, "-o", "x.tif", "--reference", 3, *QUICK) == 0
    with tifffile.TiffFile("x.tif") as tif:
        assert tif.pages[0].description == "frame 3"


@pytest.mark.parametrize(
    ("name", "options", "dtype", "white"),
    [
        ("x.jpg", ("--bit-depth", "8"), "uint8", 255),
        ("x.png", (), "uint16", 65535),
        ("x.png", ("--bit-depth", "8"), "uint8", 255),
        ("x.tif", ("--bit-depth", "float"), "float32", 1),
    ],
)
def test_bit_depth(deep, name, options, dtype, white):
    assert run("fuse", "d1.tif", "d2.tif", "d3.tif", "-o", name, *options, *QUICK) == 0
    found, expected = read_image(name), cofuse.fuse(deep, sigma=0).image / 65535
    assert found.dtype == dtype
    error = np.abs(found / white - expected)
    assert error.mean() < 0.02 if name == "x.jpg" else error.max() <= 0.5001 / 255


def test_white_counts_when_bits_are_taken_away(place, small):
    for k in (0, 1):
        write_image(f"w{k}.tif", small.frames[k].astype(np.uint16) * 16)  # 12 bits
    assert run("fuse", "w0.tif", "w1.tif", "-o", "x.tif", "--white", 4095, *QUICK) == 0
    deep = ("--white", 4095, "--bit-depth", 8)
    assert run("fuse", "w0.tif", "w1.tif", "-o", "y.png", *deep, *QUICK) == 0
    whole = read_image("x.tif")
    assert whole.max() > 3000
    assert np.abs(read_image("y.png") - np.clip(whole / 4095 * 255, 0, 255)).max() <= 0.5001


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_profile_and_exif_of_jpeg_frames_are_kept(place, small, suffix):
    for k, frame in enumerate(small.frames[:3]):
        picture = Image.fromarray(np.dstack([frame] * 3))
        block = b"Exif\0\0" + exif_block("<", owner=f"Owner {k}")
        picture.save(f"e{k}.jpg", exif=block, icc_profile=ICC, quality=95)
    assert run("fuse", "e0.jpg", "e1.jpg", "e2.jpg", "-o", f"x{suffix}", *QUICK) == 0
    with Image.open(f"x{suffix}") as image:
        assert image.size == (72, 84)  # the frames lie on their side
        assert image.info["icc_profile"] == ICC
        exif = image.getexif()
        assert exif[0x010F] == "Canon" and exif[0x0131] == SOFTWARE and exif.get(0x0112, 1) == 1
        photo = exif.get_ifd(0x8769)
        assert Fraction(photo[0x829A]).limit_denominator(1000) == Fraction(1, 250)
        assert (photo[0xA002], photo[0xA003]) == (72, 84)


def test_quality_makes_files_smaller(grey, refused):
    for suffix in (".jpg", ".webp"):
        sizes = []
        for quality in ((), ("--quality", 60), ("--quality", 5)):
            name = f"x{len(sizes)}{suffix}"
            assert run("fuse", *grey, "-o", name, *quality, *QUICK) == 0
            sizes.append(Path(name).stat().st_size)
        assert sizes[0] > sizes[1] > sizes[2]
    for quality in (0, 101, -5):
        refused("fuse", *grey, "-o", "y.jpg", "--quality", quality, words=(f"{quality}", "100"))


# --- alignment -----------------------------------------------------------------------------------


def test_misaligned_frames_are_aligned(moved, scene, capsys):
    clean = ("--sigma", "0", "--no-crop")
    report = report_of(capsys, "fuse", *FRAMES, "-o", "x.png", *clean)
    assert run("fuse", *FRAMES, "-o", "plain.png", "--no-align", "--sigma", "0", "--quiet") == 0
    found, plain = read_image("x.png"), read_image("plain.png")
    assert found.shape == plain.shape == scene.truth.shape  # --no-crop keeps the size
    assert psnr(found, scene.truth) > psnr(plain, scene.truth) + 10
    said = report["alignment"]
    assert said["reference"] == "f10.png" and not said["already_aligned"]
    assert said["largest_displacement"] == pytest.approx(9.5, abs=1.5)
    for found_matrix, truth in zip(said["matrices"], MOVED, strict=True):
        error = Transform(np.array(found_matrix) @ np.linalg.inv(truth))
        assert error.corner_displacement(SHAPE) < 0.3
    # Cut to what all frames cover it is smaller, and the same picture.
    assert run("fuse", *FRAMES, "-o", "cut.png", "--sigma", "0") == 0
    assert "moved by up to" in capsys.readouterr().out
    cut = read_image("cut.png")
    assert 130 < cut.shape[0] < 160 and 140 < cut.shape[1] < 176


def test_aligned_frames_are_left_as_they_are(still, scene, capsys):
    for options in (("--sigma", "0"), ()):
        frames = ("fuse", *FRAMES, *options, "--overwrite")
        report = report_of(capsys, *frames, "-o", "x.png")
        assert report["alignment"]["already_aligned"] is True
        assert report_of(capsys, *frames, "-o", "y.png", "--no-align")["alignment"] is None
        assert np.array_equal(read_image("x.png"), read_image("y.png"))


def test_saved_transforms_give_the_same_picture(moved, capsys, refused):
    saved = report_of(capsys, "fuse", *FRAMES, "-o", "x.png", "--save-transforms", "t.json")
    alignment = alignment_from_json(Path("t.json").read_text("utf-8"))
    expected = align_stack(read_stack(FRAMES))
    assert alignment == expected
    again = report_of(capsys, "fuse", *FRAMES, "-o", "y.png", "--transforms", "t.json")
    assert Path("x.png").read_bytes() == Path("y.png").read_bytes() or np.array_equal(
        read_image("x.png"), read_image("y.png")
    )
    assert again["alignment"] == saved["alignment"]
    use = ("--transforms", "t.json", "-o", "z.png")
    refused("fuse", *FRAMES[:3], *use, words=("t.json", "4 frames", "3"))
    refused("fuse", *FRAMES[::-1], *use, words=("t.json", "f1.png", "f11.png"))
    refused("fuse", *FRAMES, *use, "--reference", 1, words=("frame 1", "frame 3"))
    refused("fuse", *FRAMES, *use, "--no-align", words=("--no-align",))
    refused("fuse", *FRAMES, "-o", "z.png", "--transforms", "none.json", words=("none.json",))
    refused("fuse", *FRAMES, "-o", "z.png", "--transforms", "f1.png", words=("f1.png",))
    same = ("--transforms", "t.json", "--save-transforms", "t.json", "--overwrite")
    refused("fuse", *FRAMES, "-o", "z.png", *same, words=("t.json",))
    refused("fuse", *FRAMES, "-o", "z.png", "--save-transforms", "t.json", words=("t.json exists",))
    without = ("--save-transforms", "u.json", "--no-align")
    refused("fuse", *FRAMES, "-o", "z.png", *without, words=("--no-align",))
    Path("broken.json").write_text("{")
    refused("fuse", *FRAMES, "-o", "z.png", "--transforms", "broken.json", words=("broken.json",))


def test_saved_reference_decides_on_size_and_metadata(deep, capsys):
    frames = ("d1.tif", "d2.tif", "d3.tif")
    first = ("-o", "x.tif", "--reference", 1, "--save-transforms", "t.json", "--transform")
    assert run("fuse", *frames, *first, "translation", "--quiet") == 0
    assert run("fuse", *frames, "-o", "y.tif", "--transforms", "t.json", "--quiet") == 0
    for name in ("x.tif", "y.tif"):
        with tifffile.TiffFile(name) as tif:
            assert tif.pages[0].description == "frame 1"
    assert np.array_equal(read_image("x.tif"), read_image("y.tif"))


def test_exposure_is_matched_unless_it_is_not_to_be(still, scene, capsys):
    write_image("f1.png", np.rint(scene.frames[0] * 0.8).astype(np.uint8), overwrite=True)
    matched = ("-o", "x.png", "--save-transforms", "t.json")
    gains = report_of(capsys, "fuse", *FRAMES, *matched)["alignment"]["gains"]
    assert gains[0] == pytest.approx([1.25] * 3, rel=0.03) and gains[2] == [1.0] * 3
    for options in ((), ("--transforms", "t.json")):
        left = ("-o", "y.png", "--no-match-exposure", "--overwrite", *options)
        gains = report_of(capsys, "fuse", *FRAMES, *left)["alignment"]["gains"]
        assert gains == [[1.0] * 3] * 4


def test_reference_stays_as_it_is(moved, capsys, refused):
    chosen = ("-o", "x.png", "--reference", 1, "--no-crop")
    said = report_of(capsys, "fuse", *FRAMES, *chosen)["alignment"]
    assert said["reference"] == "f1.png" and said["matrices"][0] == np.eye(3).tolist()
    wrong = ("-o", "y.png", "--reference")
    refused("fuse", *FRAMES, *wrong, 5, words=("--reference is 5", "1 to 4"))
    for number in (0, -1):
        refused("fuse", *FRAMES, *wrong, number, words=(f"--reference is {number}", "1 or more"))


def test_transforms_are_of_the_kind_asked_for(moved, capsys):
    for kind in ("translation", "affine"):
        options = ("-o", f"{kind}.png", "--transform", kind, "--sigma", 0)
        said = report_of(capsys, "fuse", *FRAMES, *options)["alignment"]
        assert said["transform"] == kind
        linear = np.array(said["matrices"])[:, :2, :2]
        assert np.allclose(linear, np.eye(2), atol=1e-3) is (kind == "translation")


def test_foreign_frame_stops_the_work_or_is_left_out(still, scene, capsys, refused):
    foreign = cv2.resize(sample_picture("astronaut"), SHAPE[::-1], interpolation=cv2.INTER_AREA)
    write_image("f2.png", foreign, overwrite=True)
    outputs = ("-o", "x.png", "--report", "r.json", "--save-transforms", "t.json")
    refused("fuse", *FRAMES, *outputs, words=("f2.png", "cannot be aligned"), late=True)
    alone = ("fuse", *FRAMES, "-o", "frames", "--align-only")
    refused(*alone, words=("f2.png", "cannot be aligned"), late=True)
    left = (*outputs, "--on-failure", "leave-out", "--source-map", "map.png", "--sigma", 0)
    assert run("fuse", *FRAMES, *left) == 0
    out, err = capsys.readouterr()
    assert out.startswith("3 frames") and "warning: f2.png is left out: " in err
    report = json.loads(Path("r.json").read_text("utf-8"))
    assert set(report["alignment"]["left_out"]) == {"f2.png"}
    assert report["alignment"]["matrices"][1] is None
    assert report["frames"]["names"] == ["f1.png", "f10.png", "f11.png"]
    assert report["alignment"]["reference"] in report["frames"]["names"]
    expected = cofuse.fuse([scene.frames[k] for k in (0, 2, 3)], sigma=0)
    assert np.array_equal(read_image("x.png"), expected.image)
    # The saved transforms leave it out again.
    assert run("fuse", *FRAMES, "-o", "y.png", "--transforms", "t.json", "--sigma", 0) == 0
    assert np.array_equal(read_image("y.png"), expected.image)


def test_aligned_frames_are_written(moved, capsys, refused):
    arguments = ("fuse", *FRAMES, "-o", "new/frames", "--align-only")
    assert run(*arguments, "--save-transforms", "t.json") == 0
    out, err = capsys.readouterr()
    line = r"4 of 4 frames aligned, moved by up to 8\.\d pixels, .* s: .*frames\n"
    assert re.fullmatch(line, out)
    assert re.fullmatch(PLAN, err)
    written = sorted(path.name for path in Path("new/frames").iterdir())
    assert written == ["f1.tif", "f10.tif", "f11.tif", "f2.tif"]
    stack = read_stack(FRAMES)
    expected = aligned(stack, alignment_from_json(Path("t.json").read_text("utf-8")))
    for name, frame in zip(FRAMES, expected, strict=True):
        path = Path("new/frames", name).with_suffix(".tif")
        assert np.array_equal(tifffile.imread(path), frame)
    refused(*arguments, words=("f1.tif exists", "--overwrite"))
    facts = report_of(capsys, *arguments, "--overwrite")
    assert facts["transform"] == "similarity" and len(facts["matrices"]) == 4
    # What was aligned need not be aligned again.
    folder = report_of(capsys, "fuse", "new/frames", "-o", "x.tif")
    assert folder["alignment"]["already_aligned"] is True


def test_aligned_frames_keep_their_metadata_and_take_a_depth(deep):
    options = ("--align-only", "--transform", "translation", "--bit-depth", "8", "--quiet")
    assert run("fuse", "d1.tif", "d2.tif", "d3.tif", "-o", "frames", *options) == 0
    for k in range(3):
        with tifffile.TiffFile(f"frames/d{k + 1}.tif") as tif:
            page = tif.pages[0]
            assert page.iccprofile == ICC and page.description == f"frame {k + 1}"
            assert page.dtype == np.uint8 and page.tags[274].value == 1
    with tifffile.TiffFile("d1.tif") as tif:
        assert tif.pages[0].tags[274].value == 6


def test_pages_of_one_file_are_aligned_to_numbered_files(place, scene):
    tifffile.imwrite("stack.tif", np.stack(scene.frames), photometric="rgb")
    assert run("fuse", "stack.tif", "-o", "frames", "--align-only", "--quiet") == 0
    names = sorted(path.name for path in Path("frames").iterdir())
    assert names == [f"stack-{k:04d}.tif" for k in range(1, 5)]
    assert np.array_equal(read_image("frames/stack-0003.tif"), scene.frames[2])


def test_align_only_refuses_what_it_cannot_do(still, refused):
    only = ("fuse", *FRAMES, "-o", "frames", "--align-only")
    refused(*only, "--depth-map", "d.png", words=("--align-only", "--depth-map"))
    refused(*only, "--report", "r.json", words=("--align-only", "--report"))
    refused(*only, "--no-align", words=("--no-align",))
    refused("fuse", *FRAMES, "-o", "f1.png", "--align-only", words=("f1.png is a file",))
    refused("fuse", *FRAMES, "-o", "f1.png/x", "--align-only", words=("not a folder",))
    Path("tiffs").mkdir()
    for name in FRAMES:
        write_image(Path("tiffs", name).with_suffix(".tif"), read_image(name))
    among = ("fuse", "tiffs", "-o", "tiffs", "--align-only", "--overwrite")
    refused(*among, words=("f1.tif", "frames"))
    # One frame lies where it lies.
    assert run("fuse", "f1.png", "-o", "one", "--align-only", "--quiet") == 0
    assert np.array_equal(read_image("one/f1.tif"), read_image("f1.png"))


# --- hot pixels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", [False, True])
def test_hot_pixels_vanish_unless_they_are_to_stay(place, small, colour, capsys):
    places = [(10, 12), (30, 60), (55, 20), (64, 75)]
    around = [small.truth[row - 3 : row + 4, column - 3 : column + 4] for row, column in places]
    shining = [255 if part.max() < 190 else 0 for part in around]
    for k, frame in enumerate(small.frames):
        hot = np.dstack([frame] * 3) if colour else frame.copy()
        for (row, column), value in zip(places, shining, strict=True):
            hot[row, column] = value
        write_image(f"h{k}.png", hot)
    names = [f"h{k}.png" for k in range(5)]
    report = report_of(capsys, "fuse", *names, "-o", "x.png", *QUICK[:3])
    assert report["hot_pixels"] == len(places)
    assert run("fuse", *names, "-o", "y.png", "--hot-pixels", "off", *QUICK[:3]) == 0
    assert "hot pixels" not in capsys.readouterr().out
    mended, left = (read_image(name).reshape(72, 84, -1)[..., 0] for name in ("x.png", "y.png"))
    for (row, column), value in zip(places, shining, strict=True):
        beside = small.truth[row - 1 : row + 2, column - 1 : column + 2].astype(int)
        assert beside.min() - 12 <= mended[row, column] <= beside.max() + 12
        assert abs(int(left[row, column]) - value) <= 12
    assert run("fuse", *names, "-o", "z.png", *QUICK[:3]) == 0
    assert "4 hot pixels mended" in capsys.readouterr().out


# --- maps ----------------------------------------------------------------------------------------


def points_of(path: str) -> np.ndarray:
    """Read the points of a binary PLY file."""
    head, _, body = Path(path).read_bytes().partition(b"end_header\n")
    count = int(re.search(rb"element vertex (\d+)", head)[1])
    kind = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("rgb", "u1", 3)])
    points = np.frombuffer(body, kind)
    assert len(points) == count
    return points


def test_all_maps_are_written(grey, small, capsys):
    maps = ("--depth-map", "d.png", "--confidence-map", "c.png", "--source-map", "s.png")
    maps += ("--point-cloud", "p.ply", "--report", "r.json")
    sizes = ("--z-step", "2.5", "--pixel-size", "0.5")
    report = report_of(capsys, "fuse", *grey, "-o", "x.png", *maps, *sizes, *QUICK[:3])
    assert json.loads(Path("r.json").read_text("utf-8")) == report
    assert report["options"]["maps"]["z_step"] == 2.5
    assert report["options"]["maps"]["depth_map"] == "d.png"
    size = (72, 84)
    kinds = {"d.png": (np.uint16, size), "c.png": (np.uint8, size), "s.png": (np.uint8, size)}
    for name, (dtype, shape) in kinds.items():
        picture = read_image(name)
        assert picture.dtype == dtype and picture.shape == shape, name
    for name in ("d-colours.png", "s-colours.png"):
        picture = read_image(name)
        assert picture.dtype == np.uint8 and picture.ndim == 3
        assert picture.shape[0] == 72 and picture.shape[1] > 84  # the legend is beside it
    position = read_image("d.png") / 65535 * 4
    assert np.mean(np.abs(position - small.source_map) < 1) > 0.75
    index = np.rint(read_image("s.png") / 255 * 4)
    assert np.array_equal(index, cofuse.fuse(small.frames, sigma=0).source_map)
    points = points_of("p.ply")
    assert len(points) == 72 * 84
    assert points["x"].max() == pytest.approx(83 * 0.5) and points["y"].max() == 71 * 0.5
    assert points["z"].max() <= 0 and points["z"].min() >= -4 * 2.5 - 1e-4
    assert points["z"][::-1].reshape(72, 84)[::-1, ::-1] == pytest.approx(
        -2.5 * position.reshape(72, 84), abs=1e-3
    )
    assert np.array_equal(points["rgb"][:, 0].reshape(72, 84), read_image("x.png"))


def test_step_alone_leaves_the_pixel_to_be_guessed_with_a_warning(grey, capsys):
    options = ("--point-cloud", "p.ply", "--z-step", "-2.5", *QUICK)
    assert run("fuse", *grey, "-o", "x.png", *options) == 0
    assert "warning: the size of a pixel is not known" in capsys.readouterr().err
    assert points_of("p.ply")["z"].min() >= 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--depth-map", "d.jpg"), ("d.jpg", "uint16")),
        (("--depth-map", "d.txt"), ("d.txt",)),
        (("--confidence-map", "c"), ("c has no suffix",)),
        (("--confidence-map", "none/c.png"), ("none", "does not exist")),
        (("--point-cloud", "p.obj"), ("p.obj", ".ply")),
        (("--point-cloud", "none/p.ply"), ("none", "does not exist")),
        (("--point-cloud", "old.ply"), ("old.ply exists",)),
        (("--depth-map", "old.png"), ("old-colours.png exists",)),
        (("--depth-map", "m.png", "--source-map", "m.tif"), ("same file name", "m-colours.png")),
        (("--depth-map", "m.png", "--confidence-map", "m-colours.png"), ("same file name",)),
        (("--confidence-map", "x.png"), ("same file name", "x.png")),
        (("--report", "r.json", "--save-transforms", "r.json"), ("same file name", "r.json")),
        (("--depth-map", "g1.png", "--overwrite"), ("g1.png", "frames")),
        (("--point-cloud", "p.ply", "--z-step", "0"), ("--z-step", "other than 0")),
        (("--depth-map", "d.png", "--z-step", "nan"), ("--z-step",)),
        (("--depth-map", "d.png", "--z-step", "inf"), ("--z-step",)),
        (("--point-cloud", "p.ply", "--pixel-size", "0"), ("--pixel-size", "above 0")),
        (("--point-cloud", "p.ply", "--pixel-size", "-1"), ("--pixel-size",)),
        (("--bit-depth", "12"), ("12",)),
        (("--hot-pixels", "on"), ("on",)),
        (("--transform", "rigid"), ("rigid",)),
        (("--on-failure", "ignore"), ("ignore",)),
        (("--max-memory", "much"), ("much", "memory")),
        (("--max-memory", "0"), ("memory",)),
        (("--max-memory", "1MB"), ("1 MB", "MB of memory at least")),
        (("--max-memory", "12 kb"), ("of memory at least",)),
    ],
)
def test_outputs_and_options_that_do_not_work(grey, refused, options, words):
    for name in ("old.ply", "old-colours.png"):
        Path(name).write_bytes(b"precious")
    refused("fuse", *grey, "-o", "x.png", *options, words=words)


@pytest.mark.parametrize("option", ["--depth-map", "--confidence-map", "--point-cloud"])
def test_depth_of_one_frame_is_refused_before_the_work(grey, refused, option):
    name = "p.ply" if option == "--point-cloud" else "p.png"
    refused("fuse", "g1.png", "-o", "x.png", option, name, words=("one frame", "two"))
    refused("fuse", *grey, "--frames", 2, "-o", "x.png", option, name, words=("one frame",))


@given(
    z=st.floats(0.1, 9),
    first=st.integers(0, 9),
    step=st.integers(-4, 4).filter(bool),
    count=st.integers(2, 9),
)
def test_distance_grows_with_the_frames_left_out_between(z, first, step, count):
    places = [first + step * k for k in range(count)]

    def distance(taken: list[int], known: Metadata) -> float | None:
        stack = cofuse.Stack.from_arrays([np.zeros((2, 2), np.uint8)] * len(taken))
        frames = Frames(Request((), Path()), stack, {}, tuple(taken), (), None, 0)
        vars(frames)["metadata"] = known  # as if it had been read
        return frames.distance(range(len(taken)))

    known = Metadata(pixel_size=(1.0, 1.0, z))
    assert distance(places, known) == pytest.approx(z * step)
    assert distance([*places, places[-1] + step + 1], known) is None
    assert distance(places, Metadata()) is None


def test_sizes_of_ome_files_are_used(place, small):
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}
    units = {f"PhysicalSize{axis}Unit": "µm" for axis in "XYZ"}
    described = {"axes": "ZYX", **sizes, **units}
    tifffile.imwrite("s.ome.tif", np.stack(small.frames), metadata=described)
    options = ("--frames", "1-5:2", "--point-cloud", "p.ply", "--depth-map", "d.png", *QUICK)
    assert run("fuse", "s.ome.tif", "-o", "x.ome.tif", *options) == 0
    points = points_of("p.ply")
    assert points["x"].max() == pytest.approx(83 * 0.5)
    position = read_image("d.png") / 65535 * 2
    assert points["z"].reshape(72, 84) == pytest.approx(-4.0 * position, abs=1e-3)


# --- transparency --------------------------------------------------------------------------------


def save_rgba(name: str, grey: np.ndarray, alpha: np.ndarray) -> None:
    Image.fromarray(np.dstack([grey, grey, grey, alpha])).save(name)


def test_alpha_comes_from_the_chosen_frames(place, small, capsys):
    rng = np.random.default_rng(3)
    alphas = [rng.integers(1, 255, small.truth.shape, dtype=np.uint8) for _ in range(5)]
    for k, (frame, alpha) in enumerate(zip(small.frames, alphas, strict=True)):
        save_rgba(f"t{k}.png", frame, alpha)
    names = [f"t{k}.png" for k in range(5)]
    assert run("fuse", *names, "-o", "x.png", "--source-map", "s.png", *QUICK) == 0
    index = np.rint(read_image("s.png") / 255 * 4).astype(int)
    rows, columns = np.indices(index.shape)
    with Image.open("x.png") as image:
        assert image.mode == "RGBA"
        found = np.asarray(image)
    assert np.array_equal(found[..., 3], np.stack(alphas)[index, rows, columns])
    capsys.readouterr()
    assert run("fuse", *names, "-o", "x.jpg", *QUICK) == 0
    assert "warning: transparency is left out: x.jpg" in capsys.readouterr().err
    with Image.open("x.jpg") as image:
        assert image.mode == "RGB"
    # Of frames of which one is opaque, and of a range of them.
    Image.fromarray(np.dstack([small.frames[3]] * 3)).save("t3.png")
    ranged = ("--frames", "4-5", "--source-map", "s.png", "--overwrite", *QUICK)
    assert run("fuse", *names, "-o", "x.tif", *ranged) == 0
    index = (read_image("s.png") > 0).astype(int)
    opaque = np.stack([np.full_like(alphas[3], 255), alphas[4]])
    found = tifffile.imread("x.tif")
    assert found.shape[2] == 4 and np.array_equal(found[..., 3], opaque[index, rows, columns])


def test_alpha_moves_with_its_frame(moved, scene):
    """Every frame is transparent where the same part of the scene is."""
    hole = np.full(SHAPE, 255, np.uint8)
    hole[40:80, 50:110] = 0
    for k, (name, truth) in enumerate(zip(FRAMES, MOVED, strict=True)):
        alpha = np.minimum(warp(hole, Transform(np.linalg.inv(truth))), 255 - 10 * k).astype(
            np.uint8
        )
        Image.fromarray(np.dstack([read_image(name), alpha])).save(name)
    assert run("fuse", *FRAMES, "-o", "x.png", "--no-crop", "--quiet") == 0
    with Image.open("x.png") as image:
        found = np.asarray(image)[..., 3]
    assert np.mean((found < 128) == (hole < 128)) > 0.99
    assert run("fuse", *FRAMES, "-o", "frames", "--align-only", "--no-crop", "--quiet") == 0
    for k, name in enumerate(FRAMES):
        alpha = tifffile.imread(Path("frames", name).with_suffix(".tif"))[..., 3]
        assert np.mean((alpha < 128) == (hole < 128)) > 0.99
        assert np.median(alpha[hole > 0]) == 255 - 10 * k


# --- the end of the work -------------------------------------------------------------------------


def test_memory_makes_no_difference_to_the_picture(grey):
    sizes = {"x": (), "y": ("--max-memory", "4GB"), "z": ("--max-memory", "3.5 GiB")}
    for name, options in sizes.items():
        assert run("fuse", *grey, "-o", f"{name}.png", *options, "--quiet") == 0
    pictures = [read_image(f"{name}.png") for name in "xyz"]
    assert np.array_equal(pictures[0], pictures[1]) and np.array_equal(pictures[0], pictures[2])


def test_plan_is_told_before_the_work_and_only_to_people(grey, capsys):
    assert run("fuse", *grey, "-o", "x.png", *QUICK[:3]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(PLAN, err) and err.startswith("cofuse: 5 frames of 84x72 grey uint8: ")
    assert out.startswith("5 frames") and out.count("\n") == 1
    assert run("fuse", *grey, "-o", "y.png", *QUICK) == 0
    assert capsys.readouterr() == ("", "")
    report_of(capsys, "fuse", *grey, "-o", "z.png", *QUICK[:3])


def test_report_says_what_was_asked_and_done(grey, capsys):
    arguments = ("fuse", *grey, "-o", "x.png", "--report", "r.json", "--frames", "1-4")
    arguments += ("--preset", "fast")
    report = report_of(capsys, *arguments, "--set", "window=5", "--max-memory", "4GB", "--sigma", 0)
    assert json.loads(Path("r.json").read_text("utf-8")) == report
    json.dumps(report, allow_nan=False)
    assert report["hot_pixels"] == 0 and report["alignment"]["left_out"] == {}
    assert report["alignment"]["reference"] == "g3.png"
    asked = report["options"]
    assert asked["inputs"] == grey and asked["reading"]["frames"] == "1-4"
    assert asked["fusing"]["setting"] == ["window=5"] and asked["fusing"]["max_memory"] == "4GB"
    assert asked["maps"]["report"] == "r.json" and asked["writing"]["overwrite"] is False
    assert report["settings"]["window"] == 5


def test_report_spells_names_that_are_no_text(place, small, capsys):
    name = os.fsdecode(b"caf\xe9.png")
    try:
        write_image(place / name, small.frames[0])
    except CofuseError:
        pytest.skip("this file system knows text only")
    write_image("b.png", small.frames[1])
    arguments = ("fuse", name, "b.png", "-o", "x.png", "--report", "r.json", "--sigma", 0)
    report = report_of(capsys, *arguments)
    assert json.loads(Path("r.json").read_text("utf-8")) == report
    assert report["frames"]["names"][0].startswith("caf")


def interrupt_at(monkeypatch: pytest.MonkeyPatch, stage: str | None) -> list[str]:
    """Let the progress of the next run raise at a stage; the list tells the stages seen."""
    seen: list[str] = []

    def watch(progress: Progress) -> None:
        if progress.stage not in seen:
            seen.append(progress.stage)
        if progress.stage == stage:
            raise KeyboardInterrupt

    monkeypatch.setattr(Printing, "progress", lambda _: nullcontext(watch))
    return seen


@pytest.mark.parametrize("more", [(), ("--align-only",)], ids=str)
def test_interruption_at_any_stage_leaves_nothing(grey, place, monkeypatch, capsys, more):
    outputs = ("-o", "x", *more)
    if more != ("--align-only",):
        outputs = ("-o", "x.png", "--depth-map", "d.png", "--source-map", "s.png", *more)
    outputs += ("--save-transforms", "t.json")
    before = contents(place)
    stages = interrupt_at(monkeypatch, None)
    assert run("fuse", *grey, *outputs, "--sigma", 8) == 0
    assert len(stages) >= 3 and "align" in stages
    for name in set(contents(place)) - set(before):
        path = place / name
        if path.is_file():
            path.unlink()
    for path in place.iterdir():
        if path.is_dir():
            path.rmdir()
    for stage in stages:
        interrupt_at(monkeypatch, stage)
        capsys.readouterr()
        assert run("fuse", *grey, *outputs, "--sigma", 8) == 130, stage
        out, err = capsys.readouterr()
        assert out == "" and err.endswith("cofuse: interrupted; nothing was written half\n")
        assert contents(place) == before, stage


@pytest.mark.parametrize("more", [(), ("--align-only",)], ids=str)
def test_full_disk_is_told_in_one_line(grey, refused, monkeypatch, more):
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    name = "x" if more == ("--align-only",) else "x.tif"
    refused("fuse", *grey, "-o", name, *more, words=("No space left",), late=True)


def test_disk_that_fills_between_two_files_leaves_none(grey, place, monkeypatch, capsys):
    flush, calls = os.fsync, []

    def third_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", third_fails)
    before = contents(place)
    outputs = ("-o", "x.png", "--source-map", "s.png", "--depth-map", "d.png", "--report", "r.json")
    assert run("fuse", *grey, *outputs, *QUICK) == 2
    err = capsys.readouterr().err
    assert "s-colours.png could not be written (No space left" in err and ".cofuse" not in err
    assert contents(place) == before


def test_report_may_lie_in_the_folder_of_the_frames(grey, place):
    folder = place / "shots"
    folder.mkdir()
    for name in grey:
        (place / name).rename(folder / name)
    arguments = ("fuse", "shots", "-o", "x.png", "--report", "shots/r.json", *QUICK)
    assert run(*arguments) == 0 and run(*arguments, "--overwrite") == 0
