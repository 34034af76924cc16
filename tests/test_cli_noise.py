"""``cofuse noise``: its table, its file, its plot; and the file used again by other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import cofuse
from cofuse import NoiseLaw
from cofuse.cli.noise import noise_table
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from cofuse.sensor.law import BANDS, NoiseModel
from cofuse.sensor.plot import plot_noise
from tests.command_line import command, run

Array = np.ndarray[Any, Any]

PLAIN = ("--no-align", "--hot-pixels", "off")


def noisy_frames(*, colour: bool = False, frames: int = 3, sigma: float = 12.0) -> list[Array]:
    picture = sample_picture("coffee")
    picture = picture if colour else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    made = simulate_stack(picture, frames=frames, sigma=sigma, shape=(64, 80), seed=4)
    return list(made.frames)


def write_frames(folder: str, frames: list[Array], suffix: str = ".png") -> None:
    Path(folder).mkdir(parents=True)
    for number, frame in enumerate(frames):
        write_image(Path(folder) / f"{number:02d}{suffix}", frame)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with grey frames in the folder stack."""
    monkeypatch.chdir(tmp_path)
    write_frames("stack", noisy_frames())
    return tmp_path


# --- the table ------------------------------------------------------------------------------------


def test_the_table_of_grey_frames(place, capsys):
    assert run("noise", "stack", *PLAIN) == 0
    out, err = capsys.readouterr()
    law = cofuse.estimate_noise(noisy_frames())
    first, empty, *rest = out.splitlines()
    assert first.startswith(f"3 frames of 80x64 grey uint8, sigma {law.sigma:.2f} of 255")
    assert not empty and not err and out.isascii() is False
    assert re.fullmatch(r"wavelength, pixels +sigma", rest[0])
    bands = ["2 to 4", "4 to 8", "8 to 16", "16 to 32", "32 up"]
    assert [re.split("  +", line)[0] for line in rest[1:6]] == bands
    told = [float(re.split("  +", line)[1].split(" ± ")[0]) for line in rest[1:6]]
    np.testing.assert_allclose(told, law.by_band[0], atol=0.006)
    assert out.splitlines()[-1] == "JPEG blocks: no"
    assert sorted(path.name for path in place.iterdir()) == ["stack"]


def test_the_table_of_colour_frames_has_luminance_and_chroma(place, capsys):
    write_frames("colour", noisy_frames(colour=True))
    assert run("noise", "colour", *PLAIN) == 0
    out = capsys.readouterr().out
    assert "RGB uint8" in out and re.search(r"^wavelength, pixels +luminance +chroma$", out, re.M)


def test_deep_frames_are_told_in_counts_too(place, capsys):
    deep = [frame.astype(np.uint16) * 257 for frame in noisy_frames()]
    write_frames("deep", deep, ".tif")
    assert run("noise", "deep", *PLAIN) == 0
    sigma = cofuse.estimate_noise(deep).sigma
    assert f"sigma {sigma:.2f} of 255 ({257 * sigma:.3g} counts)" in capsys.readouterr().out


def law_of(levels: Any, *, model: NoiseModel | None = None, **facts: Any) -> NoiseLaw:
    array = np.asarray(levels, np.float64)[..., None] * np.ones(BANDS)
    errors = np.full(array.shape, 0.02)
    return NoiseLaw(
        model=model or NoiseModel(5.0), levels=array, errors=errors, estimated=True, **facts
    )


STACK = cofuse.Stack.from_arrays(noisy_frames(), names=["a", "b", "c"])


def test_frames_are_listed_where_they_differ():
    assert "frame  " not in noise_table(law_of([[5.0], [5.1], [5.0]]), STACK)
    table = noise_table(law_of([[5.0], [9.0], [5.0]]), STACK)
    assert "\nframe  sigma\na       5.00\nb       9.00\nc       5.00\n" in table


def test_of_many_frames_the_extremes_are_told():
    many = cofuse.Stack.from_arrays([np.full((8, 8), k, np.uint8) for k in range(20)])
    law = law_of([[5.0]] * 7 + [[9.0], [4.0]] + [[5.0]] * 11)
    assert "\nframes: 4.00 (frame 9) to 9.00 (frame 8)\n" in noise_table(law, many)


