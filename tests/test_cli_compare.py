"""``cofuse compare``: the folder it writes, the page in it, and what it says of bad input."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest

from cofuse.cli import main
from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import METHODS
from cofuse.evaluation.metrics import psnr, q_mi, to_grey
from cofuse.evaluation.pages import Exhibit, choose_details, page_file
from cofuse.evaluation.scenes import scene_names
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_image, write_image

NASTY = "<b>&\"x'"


@pytest.fixture(scope="module")
def simulation():
    return simulate_stack(sample_picture()[100:164, 200:290], frames=3, sigma=0.0, seed=1)


@pytest.fixture
def frames(tmp_path, simulation):
    folder = tmp_path / "scene-7"
    folder.mkdir()
    return [
        write_image(folder / f"frame-{k}.png", frame) for k, frame in enumerate(simulation.frames)
    ]


def call(capsys, *arguments):
    code = main(["compare", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def error_of(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert code == 2 and out == ""
    assert err.startswith("cofuse: error: ") and err.count("\n") == 1
    return err


class Page(HTMLParser):
    """Checks that tags are closed in order, and gathers what the tests ask for."""

    EMPTY = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def having(self, attribute):
        return [a[attribute] for _, a in self.tags if attribute in a]


def test_writes_pictures_page_and_results(capsys, tmp_path, frames, simulation):
    truth = write_image(tmp_path / "truth.png", simulation.truth)
    out = tmp_path / "out"
    code, text, err = call(
        capsys, *frames, "--methods", "auto,average", "--methods", "gff", "--sigma", "0",
        "--truth", truth, "-o", out,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "psnr" in text and text.splitlines()[-1] == f"look at {out / 'index.html'}"
    assert {path.name for path in out.iterdir()} == {
        "index.html", "results.json", "auto.png", "average.png", "gff.png", "truth.png",
        "frame-1.png", "frame-3.png",
    }  # fmt: skip
    results = json.loads((out / "results.json").read_text())
    assert [r["name"] for r in results["results"]] == ["auto", "average", "gff"]
    assert results["sigma"] == 0 and not results["sigma_estimated"]
    assert results["name"] == "frame"
    for result in results["results"]:
        picture = read_image(out / result["file"])
        assert result["seconds"] > 0 and result["failure"] is None
        assert result["scores"]["psnr"] == psnr(picture, simulation.truth)
        greys = [to_grey(frame) for frame in simulation.frames]
        assert result["scores"]["q_mi"] == q_mi(greys, to_grey(picture))
    assert len(results["details"]) >= 2


def test_page_is_whole_and_asks_nobody(capsys, tmp_path, frames):
    other = write_image(tmp_path / "other.png", read_image(frames[0]))
    out = tmp_path / "out"
    code, _, _ = call(
        capsys, *frames, "--methods", "tv+laplacian,average", "--sigma", "4",
        "--external", f"{NASTY}={other}", "--name", NASTY, "-o", out,
    )  # fmt: skip
    assert code == 0
    text = (out / "index.html").read_text("utf-8")
    assert "://" not in text and "<b>&" not in text and "@import" not in text
    page = Page(text)
    assert NASTY in page.text  # unescaped again by the parser
    files = {unquote(name) for name in page.having("data-show")}
    assert files == {p.name for p in out.glob("*.png")}
    beside = [src for src in page.having("src") if not src.startswith("data:image/png;base64,")]
    assert [unquote(src) for src in beside] == ["tv+laplacian.png"]
    assert not page.having("href")
    assert "prefers-color-scheme: dark" in text
    assert len(re.findall('class="best"', text)) >= 6
    results = json.loads((out / "results.json").read_text())
    assert results["results"][-1] | {"scores": {}} == {
        "name": NASTY, "kind": "external", "file": "b-x.png", "seconds": None, "scores": {},
        "failure": None,
    }  # fmt: skip
    assert (read_image(out / "b-x.png") == read_image(other)).all()


def test_best_values_are_marked(capsys, tmp_path, frames, simulation):
    truth = write_image(tmp_path / "truth.png", simulation.truth)
    out = tmp_path / "out"
    code, _, _ = call(
        capsys, *frames, "--methods", "average", "--sigma", "0", "--truth", truth, "-o", out,
        "--external", f"perfect={truth}", "--metrics", "psnr,ssim", "--quiet",
    )  # fmt: skip
    assert code == 0
    rows = re.findall(r"<tr data-show.*?</tr>", (out / "index.html").read_text(), re.S)
    average, perfect = rows
    assert perfect.count('class="best"') == 2 and "inf" in perfect
    assert average.count('class="best"') == 0
    results = json.loads((out / "results.json").read_text())["results"]
    assert results[1]["scores"] == {"psnr": None, "ssim": pytest.approx(1)}


def test_scene_folder_and_estimated_noise(capsys, tmp_path, frames, simulation):
    folder = frames[0].parent
    write_image(folder / "truth.png", simulation.truth)
    write_image(folder / "source-map.png", np.zeros((64, 90), np.uint8))
    (tmp_path / "theirs").mkdir()
    write_image(tmp_path / "theirs" / "scene-7.tif", simulation.truth)
    code, text, _ = call(
        capsys, folder, "--external", f"theirs={tmp_path / 'theirs'}", "-o", tmp_path / "out",
        "--json",
    )  # fmt: skip
    assert code == 0
    results = json.loads(text)
    assert results["name"] == "scene-7" and results["sigma_estimated"]
    assert results["frames"]["names"] == ["frame-0.png", "frame-1.png", "frame-2.png"]
    methods = [r["name"] for r in results["results"]]
    assert methods == ["auto", "paper", "average", "laplacian", "gff", "sf-dct", "theirs"]
    assert "psnr" in results["results"][0]["scores"]
    assert results == json.loads((tmp_path / "out" / "results.json").read_text())


def test_folder_of_a_simulation(capsys, tmp_path):
    folder = tmp_path / "simulated"
    assert main(["simulate", "--frames", "2", "--quiet", "-o", str(folder)]) == 0
    out = tmp_path / "out"
    code, text, _ = call(
        capsys, folder, "--methods", "average", "--metrics", "psnr", "--json", "-o", out
    )
    assert code == 0
    results = json.loads(text)
    assert results["name"] == "simulated" and len(results["frames"]["names"]) == 2
    truth = read_image(folder / "truth.png")
    assert results["results"][0]["scores"]["psnr"] == psnr(read_image(out / "average.png"), truth)


def test_failing_method_is_told_and_the_others_go_on(capsys, tmp_path, frames, monkeypatch):
    def refuse(stack, sigma):
        raise CofuseError("it needs <something> not installed")

    def fail(stack, sigma):
        raise ValueError("a\nbug")

    monkeypatch.setitem(METHODS, "gff", refuse)
    monkeypatch.setitem(METHODS, "dwt", fail)
    out = tmp_path / "out"
    code, text, _ = call(capsys, *frames, "--methods", "gff,average,dwt", "-o", out)
    assert code == 0
    assert "gff failed: it needs <something> not installed" in text
    assert "dwt failed: ValueError: a bug" in text
    page = (out / "index.html").read_text()
    assert "it needs &lt;something&gt; not installed" in page and Page(page)
    results = json.loads((out / "results.json").read_text())["results"]
    assert [bool(r["failure"]) for r in results] == [True, False, True]
    assert not (out / "gff.png").exists()
    err = error_of(capsys, *frames, "--methods", "gff,dwt", "-o", tmp_path / "none")
    assert "all methods failed" in err and not (tmp_path / "none").exists()


def test_bad_input_is_told_and_nothing_is_written(capsys, tmp_path, frames, simulation):
    small = write_image(tmp_path / "small.png", simulation.truth[1:])
    out = ("-o", tmp_path / "out")
    err = error_of(capsys, *frames, "--methods", "average,nope", *out)
    assert (
        "no method 'nope'" in err
        and "auto, fast, paper" in err
        and "average, laplacian" in err
        and "bm3d" in err
    )
    assert "no metric 'x'" in error_of(capsys, *frames, "--metrics", "x", *out)
    assert "psnr compares with the truth" in error_of(capsys, *frames, "--metrics", "psnr", *out)
    assert "90x63 RGB" in error_of(capsys, *frames, "--truth", small, *out)
    assert "90x63 RGB" in error_of(capsys, *frames, "--external", f"a={small}", *out)
    assert "does not exist" in error_of(capsys, *frames, "--truth", tmp_path / "no.png", *out)
    assert "does not exist" in error_of(capsys, *frames, "--external", f"a={tmp_path}/no", *out)
    for text in ("a", "=a.png", "a="):
        assert "expected NAME=PATH" in error_of(capsys, *frames, "--external", text, *out)
    assert "is taken" in error_of(capsys, *frames, "--external", f"auto={frames[0]}", *out)
    err = error_of(capsys, *frames, "--external", f"a={tmp_path}", *out)
    assert "no picture frame.png or scene-7.png" in err
    assert "--sigma is -1" in error_of(capsys, *frames, "--sigma", "-1", *out)
    assert "--sigma is 'loud'" in error_of(capsys, *frames, "--sigma", "loud", *out)
    assert "only one frame" in error_of(capsys, frames[0], *out)
    assert "no frames" in error_of(capsys, *out)
    assert "all frames must agree" in error_of(capsys, *frames, small, *out)
    assert not (tmp_path / "out").exists()


def test_full_folder_needs_overwrite(capsys, tmp_path, frames):
    out = tmp_path / "out"
    out.mkdir()
    (out / "average.png").write_text("precious")
    arguments = *frames, "--methods", "average", "--sigma", "0", "-o", out
    assert "--overwrite" in error_of(capsys, *arguments)
    assert (out / "average.png").read_text() == "precious"
    assert call(capsys, *arguments, "--overwrite", "--quiet") == (0, "", "")
    assert read_image(out / "average.png").shape == (64, 90, 3)


@pytest.mark.parametrize(("dtype", "white"), [(np.uint16, 4095), (np.float32, 1)])
def test_deep_frames_are_shown_in_16_bits(capsys, tmp_path, simulation, dtype, white):
    paths = []
    for k, frame in enumerate(simulation.frames[:2]):
        deep = (frame[..., 0] / 255.0 * white).astype(dtype)
        paths.append(write_image(tmp_path / f"f{k}.tif", deep))
    out = tmp_path / "out"
    code, _, _ = call(
        capsys, *paths, "--methods", "average", "--sigma", "0", "--white", white, "-o", out
    )
    assert code == 0
    shown = read_image(out / "average.png")
    mean = np.mean([frame[..., 0] for frame in simulation.frames[:2]], axis=0)
    assert shown.dtype == np.uint16
    assert np.abs(shown / 257.0 - mean).max() < 0.1


def test_details_are_apart_and_inside():
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (200, 300), dtype=np.uint8) for _ in range(3)]
    details = choose_details([Exhibit(str(k), "method", p) for k, p in enumerate(pictures)])
    assert len(details) == 3
    for k, one in enumerate(details):
        assert 0 <= one.left <= 300 - one.side and 0 <= one.top <= 200 - one.side
        for other in details[:k]:
            assert max(abs(one.left - other.left), abs(one.top - other.top)) > one.side
    tiny = [Exhibit("a", "method", p[:20, :20]) for p in pictures]
    assert [detail.side for detail in choose_details(tiny)] == [20]


def test_details_show_where_methods_disagree():
    plain = np.full((240, 240), 100, np.uint8)
    other = plain.copy()
    other[150:170, 30:50] = 180
    detail = choose_details([Exhibit("a", "method", plain), Exhibit("b", "method", other)])[0]
    assert detail.top <= 150 and detail.top + detail.side >= 170
    assert detail.left <= 30 and detail.left + detail.side >= 50


def test_file_names_are_safe_and_not_used_twice():
    taken = set()
    names = ["tv+gff", "../up", "a b", "A-b", "", "..", "Größe"]
    assert [page_file(name, taken) for name in names] == [
        "tv+gff.png", "up.png", "a-b.png", "A-b-2.png", "picture.png", "picture-2.png", "Größe.png",
    ]  # fmt: skip


def test_names_of_stacks(tmp_path):
    def names(*files):
        paths = [tmp_path / "box" / file for file in files]
        return scene_names(paths, paths)

    assert names("lytro-01-A.jpg", "lytro-01-B.jpg") == ["lytro-01", "box"]
    assert names("img_09.png", "img_10.png") == ["img", "box"]
    assert names("c_01_1.tif", "c_01_2.tif") == ["c_01", "box"]
    assert names("x.png", "y.png") == ["box"]
    assert names("pages.tif") == ["pages"]
