"""Reading: every format and depth against a writer of another library, and every way to fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from cofuse.errors import CofuseError
from cofuse.files import (
    read_alpha,
    read_image,
    read_stack,
    reading,
    write_image,
)
from cofuse.files.sources import natural_key
from tests.test_files_malformed import KINDS as SAMPLES
from tests.test_files_malformed import bmp_bomb, png_bomb, sample
from tests.test_files_samples import exif_block

rng = np.random.default_rng(7)
GREY = rng.integers(0, 256, (12, 17), dtype=np.uint8)
RGB = rng.integers(0, 256, (12, 17, 3), dtype=np.uint8)
GREY16 = rng.integers(0, 65536, (12, 17), dtype=np.uint16)
RGB16 = rng.integers(0, 65536, (12, 17, 3), dtype=np.uint16)


def smooth(channels: int = 3) -> np.ndarray:
    """A picture that JPEG keeps to within a few levels."""
    y, x = np.mgrid[:40, :56]
    return np.stack([4 * x, 5 * y, 2 * x + 2 * y], axis=-1)[..., :channels].astype(np.uint8)


def refuse(path: Path, *words: str, read=read_image) -> str:
    """Check that reading fails with one line that names the file and says the words."""
    with pytest.raises(CofuseError) as caught:
        read(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    for word in words:
        assert word in message, message
    return message


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


# --- formats and depths ------------------------------------------------------------------------


WRITTEN = [(s, i) for s in (".png", ".tif") for i in (GREY, RGB, GREY16, RGB16)]
WRITTEN += [(".bmp", GREY), (".bmp", RGB), (".webp", RGB)]


@pytest.mark.parametrize(("suffix", "image"), WRITTEN)
def test_integers_written_by_opencv(tmp_path, suffix, image):
    path = tmp_path / f"a{suffix}"
    stored = image if image.ndim == 2 else image[..., ::-1]
    cv2.imwrite(str(path), stored, [cv2.IMWRITE_WEBP_QUALITY, 101])
    same(read_image(path), image)
    same(read_image(str(path)), image)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg(tmp_path, channels):
    image = smooth(channels).squeeze()
    path = tmp_path / "a.jpeg"
    cv2.imwrite(str(path), image if channels == 1 else image[..., ::-1], [1, 95])
    actual = read_image(path)
    assert actual.dtype == np.uint8 and actual.shape == image.shape
    assert np.abs(actual.astype(int) - image).max() < 16


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "zstd"])
def test_float_tiff(tmp_path, dtype, order, compression):
    image = rng.normal(size=(9, 5, 3)).astype(dtype)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, image, photometric="rgb", byteorder=order, compression=compression)
    same(read_image(path), image)
    assert read_image(path).dtype.isnative


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_tiff_written_by_pillow(tmp_path, compression):
    path = tmp_path / "a.tif"
    Image.fromarray(RGB).save(path, compression=None if compression == "raw" else compression)
    same(read_image(path), RGB)


def test_jpeg_in_tiff(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, smooth(), photometric="rgb", compression="jpeg")
    assert np.abs(read_image(path).astype(int) - smooth()).max() < 24


@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_planar_and_tiled_tiff(tmp_path, tile):
    path = tmp_path / "a.tif"
    planes = np.moveaxis(RGB16, -1, 0)
    tifffile.imwrite(path, planes, photometric="rgb", planarconfig="separate", tile=tile)
    same(read_image(path), RGB16)


def test_white_is_zero(tmp_path):
    for image in (GREY, GREY16):
        tifffile.imwrite(tmp_path / "a.tif", image, photometric="miniswhite")
        same(read_image(tmp_path / "a.tif"), np.iinfo(image.dtype).max - image)
    bits = GREY > 99
    tifffile.imwrite(tmp_path / "b.tif", ~bits, photometric="miniswhite")
    same(read_image(tmp_path / "b.tif"), np.where(bits, 255, 0).astype(np.uint8))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_one_bit_and_palette(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    Image.fromarray(GREY > 99).save(path)
    same(read_image(path), np.where(GREY > 99, 255, 0).astype(np.uint8))
    few = Image.fromarray(RGB).quantize(7)
    few.save(path)
    same(read_image(path), np.array(few.convert("RGB")))


@pytest.mark.parametrize("compression", [None, "group4", "tiff_lzw", "packbits"])
def test_large_one_bit_tiff(tmp_path, compression):
    """Few bytes for many pixels are no bomb where a pixel takes a bit, or a page is white."""
    image = np.zeros((2000, 2100), bool)
    image[:9, :9] = True
    Image.fromarray(image).save(tmp_path / "a.tif", compression=compression)
    same(read_image(tmp_path / "a.tif"), np.where(image, 255, 0).astype(np.uint8))


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp"])
def test_large_pictures_of_one_colour_are_no_bombs(tmp_path, suffix):
    image = np.full((5000, 6000), 77, np.uint8)
    path = write_image(tmp_path / f"a{suffix}", image)
    assert path.stat().st_size < 400_000
    assert read_image(path).shape[:2] == image.shape


def test_suffix_does_not_matter(tmp_path):
    path = tmp_path / "liar.jpg"
    path.write_bytes(imagecodecs.png_encode(RGB16))
    same(read_image(path), RGB16)


# --- alpha and orientation ---------------------------------------------------------------------


def with_alpha(image: np.ndarray, alpha: float) -> np.ndarray:
    colour = image[..., None] if image.ndim == 2 else image
    layer = np.full((*image.shape[:2], 1), np.iinfo(image.dtype).max, image.dtype)
    layer[3, 4] = alpha
    return np.concatenate([colour, layer], axis=-1)


@pytest.mark.parametrize(("suffix", "image"), [case for case in WRITTEN if case[0] != ".bmp"])
def test_alpha(tmp_path, image, suffix):
    path = tmp_path / f"a{suffix}"

    def save(pixels):
        if suffix == ".png":
            path.write_bytes(imagecodecs.png_encode(pixels))
        elif suffix == ".webp":
            Image.fromarray(pixels).save(path, lossless=True, exact=True)
        else:
            kind = "rgb" if image.ndim == 3 else "minisblack"
            tifffile.imwrite(path, pixels, photometric=kind, extrasamples=["unassalpha"])

    save(with_alpha(image, np.iinfo(image.dtype).max))
    same(read_image(path), image)
    assert read_alpha(path) is None
    layered = with_alpha(image, 3)
    save(layered)
    same(read_image(path), image)
    same(read_alpha(path), layered[..., -1])


def test_transparent_palette(tmp_path):
    path = tmp_path / "a.png"
    few = Image.fromarray(RGB).quantize(7)
    few.save(path, transparency=2)
    same(read_image(path), np.array(few.convert("RGB")))
    same(read_alpha(path), np.where(np.array(few) == 2, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_colours_multiplied_by_alpha_are_divided(tmp_path, dtype):
    white = 1.0 if dtype == "float32" else np.iinfo(dtype).max
    image = np.full((4, 5, 4), 0.5 * white).astype(dtype)
    image[0, 0] = 0
    tifffile.imwrite(tmp_path / "a.tif", image, photometric="rgb", extrasamples=["assocalpha"])
    expected = np.full((4, 5, 3), white, dtype)
    expected[0, 0] = 0
    same(read_image(tmp_path / "a.tif"), expected)
    same(read_alpha(tmp_path / "a.tif"), image[..., 3])


def test_alpha_of_opaque_formats(tmp_path, monkeypatch):
    cv2.imwrite(str(tmp_path / "a.jpg"), RGB)
    monkeypatch.setattr("simplejpeg.decode_jpeg", lambda *a, **k: pytest.fail("decoded"))
    assert read_alpha(tmp_path / "a.jpg") is None


# The letter F, its stroke at the left; what is stored is what undoes each orientation.
F = np.array([[9, 9, 9], [9, 0, 0], [9, 9, 0], [9, 0, 0], [9, 0, 0]], dtype=np.uint8) * 20
STORED = {
    1: F,
    2: F[:, ::-1],  # mirrored left to right
    3: F[::-1, ::-1],  # upside down
    4: F[::-1],  # mirrored top to bottom
    5: F.T,  # row 0 is the left side, column 0 the top
    6: np.rot90(F),  # to be turned clockwise: stored turned the other way
    7: F[::-1, ::-1].T,
    8: np.rot90(F, -1),
}


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", "16.png"])
def test_orientation(tmp_path, value, suffix):
    stored = np.kron(STORED[value], np.ones((8, 8), np.uint8))
    upright = np.kron(F, np.ones((8, 8), np.uint8))
    path = tmp_path / f"a{suffix}"
    exif = Image.Exif()
    exif[0x0112] = value
    if suffix == "16.png":
        stored, upright = stored.astype(np.uint16) * 257, upright.astype(np.uint16) * 257
    if suffix == ".tif":
        tifffile.imwrite(path, stored, photometric="minisblack", extratags=[(274, 3, 1, value)])
    elif suffix == ".webp":
        Image.fromarray(stored).convert("RGB").save(path, lossless=True, exif=exif)
    else:
        Image.fromarray(stored).save(path, exif=exif)
    actual = read_image(path)
    assert actual.flags.c_contiguous
    actual = actual[..., 0] if actual.ndim == 3 else actual
    assert actual.shape == upright.shape
    assert np.abs(actual.astype(int) - upright).max() <= (20 if suffix == ".jpg" else 0)


# --- stacks ------------------------------------------------------------------------------------


def test_folder_in_natural_order(tmp_path):
    for k in (10, 2, 1, 33):
        cv2.imwrite(str(tmp_path / f"img{k}.PNG"), np.full((4, 5), k, np.uint8))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_text("no picture either")
    (tmp_path / "sub.png").mkdir()
    stack = read_stack(tmp_path)
    assert stack.names == ("img1.PNG", "img2.PNG", "img10.PNG", "img33.PNG")
    assert [int(frame[0, 0]) for frame in stack] == [1, 2, 10, 33]
    files = [tmp_path / f"img{k}.PNG" for k in (33, 1, 10)]
    assert [int(frame[0, 0]) for frame in read_stack(files)] == [33, 1, 10]
    assert len(read_stack([str(files[0]), tmp_path])) == 5


def test_natural_order_of_names():
    names = ["a1b", "A2", "a10", "a010", "b", "1", "10", "2", "a"]
    assert sorted(names, key=natural_key) == ["1", "2", "10", "a", "a1b", "A2", "a010", "a10", "b"]


def test_same_names_in_two_folders(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        cv2.imwrite(str(tmp_path / folder / "1.png"), GREY)
    assert len(set(read_stack([tmp_path / "a", tmp_path / "b"]).names)) == 2


VOLUME = rng.integers(0, 65536, (5, 12, 17), dtype=np.uint16)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metadata": None, "compression": "zlib"},
        {"imagej": True},
        {"imagej": True, "metadata": {"axes": "ZYX"}},
        {"ome": True, "metadata": {"axes": "ZYX"}},
        {"truncate": True},
        {"volumetric": True, "tile": (16, 16, 16), "compression": "zlib"},
        {"bigtiff": True},
    ],
    ids=str,
)
def test_multi_page_tiff(tmp_path, options):
    path = tmp_path / "a.tif"
    kind = {} if options.get("imagej") else {"photometric": "minisblack"}
    tifffile.imwrite(path, VOLUME, **kind, **options)
    stack = read_stack(path, white=4095)
    assert len(stack) == 5 and stack.names[2] == "a.tif page 3" and stack.white == 4095
    for actual, expected in zip(stack, VOLUME, strict=True):
        same(actual, expected)
    same(read_image(path), VOLUME[0])
    assert len(read_stack([path, path])) == 10


@pytest.mark.parametrize("planar", [False, True])
def test_colour_multi_page_tiff(tmp_path, planar):
    volume = rng.integers(0, 256, (4, 12, 17, 3), dtype=np.uint8)
    stored = np.moveaxis(volume, -1, 1) if planar else volume
    config = "separate" if planar else "contig"
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb", planarconfig=config)
    for actual, expected in zip(read_stack(tmp_path / "a.tif"), volume, strict=True):
        same(actual, expected)


def test_thumbnail_is_no_frame(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as tif:
        tif.write(RGB[::4, ::4], photometric="rgb", subfiletype=1)
        tif.write(RGB, photometric="rgb")
    same(read_image(tmp_path / "a.tif"), RGB)
    assert len(read_stack(tmp_path / "a.tif")) == 1


def test_hyperstack_is_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME.reshape(5, 2, 6, 17), imagej=True, metadata={"axes": "ZCYX"})
    refuse(path, "Z=5 x C=2", "one channel", read=read_stack)


def test_frames_are_decoded_once(tmp_path):
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), GREY)
    stack = read_stack([path])
    same(stack[0], GREY)
    path.unlink()
    same(stack[0], GREY)
    same(stack.part_reader(0)(slice(2, 5), slice(3, 9)), GREY[2:5, 3:9])


def test_problems_are_reported_before_decoding(tmp_path, monkeypatch):
    cv2.imwrite(str(tmp_path / "1.png"), GREY)
    cv2.imwrite(str(tmp_path / "2.png"), RGB)
    cv2.imwrite(str(tmp_path / "3.tif"), GREY16)
    monkeypatch.setattr(reading.Picture, "decode", lambda self: pytest.fail("decoded"))
    files = [tmp_path / name for name in ("1.png", "2.png", "3.tif")]
    with pytest.raises(CofuseError, match=r"2\.png is 17x12 RGB uint8 but .*1\.png is 17x12 grey"):
        read_stack(files[:2])
    with pytest.raises(CofuseError, match=r"3\.tif is 17x12 grey uint16"):
        read_stack([files[0], files[2]])
    with pytest.raises(CofuseError, match=r"third\.png does not exist"):
        read_stack([*files[:2], tmp_path / "third.png"])


def test_no_frames(tmp_path):
    with pytest.raises(CofuseError, match="no frames were given"):
        read_stack([])
    refuse(tmp_path, "holds no pictures", ".tif", read=read_stack)


# --- what cannot be read -----------------------------------------------------------------------


def test_no_file(tmp_path):
    refuse(tmp_path / "none.png", "does not exist")
    refuse(tmp_path / "none.png", "does not exist", read=read_stack)
    refuse(tmp_path, "folder")
    (tmp_path / "empty.png").touch()
    refuse(tmp_path / "empty.png", "empty")
    refuse(tmp_path / "empty.png" / "a.png", "does not exist")
    refuse(tmp_path / ("x" * 300 + ".png"), "cannot be opened")
    refuse(tmp_path / ("x" * 300 + ".png"), "cannot be opened", read=read_stack)
    (tmp_path / "text.png").write_text("hello")
    refuse(tmp_path / "text.png", "68 65 6c 6c 6f", "expected JPEG, PNG, TIFF, WebP or BMP")
    os.mkfifo(tmp_path / "pipe.png")
    refuse(tmp_path / "pipe.png", "not an ordinary file")
    refuse(tmp_path / "nul\0.png", read=read_stack)


def test_no_permission(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), GREY)

    def deny(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    refuse(path, "Permission denied")


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint32", "int32", "float16", "complex64"])
def test_other_types_of_values(tmp_path, dtype):
    tifffile.imwrite(tmp_path / "a.tif", GREY.astype(dtype), photometric="minisblack")
    refuse(tmp_path / "a.tif", dtype, "expected uint8, uint16")


def test_other_colours(tmp_path):
    Image.new("CMYK", (8, 8)).save(tmp_path / "a.jpg")
    refuse(tmp_path / "a.jpg", "CMYK", "convert it to RGB")
    Image.new("CMYK", (8, 8)).save(tmp_path / "b.tif")
    refuse(tmp_path / "b.tif", "SEPARATED", "convert it to RGB")
    Image.new("LAB", (8, 8)).save(tmp_path / "c.tif")
    refuse(tmp_path / "c.tif", "CIELAB")
    five = np.zeros((8, 9, 5), np.uint8)
    tifffile.imwrite(tmp_path / "d.tif", five, photometric="rgb", planarconfig="contig")
    refuse(tmp_path / "d.tif", "5 samples a pixel")


#: Files of several pages are cut in a test of their own.
KINDS = [kind for kind in SAMPLES if kind not in ("pages.tif", "imagej.tif")]


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files(tmp_path, kind, capfd):
    whole = sample(kind, None)  # without metadata, which may be missing
    path = tmp_path / "whole"
    path.write_bytes(whole)
    expected = read_image(path)
    cuts = {*range(1, len(whole), max(1, len(whole) // 60)), *range(len(whole) - 24, len(whole))}
    cut = tmp_path / "cut.dat"
    refused = 0
    for length in sorted(cuts):
        cut.write_bytes(whole[:length])
        try:
            actual = read_stack(cut)[0]
        except CofuseError as error:
            refused += 1
            assert "cut.dat" in str(error) and "\n" not in str(error)
        else:  # only an end marker may be missing
            same(actual, expected)
            assert length > 0.95 * len(whole)
    assert refused > 60
    assert capfd.readouterr() == ("", "")


def test_truncated_multi_page_tiff(tmp_path):
    """Frames are never lost in silence, wherever a file with several pages is cut."""
    path, cut = tmp_path / "whole.tif", tmp_path / "cut.tif"
    pages = [Image.fromarray(frame) for frame in VOLUME]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    files = [path.read_bytes()]
    for options in ({"metadata": None}, {"compression": "zlib"}, {"imagej": True}, {"truncate": 1}):
        kind = {} if "imagej" in options else {"photometric": "minisblack"}
        tifffile.imwrite(path, VOLUME, **kind, **options)
        files.append(path.read_bytes())
    for whole in files:
        for length in range(9, len(whole), len(whole) // 60):
            cut.write_bytes(whole[:length])
            try:
                frames = np.stack(list(read_stack(cut)))
            except CofuseError as error:
                assert "cut.tif" in str(error)
            else:  # all there: the cut took no more than padding
                same(frames, VOLUME)
                assert length > 0.99 * len(whole)


@pytest.mark.parametrize("tag", [256, 257])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (16, 16)}], ids=str)
def test_lying_tiff_header(tmp_path, tag, options):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RGB, photometric="rgb", metadata=None, **options)
    for factor, words in ((20, ()), (10**6, ("megapixels",))):
        with tifffile.TiffFile(path, mode="r+b") as tif:
            value = tif.pages[0].tags[tag].value
            tif.pages[0].tags[tag].overwrite(value * factor, dtype="I")
        refuse(path, *words)
        refuse(path, *words, read=lambda file: read_stack(file)[0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (png_bomb(40_000, 40_000), ("40000x40000", "1000 megapixels")),
        (png_bomb(2_000_000, 400), ()),  # past a limit of libpng's own
        (png_bomb(0, 5), ("0x5",)),
        (png_bomb(15_000, 15_000), ("cannot be decoded",)),  # within the limit
        (bmp_bomb(40_000, 40_000), ("megapixels",)),
        (bmp_bomb(14_000, 14_000), ("truncated",)),  # Pillow alone would call this a bomb
    ],
)
def test_headers_that_declare_too_much_or_nothing(tmp_path, capfd, data, words):
    path = tmp_path / "bomb.png"
    path.write_bytes(data)
    refuse(path, *words)
    assert capfd.readouterr() == ("", "")


def test_memory_error(tmp_path, monkeypatch):
    def explode(data):
        raise MemoryError

    cv2.imwrite(str(tmp_path / "a.png"), GREY)
    monkeypatch.setattr(imagecodecs, "png_decode", explode)
    refuse(tmp_path / "a.png", "memory")


def test_global_state_is_left_alone(tmp_path):
    before = (list(warnings.filters), Image.MAX_IMAGE_PIXELS, logging.getLogger("tifffile").level)
    cv2.imwrite(str(tmp_path / "a.jpg"), RGB)
    read_image(tmp_path / "a.jpg")
    after = (list(warnings.filters), Image.MAX_IMAGE_PIXELS, logging.getLogger("tifffile").level)
    assert before == after


def run_python(code: str, *arguments: object) -> str:
    """Run code in a fresh interpreter, where no pytest catches logs; return what it wrote."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_is_light():
    code = """if 1:
        import sys, cofuse.files
        print(*{"PIL", "tifffile", "imagecodecs", "simplejpeg", "cv2"} & set(sys.modules))
    """
    assert run_python(code).strip() == ""


