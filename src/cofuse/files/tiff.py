"""TIFF: depths, colours, strips and pages, through tifffile.

tifffile returns stored samples; inverted grey, palettes and planes are interpreted here. It also
fills missing strips with zeros, and skips tags it cannot read and pages behind a broken link with
only a log message; all three are checked beforehand.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from cofuse.errors import CofuseError
from cofuse.files.decoding import DEFLATE_RATIO, Picture, check_size, damaged
from cofuse.images import Pixels
from cofuse.images.pixels import white_of_type

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_JPEG = 7
_THUMBNAIL_OR_MASK = 0b101  # bits of the NewSubfileType tag
_FIRST_PRIVATE_TAG = 32768  # the tags below say how to read the pixels
_PREMULTIPLIED, _PLAIN_ALPHA = 1, 2  # colours were multiplied by alpha, or not
_CONTIGUOUS, _PLANES = 1, 2

#: The most bytes that one packed byte stands for: unpacked, LZW, JPEG, deflate, PackBits.
_RATIOS = {1: 1, 5: 4096, 7: 2048, 8: DEFLATE_RATIO, 32946: DEFLATE_RATIO, 32773: 128}
_READ_AHEAD = 4 * 2**20
_MOST_PAGES = 20_000


def inspect_tiff(path: Path, *, all_pages: bool) -> list[Picture]:
    """Read the headers of a TIFF file: of all its pages, or of the first only.

    Thumbnails and transparency masks are skipped. A series stored in one page (a volume, or an
    ImageJ stack of more than 4 GB) is split into its planes.
    """
    with _opened(path) as tif:
        count = len(tif.pages)
        several = count > 1
        if count > _MOST_PAGES:
            raise CofuseError(f"{path} has {count} pages; cofuse reads at most {_MOST_PAGES}")
        if all_pages:
            _check_chain(tif, path)
        if not count:
            raise damaged(path, "holds no pictures")
        if not all_pages and not tif.pages[0].subfiletype & _THUMBNAIL_OR_MASK:
            count = 1
        pages = [tif.pages.get(k, aspage=True) for k in range(count)]
        for page in pages:
            _check_tags(page, path)
        pages = [p for p in pages if not p.subfiletype & _THUMBNAIL_OR_MASK] or pages[:1]
        if all_pages or not several:
            planes = _planes(tif, path)
            if planes > 1 and not several:
                numbers = range(planes if all_pages else 1)
                return [_picture(pages[0], path, number, planes) for number in numbers]
            if planes > 1 and tif.is_ome:
                pages = _in_ome_order(tif, path)
        pages = pages if all_pages else pages[:1]
        return [_picture(page, path, page.index if several else None) for page in pages]


def has_more_pages(path: Path, most: int) -> bool:
    """Whether a TIFF file has more than ``most`` pages; no more of them are looked for."""
    with suppress(Exception), _opened(path) as tif:  # damaged: `inspect_tiff` says where
        return tif.pages.get(most) is not None
    return False


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a TIFF file alone, without other files that an OME header may name."""
    import tifffile

    with path.open("rb") as file, tifffile.TiffFile(file, _multifile=False) as tif:
        yield tif


def _check_chain(tif: Any, path: Path) -> None:
    """Refuse a file whose list of pages does not end in zero, as a whole list does."""
    file = tif.filehandle
    file.seek(tif.pages.next_page_offset)
    end = file.read(tif.tiff.offsetsize)
    if len(end) != tif.tiff.offsetsize or any(end):
        raise damaged(path, f"ends after page {len(tif.pages)} although more pages follow")


def _check_tags(page: Any, path: Path) -> None:
    """Refuse a page with unreadable tags: without them its pixels would be decoded wrongly."""
    tiff, file = page.parent.tiff, page.parent.filehandle
    file.seek(page.offset)
    (count,) = struct.unpack(tiff.tagnoformat, file.read(tiff.tagnosize))
    entries = file.read(count * tiff.tagsize)
    form = f"{tiff.byteorder}H{tiff.tagsize - 2}x"
    codes = {code for (code,) in struct.iter_unpack(form, entries) if code < _FIRST_PRIVATE_TAG}
    lost = codes - {tag.code for tag in page.tags}
    if lost:
        raise damaged(path, f"has an unreadable header (tag {min(lost)})")


