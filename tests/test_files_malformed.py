"""Damaged files of every format: pixels or a CofuseError, soon and in little memory, never else."""

from __future__ import annotations

import io
import resource
import struct
import tempfile
import warnings
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from cofuse.errors import CofuseError
from cofuse.files import (
    Metadata,
    picture_files,
    read_alpha,
    read_image,
    read_metadata,
    read_stack,
    write_image,
)
from cofuse.files.metadata import ome_facts
from tests.test_files_samples import ICC, XMP, exif_block, write_dng

PIXELS = np.random.default_rng(3).integers(0, 256, (24, 31, 3), dtype=np.uint8)
KNOWN = Metadata(icc=ICC, exif=exif_block(), xmp=XMP, dpi=(300.0, 300.0))

WRITTEN = [".png", ".jpg", ".webp", ".bmp", ".tif", ".ome.tif"]
KINDS = [*WRITTEN, "16.png", "palette.png", "alpha.png", "alpha.webp", "progressive.jpg"]
KINDS += ["pages.tif", "tiles.tif", "big.tif", "imagej.tif", "lzw.tif", "jpeg.tif", "packbits.tif"]
KINDS += ["grey.bmp", "lossy.webp", "libtiff.tif"]
WITH_EXTRAS = [
    *KINDS,
    pytest.param("heic", marks=pytest.mark.extra("pillow_heif")),
    pytest.param("dng", marks=pytest.mark.extra("rawpy")),
]


@cache
def sample(kind: str, known: Metadata | None = KNOWN) -> bytes:
    """A whole file of a kind, those that cofuse writes with metadata."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{kind}"
        file = io.BytesIO()
        if kind in WRITTEN:
            return write_image(path, PIXELS, metadata=known).read_bytes()
        if kind == "16.png":
            deep = PIXELS.astype(np.uint16) * 257
            return write_image(path, deep, metadata=known).read_bytes()
        if kind.startswith("alpha"):
            return write_image(path, PIXELS, alpha=PIXELS[..., 0]).read_bytes()
        if kind == "heic":
            import pillow_heif

            heif = pillow_heif.from_pillow(Image.fromarray(PIXELS))
            heif.save(file, quality=50, exif=b"Exif\0\0" + exif_block(), icc_profile=ICC)
            return file.getvalue()
        if kind == "dng":
            write_dng(path, PIXELS[..., 0].astype(np.uint16) * 16)
            return path.read_bytes()
        image = Image.fromarray(PIXELS)
        if kind == "palette.png":
            image.quantize(9).save(file, "PNG", transparency=3)
        elif kind == "progressive.jpg":
            image.save(file, "JPEG", progressive=True)
        elif kind == "grey.bmp":
            image.convert("L").save(file, "BMP")
        elif kind == "lossy.webp":
            image.save(file, "WEBP")
        elif kind == "libtiff.tif":
            image.save(file, "TIFF", compression="tiff_lzw")
        else:
            options = {
                "pages.tif": {"photometric": "minisblack", "compression": "zlib"},
                "tiles.tif": {"photometric": "rgb", "tile": (16, 16), "compression": "lzma"},
                "big.tif": {"photometric": "rgb", "bigtiff": True, "compression": "zstd"},
                "lzw.tif": {"photometric": "rgb", "compression": "lzw", "predictor": True},
                "jpeg.tif": {"photometric": "rgb", "compression": "jpeg"},
                "packbits.tif": {"photometric": "rgb", "compression": "packbits"},
                "imagej.tif": {"imagej": True, "metadata": {"unit": "um", "spacing": 2.0}},
            }[kind]
            pages = np.moveaxis(PIXELS, -1, 0) if kind in ("pages.tif", "imagej.tif") else PIXELS
            tifffile.imwrite(file, pages, **options)
        return file.getvalue()


def suffix(kind: str) -> str:
    """The name matters for camera RAW alone."""
    return ".dng" if kind == "dng" else ".dat"


def survives(data: bytes, kind: str) -> bool:
    """Read damaged bytes in every way; tell whether pixels came out of them."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"bad{suffix(kind)}"
        path.write_bytes(data)
        read = False
        for call in (read_metadata, read_image, read_stack, read_alpha):
            try:
                result = call(path)
                if call is read_stack:
                    assert all(frame.size for frame in result)
                    read = True
            except CofuseError as error:
                assert "bad" in str(error) and "\n" not in str(error), error
        return read


def peak_megabytes() -> float:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("kind", WITH_EXTRAS)
def test_samples_are_whole(kind):
    assert survives(sample(kind), kind)


