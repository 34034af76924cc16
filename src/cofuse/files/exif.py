"""EXIF: a block read into its fields, and changed where the picture changed.

A block is a small TIFF file. Values are kept as the bytes they are stored in, so that what is not
understood passes through whole.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

__all__ = ["Exif", "Field", "Fields", "parse_block", "parse_exif", "read_directory", "updated"]

#: What a JPEG file puts before the block.
JPEG_EXIF = b"Exif\0\0"

#: Reads so many bytes from an offset; raises ValueError where they are not there.
Reader = Callable[[int, int], bytes]

ORIENTATION, SOFTWARE, DATE_TIME = 0x0112, 0x0131, 0x0132
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 0x011A, 0x011B, 0x0128
EXIF_IFD, GPS_IFD, INTEROP_IFD = 0x8769, 0x8825, 0xA005
MAKER_NOTE = 0x927C
ASCII, SHORT, LONG, RATIONAL, LONG8 = 2, 3, 4, 5, 16

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_SIZES |= {16: 8, 17: 8, 18: 8}

#: What the first directory may say of any picture: who, with what, when, and what of. All else
#: there tells how the pixels are stored, or belongs to a thumbnail, a DNG or a microscope's file.
_DESCRIPTIVE = {
    *(0x010D, 0x010E, 0x010F, 0x0110, ORIENTATION, X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT),
    *(SOFTWARE, DATE_TIME, 0x013B, 0x013C, 0x4746, 0x4749, 0x8298, 0x83BB, 0x829A, 0x829D),
    *(0x8822, 0x8827, 0x9003, 0x9004, 0x920A, 0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, 0xC4A5),
    *(0xC614, 0xC62F, 0xC630),
}

# Compressed bits a pixel, fraction and time zone of DateTime, and what Microsoft pads with.
_STALE = {0x9102, 0x9290, 0x9010, 0xEA1C, 0xEA1D}

_MOST_FIELDS = 1000
_LARGEST_FIELD = 16 * 2**20
_LARGEST_BLOCK = 32 * 2**20


@dataclass(frozen=True)
class Field:
    """One value: its TIFF type, and its bytes in the order of the block."""

    kind: int
    data: bytes

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.data) // _SIZES[self.kind]


Fields = dict[int, Field]


@dataclass(frozen=True)
class Exif:
    """The directories of a block that outlive a change of the pixels; the thumbnail's does not.

    Attributes
    ----------
    order
        ``"<"`` or ``">"``, as `struct` writes byte order.
    image, photo, gps, interop
        The fields by tag: first directory, EXIF, GPS and interoperability directory.
    note_offset
        Where the maker's note stood.
    """

    order: str = "<"
    image: Fields = field(default_factory=dict)
    photo: Fields = field(default_factory=dict)
    gps: Fields = field(default_factory=dict)
    interop: Fields = field(default_factory=dict)
    note_offset: int | None = None

    def integer(self, tag: int) -> int | None:
        """Return the first value of a whole number in the first directory."""
        found = self.image.get(tag)
        letter = {1: "B", SHORT: "H", LONG: "I"}.get(found.kind) if found else None
        if not found or letter is None or not found.data:
            return None
        return int(struct.unpack_from(self.order + letter, found.data)[0])

    def rational(self, tag: int) -> float | None:
        """Return the first value of a fraction in the first directory."""
        found = self.image.get(tag)
        if not found or found.kind != RATIONAL or len(found.data) < 8:
            return None
        above, below = struct.unpack_from(f"{self.order}II", found.data)
        return above / below if below else None

    def dpi(self) -> tuple[float, float] | None:
        """Return the pixels an inch across and down, where a unit is given."""
        x, y = self.rational(X_RESOLUTION), self.rational(Y_RESOLUTION)
        unit = {2: 1.0, 3: 2.54}.get(self.integer(RESOLUTION_UNIT) or 2)
        return (x * unit, y * unit) if x and y and unit else None


def parse_block(block: bytes | None, extra: frozenset[int] = frozenset()) -> Exif:
    """Read an EXIF block, if there is one; see `parse_exif`."""
    if block is None:
        return Exif()
    data = block.removeprefix(JPEG_EXIF)

    def read(offset: int, size: int) -> bytes:
        if offset + size > len(data):
            raise ValueError("it ends too early")
        return data[offset : offset + size]

    return parse_exif(read, extra)


def parse_exif(read: Reader, extra: frozenset[int] = frozenset()) -> Exif:
    """Read the directories of an EXIF block, or of a whole TIFF file.

    Parameters
    ----------
    read
        Gives bytes from an offset.
    extra
        Tags of the first directory to read besides the descriptive ones.

    Raises
    ------
    ValueError
        There is no first directory. Single damaged fields are left out.
    """
    start = read(0, 8)
    order = {b"II": "<", b"MM": ">"}.get(start[:2])
    if order is None:
        raise ValueError("it does not start as a TIFF file does")
    (version,) = struct.unpack_from(f"{order}H", start, 2)
    if version not in (42, 43):
        raise ValueError("it does not start as a TIFF file does")
    big = version == 43
    first = struct.unpack(f"{order}Q", read(8, 8)) if big else struct.unpack(f"{order}4xI", start)
    left = [_LARGEST_BLOCK]
    pointers = {EXIF_IFD, GPS_IFD}
    image, _ = _directory(read, first[0], order, big, left, _DESCRIPTIVE | pointers | extra)
    part: dict[int, Fields] = {}
    note_offset = None
    for tag in (EXIF_IFD, GPS_IFD):
        part[tag], note = _linked(read, image.pop(tag, None), order, big, left)
        note_offset = note if tag == EXIF_IFD else note_offset
    interop, _ = _linked(read, part[EXIF_IFD].pop(INTEROP_IFD, None), order, big, left)
    return Exif(order, image, part[EXIF_IFD], part[GPS_IFD], interop, note_offset)


def _linked(
    read: Reader, link: Field | None, order: str, big: bool, left: list[int]
) -> tuple[Fields, int | None]:
    """Read the directory a field points to; none where there is no such field or place."""
    letter = {LONG: "I", 13: "I", LONG8: "Q", 18: "Q"}.get(link.kind) if link else None
    if link is None or letter is None or not link.data:
        return {}, None
    try:
        return _directory(read, struct.unpack_from(order + letter, link.data)[0], order, big, left)
    except ValueError:
        return {}, None


def _directory(
    read: Reader,
    offset: int,
    order: str,
    big: bool,
    left: list[int],
    wanted: set[int] | frozenset[int] | None = None,
) -> tuple[Fields, int | None]:
    """Read one directory, leaving out fields that cannot be; and where the maker's note stands."""
    head, entry, inline, word = (8, 20, 8, "Q") if big else (2, 12, 4, "I")
    (count,) = struct.unpack(order + ("Q" if big else "H"), read(offset, head))
    if not 0 < count <= _MOST_FIELDS:
        raise ValueError(f"a directory of {count} fields")
    table = read(offset + head, count * entry)
    fields: Fields = {}
    note = None
    for start in range(0, len(table), entry):
        tag, kind, number = struct.unpack_from(f"{order}HH{word}", table, start)
        if (wanted is not None and tag not in wanted) or kind not in _SIZES or not number:
            continue
        size, place = number * _SIZES[kind], offset + head + start + entry - inline
        if size > inline:
            (place,) = struct.unpack_from(order + word, table, start + entry - inline)
        # Fields may overlap in a damaged file: what they take together has to be bounded.
        if size > min(_LARGEST_FIELD, left[0]):
            continue
        try:
            fields[tag] = Field(kind, read(place, size))
        except ValueError:
            continue
        left[0] -= size
        note = place if tag == MAKER_NOTE else note
    return fields, note