def _planes(tif: Any, path: Path) -> int:
    """Count the pictures along the one axis a stack may have besides rows, columns, samples."""
    if len(tif.series) != 1:
        return 1
    axes = zip(tif.series[0].axes, tif.series[0].shape, strict=True)
    extra = {axis: length for axis, length in axes if axis not in "YXS" and length > 1}
    channels = tif.is_ome and list(extra) == ["C"]
    if len(extra) > 1 or channels:
        sizes = " x ".join(f"{axis}={length}" for axis, length in extra.items())
        raise CofuseError(
            f"{path} has {'channels' if channels else 'more than one axis of pictures'} ({sizes}); "
            "expected one focus series: export one channel and one point in time"
        )
    return int(max(extra.values(), default=1))


def _in_ome_order(tif: Any, path: Path) -> list[Any]:
    """Return the pages as OME-XML orders them, which need not be how they follow in the file."""
    order = [None if page is None else int(page.index) for page in tif.series[0].pages]
    if None in order:
        lost = f"frame {order.index(None) + 1} of {len(order)}"
        raise CofuseError(f"{path} lacks {lost}; name all files of the series")
    return [tif.pages.get(k, aspage=True) for k in order if k is not None]


def _picture(page: Any, path: Path, number: int | None, planes: int = 1) -> Picture:
    """Check what a page declares; of several planes that lie in it, describe one by its number."""
    label = str(path) if number is None else f"{path} page {number + 1}"
    colour, dtype = _declared(page, label)
    _check_segments(page, label)
    stored = tuple(n for axis, n in zip(page.axes, page.shape, strict=True) if axis in "YXS")
    if planes > 1 and (start := page.parent.series[0].dataoffset) is not None:
        end = start + planes * math.prod(stored) * page.dtype.itemsize
        if end > page.parent.filehandle.size:
            raise damaged(path, f"declares {planes} pictures but ends before the last")
    index = page.index

    def load() -> Pixels:
        with _opened(path) as tif:
            page = tif.pages.get(index, aspage=True)
            if planes == 1:  # by default tifffile reads 256 MiB of packed pixels ahead
                return _interpret(page.asarray(buffersize=_READ_AHEAD), page)
            # Mapped, not read: such files are larger than memory as a rule.
            volume = tif.asarray(series=0, out="memmap").reshape(planes, *stored)
            return _interpret(np.array(volume[number]), page)

    tag = page.tags.get("Orientation")
    extra, alpha = _extra_sample(page)
    note = "has a sample more than its colours that it does not call transparency; it is left out"
    return Picture(
        *(path, page.imagewidth, page.imagelength, colour, dtype, load, alpha),
        left_out=note if extra and not alpha else "",
        white=_largest_in_use(page),
        orientation=int(tag.value) if tag is not None and tag.value in range(1, 9) else 1,
        page=number,
    )


def _extra_sample(page: Any) -> tuple[bool, bool]:
    """Whether there is a sample besides the colours, and whether it is transparency."""
    extra = int(page.samplesperpixel) in (2, 4)  # `_declared` allows no more
    return extra, extra and tuple(page.extrasamples) in ((_PREMULTIPLIED,), (_PLAIN_ALPHA,))


def _largest_in_use(page: Any) -> float | None:
    """Read the largest value in use of a 16-bit page; 65535, TIFF's default, means nothing."""
    for name in ("MaxSampleValue", "SMaxSampleValue"):
        if page.dtype == np.uint16 and name in page.tags:
            value = float(np.max(page.tags[name].value))
            if 255 <= value < white_of_type(np.uint16):
                return value
    return None