FUZZ = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


#: Numbers that lengths, counts and offsets have when they lie.
LIES = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\1\0\0"]
LIES += [b"\0\0\xea\x60", b"\x60\xea\0\0"]  # 60000


@pytest.mark.parametrize("kind", WITH_EXTRAS)
@FUZZ
@given(data=st.data())
def test_changed_anywhere(kind, data):
    """Bytes flipped, mostly where headers stand, numbers that lie, and the end missing."""
    whole = sample(kind)
    bad = bytearray(whole[: data.draw(st.integers(1, len(whole)) | st.just(len(whole)))])
    before = peak_megabytes()
    places = st.one_of(st.integers(0, min(400, len(bad)) - 1), st.integers(0, len(bad) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=6)):
        bad[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        place = data.draw(places)
        bad[place : place + 4] = data.draw(st.sampled_from(LIES))
    survives(bytes(bad), kind)
    assert peak_megabytes() - before < 1500


@FUZZ
@given(start=st.sampled_from(KINDS), rest=st.binary(max_size=300), keep=st.integers(2, 40))
def test_nothing_behind_a_good_start(start, rest, keep):
    survives(sample(start)[:keep] + rest, start)


# --- metadata is no reason to refuse a picture ---------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif"])
@FUZZ
@given(data=st.data())
def test_damaged_metadata_leaves_the_pixels_alone(suffix, data):
    """Whatever the blocks hold, the pixels are read, and what is kept can be written again."""
    bad = bytearray(exif_block())
    for _ in range(data.draw(st.integers(1, 5))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    profile = bytearray(ICC)
    profile[data.draw(st.integers(0, 60))] = data.draw(st.integers(0, 255))
    known = Metadata(icc=bytes(profile), exif=bytes(bad), xmp=XMP)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / f"a{suffix}"
        write_image(path, PIXELS, metadata=known)
        # The orientation has been set upright, so nothing turns the picture.
        assert read_image(path).shape == PIXELS.shape
        again = read_metadata(path)
        write_image(Path(folder) / f"b{suffix}", PIXELS, metadata=again)
        assert read_image(Path(folder) / f"b{suffix}").shape == PIXELS.shape


def jpeg_with(*segments: bytes) -> bytes:
    """A JPEG file with segments of one's own behind its start."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG")
    return file.getvalue()[:2] + b"".join(segments) + file.getvalue()[2:]


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (segment(0xE1, b"Exif\0\0garbage"), "EXIF"),
        (segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\x7f"), "EXIF"),
        (segment(0xE2, b"ICC_PROFILE\0\1\1" + b"x" * 300), "colour profile"),
        (segment(0xE2, b"ICC_PROFILE\0\1\2" + ICC[:200]), "ends too early"),
        (segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0no packet"), "XMP"),
    ],
)
def test_damaged_blocks_are_left_out_with_a_warning(tmp_path, block, words):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg_with(block))
    assert read_image(path).shape == PIXELS.shape
    with pytest.warns(UserWarning, match=words) as caught:
        known = read_metadata(path)
    assert "a.jpg" in str(caught[0].message)
    assert (known.icc, known.exif, known.xmp) == (None, None, None)


def test_directories_that_go_round_in_circles(tmp_path):
    for order in "<>":
        start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
        # EXIF, GPS and interoperability directories all point to the first one.
        loop = b"".join(struct.pack(f"{order}HHII", t, 4, 1, 8) for t in (0x8769, 0x8825, 0xA005))
        path = tmp_path / "a.jpg"
        circle = start + struct.pack(f"{order}H", 3) + loop + bytes(4)
        path.write_bytes(jpeg_with(segment(0xE1, b"Exif\0\0" + circle)))
        write_image(tmp_path / "b.png", PIXELS, metadata=read_metadata(path), overwrite=True)


@pytest.mark.parametrize(
    "bait",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]><OME>&a;</OME>',
        b"<OME><Pixels",
        b"<OME/>",
        b'<?xml version="1.0" encoding="no-such"?><OME/>',
        b"\xff\xfe<OME>",
    ],
)
def test_bad_ome(bait, tmp_path):
    with pytest.raises(ValueError):
        ome_facts(bait)
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, description=b"<OME " + bait, metadata=None)
    assert read_image(tmp_path / "a.tif").shape == PIXELS.shape
    with pytest.warns(UserWarning, match="OME-XML"):
        assert read_metadata(tmp_path / "a.tif").pixel_size is None


@pytest.mark.parametrize("size", ["nan", "-1", "inf", "0", "x", ""])
def test_sizes_that_are_none(size):
    xml = f'<OME><Pixels PhysicalSizeX="{size}" PhysicalSizeY="1" SignificantBits="{size}"/></OME>'
    assert ome_facts(xml.encode()) == (None, None)


# --- bombs ---------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def png_bomb(width: int, height: int, *extra: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(10**6), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + body


def jpeg_bomb(width: int, height: int) -> bytes:
    whole = bytearray(sample(".jpg"))
    place = whole.index(b"\xff\xc0")
    whole[place + 5 : place + 9] = struct.pack(">HH", height, width)
    return bytes(whole)


def tiff_bomb(width: int, height: int, compression: str, *, strips: int = 1) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, PIXELS, photometric="rgb", compression=compression, metadata=None)
    file.seek(0)
    with tifffile.TiffFile(file) as tif:
        tags = {tag: tif.pages[0].tags[tag].valueoffset for tag in (256, 257, 278)}
        kinds = {tag: tif.pages[0].tags[tag].dtype for tag in tags}
    data = bytearray(file.getvalue())
    for tag, value in ((256, width), (257, height), (278, height // strips)):
        length = 4 if int(kinds[tag]) == 4 else 2
        data[tags[tag] : tags[tag] + length] = value.to_bytes(length, "little")
    return bytes(data)


def webp_bomb(width: int, height: int) -> bytes:
    whole = bytearray(sample(".webp"))
    place = whole.index(b"VP8X") + 12
    whole[place : place + 6] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(
        3, "little"
    )
    return bytes(whole)


def bmp_bomb(width: int, height: int) -> bytes:
    whole = bytearray(sample(".bmp"))
    whole[18:26] = struct.pack("<ii", width, height)
    return bytes(whole)


BOMBS = {
    "png": lambda w, h: png_bomb(w, h),
    "jpeg": jpeg_bomb,
    "webp": webp_bomb,
    "bmp": bmp_bomb,
    "tiff-deflate": lambda w, h: tiff_bomb(w, h, "zlib"),
    "tiff-none": lambda w, h: tiff_bomb(w, h, None),
    "tiff-zstd": lambda w, h: tiff_bomb(w, h, "zstd"),
    "tiff-strips": lambda w, h: tiff_bomb(w, h, "lzw", strips=h),
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("size", [(60_000, 60_000), (30_000, 30_000), (16_000, 60_000)])
def test_small_files_that_claim_to_be_huge(kind, size, tmp_path):
    path = tmp_path / "bomb.dat"
    path.write_bytes(BOMBS[kind](*size))
    before = peak_megabytes()
    for read in (read_image, read_stack):
        with pytest.raises(CofuseError, match=r"bomb\.dat"):
            read(path)
    assert peak_megabytes() - before < 100


def test_metadata_that_unpacks_to_gigabytes(tmp_path):
    bomb = zlib.compress(bytes(200 * 2**20), 9)
    icc = chunk(b"iCCP", b"p\0\0" + bomb)
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + bomb)
    body = write_image(tmp_path / "a.png", PIXELS).read_bytes()
    path = tmp_path / "b.png"
    path.write_bytes(body[:33] + icc + xmp + body[33:])
    before = peak_megabytes()
    known = read_metadata(path)
    assert known.icc is None and known.xmp is None
    np.testing.assert_array_equal(read_image(path), PIXELS)
    assert peak_megabytes() - before < 150


def test_many_tiny_pages_and_circles(tmp_path):
    path = tmp_path / "a.tif"
    # A chain of pages without end: the second points back to the first.
    page = struct.pack("<H", 1) + struct.pack("<HHII", 256, 4, 1, 9)
    data = b"II*\0" + struct.pack("<I", 8) + page + struct.pack("<I", 26) + page
    path.write_bytes(data + struct.pack("<I", 8))
    for read in (read_image, read_stack):
        with pytest.raises(CofuseError):
            read(path)
    count = 30_000
    pages = b"".join(page + struct.pack("<I", 8 + 18 * (k + 1)) for k in range(count - 1))
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + pages + page + bytes(4))
    with pytest.raises(CofuseError, match="30000 pages"):
        read_stack(path)


# --- no names at all -----------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(exclude_characters="/"), max_size=30))
@example("a\0b")
@example("[")
@example("@")
@example("@@")
@example("**/[")
@example("x" * 5000)
def test_any_text_is_a_path_or_an_error(text):
    if text == "-":
        return
    try:
        files = picture_files(text)
    except CofuseError:
        return
    assert all(isinstance(file, Path) for file in files)
