"""Camera RAW and HEIC, and what is said where the extra that reads them is missing."""

from __future__ import annotations

import io
import sys
from importlib import resources

import numpy as np
import pytest
from PIL import Image, ImageCms

from cofuse.errors import CofuseError
from cofuse.files import read_alpha, read_image, read_metadata, read_stack, write_image
from cofuse.files.exif import parse_block
from cofuse.files.sources import format_of
from tests.test_files_samples import ICC, exif_block, write_dng

with_rawpy = pytest.mark.extra("rawpy")
with_heif = pytest.mark.extra("pillow_heif")
LINEAR = resources.files("cofuse").joinpath("data", "profiles", "linear-srgb.icc")


def ramp(scale: float = 1.0) -> np.ndarray:
    """A grey ramp as a sensor of 12 bits sees it, black at 256."""
    light = np.tile(np.linspace(20, 1700, 96), (64, 1))
    return (256 + scale * light).round().astype(np.uint16)


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"II*\0" + bytes(99), "a.dng"), (b"\0\0\0\x18ftypheic" + bytes(99), "a.heic")],
)
def test_missing_extra(tmp_path, monkeypatch, data, name):
    for library in ("rawpy", "pillow_heif"):
        monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path / name
    path.write_bytes(data)
    for read in (read_image, read_stack):
        with pytest.raises(CofuseError, match=r"pip install 'cofuse\[raw\]'"):
            read(path)


def test_formats(tmp_path):
    starts = {
        "FUJIFILMCCD-RAW 0201": "raw",
        "II*\0\x10\0\0\0CR\2\0": "raw",
        "IIRO\x08\0\0\0": "raw",
        "IIU\0\x18\0\0\0": "raw",
        "\0\0\0\x18ftypcrx ": "raw",
        "\0\0\0\x18ftypmif1": "heif",
        "II*\0\x08\0\0\0": "tiff",
    }
    for start, kind in starts.items():
        (tmp_path / "a").write_bytes(start.encode("latin-1"))
        assert format_of(tmp_path / "a") == kind
    (tmp_path / "a.NEF").write_bytes(b"MM\0*\0\0\0\x08")
    assert format_of(tmp_path / "a.NEF") == "raw"


# --- camera RAW --------------------------------------------------------------------------------


@with_rawpy
def test_raw_frames_share_white_balance_and_exposure(tmp_path):
    """A darker frame of another white balance stays darker, by its factor and in every colour."""
    write_dng(tmp_path / "1.dng", ramp(), neutral=(0.5, 1.0, 0.7))
    write_dng(tmp_path / "2.dng", ramp(0.25), neutral=(0.9, 1.0, 0.4))
    stack = read_stack(tmp_path, raw_mode="linear")
    assert stack.shape == (64, 96, 3) and stack.dtype == np.uint16
    first, second = (frame[8:-8, 8:-8].astype(float).mean(axis=0) for frame in stack)
    np.testing.assert_allclose(second, 0.25 * first, rtol=0.02, atol=30)
    # By its own white balance the second would be of another colour.
    own = read_image(tmp_path / "2.dng", raw_mode="linear")[8:-8, 8:-8].mean(axis=(0, 1))
    assert own[0] / own[1] < 0.7 * second.mean(axis=0)[0] / second.mean(axis=0)[1]


@with_rawpy
def test_raw_modes(tmp_path):
    path = tmp_path / "a.dng"
    write_dng(path, ramp())
    linear, display = (read_image(path, raw_mode=mode) for mode in ("linear", "display"))
    assert linear.dtype == display.dtype == np.uint16
    light = linear[8:-8, 8:-8, 1] / 65535.0
    # In proportion to the light: green, whose multiplier is the smallest, to the sensor's white.
    expected = (ramp()[8:-8, 8:-8] - 256.0) / (4095 - 256)
    np.testing.assert_allclose(light, expected, atol=0.01)
    srgb = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(display[8:-8, 8:-8, 1] / 65535.0, srgb, atol=0.01)
    np.testing.assert_array_equal(read_image(path), display)
    with pytest.raises(CofuseError, match="`raw_mode` is 'auto'"):
        read_stack(path, raw_mode="auto")


@with_rawpy
@pytest.mark.parametrize(("orientation", "shape"), [(1, (64, 96)), (3, (64, 96)), (6, (96, 64))])
def test_raw_is_turned_upright(tmp_path, orientation, shape):
    path = tmp_path / "a.dng"
    write_dng(path, ramp(), orientation=orientation)
    image = read_image(path)
    assert image.shape == (*shape, 3)
    along = image[..., 1].mean(axis=0 if orientation == 1 else 1 if orientation == 6 else 0)
    rising = along[-1] > along[0]
    assert rising == (orientation != 3)


