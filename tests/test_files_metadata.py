"""Metadata in and out of every format, as exiftool, ImageMagick, Pillow and tifffile see it."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import cofuse
from cofuse.errors import CofuseError
from cofuse.files import Metadata, read_image, read_metadata, read_stack, write_image
from cofuse.files.encoding import FORMATS
from cofuse.files.exif import MAKER_NOTE, parse_block, serialise
from cofuse.files.metadata import outgoing
from tests.test_files_samples import ICC, XMP, exif_block, grey_icc
from tests.waiting import PATIENCE

rng = np.random.default_rng(5)
SOFTWARE = f"cofuse {cofuse.__version__}"

#: Every format at every depth it holds, by the name of a file.
OUTPUTS = {
    "8.png": "uint8",
    "16.png": "uint16",
    "8.tif": "uint8",
    "16.tif": "uint16",
    "float.tif": "float32",
    "16.ome.tif": "uint16",
    "8.jpg": "uint8",
    "8.webp": "uint8",
    "8.bmp": "uint8",
}
WITH_EXIF = [name for name in OUTPUTS if name != "8.bmp"]


def picture(dtype: str, channels: int = 3) -> np.ndarray:
    shape = (40, 60, 3)[: 3 if channels == 3 else 2]
    if dtype == "float32":
        return rng.random(shape, dtype=np.float32)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def require_tool(name: str) -> str:
    """Find a program of another project; without it skip."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def exiftool(*arguments: object) -> list[dict[str, object]]:
    """What exiftool says of files: by group and tag, numbers as numbers."""
    command = [require_tool("exiftool"), "-j", "-G1", "-n", "-a", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)
    return json.loads(done.stdout)


def identify(path: Path, what: str) -> str:
    """What ImageMagick says of a file; it warns of tags that it does not know."""
    command = [require_tool("identify"), "-quiet", "-format", what, str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["<", ">"], ids=["little", "big"])
def written(request, tmp_path_factory) -> Path:
    """One frame's metadata, taken from a JPEG file and written in every format."""
    folder = tmp_path_factory.mktemp("written")
    frame = folder / "frame.jpg"
    block = b"Exif\0\0" + exif_block(request.param)
    data = b"http://ns.adobe.com/xap/1.0/\0" + XMP
    packet = b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data
    Image.fromarray(picture("uint8")).save(
        frame, exif=block, icc_profile=ICC, dpi=(300, 300), quality=50, extra=packet
    )
    known = read_metadata(frame)
    assert known.icc == ICC and known.xmp == XMP and known.dpi == (300.0, 300.0)
    assert known.exif == exif_block(request.param)
    for name, dtype in OUTPUTS.items():
        write_image(folder / name, picture(dtype), metadata=known)
    return folder


@pytest.fixture(scope="module")
def seen(written) -> dict[str, dict[str, object]]:
    """The same, as exiftool sees it."""
    facts = exiftool(*(written / name for name in OUTPUTS))
    return {Path(str(fact["SourceFile"])).name: fact for fact in facts}


@pytest.mark.parametrize("name", WITH_EXIF)
def test_exiftool_sees_the_exif(seen, name):
    facts = seen[name]
    kept = {
        "IFD0:Make": "Canon",
        "IFD0:Model": "Canon EOS 5D",
        "ExifIFD:ExposureTime": 0.004,
        "ExifIFD:DateTimeOriginal": "2020:01:02 03:04:05",
        "InteropIFD:InteropIndex": "R98",
        "GPS:GPSLatitude": pytest.approx(48 + 8 / 60 + 30 / 3600),
        "IFD0:XResolution": 300,
        "IFD0:YResolution": 300,
        "IFD0:ResolutionUnit": 2,
    }
    changed = {
        "IFD0:Orientation": 1,
        "IFD0:Software": SOFTWARE,
        "ExifIFD:ExifImageWidth": 60,
        "ExifIFD:ExifImageHeight": 40,
    }
    for tag, value in (kept | changed).items():
        assert facts.get(tag) == value, tag
    if ".ome" not in name:
        assert facts["IFD0:ImageDescription"] == "Fern"
    when = datetime.strptime(str(facts["IFD0:ModifyDate"]), "%Y:%m:%d %H:%M:%S")
    assert abs((datetime.now() - when).total_seconds()) < 600
    assert not [tag for tag in facts if "Thumbnail" in tag or tag.startswith("IFD1")]
    assert "ExifTool:Warning" not in facts, facts["ExifTool:Warning"]


