"""JPEG files with damaged pixels, and files that hold more than is read: never without a word."""

from __future__ import annotations

import io
import random
import struct
import warnings
from functools import cache

import numpy as np
import pytest
import simplejpeg
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import cofuse
from cofuse.errors import CofuseError
from cofuse.files import read_alpha, read_image, read_stack
from cofuse.files.formats import jpeg_without_metadata
from tests.command_line import command, run

END = b"\xff\xd9"
RGB = np.random.default_rng(8).integers(0, 256, (24, 31, 3), dtype=np.uint8)

LAYOUTS = {
    "plain": {"quality": 90},
    "full colour": {"quality": 95, "subsampling": 0},
    "progressive": {"quality": 90, "progressive": True},
    "restarts": {"quality": 90, "restart_marker_rows": 1},
}


@cache
def photo(layout: str = "plain") -> bytes:
    """A JPEG file of 300x200 with detail everywhere."""
    y, x = np.mgrid[:200, :300]
    noise = np.random.default_rng(5).normal(0, 12, (200, 300, 3))
    waves = 90 * np.sin(x / 9 + y / 23) + 30 * np.cos(y / 5)
    image = np.clip(120 + waves[..., None] + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", **LAYOUTS[layout])
    return file.getvalue()


def scan_start(data: bytes) -> int:
    """Where the packed pixels of the first scan begin."""
    place = data.index(b"\xff\xda")
    return place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """Damage as cards and cables do it, at some place of the packed pixels."""
    chance = random.Random(seed)
    length = {"zeros": 512, "missing": 512, "other bytes": 512}.get(kind, 1)
    place = chance.randrange(scan_start(data), len(data) - 2 - length)
    middle = {
        "zeros": bytes(length) + data[place + length :],
        "missing": data[place + length :],
        "other bytes": chance.randbytes(length) + data[place + length :],
        "cut": b"",
        "cut and ended": END,
        "tail of zeros": bytes(len(data) - place),
        "tail of ones": b"\xff" * (len(data) - place),
    }[kind]
    return data[:place] + middle


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["cut", "cut and ended", "tail of zeros", "tail of ones"])
def test_jpeg_without_its_end_is_refused(tmp_path, layout, kind):
    path = tmp_path / "bad.jpg"
    for seed in range(10):
        path.write_bytes(damaged(photo(layout), kind, seed))
        with pytest.raises(CofuseError, match=r"bad\.jpg (is damaged|cannot be decoded) \(.+\); "):
            read_image(path)


@pytest.mark.parametrize("layout", ["plain", "full colour", "restarts"])
@pytest.mark.parametrize("kind", ["zeros", "missing", "other bytes"])
def test_jpeg_damaged_within_is_refused(tmp_path, layout, kind):
    """Nearly always: what is a valid file again by chance, with other pixels, nobody can tell."""
    path = tmp_path / "bad.jpg"
    refused = 0
    for seed in range(10):
        path.write_bytes(damaged(photo(layout), kind, seed))
        try:
            read_image(path)
        except CofuseError:
            refused += 1
    assert refused >= 8


@settings(max_examples=30, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    before=st.binary(max_size=40),
    behind=st.binary(max_size=300),
    fill=st.integers(0, 30),
)
def test_what_is_no_damage(tmp_path_factory, layout, before, behind, fill):
    """Metadata of any kind, fill before the end marker, and anything behind it."""
    data = photo(layout)
    path = tmp_path_factory.mktemp("whole") / "a.jpg"
    path.write_bytes(data)
    whole = read_image(path)
    comment = b"\xff\xfe" + struct.pack(">H", len(before) + 2) + before
    profile = b"\xff\xe2\0\x13ICC_PROFILE\0\x05\x02abc"
    padded = data[:2] + comment + profile + data[2:-2] + b"\xff" * fill + END + behind
    path.write_bytes(padded)
    assert np.array_equal(read_image(path), whole)
    path.write_bytes(jpeg_without_metadata(padded))
    assert np.array_equal(read_image(path), whole)


def test_odd_headers_are_no_damage(tmp_path):
    """A JFIF of a version to come, a scan header as webcams write it, zeros before the end."""
    data, path = photo(), tmp_path / "a.jpg"
    path.write_bytes(data)
    whole = read_image(path)
    version = data.index(b"JFIF\0") + 5
    last_coefficient = scan_start(data) - 2
    for odd in (
        data[:version] + b"\x07" + data[version + 1 :],
        data[:last_coefficient] + b"\0" + data[last_coefficient + 1 :],
        data[:-2] + bytes(9) + END,
    ):
        path.write_bytes(odd)
        assert np.array_equal(read_image(path), whole)
    # The same headers do not hide damage.
    half = damaged(data, "cut and ended", 1)
    path.write_bytes(half[:version] + b"\x07" + half[version + 1 :])
    with pytest.raises(CofuseError, match="is damaged"):
        read_image(path)