def _declared(page: Any, label: str) -> tuple[bool, np.dtype[Any]]:
    """Return whether the decoded page has colours, and its dtype; refuse what is no picture."""
    check_size(label, page.imagewidth, page.imagelength)
    if "PhotometricInterpretation" not in page.tags:
        tag = "PhotometricInterpretation"
        raise CofuseError(f"{label} does not say whether 0 is black ({tag}); export it again")
    if page.samplesperpixel > 1 and page.planarconfig not in (_CONTIGUOUS, _PLANES):
        order = f"PlanarConfiguration {int(page.planarconfig)}; expected 1 or 2"
        raise damaged(label, f"has its samples in an unknown order ({order})")
    photometric, bits, dtype = int(page.photometric), page.bitspersample, page.dtype
    colour = photometric in (_RGB, _PALETTE, _YCBCR)
    known = colour or photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO)
    # tifffile turns YCbCr into RGB where the JPEG codec does it, and only there.
    if not known or (photometric == _YCBCR and page.compression != _JPEG):
        name = getattr(page.photometric, "name", str(page.photometric))
        raise CofuseError(f"{label} stores its colours as {name}; convert it to RGB first")
    channels = 3 if photometric in (_RGB, _YCBCR) else 1
    if page.samplesperpixel - channels not in (0, 1):
        count = page.samplesperpixel
        raise CofuseError(f"{label} has {count} samples a pixel; export it as grey or RGB")
    if dtype is not None and dtype.kind in "bu" and isinstance(bits, int) and bits < 8:
        dtype = np.dtype(np.uint8)
    fits = getattr(dtype, "name", "") in ("uint8", "uint16", "float32", "float64")
    if not fits or (photometric in (_PALETTE, _WHITE_IS_ZERO) and dtype.kind == "f"):
        raise CofuseError(
            f"{label} has {dtype} values; expected uint8, uint16, float32 or float64: convert it"
        )
    return colour, np.dtype(np.uint8) if photometric == _PALETTE else dtype.newbyteorder("=")


def _check_segments(page: Any, label: str) -> None:
    """Refuse a page whose strips or tiles are not all there: tifffile would fill in zeros."""
    offsets, lengths = page.dataoffsets, page.databytecounts
    there = len(offsets) >= math.prod(page.chunked) and len(lengths) >= len(offsets)
    size = page.parent.filehandle.size
    if not there or any(
        o < 1 or n < 1 or o + n > size for o, n in zip(offsets, lengths, strict=False)
    ):
        raise damaged(label, "lacks part of its pixels")
    bits = page.bitspersample * page.samplesperpixel * page.imagedepth
    ratio = _RATIOS.get(int(page.compression), 65536)
    width, height, packed = page.imagewidth, page.imagelength, sum(lengths)
    check_size(label, width, height, bits=bits, packed=packed, ratio=ratio)


def _interpret(samples: Pixels, page: Any) -> Pixels:
    """Turn stored samples into grey or RGB pixels in native byte order."""
    photometric, bits = int(page.photometric), page.bitspersample
    pixels = samples.astype(samples.dtype.newbyteorder("="), copy=False)
    if page.axes.replace("Z", "") == "SYX":
        pixels = np.moveaxis(pixels, 0, -1)
    if bits < 8 and photometric != _PALETTE:
        pixels, bits = pixels.astype(np.uint8) * np.uint8(255 // (2**bits - 1)), 8
    has_extra, has_alpha = _extra_sample(page)
    alpha = pixels[..., -1:] if has_alpha else None
    if has_extra:
        pixels = pixels[..., :-1]
        if alpha is not None and int(page.extrasamples[0]) == _PREMULTIPLIED:
            pixels = _divided(pixels, alpha)
        pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    if photometric == _PALETTE:
        table = np.asarray(page.colormap)
        # The table has 16 bits; some writers fill in 8-bit values all the same.
        table = (table >> 8 if table.max() > 255 else table).astype(np.uint8)
        pixels = np.moveaxis(table[:, pixels.astype(np.intp)], 0, -1)
    elif photometric == _WHITE_IS_ZERO:
        pixels = pixels.dtype.type(2**bits - 1) - pixels
    if alpha is not None:
        pixels = np.concatenate([pixels.reshape(*alpha.shape[:2], -1), alpha], axis=-1)
    return pixels


def _divided(colours: Pixels, alpha: Pixels) -> Pixels:
    """Undo the multiplication of colours by alpha; invisible pixels stay as they are."""
    white = white_of_type(colours.dtype)
    if (alpha == white).all():
        return colours
    scale = white / np.where(alpha > 0, alpha, white).astype(np.float64)
    values = colours * scale
    if colours.dtype.kind == "u":
        values = np.minimum(np.rint(values), white)
    return values.astype(colours.dtype)