@pytest.mark.parametrize("name", WITH_EXIF)
def test_the_makers_note_still_points_to_its_values(seen, name):
    assert seen[name]["Canon:OwnerName"] == "A careful owner"
    assert seen[name]["Canon:CanonImageType"] == "Cofuse 1"


@pytest.mark.parametrize("name", WITH_EXIF)
def test_exiftool_sees_the_profile_and_xmp(written, seen, name):
    tool = require_tool("exiftool")
    done = subprocess.run([tool, "-b", "-icc_profile", written / name], capture_output=True)
    assert done.stdout == ICC
    assert seen[name]["XMP-xmp:Label"] == "Fern"
    assert seen[name]["XMP-tiff:Orientation"] == 1


@pytest.mark.parametrize(("name", "dtype"), OUTPUTS.items())
def test_exiftool_sees_size_depth_and_resolution(seen, name, dtype):
    facts = seen[name]
    bits = {"uint8": 8, "uint16": 16, "float32": 32}[dtype]
    find = {".png": "PNG:BitDepth", ".tif": "IFD0:BitsPerSample", ".jpg": "File:BitsPerSample"}
    tag = find.get(Path(name).suffix)
    if tag:
        assert str(facts[tag]).split()[0] == str(bits)
    inner = "File:" if name.endswith((".jpg", ".bmp")) else ""
    sizes = {key.split(":")[-1]: v for key, v in facts.items() if key.startswith(inner)}
    assert (sizes["ImageWidth"], sizes["ImageHeight"]) == (60, 40)
    per_metre = pytest.approx(300 / 0.0254, abs=0.6)
    if name.endswith(".png"):
        assert facts["PNG-pHYs:PixelsPerUnitX"] == per_metre
    elif name.endswith(".bmp"):
        assert facts["File:PixelsPerMeterX"] == pytest.approx(300 / 0.0254, abs=1.1)
    elif name.endswith(".jpg"):
        assert (facts["JFIF:XResolution"], facts["JFIF:ResolutionUnit"]) == (300, 1)


@pytest.mark.parametrize(("name", "dtype"), OUTPUTS.items())
def test_imagemagick_sees_pixels_depth_and_resolution(written, name, dtype):
    width, height, depth, density, unit = identify(written / name, "%w %h %z %x %U").split()[:5]
    assert (width, height) == ("60", "40")
    assert depth == {"uint8": "8", "uint16": "16", "float32": "32"}[dtype] or dtype == "float32"
    if not name.endswith(".webp"):  # which it does not read the resolution of
        inch = float(density) * (2.54 if "Centimeter" in unit else 1.0)
        assert inch == pytest.approx(300, abs=0.1)


@pytest.mark.parametrize("name", WITH_EXIF)
def test_imagemagick_sees_profile_and_exif(written, name):
    assert identify(written / name, "%[icc:description]") == "sRGB built-in"
    if name.endswith(".jpg"):  # elsewhere it does not look for EXIF
        assert identify(written / name, "%[EXIF:Model]") == "Canon EOS 5D"


@pytest.mark.parametrize("name", ["8.png", "8.jpg", "8.webp", "8.tif", "8.bmp"])
def test_pillow_sees_the_same(written, name):
    with Image.open(written / name) as image:
        image.load()
        if name.endswith(".bmp"):
            assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
            return
        assert image.info["icc_profile"] == ICC
        tags = image.getexif()
        assert tags[0x010F] == "Canon" and tags[0x0112] == 1 and tags[0x0131] == SOFTWARE
        assert tags.get_ifd(0x8769)[0xA002] == 60
        assert tags.get_ifd(0x8825)[1] == "N"
        if not name.endswith(".webp"):
            assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)