def test_codecs_are_quiet(tmp_path):
    files = {"a.tif": sample("libtiff.tif")[:-30], "b.png": png_bomb(2_000_000, 400)}
    files |= {"c.tif": sample("lzw.tif")[:200], "d.jpg": sample(".jpg")[:-99]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    code = """if 1:
        import sys
        from cofuse.errors import CofuseError
        from cofuse.files import read_stack
        for path in sys.argv[1:]:
            try:
                read_stack(path)[0]
            except CofuseError:
                continue
            sys.exit(f"{path} was read")
    """
    assert run_python(code, *(tmp_path / name for name in files)) == ""


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_files_that_end_oddly(tmp_path, options, channels):
    """Padding before the end marker, in its place or behind it, and a second picture."""
    path = tmp_path / "a.jpg"
    noise = np.random.default_rng(3).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    image = Image.fromarray(noise if channels == 3 else noise[..., 0])
    image.save(path, exif=b"Exif\0\0" + exif_block(), **options)
    whole = read_image(path)
    data = path.read_bytes()
    packed, end = data[:-2], data[-2:]
    assert end == b"\xff\xd9"
    if options.get("progressive"):  # where scans could be missing
        path.write_bytes(packed)
        with pytest.raises(CofuseError, match="is damaged"):
            read_image(path)
        packed = data
    for padded in (
        packed,
        packed + bytes(20_000),
        data[:-2] + bytes(20) + end,
        data[:-2] + b"\xff" * 20 + end,
        data + bytes(20_000),
        data + b"a second picture \xff\xd8\xff\xe0",
        data + data,
    ):
        path.write_bytes(padded)
        same(read_image(path), whole)


def test_decoding_takes_little_more_than_the_pixels(tmp_path):
    """Peak memory of a fresh process, for a frame of 24 megapixels in each usual format."""
    y, x = np.ogrid[:4000, :6000]
    image = np.zeros((4000, 6000, 3), np.uint8)
    image[..., 0], image[..., 1] = x // 24, y // 16
    for name in ("a.jpg", "a.png", "a.tif"):
        write_image(tmp_path / name, image)
    code = """if 1:
        import resource, sys
        import imagecodecs, tifffile, PIL.JpegImagePlugin
        from cofuse.files import read_image, read_metadata
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = peak()
        read_metadata(sys.argv[1])
        read = peak()
        image = read_image(sys.argv[1])
        print(read - start, (peak() - read) / (image.nbytes / 2**20))
    """
    for name in ("a.jpg", "a.png", "a.tif"):
        metadata, pixels = map(float, run_python(code, tmp_path / name).split())
        assert metadata < 20 and pixels < 1.5, name
