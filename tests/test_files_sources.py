"""Which files are meant: names, folders, patterns, lists, and frames that do not fit."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from cofuse.errors import CofuseError
from cofuse.files import picture_files, read_stack

GREY = np.zeros((4, 5), np.uint8)


@pytest.fixture
def shots(tmp_path) -> Path:
    """A folder of numbered pictures, a text and a hidden file, and a folder within."""
    folder = tmp_path / "shots"
    (folder / "day2").mkdir(parents=True)
    for k in (10, 2, 1):
        cv2.imwrite(str(folder / f"img{k}.png"), GREY + k)
        cv2.imwrite(str(folder / "day2" / f"img{k}.png"), GREY + 100 + k)
    (folder / "notes.md").write_text("no picture")
    (folder / ".img0.png").write_text("hidden")
    return folder


def names(paths) -> list[str]:
    return [path.name for path in picture_files(paths)]


def test_patterns_are_expanded_in_natural_order(shots):
    assert names(str(shots / "img*.png")) == ["img1.png", "img2.png", "img10.png"]
    assert names([shots / "img?.png"]) == ["img1.png", "img2.png"]
    assert names(str(shots / "*")) == ["img1.png", "img2.png", "img10.png"]
    assert names(str(shots / "*.md")) == ["notes.md"]
    every = picture_files(str(shots / "**" / "*.png"))
    assert [p.parent.name for p in every] == ["day2"] * 3 + ["shots"] * 3
    stack = read_stack(str(shots / "img*.png"))
    assert [int(frame[0, 0]) for frame in stack] == [1, 2, 10]


def test_a_file_whose_name_looks_like_a_pattern(shots):
    cv2.imwrite(str(shots / "a[1].png"), GREY)
    assert names(str(shots / "a[1].png")) == ["a[1].png"]


def test_given_order_is_kept(shots):
    given = [shots / "img10.png", shots / "img1.png", shots / "day2", shots / "img10.png"]
    found = names(given)
    assert found == ["img10.png", "img1.png", "img1.png", "img2.png", "img10.png", "img10.png"]


def test_patterns_that_match_nothing(shots):
    for pattern in ("none*.png", "day3/*"):
        with pytest.raises(CofuseError, match="matches no file"):
            picture_files(str(shots / pattern))


@pytest.mark.parametrize("at", ["@", ""])
def test_lists(shots, at):
    listing = shots / "frames.txt"
    text = "\ufeff# the second day\r\nday2/img10.png\r\n\r\n  img2.png  \r\nimg1*.png\n"
    listing.write_text(text, "utf-8")
    found = picture_files(f"{at}{listing}")
    expected = ["day2/img10.png", "img2.png", "img1.png", "img10.png"]
    assert found == [shots / name for name in expected]
    outside = shots.parent / "elsewhere.png"
    listing.write_text(f"{outside}\nday2\n")
    assert picture_files(f"{at}{listing}")[0] == outside
    assert len(picture_files([f"{at}{listing}", shots / "img1.png"])) == 5


def test_lists_of_any_name(shots, monkeypatch):
    (shots / "frames").write_text("img2.png")
    assert names(f"@{shots / 'frames'}") == ["img2.png"]
    monkeypatch.chdir(shots)
    assert picture_files("@frames") == [Path("img2.png")]
    (shots / "@odd.png").write_bytes((shots / "img1.png").read_bytes())
    assert picture_files("@odd.png") == [Path("@odd.png")]  # there is such a file


def test_list_on_standard_input(shots, monkeypatch):
    monkeypatch.chdir(shots)
    monkeypatch.setattr(sys, "stdin", io.StringIO("img10.png\nday2\n"))
    assert names(["-", "img1.png"]) == [
        "img10.png",
        "img1.png",
        "img2.png",
        "img10.png",
        "img1.png",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(CofuseError, match="standard input names no pictures"):
        picture_files("-")


def test_bad_lists(shots):
    listing = shots / "frames.txt"
    for content, words in (
        (b"", "names no pictures"),
        (b"# nothing\n\n", "names no pictures"),
        (b"\xff\xfe\0\x01", "UTF-8"),
        (b"frames.txt", "another list"),
        (b"@frames.txt", "another list"),
        (b"-", "another list"),
        (b"none*.png", "matches no file"),
        (b"a\0b.png", r"b\.png .*check the path"),
    ):
        listing.write_bytes(content)
        with pytest.raises(CofuseError, match=words):
            read_stack(f"@{listing}")
    listing.write_text("gone.png")
    with pytest.raises(CofuseError, match=r"gone\.png does not exist"):
        read_stack(listing)
    with pytest.raises(CofuseError, match="cannot be read as a list"):
        picture_files(f"@{shots / 'no-such-list'}")
    with pytest.raises(CofuseError, match="cannot be read as a list"):
        picture_files(f"@{shots}")


def test_raw_beside_jpeg_is_two_series(tmp_path):
    for name in ("a1.JPG", "a2.jpg", "a1.CR2", "a2.cr2"):
        (tmp_path / name).touch()
    with pytest.raises(CofuseError, match=r"camera RAW .*a\d\.(JPG|jpg).*\*\.(JPG|jpg)"):
        picture_files(tmp_path)
    assert len(names(str(tmp_path / "*.[cC][rR]2"))) == 2


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_odd_frame_is_named(tmp_path, place):
    kinds = {"size": np.zeros((4, 6), np.uint8), "depth": GREY.astype(np.uint16)}
    kinds["colour"] = np.zeros((4, 5, 3), np.uint8)
    for kind, odd in kinds.items():
        folder = tmp_path / kind
        folder.mkdir()
        for k in range(5):
            cv2.imwrite(str(folder / f"{k}.png"), odd if k == place else GREY)
        usual = 1 if place == 0 else 0
        with pytest.raises(
            CofuseError, match=rf"{place}\.png is .* but .*{usual}\.png is 5x4 grey"
        ):
            read_stack(folder)


def test_folder_that_cannot_be_listed(shots, monkeypatch):
    def deny(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", deny)
    with pytest.raises(CofuseError, match="Permission denied"):
        picture_files(shots)


def test_bytes_of_no_encoding_in_a_name(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    path = tmp_path / name
    path.write_bytes(cv2.imencode(".png", GREY)[1].tobytes())
    assert len(read_stack(path)) == 1