def test_the_table_tells_growth_with_brightness_and_blocks():
    model = NoiseModel(3.0, 0.5)
    rows = np.array([[40.0, 5.5, 0.1], [200.0, 10.4, 0.05]])
    table = noise_table(law_of([[6.0]] * 3, model=model, brightness=rows, blocks=0.25), STACK)
    sigma = float(model.sigma_at(127.5))
    assert f"sigma {sigma:.2f} of 255 at mid-grey, growing with brightness, JPEG blocks\n" in table
    assert "\ngrey level         sigma  model\n        40   5.50 ± 0.55   5.39\n" in table
    assert "\n       200  10.40 ± 0.52  10.44\n" in table
    assert table.endswith("\nJPEG blocks: yes, 25 % of the finest detail rounded away")


def test_clean_frames_are_called_so():
    table = noise_table(law_of([[1.0]] * 3), STACK)
    assert "sigma 1.00 of 255, too little to be removed\n" in table


def test_json_tells_what_a_report_tells(place, capsys):
    assert run("noise", "stack", *PLAIN, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    law = cofuse.estimate_noise(noisy_frames())
    names, counts = told.pop("frames"), told.pop("sigma_counts")
    assert names == ["00.png", "01.png", "02.png"] and counts == told["sigma"] == law.sigma
    assert told == json.loads(json.dumps(law.facts()))
    assert run("fuse", "stack", "-o", "x.png", "--report", "x.json", "--quiet", *PLAIN) == 0
    assert json.loads(Path("x.json").read_text())["noise"] == told


def test_the_real_command_where_only_ascii_can_be_printed(place, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = command("noise", "stack", *PLAIN, cwd=place)
    assert done.returncode == 0 and not done.stderr
    assert " +- " in done.stdout and "\\x" not in done.stdout


# --- which frames ---------------------------------------------------------------------------------


def test_frames_are_aligned_first_unless_told_not_to(place, capsys):
    picture = sample_picture("coffee")[..., 1].astype(np.float64)
    rng = np.random.default_rng(0)
    moved = [picture[60:260, 60 + 3 * k : 300 + 3 * k] for k in range(3)]
    moved = [
        np.clip(np.rint(m + rng.normal(0, 6, m.shape)), 0, 255).astype(np.uint8) for m in moved
    ]
    write_frames("moved", moved)
    assert run("noise", "moved", "-o", "law.json", "--hot-pixels", "off") == 0
    size = re.search(r"3 frames of (\d+)x(\d+) grey", capsys.readouterr().out)
    assert size is not None and int(size[1]) < 240
    stack = cofuse.Stack.from_arrays(moved)
    expected = cofuse.estimate_noise(cofuse.aligned(stack, cofuse.align_stack(stack)))
    law = NoiseLaw.from_json(Path("law.json").read_text())
    np.testing.assert_array_equal(law.levels, expected.levels)
    assert run("noise", "moved", *PLAIN) == 0
    assert "3 frames of 240x200 grey" in capsys.readouterr().out


def test_frames_can_be_chosen(place, capsys):
    assert run("noise", "stack", *PLAIN, "--frames", "2", "-o", "law.json") == 0
    assert capsys.readouterr().out.startswith("1 frame of 80x64 grey uint8, ")
    law = NoiseLaw.from_json(Path("law.json").read_text())
    np.testing.assert_array_equal(law.levels, cofuse.estimate_noise(noisy_frames()[1:2]).levels)


# --- the files ------------------------------------------------------------------------------------


def test_the_law_is_written_and_gives_the_same_picture(place, capsys):
    assert run("noise", "stack", *PLAIN, "-o", "law.json") == 0
    law = NoiseLaw.from_json(Path("law.json").read_text())
    np.testing.assert_array_equal(law.levels, cofuse.estimate_noise(noisy_frames()).levels)
    assert law.estimated
    for words in ((), ("--noise", "law.json")):
        name = f"{len(words)}.png"
        assert run("fuse", "stack", "-o", name, *PLAIN, *words) == 0
    np.testing.assert_array_equal(read_image("0.png"), read_image("2.png"))
    found, told = capsys.readouterr().out.splitlines()[-2:]
    assert f"sigma {law.sigma:.1f} (estimated)" in found and f"sigma {law.sigma:.1f}, " in told


def test_the_plot_has_two_panels(place):
    assert run("noise", "stack", *PLAIN, "--plot", "noise.png") == 0
    picture = cv2.imread("noise.png")
    assert picture.shape == (640, 1500, 3)
    np.testing.assert_array_equal(
        picture[..., ::-1], plot_noise(cofuse.estimate_noise(noisy_frames()))
    )
    for panel in (picture[:, :750], picture[:, 750:]):
        colourful = np.ptp(panel.astype(int), axis=2) > 60
        ink = (panel < 128).all(axis=2)
        # Data in their colours, words in dark, and most of it blank.
        assert colourful.sum() > 200 and ink.sum() > 500
        assert (panel == 255).all(axis=2).mean() > 0.8


def test_the_plot_puts_points_where_they_belong():
    rows = np.array([[64.0, 4.0, 0.1], [192.0, 8.0, 0.1]])
    flat = law_of([[6.0, 3.0, 3.0]], model=NoiseModel(6.0), brightness=rows)
    picture = plot_noise(flat).astype(int)

    def is_at(x: float, y: float, colour: tuple[int, int, int]) -> bool:
        return bool(np.abs(picture[round(y), round(x)] - colour).max() <= 8)

    luminance, chroma, model = (31, 95, 153), (209, 98, 43), (138, 145, 155)
    # Grey levels 64 and 192 of 255 along 612 pixels; the grid is from 0 to 10 over 406.
    assert is_at(96 + 612 * 64 / 255, 538 - 40.6 * 4, luminance)
    assert is_at(96 + 612 * 192 / 255, 538 - 40.6 * 8, luminance)
    assert is_at(300, 538 - 40.6 * 6, model) and not is_at(300, 538 - 40.6 * 5, model)
    # In the finest band, at the right; the grid there is from 0 to 8.
    assert is_at(1350, 538 - 406 / 8 * 6, luminance) and is_at(1350, 538 - 406 / 8 * 3, chroma)


@pytest.mark.parametrize("law", [NoiseLaw.white(0.0), NoiseLaw.white(1e-9, colour=True)])
def test_hardly_any_noise_can_be_drawn(law):
    assert plot_noise(law).shape == (640, 1500, 3)


def test_files_that_exist_are_replaced_only_if_asked(place, refused, capsys):
    for option, name in (("-o", "law.json"), ("--plot", "noise.png")):
        Path(name).write_text("precious")
        said = refused("noise", "stack", *PLAIN, option, name)
        assert said == f"{name} exists; pass --overwrite to replace it"
        assert run("noise", "stack", *PLAIN, option, name, "--overwrite") == 0
        assert Path(name).read_bytes() != b"precious"
        capsys.readouterr()


def test_a_run_that_fails_leaves_nothing(place, refused, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise CofuseError("the pen broke; use another")

    monkeypatch.setattr("cofuse.sensor.plot.plot_noise", fail)
    said = refused("noise", "stack", *PLAIN, "-o", "law.json", "--plot", "noise.png")
    assert said == "the pen broke; use another"


def test_what_cannot_be_written_or_read_is_refused(place, refused):
    for words, said in {
        (): "no frames were given; name picture files, a folder or a TIFF",
        ("nowhere",): "nowhere does not exist; expected a picture file, check the path",
        ("stack", "--nose"): "there is no option --nose; see cofuse noise --help",
        ("stack", "--plot", "noise.pdf"): "noise.pdf has suffix '.pdf', which names no picture "
        "format; use one of .png, .tif, .tiff, .jpg, .jpeg, .webp, .bmp, .ome.tif, .ome.tiff",
        ("stack", "-o", "x.png", "--plot", "x.png"): "two outputs have the same file name, x.png; "
        "give each its own",
        ("stack", "--plot", "stack/01.png", "--overwrite"): "01.png is one of the frames or files "
        "read; write the result elsewhere",
        ("stack", "--reference", "4"): "--reference is 4; expected a whole number from 1 to 3",
        ("stack", "--frames", "7"): "the frames '7' are not among the 3 there are; expected "
        "numbers from 1 to 3, the smaller first",
        ("stack", "--transforms", "none.json"): "none.json cannot be opened: No such file or "
        "directory; check the path",
    }.items():
        assert refused("noise", *words) == said
    assert "no/law.json" in refused("noise", "stack", *PLAIN, "-o", "no/law.json")


# --- used again -----------------------------------------------------------------------------------


def save(name: str, law: NoiseLaw) -> None:
    Path(name).write_text(law.to_json())


def broken_frame(folder: str) -> None:
    """Keep what a picture says of itself and spoil its pixels."""
    path = Path(folder) / "00.png"
    content = bytearray(path.read_bytes())
    content[60:-20] = bytes(len(content) - 80)
    path.write_bytes(content)


COMMANDS = {
    "fuse": ("fuse", "stack", "-o", "x.png", *PLAIN),
    "batch": ("batch", ".", "-o", "done", *PLAIN),
    "compare": ("compare", "stack", "-o", "page", "--methods", "fast,average"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_law_is_told_before_any_frame_is_decoded(place, refused, name):
    words = COMMANDS[name]
    broken_frame("stack")
    assert refused(*words, "--noise", "none.json") == (
        "none.json cannot be opened: No such file or directory; check the path"
    )
    Path("words.json").write_text("noise")
    assert refused(*words, "--noise", "words.json") == (
        "words.json: this is no noise law; `cofuse noise` writes one"
    )
    Path("bytes.json").write_bytes(b"\xff\xfe")
    assert refused(*words, "--noise", "bytes.json") == (
        "bytes.json is no text; expected a noise law as `cofuse noise` writes it"
    )
    save("law.json", NoiseLaw.white(5.0))
    assert refused(*words, "--noise", "law.json", "--sigma", "5") == (
        "--sigma and --noise were both given; expected one of them: a noise law has its level"
    )
    save("much.json", NoiseLaw.white(300.0))
    assert refused(*words, "--noise", "much.json") == (
        "much.json: the noise is 300 of 255 grey levels; expected up to 128"
    )
    if name != "batch":  # which goes on with the other stacks
        save("colour.json", NoiseLaw.white(5.0, colour=True))
        assert refused(*words, "--noise", "colour.json") == (
            "the noise law is one of RGB frames, but the frames are grey; estimate it from frames "
            "of the same kind"
        )


def test_the_law_is_not_written_over(place, refused):
    save("law.json", NoiseLaw.white(5.0))
    words = ("--noise", "law.json", "--report", "law.json", "--overwrite")
    assert refused(*COMMANDS["fuse"], *words) == (
        "law.json is one of the frames or files read; write the result elsewhere"
    )


def test_frames_left_out_of_an_alignment_take_their_noise_with_them(place, capsys):
    picture = sample_picture("coffee")[..., 1].clip(8, 240)
    rng = np.random.default_rng(0)
    frames = [picture[60:200, 60 + 2 * k : 240 + 2 * k] for k in range(3)]
    frames = [frame + rng.integers(0, 8, frame.shape, np.uint8) for frame in frames]
    frames.insert(1, rng.integers(0, 255, frames[0].shape, np.uint8))
    write_frames("odd", frames)
    save("law.json", law_of([[3.0], [99.0], [5.0], [7.0]]))
    words = ("--on-failure", "leave-out", "--reference", "1", "--hot-pixels", "off", "--json")
    assert run("fuse", "odd", "-o", "x.png", "--noise", "law.json", *words) == 0
    out, err = capsys.readouterr()
    assert "01.png is left out" in err
    told = json.loads(out)["noise"]["by_frame"]
    assert [sum(row) for row in told] == pytest.approx([3.0, 5.0, 7.0])


def test_a_batch_uses_the_law_and_knows_when_it_has_changed(place, capsys):
    save("law.json", NoiseLaw.white(5.0))
    words = (*COMMANDS["batch"], "--preset", "fast", "--noise", "law.json")
    assert run(*words) == 0
    assert json.loads(Path("done/stack.json").read_text())["noise"]["sigma"] == 5.0
    Path("law.json").rename("same.json")
    capsys.readouterr()
    assert run(*words[:-1], "same.json") == 0
    assert "1 done before" in capsys.readouterr().out
    save("law.json", NoiseLaw.white(6.0))
    assert run(*words) == 1
    assert "done before with other options; pass --overwrite" in capsys.readouterr().err
    assert run(*words, "--overwrite") == 0
    assert json.loads(Path("done/stack.json").read_text())["sigma"] == 6.0


def test_a_batch_says_which_stacks_are_of_another_kind(place, capsys):
    write_frames("colour", noisy_frames(colour=True))
    save("law.json", NoiseLaw.white(5.0))
    assert run(*COMMANDS["batch"], "--preset", "fast", "--noise", "law.json", "--quiet") == 1
    assert "colour: failed: the noise law is one of grey frames" in capsys.readouterr().err
    assert Path("done/stack.tif").exists() and not Path("done/colour.tif").exists()


def test_compare_tells_all_methods_of_the_law(place):
    save("law.json", law_of([[6.0], [6.0], [6.0]]))
    assert run(*COMMANDS["compare"], "--noise", "law.json", "--quiet") == 0
    results = json.loads(Path("page/results.json").read_text())
    assert results["sigma"] == pytest.approx(6.0) and results["sigma_estimated"] is False
    assert results["noise"]["by_frame"] == pytest.approx(np.full((3, 1), 6.0))
    assert [entry["failure"] for entry in results["results"]] == [None, None]
    fast = cofuse.fuse(noisy_frames(), noise=law_of([[6.0]] * 3), preset="fast").image
    shown = read_image(Path("page") / results["results"][0]["file"])
    np.testing.assert_array_equal(shown, fast)