def read_directory(read: Reader, offset: int, order: str, big: bool) -> tuple[Fields, int]:
    """Read a directory of a whole file, and the offset of the next."""
    fields, _ = _directory(read, offset, order, big, [_LARGEST_BLOCK])
    (count,) = struct.unpack(order + ("Q" if big else "H"), read(offset, 8 if big else 2))
    behind = offset + (8 + 20 * count if big else 2 + 12 * count)
    (after,) = struct.unpack(order + ("Q" if big else "I"), read(behind, 8 if big else 4))
    return fields, after


def updated(
    exif: Exif,
    *,
    width: int,
    height: int,
    software: str,
    now: datetime,
    dpi: tuple[float, float] | None,
) -> Exif:
    """Say what is true of the new picture: its size, upright, made by whom and when."""
    order = exif.order

    def text(value: str) -> Field:
        return Field(ASCII, value.encode("ascii", "replace") + b"\0")

    image = dict(exif.image)
    image[ORIENTATION] = Field(SHORT, struct.pack(f"{order}H", 1))
    image[SOFTWARE] = text(software)
    image[DATE_TIME] = text(now.strftime("%Y:%m:%d %H:%M:%S"))
    if dpi:
        for tag, value in zip((X_RESOLUTION, Y_RESOLUTION), dpi, strict=True):
            image[tag] = Field(RATIONAL, struct.pack(f"{order}II", *_fraction(value)))
        image[RESOLUTION_UNIT] = Field(SHORT, struct.pack(f"{order}H", 2))
    photo = {tag: value for tag, value in exif.photo.items() if tag not in _STALE}
    if photo:
        for tag, size in ((0xA002, width), (0xA003, height)):
            photo[tag] = Field(LONG, struct.pack(f"{order}I", size))
    return replace(exif, image=image, photo=photo)


def _fraction(value: float) -> tuple[int, int]:
    """Write a positive number as a fraction of two 32-bit integers."""
    below = 10 ** max(0, 6 - max(0, math.ceil(math.log10(value))))
    return min(round(value * below), 2**32 - 1), below