@with_rawpy
def test_raw_metadata(tmp_path):
    path = tmp_path / "a.dng"
    write_dng(path, ramp(), orientation=6)
    known = read_metadata(path)
    fields = parse_block(known.exif)
    assert fields.image[0x010F].data == b"Cofuse\0" and fields.image[0x0110].data == b"Test\0"
    out = write_image(tmp_path / "b.tif", read_image(path), metadata=known)
    again = parse_block(read_metadata(out).exif)
    assert again.number(0x0112) == 1 and 50706 not in again.image  # no DNG any more
    assert read_image(out).shape == (96, 64, 3)


def test_the_linear_profile_has_the_colours_of_srgb_and_no_gamma():
    linear = ImageCms.ImageCmsProfile(io.BytesIO(LINEAR.read_bytes()))
    assert ImageCms.getProfileDescription(linear).strip() == "Linear sRGB"
    light = np.linspace(0.02, 1, 200)[:, None] * [1.0, 0.7, 0.3]
    image = Image.fromarray(np.rint(255 * light).astype(np.uint8)[None])
    shown = ImageCms.profileToProfile(image, linear, ImageCms.createProfile("sRGB"))
    expected = 1.055 * (np.asarray(image) / 255) ** (1 / 2.4) - 0.055
    bright = np.asarray(image).min(axis=-1) > 30
    assert np.abs(np.asarray(shown) - 255 * expected)[bright].max() < 1.5


@with_rawpy
def test_linear_values_carry_a_profile_that_says_so(tmp_path):
    path = tmp_path / "a.dng"
    write_dng(path, ramp())
    assert read_metadata(path).icc is None
    known = read_metadata(path, raw_mode="linear")
    assert known.icc == LINEAR.read_bytes()
    image = read_image(path, raw_mode="linear")
    assert read_metadata(write_image(tmp_path / "b.tif", image, metadata=known)).icc == known.icc


@with_rawpy
def test_damaged_raw(tmp_path):
    write_dng(tmp_path / "whole.dng", ramp())
    whole = (tmp_path / "whole.dng").read_bytes()
    path = tmp_path / "cut.dng"
    for data in (whole[:40], whole[: len(whole) // 2], whole[:8] + bytes(500)):
        path.write_bytes(data)
        with pytest.raises(CofuseError, match=r"cut\.dng"):
            read_stack(path)
    (tmp_path / "x.raf").write_bytes(b"FUJIFILMCCD-RAW" + bytes(500))
    with pytest.raises(CofuseError, match=r"x\.raf"):
        read_image(tmp_path / "x.raf")


# --- HEIC ----------------------------------------------------------------------------------------


def smooth(channels: int = 3, dtype: str = "uint8") -> np.ndarray:
    y, x = np.mgrid[:64, :96]
    planes = np.stack([2 * x, 3 * y, x + y, 255 - x], axis=-1)[..., :channels].astype(dtype)
    return planes * np.iinfo(dtype).max // 255 if dtype == "uint16" else planes


def write_heic(path, image: np.ndarray, **options: object) -> None:
    import pillow_heif

    if image.dtype == np.uint16:
        mode = "RGB;16" if image.shape[2] == 3 else "RGBA;16"
        heif = pillow_heif.from_bytes(mode, image.shape[1::-1], image.tobytes())
    else:
        heif = pillow_heif.from_pillow(Image.fromarray(image))
    file = io.BytesIO()
    heif.save(file, quality=95, chroma=444, **options)
    path.write_bytes(file.getvalue())


@with_heif
def test_heic(tmp_path):
    path = tmp_path / "a.heic"
    write_heic(path, smooth(), exif=b"Exif\0\0" + exif_block(orientation=1), icc_profile=ICC)
    image = read_image(path)
    assert image.dtype == np.uint8 and image.shape == (64, 96, 3)
    assert np.abs(image.astype(int) - smooth()).max() < 12
    known = read_metadata(path)
    assert known.icc == ICC and known.dpi == (300.0, 300.0)
    assert parse_block(known.exif).image[0x010F].data == b"Canon\0"
    assert len(read_stack([path, path])) == 2 and read_alpha(path) is None
    out = write_image(tmp_path / "b.jpg", image, metadata=known)
    assert read_metadata(out).icc == ICC


@with_heif
def test_deep_heic_becomes_16_bits(tmp_path):
    path = tmp_path / "a.heic"
    write_heic(path, smooth(dtype="uint16"))
    image = read_image(path)
    assert image.dtype == np.uint16
    assert np.abs(image.astype(int) - smooth(dtype="uint16")).max() < 12 * 257


@with_heif
def test_transparent_heic(tmp_path):
    path = tmp_path / "a.heic"
    write_heic(path, smooth(4))
    assert read_image(path).shape == (64, 96, 3)
    assert np.abs(read_alpha(path).astype(int) - smooth(4)[..., 3]).max() < 12


@with_heif
def test_heic_is_turned_upright_once(tmp_path):
    path = tmp_path / "a.heic"
    write_heic(path, smooth(), exif=exif_block(orientation=6))
    turned = read_image(path)
    # The file says it twice, as a rotation and in EXIF; the rotation is what counts.
    out = write_image(tmp_path / "b.png", turned, metadata=read_metadata(path))
    assert read_image(out).shape == turned.shape