@pytest.mark.parametrize(("name", "dtype"), OUTPUTS.items())
def test_what_was_written_is_read_again(written, name, dtype):
    known = read_metadata(written / name)
    assert known.dpi == pytest.approx((300, 300), abs=0.1) or name.endswith(".webp")
    if name.endswith(".bmp"):
        return
    assert known.icc == ICC and b'tiff:Orientation="1"' in known.xmp
    before, after = parse_block(exif_block()), parse_block(known.exif)
    assert after.number(0x0112) == 1 and after.image[0x010F].data == b"Canon\0"
    assert set(before.photo) <= set(after.photo) and set(after.gps) == set(before.gps)
    assert after.photo[MAKER_NOTE].at == before.photo[MAKER_NOTE].at
    assert read_image(written / name).dtype == dtype


# --- TIFF in, TIFF out ---------------------------------------------------------------------------


def test_16_bit_tiff_with_profile_and_exif(tmp_path):
    """A 16-bit TIFF file tagged by exiftool comes out with the same tags, as exiftool sees them."""
    tool = require_tool("exiftool")
    frame, out = tmp_path / "frame.tif", tmp_path / "out.tif"
    image = picture("uint16")
    tifffile.imwrite(frame, image, photometric="rgb", iccprofile=ICC, resolution=(240, 240))
    tags = ["-Make=Nikon", "-Artist=Ä. Müller", "-ExposureTime=1/60", "-LensModel=105mm f/2.8"]
    tags += ["-GPSLatitude=48.5", "-GPSLatitudeRef=N", "-XMP-dc:Title=Fern", "-Copyright=me"]
    tags += [
        "-SubSecTimeOriginal=42",
        "-UserComment=über",
        "-Orientation#=8",
        "-ImageDescription=x",
    ]
    subprocess.run([tool, "-q", "-overwrite_original", *tags, frame], check=True, timeout=PATIENCE)
    known = read_metadata(frame)
    assert known.icc == ICC and known.dpi == (240.0, 240.0)
    upright = read_image(frame)
    np.testing.assert_array_equal(upright, np.rot90(image))
    write_image(out, upright, metadata=known)
    np.testing.assert_array_equal(read_image(out), upright)
    before, after = exiftool(frame, out)
    groups = ("IFD0:", "ExifIFD:", "GPS:", "XMP", "ICC")
    stored = {"ImageWidth", "ImageHeight", "StripOffsets", "RowsPerStrip", "StripByteCounts"}
    stored |= {"Compression", "Predictor", "Orientation", "Software", "ModifyDate"}
    stored |= {"ExifImageWidth", "ExifImageHeight"}

    def of_interest(facts):
        keys = [k for k in facts if k.startswith(groups) and k.split(":")[-1] not in stored]
        return {key: facts[key] for key in keys}

    assert of_interest(after) == of_interest(before)
    assert after["IFD0:Orientation"] == 1 and after["IFD0:Software"] == SOFTWARE
    assert after["ExifIFD:LensModel"] == "105mm f/2.8"
    assert after["IFD0:BitsPerSample"] == "16 16 16"


def test_big_tiff_holds_the_same(tmp_path):
    class Large(np.ndarray):
        nbytes = 2**33

    image = picture("uint16")
    known = Metadata(icc=ICC, exif=exif_block(), dpi=(300.0, 300.0))
    known = outgoing(known, width=60, height=40, colour=True)
    with (tmp_path / "a.tif").open("x+b") as file:
        FORMATS[".tif"].encode(file, image.view(Large), known, None)
    assert (tmp_path / "a.tif").read_bytes()[:4] == b"II+\0"
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif"), image)
    again = read_metadata(tmp_path / "a.tif")
    assert again.icc == ICC and parse_block(again.exif).gps
    (facts,) = exiftool(tmp_path / "a.tif")
    assert facts["Canon:OwnerName"] == "A careful owner"
    with tifffile.TiffFile(tmp_path / "a.tif") as tif:  # exiftool takes GPS in BigTIFF for EXIF
        assert tif.pages[0].tags["GPSTag"].value["GPSLatitudeRef"] == "N"


# --- microscopes ---------------------------------------------------------------------------------