def test_colours_subsampled_in_no_usual_way(tmp_path):
    """Three blocks of brightness to one of colour: what cannot be judged is read unless cut."""
    path = tmp_path / "a.jpg"
    Image.fromarray(RGB).save(path, "JPEG", subsampling=0)
    data = bytearray(path.read_bytes())
    frame = data.index(b"\xff\xc0")
    width = 7 * 24  # seven units of five blocks: of the 36 there were, 35
    data[frame + 5 : frame + 9] = struct.pack(">HH", 8, width)
    data[frame + 11] = 0x31
    path.write_bytes(data)
    with pytest.raises(ValueError, match="subsampling"):
        simplejpeg.decode_jpeg(bytes(data))
    assert read_image(path).shape == (8, width, 3)
    path.write_bytes(data[: scan_start(data) + 20])
    with pytest.raises(CofuseError, match="cannot be decoded"):
        read_image(path)


def test_long_runs_of_ones_take_no_time(tmp_path):
    """A marker is sought from every one of them, but not by looking through all the rest."""
    assert jpeg_without_metadata(photo()[:-2] + b"\xff" * 5_000_000 + END) == jpeg_without_metadata(
        photo()
    )


def test_damage_is_taken_with_a_warning_if_asked(tmp_path):
    path = tmp_path / "bad.jpg"
    data = photo()
    path.write_bytes(data[: scan_start(data) + (len(data) - scan_start(data)) // 2] + END)
    with pytest.raises(CofuseError, match=r"the last \d+% is one colour\); .*on_damage to 'warn'"):
        read_image(path)
    with pytest.warns(UserWarning, match=r"bad\.jpg is damaged \(.*the last \d+% is one colour"):
        pixels = read_image(path, on_damage="warn")
    filled = (pixels[-1] == pixels[-1, 0]).all()
    assert pixels.shape == (200, 300, 3) and filled
    with pytest.warns(UserWarning) as said:
        stack = read_stack(path, on_damage="warn")
        assert np.array_equal(stack[0], stack[0])
    assert len(said) == 1
    with pytest.raises(CofuseError, match="`on_damage` is 'ignore'; expected 'refuse' or 'warn'"):
        read_image(path, on_damage="ignore")


def test_damaged_frames_on_the_command_line(tmp_path):
    frames = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    frames[0].write_bytes(photo())
    frames[1].write_bytes(damaged(photo(), "cut and ended", 3))
    out = tmp_path / "out.tif"
    done = command("fuse", *frames, "-o", out, "--preset", "fast", "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cofuse: error: ") and "b.jpg is damaged (" in done.stderr
    assert done.stderr.count("\n") == 1 and not out.exists()
    done = command(
        *("fuse", *frames, "-o", out, "--preset", "fast", "--quiet", "--no-align"),
        *("--on-damage", "warn"),
    )
    assert done.returncode == 0 and out.exists()
    assert done.stderr.startswith("cofuse: warning: ") and done.stderr.count("is damaged") == 1


def test_batch_goes_on_where_damage_is_allowed_later(tmp_path, capsys):
    """Stacks that are done stay done; those refused for their damage are done now."""
    for name in ("good", "hurt"):
        (tmp_path / "card" / name).mkdir(parents=True)
        for frame in ("1.jpg", "2.jpg"):
            (tmp_path / "card" / name / frame).write_bytes(photo())
    bad = tmp_path / "card" / "hurt" / "2.jpg"
    bad.write_bytes(damaged(photo(), "cut and ended", 3))
    batch = ("batch", tmp_path / "card", "-o", tmp_path / "out", "--preset", "fast", "--no-align")
    assert run(*batch) == 1
    assert "hurt: failed" in capsys.readouterr().err
    assert run(*batch, "--on-damage", "warn") == 0
    said = capsys.readouterr().err
    assert "good: done before" in said and "warning: hurt: " in said and "is damaged" in said


# --- more in a file than is read -----------------------------------------------------------------


def mpo(kinds: list[int]) -> bytes:
    """A JPEG file with an index of pictures of these kinds, and the pictures behind it."""
    entries = b"".join(struct.pack("<IIIHH", kind, 0, 0, 0, 0) for kind in kinds)
    head = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 3)
    head += struct.pack("<HHI4s", 0xB000, 7, 4, b"0100")
    head += struct.pack("<HHII", 0xB001, 4, 1, len(kinds))
    head += struct.pack("<HHII", 0xB002, 7, len(entries), 8 + 2 + 3 * 12 + 4) + bytes(4)
    index = b"MPF\0" + head + entries
    data = photo()
    segment = b"\xff\xe2" + struct.pack(">H", len(index) + 2) + index
    return data[:2] + segment + data[2:] + data * (len(kinds) - 1)


def animation(kind: str) -> bytes:
    file = io.BytesIO()
    frames = [Image.fromarray(np.roll(RGB, 3 * k, axis=0)) for k in range(3)]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], lossless=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (mpo([0x030000, 0x020002]), "holds 2 pictures, of which the first is read"),
        (mpo([0x030000, 0, 0x010001]), "holds 2 pictures, of which the first is read"),
        (animation("PNG"), "is an animation of 3 pictures, of which the first is read"),
        (animation("WEBP"), "is an animation of 3 pictures, of which the first is read"),
    ],
    ids=["stereo", "gain map and preview", "apng", "webp"],
)
def test_more_pictures_than_are_read(tmp_path, data, words):
    path = tmp_path / "a.dat"
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=rf"a\.dat {words}$"):
        single = read_image(path)
    with pytest.warns(UserWarning, match=rf"a\.dat {words}.* \(and so of 1 more\)$"):
        stack = read_stack([path, path])
    assert len(stack) == 2 and np.array_equal(stack[0], single)


