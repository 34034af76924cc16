"""``cofuse compare``: the folder it writes, the page in it, and what it says of bad input."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import METHODS
from cofuse.evaluation.metrics import psnr, q_mi, to_grey
from cofuse.evaluation.pages import Exhibit, choose_details, page_file
from cofuse.evaluation.scenes import scene_names
from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import read_image, write_image
from tests.command_line import run

NASTY = "<b>&\"x'"
FRAMES = tuple(f"scene-7/frame-{k}.png" for k in range(3))


@pytest.fixture(scope="module")
def simulation():
    return simulate_stack(sample_picture()[100:164, 200:290], frames=3, sigma=0.0, seed=1)


@pytest.fixture
def place(tmp_path, simulation, monkeypatch):
    """The working directory, with the frames in a folder, and their truth.png."""
    monkeypatch.chdir(tmp_path)
    Path("scene-7").mkdir()
    for name, frame in zip(FRAMES, simulation.frames, strict=True):
        write_image(name, frame)
    write_image("truth.png", simulation.truth)
    return tmp_path


@pytest.fixture
def compared(capsys):
    """Run the command, which must succeed, and return what it prints."""

    def call(*arguments):
        assert run("compare", *arguments, "-o", "out") == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return call


def results():
    """What is written of the methods."""
    return json.loads(Path("out/results.json").read_text())


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


def test_writes_pictures_page_and_results(place, compared, simulation):
    methods = ("--methods", "auto,average", "--methods", "gff", "--sigma", "0")
    text = compared(*FRAMES, *methods, "--truth", "truth.png")
    assert "psnr" in text and text.splitlines()[-1] == f"look at {Path('out', 'index.html')}"
    assert {path.name for path in Path("out").iterdir()} == {
        "index.html", "results.json", "auto.png", "average.png", "gff.png", "truth.png",
        "frame-1.png", "frame-3.png",
    }  # fmt: skip
    facts = results()
    assert [r["name"] for r in facts["results"]] == ["auto", "average", "gff"]
    assert facts["sigma"] == 0 and not facts["sigma_estimated"]
    assert facts["name"] == "frame" and len(facts["details"]) >= 2
    greys = [to_grey(frame) for frame in simulation.frames]
    for result in facts["results"]:
        picture = read_image(Path("out", result["file"]))
        assert result["seconds"] > 0 and result["failure"] is None
        assert result["scores"]["psnr"] == psnr(picture, simulation.truth)
        assert result["scores"]["q_mi"] == q_mi(greys, to_grey(picture))


def test_page_is_whole_and_asks_nobody(place, compared):
    write_image("other.png", read_image(FRAMES[0]))
    methods = ("--methods", "tv+laplacian,average", "--sigma", "4")
    compared(*FRAMES, *methods, "--external", f"{NASTY}=other.png", "--name", NASTY)
    text = Path("out/index.html").read_text("utf-8")
    assert "://" not in text and "<b>&" not in text and "@import" not in text
    page = Page(text)
    assert NASTY in page.text  # unescaped again by the parser
    files = {unquote(name) for name in page.having("data-show")}
    assert files == {p.name for p in Path("out").glob("*.png")}
    beside = [src for src in page.having("src") if not src.startswith("data:image/png;base64,")]
    assert [unquote(src) for src in beside] == ["tv+laplacian.png"]
    assert not page.having("href")
    assert "prefers-color-scheme: dark" in text
    assert len(re.findall('class="best"', text)) >= 6
    assert results()["results"][-1] | {"scores": {}} == {
        "name": NASTY, "kind": "external", "file": "b-x.png", "seconds": None, "scores": {},
        "failure": None,
    }  # fmt: skip
    assert (read_image("out/b-x.png") == read_image("other.png")).all()


def test_best_values_are_marked(place, compared):
    perfect = ("--truth", "truth.png", "--external", "perfect=truth.png", "--metrics", "psnr,ssim")
    assert compared(*FRAMES, "--methods", "average", "--sigma", "0", *perfect, "--quiet") == ""
    rows = re.findall(r"<tr data-show.*?</tr>", Path("out/index.html").read_text(), re.S)
    average, perfect = rows
    assert perfect.count('class="best"') == 2 and "inf" in perfect
    assert average.count('class="best"') == 0
    assert results()["results"][1]["scores"] == {"psnr": None, "ssim": pytest.approx(1)}


def test_scene_folder_and_estimated_noise(place, compared, simulation):
    write_image("scene-7/truth.png", simulation.truth)
    write_image("scene-7/source-map.png", np.zeros((64, 90), np.uint8))
    Path("theirs").mkdir()
    write_image("theirs/scene-7.tif", simulation.truth)
    facts = json.loads(compared("scene-7", "--external", "theirs=theirs", "--json"))
    assert facts["name"] == "scene-7" and facts["sigma_estimated"]
    assert facts["frames"]["names"] == ["frame-0.png", "frame-1.png", "frame-2.png"]
    methods = [r["name"] for r in facts["results"]]
    assert methods == ["auto", "paper", "average", "laplacian", "gff", "sf-dct", "theirs"]
    assert "psnr" in facts["results"][0]["scores"]
    assert facts == results()


def test_folder_of_a_simulation(place, compared):
    assert run("simulate", "--frames", "2", "--quiet", "-o", "simulated") == 0
    compared("simulated", "--methods", "average", "--metrics", "psnr")
    facts = results()
    assert facts["name"] == "simulated" and len(facts["frames"]["names"]) == 2
    expected = psnr(read_image("out/average.png"), read_image("simulated/truth.png"))
    assert facts["results"][0]["scores"]["psnr"] == expected


def test_failing_method_is_told_and_the_others_go_on(place, compared, refused, monkeypatch):
    def refuse(stack, sigma):
        raise CofuseError("it needs <something> not installed")

    def fail(stack, sigma):
        raise ValueError("a\nbug")

    monkeypatch.setitem(METHODS, "gff", refuse)
    monkeypatch.setitem(METHODS, "dwt", fail)
    text = compared(*FRAMES, "--methods", "gff,average,dwt")
    assert "gff failed: it needs <something> not installed" in text
    assert "dwt failed: ValueError: a bug" in text
    page = Path("out/index.html").read_text()
    assert "it needs &lt;something&gt; not installed" in page and Page(page)
    assert [bool(r["failure"]) for r in results()["results"]] == [True, False, True]
    assert not Path("out/gff.png").exists()
    failing = ("compare", *FRAMES, "--methods", "gff,dwt", "-o", "none")
    assert "all methods failed" in refused(*failing)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FRAMES, "--methods", "average,nope"), ("no method 'nope'", "average, laplacian")),
        ((*FRAMES, "--methods", "nope"), ("bm3d", "auto, fast, paper")),
        ((*FRAMES, "--metrics", "x"), ("no metric 'x'",)),
        ((*FRAMES, "--metrics", "psnr"), ("psnr compares with the truth",)),
        ((*FRAMES, "--truth", "small.png"), ("90x63 RGB",)),
        ((*FRAMES, "--external", "a=small.png"), ("90x63 RGB",)),
        ((*FRAMES, "--truth", "no.png"), ("does not exist",)),
        ((*FRAMES, "--external", "a=no.png"), ("does not exist",)),
        ((*FRAMES, "--external", "a"), ("expected NAME=PATH",)),
        ((*FRAMES, "--external", "=a.png"), ("expected NAME=PATH",)),
        ((*FRAMES, "--external", "a="), ("expected NAME=PATH",)),
        ((*FRAMES, "--external", "auto=truth.png"), ("is taken",)),
        ((*FRAMES, "--external", "a=."), ("no picture frame.png or scene-7.png",)),
        ((*FRAMES, "--sigma", "-1"), ("--sigma is -1",)),
        ((*FRAMES, "--sigma", "loud"), ("--sigma is 'loud'",)),
        (FRAMES[:1], ("only one frame",)),
        ((), ("no frames",)),
        ((*FRAMES, "small.png"), ("all frames must agree",)),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(place, refused, simulation, arguments, words):
    write_image("small.png", simulation.truth[1:])
    refused("compare", *arguments, "-o", "out", words=words)


def test_full_folder_needs_overwrite(place, compared, refused):
    Path("out").mkdir()
    Path("out/average.png").write_text("precious")
    arguments = (*FRAMES, "--methods", "average", "--sigma", "0")
    refused("compare", *arguments, "-o", "out", words=("--overwrite",))
    compared(*arguments, "--overwrite")
    assert read_image("out/average.png").shape == (64, 90, 3)


@pytest.mark.parametrize(("dtype", "white"), [(np.uint16, 4095), (np.float32, 1)])
def test_deep_frames_are_shown_in_16_bits(place, compared, simulation, dtype, white):
    pair = [frame[..., 0] for frame in simulation.frames[:2]]
    for name, frame in zip(("a.tif", "b.tif"), pair, strict=True):
        write_image(name, (frame / 255.0 * white).astype(dtype))
    compared("a.tif", "b.tif", "--methods", "average", "--sigma", "0", "--white", white)
    shown = read_image("out/average.png")
    assert shown.dtype == np.uint16
    assert np.abs(shown / 257.0 - np.mean(pair, axis=0)).max() < 0.1


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