def ome_stack(path: Path, volume: np.ndarray, order: list[int] | None = None, **pixels: object):
    """Write an OME-TIFF file whose pages stand in any order."""
    depth, height, width = volume.shape
    order = list(range(depth)) if order is None else order
    facts = " ".join(f'{key}="{value}"' for key, value in pixels.items())
    planes = "".join(
        f'<TiffData FirstZ="{z}" IFD="{page}" PlaneCount="1"/>' for page, z in enumerate(order)
    )
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?><OME '
        'xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" '
        f'SizeX="{width}" SizeY="{height}" SizeZ="{depth}" SizeC="1" SizeT="1" {facts}>'
        f'<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{planes}</Pixels></Image></OME>'
    )
    with tifffile.TiffWriter(path) as tif:
        for page, z in enumerate(order):
            text = xml.encode() if page == 0 else None
            tif.write(
                volume[z], photometric="minisblack", description=text, metadata=None, contiguous=0
            )


VOLUME = rng.integers(0, 4096, (4, 12, 17), dtype=np.uint16)


def test_ome_frames_follow_the_z_axis(tmp_path):
    ome_stack(tmp_path / "a.ome.tif", VOLUME, [2, 0, 3, 1])
    np.testing.assert_array_equal(np.stack(list(read_stack(tmp_path / "a.ome.tif"))), VOLUME)


def test_ome_channels_are_no_focus_series(tmp_path):
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, VOLUME, ome=True, metadata={"axes": "CYX"}, photometric="minisblack")
    with pytest.raises(CofuseError, match=r"channels \(C=4\).*one channel"):
        read_stack(path)


def test_ome_pixel_size_and_bits(tmp_path):
    facts = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 250, "PhysicalSizeYUnit": "nm"}
    facts |= {"PhysicalSizeZ": 0.002, "PhysicalSizeZUnit": "mm", "SignificantBits": 12}
    ome_stack(tmp_path / "a.ome.tif", VOLUME, **facts)
    known = read_metadata(tmp_path / "a.ome.tif")
    assert known.pixel_size == pytest.approx((0.5, 0.25, 2.0)) and known.white == 4095
    image = VOLUME[0]
    write_image(tmp_path / "b.ome.tif", image, metadata=known)
    again = read_metadata(tmp_path / "b.ome.tif")
    assert again.pixel_size == pytest.approx((0.5, 0.25, None)) and again.white == 4095
    np.testing.assert_array_equal(read_image(tmp_path / "b.ome.tif"), image)
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as tif:
        pixels = tifffile.xml2dict(tif.ome_metadata)["OME"]["Image"]["Pixels"]
        assert (pixels["SizeX"], pixels["SizeY"], pixels["SizeZ"]) == (17, 12, 1)
        assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeYUnit"]) == (0.5, "µm")
        assert tif.series[0].axes == "YX"
    # What knows no micrometres says as much in its own unit.
    for name in ("c.tif", "c.png"):
        write_image(tmp_path / name, image, metadata=known)
        assert read_metadata(tmp_path / name).dpi == pytest.approx((50800, 101600), rel=1e-4)
    converted = write_image(tmp_path / "d.ome.tif", image, metadata=known, depth=8, white=4095)
    assert read_metadata(converted).white is None


def test_ome_colour_and_alpha(tmp_path):
    image = picture("uint8")
    for name, alpha in (("a.ome.tif", None), ("b.ome.tiff", picture("uint8", 1))):
        write_image(tmp_path / name, image, alpha=alpha)
        np.testing.assert_array_equal(read_image(tmp_path / name), image)
        with tifffile.TiffFile(tmp_path / name) as tif:
            assert tif.is_ome and tif.series[0].axes == "YXS"


def test_imagej_pixel_size(tmp_path):
    path = tmp_path / "a.tif"
    options = {"metadata": {"spacing": 1.5, "unit": "um", "axes": "ZYX"}, "resolution": (4, 2)}
    tifffile.imwrite(path, VOLUME, imagej=True, **options)
    known = read_metadata(path)
    assert known.pixel_size == pytest.approx((0.25, 0.5, 1.5))
    write_image(tmp_path / "b.tif", VOLUME[0], metadata=known)
    with tifffile.TiffFile(tmp_path / "b.tif") as tif:  # one picture, and no tale of four
        assert not tif.is_imagej and len(tif.pages) == 1


# --- what does not fit ---------------------------------------------------------------------------