def test_heic_of_several_pictures(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "a.heic"
    heif = pillow_heif.from_pillow(Image.fromarray(RGB))
    heif.add_from_pillow(Image.fromarray(255 - RGB))
    heif.save(path, quality=90)
    with pytest.warns(UserWarning, match="holds 2 pictures, of which the primary one is read"):
        assert read_image(path).shape == RGB.shape


def test_previews_are_no_pictures(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(mpo([0x030000, 0x010002]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cofuse.read_image(path).shape == (200, 300, 3)


# --- TIFF headers that do not say what the samples mean ------------------------------------------


def without_tag(data: bytes, tag: int) -> bytes:
    """Turn one tag of a little-endian TIFF file into a private one that nobody knows."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    places = [start + 2 + 12 * k for k in range(count)]
    place = next(p for p in places if struct.unpack_from("<H", data, p)[0] == tag)
    moved = struct.pack("<H", 60_000) + data[place + 2 : place + 12]
    rest = b"".join(data[p : p + 12] for p in places if p != place)  # in order, as tags must be
    return data[: start + 2] + rest + moved + data[start + 2 + 12 * count :]


def tiff(image: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, image, metadata=None, **options)
    return file.getvalue()


@pytest.mark.parametrize("image", [RGB, RGB[..., 0]], ids=["colour", "grey"])
def test_tiff_that_does_not_say_what_black_is(tmp_path, image):
    path = tmp_path / "a.tif"
    kind = "rgb" if image.ndim == 3 else "minisblack"
    path.write_bytes(without_tag(tiff(image, photometric=kind), 262))
    with pytest.raises(CofuseError, match=r"a\.tif does not say whether 0 is black"):
        read_image(path)


@pytest.mark.parametrize("value", [0, 3, 258])
def test_tiff_with_samples_in_an_unknown_order(tmp_path, value):
    path = tmp_path / "a.tif"
    data = bytearray(tiff(RGB, photometric="rgb"))
    place = data.index(struct.pack("<HHI", 284, 3, 1)) + 8
    data[place : place + 2] = struct.pack("<H", value)
    path.write_bytes(data)
    with pytest.raises(CofuseError, match=rf"PlanarConfiguration {value}; expected 1 or 2"):
        read_image(path)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("tag", [True, False])
def test_a_sample_that_is_not_called_transparency(tmp_path, channels, planar, tag):
    """It may be a saved selection: it is left out, and colours are not divided by it."""
    colours = RGB[..., :channels]
    image = np.concatenate([colours, RGB[..., 1:2]], axis=-1)
    stored = image if planar == "contig" else np.moveaxis(image, -1, 0)
    kind = "rgb" if channels == 3 else "minisblack"
    options = {"photometric": kind, "planarconfig": planar, "extrasamples": ["unspecified"]}
    data = tiff(stored, **options)
    path = tmp_path / "a.tif"
    path.write_bytes(data if tag else without_tag(data, 338))
    with pytest.warns(UserWarning, match=r"a\.tif has a sample more than its colours"):
        picture = read_image(path)
    assert np.array_equal(picture, colours[..., 0] if channels == 1 else colours)
    assert read_alpha(path) is None
