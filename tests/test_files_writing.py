"""Writing: exact round trips, checked by other readers; no half-written file, whatever fails."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import cofuse
from cofuse.errors import CofuseError
from cofuse.evaluation.simulation import SAMPLE_NAMES, sample_picture
from cofuse.files import (
    check_destination,
    check_format,
    encoding,
    plain,
    read_alpha,
    read_image,
    write_image,
    write_json,
)

rng = np.random.default_rng(11)


def picture(dtype: str, channels: int) -> np.ndarray:
    shape = (13, 19, 3) if channels == 3 else (13, 19)
    if dtype.startswith("float"):
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def read_with_opencv(path: Path) -> np.ndarray:
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    return image if image.ndim == 2 else image[..., ::-1]


def refuse(path: Path, *words: str, call=None) -> None:
    """Check that the call fails in one line, names the file, and leaves the folder as it was."""
    folder = path.parent
    before = sorted(folder.iterdir()) if folder.is_dir() else None
    with pytest.raises(CofuseError) as caught:
        (call or (lambda: write_image(path, picture("uint8", 3))))()
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    for word in words:
        assert word in message, message
    assert before == (sorted(folder.iterdir()) if folder.is_dir() else None)


# --- round trips -------------------------------------------------------------------------------

LOSSLESS = [(s, d) for s in (".png", ".tif", ".TIFF") for d in ("uint8", "uint16")]
LOSSLESS += [(".tif", "float32"), (".tif", "float64"), (".bmp", "uint8"), (".webp", "uint8")]


@pytest.mark.parametrize(("suffix", "dtype"), LOSSLESS)
@pytest.mark.parametrize("channels", [1, 3])
def test_lossless_formats_seen_by_opencv(tmp_path, suffix, dtype, channels):
    image = picture(dtype, channels)
    path = write_image(str(tmp_path / f"a{suffix}"), image)
    assert isinstance(path, Path)
    expected = image
    if suffix == ".webp" and channels == 1:
        expected = np.repeat(image[..., None], 3, axis=-1)
    for actual in (read_with_opencv(path), read_image(path)):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), case=st.sampled_from(LOSSLESS), colour=st.booleans())
def test_lossless_round_trip(data, case, colour):
    suffix, dtype = case
    size = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    elements = {"allow_nan": False} if dtype.startswith("float") else None
    shape = (*size, 3) if colour or suffix == ".webp" else size
    image = data.draw(hnp.arrays(dtype, shape, elements=elements))
    with tempfile.TemporaryDirectory() as folder:
        path = write_image(Path(folder) / f"a{suffix}", image)
        actual = read_image(path)
    assert actual.dtype == image.dtype and actual.shape == image.shape
    assert actual.tobytes() == image.tobytes()


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG"])
def test_jpeg_is_good_and_keeps_full_colour(tmp_path, suffix):
    y, x = np.mgrid[:40, :60]
    image = np.stack([4 * x, 5 * y, 255 - 3 * x - y], axis=-1).astype(np.uint8)
    path = write_image(tmp_path / f"a{suffix}", image)
    assert np.abs(read_with_opencv(path).astype(int) - image).max() < 12
    with Image.open(path) as opened:
        assert [layer[1:3] for layer in opened.layer] == [(1, 1)] * 3  # 4:4:4
        assert opened.quantization[0][0] <= 2  # quality 95
    grey = write_image(tmp_path / f"g{suffix}", image[..., 0])
    assert read_with_opencv(grey).ndim == 2


def test_tiff_is_plain_and_compressed(tmp_path):
    path = write_image(tmp_path / "a.tif", np.zeros((300, 400, 3), np.uint16))
    assert path.stat().st_size < 10_000
    with tifffile.TiffFile(path) as tif:
        page = tif.pages[0]
        assert (int(page.compression), int(page.predictor)) == (8, 2)
        assert page.tags["Software"].value == f"cofuse {cofuse.__version__}"
        assert "ImageDescription" not in page.tags


def test_views_and_foreign_byte_order(tmp_path):
    image = picture("uint16", 3)
    for k, view in enumerate((image[::-1, ::2], image.transpose(1, 0, 2), image.astype(">u2"))):
        for suffix in (".png", ".tif"):
            path = write_image(tmp_path / f"{k}{suffix}", view)
            np.testing.assert_array_equal(read_with_opencv(path), view)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint16", "float32", "float64"])
@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp", ".bmp"])
def test_fewer_bits_only_when_asked_for(tmp_path, suffix, dtype):
    path, image = tmp_path / f"a{suffix}", picture(dtype, 3)
    words = (dtype, ".tif", "depth=8", *([".png"] if dtype == "uint16" else []))
    refuse(path, *words, call=lambda: write_image(path, image))
    refuse(path, *words, call=lambda: check_format(path, dtype=dtype))
    refuse(path, "depth=8", call=lambda: write_image(path, image, depth=16))
    check_format(path, dtype=dtype, depth=8)
    assert read_image(write_image(path, image, depth=8)).dtype == np.uint8


def test_float_png_and_odd_types(tmp_path):
    path = tmp_path / "a.png"
    refuse(path, "float32", "choose .tif", call=lambda: write_image(path, picture("float32", 1)))
    for dtype in ("int16", "bool", "complex64"):
        image = picture("uint8", 1).astype(dtype)
        refuse(path, dtype, "expected uint8", call=lambda image=image: write_image(path, image))


@pytest.mark.parametrize("shape", [(0, 5), (5,), (4, 5, 1), (4, 5, 4), (2, 4, 5, 3)])
def test_shapes(tmp_path, shape):
    path = tmp_path / "a.png"
    refuse(path, "expected (height", call=lambda: write_image(path, np.zeros(shape, np.uint8)))


def test_names(tmp_path):
    refuse(tmp_path / "a.gif", "'.gif'", ".png, .tif, .tiff, .jpg, .jpeg, .webp, .bmp, .ome.tif")
    refuse(tmp_path / "noname", "no suffix")
    refuse(tmp_path / "none" / "a.png", "none does not exist", "create the folder")
    (tmp_path / "file.txt").touch()
    refuse(tmp_path / "file.txt" / "a.png", "is not a folder")
    (tmp_path / "folder.png").mkdir()
    refuse(tmp_path / "folder.png", "is a folder")
    refuse(tmp_path / ("x" * 300 + ".png"), "too long")
    os.mkfifo(tmp_path / "pipe.png")
    path = tmp_path / "pipe.png"
    refuse(path, "ordinary", call=lambda: write_image(path, picture("uint8", 1), overwrite=True))


def test_names_are_checked_without_writing(tmp_path):
    check_format(str(tmp_path / "a.png"))
    assert check_destination(tmp_path / "a.json", overwrite=False) == tmp_path / "a.json"
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "a.gif"
    refuse(path, ".gif", call=lambda: check_format(path))
    path = tmp_path / "none/a.png"
    refuse(path, "does not exist", call=lambda: check_destination(path, overwrite=False))


def test_existing_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"precious")
    refuse(path, "exists; pass `overwrite=True` to replace it")
    refuse(path, "exists", call=lambda: check_destination(path, overwrite=False))
    assert path.read_bytes() == b"precious"
    image = picture("uint8", 3)
    assert check_destination(path, overwrite=True) == path
    write_image(path, image, overwrite=True)
    np.testing.assert_array_equal(read_with_opencv(path), image)
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *args: False)
    refuse(tmp_path / "a.png", "no permission")


# --- all or nothing ----------------------------------------------------------------------------


def half(file, *_):
    """Write a little, then fail as an encoder does."""
    file.write(b"half a picture")
    raise RuntimeError("encoder\nfailed")


@pytest.mark.parametrize("overwrite", [False, True])
def test_failing_encoder(tmp_path, monkeypatch, overwrite):
    path = tmp_path / "a.png"
    if overwrite:
        path.write_bytes(b"precious")
    call = lambda: write_image(path, picture("uint8", 3), overwrite=overwrite)  # noqa: E731
    monkeypatch.setitem(encoding.FORMATS, ".png", encoding.Format(("uint8",), half))
    refuse(path, "encoder failed", call=call)
    assert path.exists() == overwrite and (not overwrite or path.read_bytes() == b"precious")


def test_real_encoders_that_fail(tmp_path, monkeypatch):
    wide = np.zeros((1, 70_000), np.uint8)
    for name in ("a.jpg", "a.webp"):
        path = tmp_path / name
        refuse(path, "could not be written", call=lambda path=path: write_image(path, wide))

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refuse(tmp_path / "a.tif", "No space left")
    with monkeypatch.context() as patch:
        patch.setattr(imagecodecs, "png_encode", lambda image, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # a bug of ours is not dressed up
            write_image(tmp_path / "a.png", picture("uint8", 1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_image(tmp_path / "a.png", picture("uint8", 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, links):
    path = tmp_path / "a.png"

    def encode(*_):
        path.write_bytes(b"precious")

    def no_links(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setitem(encoding.FORMATS, ".png", encoding.Format(("uint8",), encode))
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(CofuseError, match="exists"):
        write_image(path, picture("uint8", 1))
    assert path.read_bytes() == b"precious" and list(tmp_path.iterdir()) == [path]


def test_file_system_without_links(tmp_path, monkeypatch):
    def no_links(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    image = picture("uint8", 1)
    path = write_image(tmp_path / "a.png", image)
    np.testing.assert_array_equal(read_with_opencv(path), image)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
@pytest.mark.parametrize("overwrite", [False, True])
def test_permissions_follow_the_umask(tmp_path, umask, mode, overwrite):
    before = os.umask(umask)
    try:
        image = write_image(tmp_path / "a.png", picture("uint8", 1), overwrite=overwrite)
        report = write_json(tmp_path / "a.json", {}, overwrite=overwrite)
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (image, report)] == [mode, mode]


def test_link_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "b.png", tmp_path / "a.png"
    target.touch()
    link.symlink_to(target)
    write_image(link, picture("uint8", 1), overwrite=True)
    assert link.is_symlink() and target.stat().st_size > 0


# --- reports -----------------------------------------------------------------------------------


def test_json(tmp_path):
    path = write_json(tmp_path / "a.json", {"name": "Schärfe σ", "values": [1, 2.5, None]})
    text = path.read_bytes().decode("utf-8")
    assert "Schärfe σ" in text and text.endswith("}\n") and '\n  "values"' in text
    assert json.loads(text) == {"name": "Schärfe σ", "values": [1, 2.5, None]}
    refuse(path, "exists", call=lambda: write_json(path, {}))
    refuse(path, "exists", call=lambda: check_destination(path, overwrite=False))
    write_json(path, {}, overwrite=True)
    assert path.read_text() == "{}\n"
    for bad in ({"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": "\ud800"}):
        new = tmp_path / "bad.json"
        refuse(new, "cannot be written as JSON", call=lambda bad=bad, new=new: write_json(new, bad))
    refuse(tmp_path / "no" / "b.json", call=lambda: write_json(tmp_path / "no" / "b.json", {}))


@dataclass(frozen=True)
class Settings:
    penalty: str = "l1"
    sizes: tuple[int, ...] = (3, 4)


def test_values_become_what_json_knows():
    given = {
        "omega": Path("x.npz"),
        "fusion": Settings(),
        "seed": np.int64(3),
        "weights": np.array([1.0, np.inf]),
        "align": True,
        7: os.fsdecode(b"caf\xe9"),
    }
    assert plain(given) == {
        "omega": "x.npz",
        "fusion": {"penalty": "l1", "sizes": [3, 4]},
        "seed": 3,
        "weights": [1.0, None],
        "align": True,
        "7": "caf\N{REPLACEMENT CHARACTER}",
    }


# --- depth, alpha and quality --------------------------------------------------------------------


def test_depths(tmp_path):
    every = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    path = write_image(tmp_path / "a.png", every, depth=8)
    expected = np.floor(every / 257 + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(read_image(path), expected)
    back = write_image(tmp_path / "b.png", expected, depth=16)
    np.testing.assert_array_equal(read_image(back), expected.astype(np.uint16) * 257)
    floats = write_image(tmp_path / "c.tif", every, depth="float")
    assert read_image(floats).dtype == np.float32
    np.testing.assert_allclose(read_image(floats), every / 65535, rtol=1e-6)
    again = write_image(tmp_path / "d.png", read_image(floats), depth=16)
    np.testing.assert_array_equal(read_image(again), every)
    outside = np.array([[-0.5, 0.5, 1.5]], np.float64)
    clipped = write_image(tmp_path / "e.bmp", outside, depth=8)
    assert read_image(clipped).tolist() == [[0, 128, 255]]
    np.testing.assert_array_equal(
        read_image(write_image(tmp_path / "f.tif", outside, depth="float")), outside
    )


def test_depth_by_the_value_of_white(tmp_path):
    image = np.array([[0, 2048, 4095, 5000]], np.uint16)
    path = write_image(tmp_path / "a.png", image, depth=8, white=4095)
    assert read_image(path).tolist() == [[0, 128, 255, 255]]
    path = write_image(tmp_path / "b.png", image, depth=16, white=4095)  # nothing to convert
    assert read_image(path).tolist() == image.tolist()


def test_bad_depth_quality_and_alpha(tmp_path):
    image, alpha = picture("uint8", 3), picture("uint8", 1)
    path = tmp_path / "a.png"
    with pytest.raises(CofuseError, match="`depth` is 12"):
        write_image(path, image, depth=12)
    with pytest.raises(CofuseError, match="`depth` is '8'"):
        check_format(path, depth="8")
    with pytest.raises(CofuseError, match="NaN"):
        write_image(path, np.full((3, 3), np.nan), depth=8)
    for quality in (0, 101, 50.5):
        with pytest.raises(CofuseError, match=f"`quality` is {quality}; .* from 1 to 100"):
            write_image(path, image, quality=quality)
    assert not list(tmp_path.iterdir())
    refuse(path, "alpha", call=lambda: write_image(path, image, alpha=alpha[1:]))
    refuse(path, "alpha", call=lambda: write_image(path, image, alpha=alpha.astype(np.uint16)))
    for name in ("a.jpg", "a.bmp"):
        path = tmp_path / name
        refuse(path, "transparency", call=lambda p=path: write_image(p, image, alpha=alpha))
        refuse(path, ".png", call=lambda p=path: check_format(p, alpha=True))


@pytest.mark.parametrize(
    ("suffix", "dtype"), [case for case in LOSSLESS if case[0] != ".bmp"] + [(".ome.tif", "uint16")]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_alpha_comes_back(tmp_path, suffix, dtype, channels):
    image, alpha = picture(dtype, channels), picture(dtype, 1)
    path = write_image(tmp_path / f"a{suffix}", image, alpha=alpha)
    np.testing.assert_array_equal(read_alpha(path), alpha)
    expected = np.dstack([image] * 3) if suffix == ".webp" and channels == 1 else image
    np.testing.assert_array_equal(read_image(path), expected)
    if dtype.startswith("u") and channels == 3:
        seen = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(seen[..., 3], alpha)


def test_quality(tmp_path):
    image = picture("uint8", 3)
    for suffix in (".jpg", ".webp"):
        sizes = [
            write_image(tmp_path / f"{q}{suffix}", image, quality=q).stat().st_size
            for q in (100, 95, 50, 1)
        ]
        assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    default = write_image(tmp_path / "a.jpg", image).read_bytes()
    assert default == (tmp_path / "95.jpg").read_bytes()


@pytest.mark.parametrize("name", [*SAMPLE_NAMES, "map", "noise", "flat"])
def test_png_is_hardly_larger_than_by_the_librarys_own_choice(tmp_path, name):
    y, x = np.indices((300, 400))
    if name == "map":
        image = np.rint(30_000 + 9_000 * np.sin(x / 60) * np.cos(y / 45)).astype(np.uint16)
    elif name == "noise":
        image = np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)
    elif name == "flat":
        image = (x // 50 * 30).astype(np.uint8)
    else:
        image = np.asarray(sample_picture(name))
    path = write_image(tmp_path / "a.png", image)
    assert path.stat().st_size <= 1.1 * len(imagecodecs.png_encode(image)) + 200
    np.testing.assert_array_equal(read_image(path), image)