def test_profiles_of_another_kind_of_colour(tmp_path):
    grey, colour = picture("uint8", 1), picture("uint8")
    for suffix in (".png", ".jpg", ".tif"):
        known = Metadata(icc=grey_icc())
        path = write_image(tmp_path / f"g{suffix}", grey, metadata=known)
        assert read_metadata(path).icc == grey_icc()
        (facts,) = exiftool(path)
        assert facts["ICC-header:ColorSpaceData"] == "GRAY"
        with pytest.warns(UserWarning, match="RGB does not suit a grey"):
            write_image(tmp_path / f"h{suffix}", grey, metadata=Metadata(icc=ICC))
        with pytest.warns(UserWarning, match="GRAY does not suit an RGB"):
            path = write_image(tmp_path / f"c{suffix}", colour, metadata=known)
        assert read_metadata(path).icc is None


def test_a_block_too_large_for_jpeg(tmp_path):
    """The maker's note is left out, then all of EXIF."""
    known = parse_block(exif_block())
    note = known.photo[MAKER_NOTE]
    assert len(serialise(known)) < 900
    assert parse_block(serialise(known, most=10**6)).photo[MAKER_NOTE].at == note.at
    for far, kept in ((50_000, True), (60_000, False)):
        large = type(note)(7, bytes(6_000), far)
        photo = known.photo | {MAKER_NOTE: large}
        block = serialise(type(known)(known.order, known.image, photo, known.gps))
        path = write_image(
            tmp_path / "a.jpg", picture("uint8"), metadata=Metadata(exif=block), overwrite=True
        )
        photo = parse_block(read_metadata(path).exif).photo
        assert (MAKER_NOTE in photo) == kept and 0x829A in photo
    comment = known.photo | {0x9286: type(note)(7, bytes(70_000))}
    block = serialise(type(known)(known.order, known.image, comment))
    large_xmp = XMP.replace(b"Fern", b"F" * 70_000)
    with pytest.warns(UserWarning, match="too large") as caught:
        path = write_image(
            tmp_path / "b.jpg", picture("uint8"), metadata=Metadata(exif=block, xmp=large_xmp)
        )
    assert len(caught) == 2 and read_metadata(path) == Metadata()
    path = write_image(tmp_path / "b.png", picture("uint8"), metadata=Metadata(exif=block))
    assert len(parse_block(read_metadata(path).exif).photo[0x9286].data) == 70_000


def test_xmp_that_speaks_of_other_pixels(tmp_path):
    settings = b'xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/" crs:HasSettings="True" '
    applied = settings + b'crs:AlreadyApplied="True" '
    for facts, kept in ((b'hdrgm:Version="1.0" ', False), (settings, False), (applied, True)):
        known = Metadata(xmp=XMP.replace(b"xmp:Label", facts + b"xmp:Label"))
        path = write_image(tmp_path / "a.jpg", picture("uint8"), metadata=known, overwrite=True)
        assert (read_metadata(path).xmp is not None) == kept


def test_resolutions_that_are_none(tmp_path):
    Image.fromarray(picture("uint8")).save(tmp_path / "a.jpg")  # JFIF without a unit
    assert read_metadata(tmp_path / "a.jpg") == Metadata()
    known = Metadata(dpi=(254_000.0, 254_000.0))  # more than JFIF counts; EXIF holds it
    write_image(tmp_path / "b.jpg", picture("uint8"), metadata=known)
    assert read_metadata(tmp_path / "b.jpg").dpi == pytest.approx(known.dpi)


def test_nothing_is_said_where_nothing_was(tmp_path):
    for suffix in (".png", ".jpg", ".webp", ".bmp"):
        path = write_image(tmp_path / f"a{suffix}", picture("uint8"))
        assert read_metadata(path).exif is None


def test_metadata_is_read_without_decoding(tmp_path, monkeypatch):
    known = Metadata(icc=ICC, exif=exif_block(), dpi=(300.0, 300.0))
    paths = [write_image(tmp_path / f"a.{s}", picture("uint8"), metadata=known) for s in ("png",)]
    paths += [write_image(tmp_path / "a.tif", picture("float32"), metadata=known)]
    monkeypatch.setattr("imagecodecs.png_decode", lambda *a: pytest.fail("decoded"))
    monkeypatch.setattr("tifffile.TiffFile", lambda *a: pytest.fail("opened"))
    assert all(read_metadata(path).icc == ICC for path in paths)
