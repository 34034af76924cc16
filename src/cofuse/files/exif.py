"""EXIF: a block read into its fields, and changed where the picture changed.

A block is a small TIFF file. Values are kept as the bytes they are stored in, so that what is not
understood passes through whole.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import BinaryIO

__all__ = ["Directories", "Exif", "Field", "Fields", "parse_block", "parse_exif", "updated"]

#: What a JPEG file puts before the block.
JPEG_EXIF = b"Exif\0\0"

ORIENTATION, SOFTWARE, DATE_TIME = 0x0112, 0x0131, 0x0132
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 0x011A, 0x011B, 0x0128
EXIF_IFD, GPS_IFD, INTEROP_IFD = 0x8769, 0x8825, 0xA005
MAKER_NOTE = 0x927C
ASCII, SHORT, LONG, RATIONAL, LONG8 = 2, 3, 4, 5, 16

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_SIZES |= {16: 8, 17: 8, 18: 8}

#: Tags of the first directory that describe any picture: who, with what, when, and what of. All
#: others are about how pixels are stored, or belong to a thumbnail, a DNG or a microscope's file.
_DESCRIPTIVE = {
    *(0x010D, 0x010E, 0x010F, 0x0110, ORIENTATION, X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT),
    *(SOFTWARE, DATE_TIME, 0x013B, 0x013C, 0x4746, 0x4749, 0x8298, 0x83BB, 0x829A, 0x829D),
    *(0x8822, 0x8827, 0x9003, 0x9004, 0x920A, 0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, 0xC4A5),
    *(0xC614, 0xC62F, 0xC630),
}

# Compressed bits a pixel, fraction and time zone of DateTime, and Microsoft's padding.
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
    """The directories of a block that stay true when the pixels change; not the thumbnail's.

    Attributes
    ----------
    order
        ``"<"`` or ``">"``, as `struct` writes byte order.
    image, photo, gps, interop
        The fields by tag: first directory, EXIF, GPS and interoperability directory.
    note_offset
        Offset of the maker's note in the block.
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
    return parse_exif(io.BytesIO(block.removeprefix(JPEG_EXIF)), extra)


def parse_exif(file: BinaryIO, extra: frozenset[int] = frozenset()) -> Exif:
    """Read the directories of an EXIF block, or of a whole TIFF file.

    Parameters
    ----------
    file
        Where the block, or the TIFF file, starts at 0.
    extra
        Tags of the first directory to read besides the descriptive ones.

    Raises
    ------
    ValueError
        There is no first directory. Single damaged fields are left out.
    """
    directories = Directories(file)
    image = directories.read(directories.first, _DESCRIPTIVE | {EXIF_IFD, GPS_IFD} | extra).fields
    photo = directories.linked(image.pop(EXIF_IFD, None))
    gps = directories.linked(image.pop(GPS_IFD, None)).fields
    interop = directories.linked(photo.fields.pop(INTEROP_IFD, None)).fields
    return Exif(directories.order, image, photo.fields, gps, interop, photo.note)


@dataclass(frozen=True)
class Directory:
    """The fields of a directory, and the offset of the maker's note."""

    fields: Fields
    note: int | None = None


class Directories:
    """Reads directories of a TIFF file, of which an EXIF block is one.

    Attributes
    ----------
    order, big
        Byte order as `struct` writes it; whether offsets have 64 bits (BigTIFF).
    first
        Offset of the first directory.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        # Fields may overlap in a damaged file: the bytes they take together are bounded.
        self._left = _LARGEST_BLOCK
        start = self._bytes(0, 8)
        self.order = {b"II": "<", b"MM": ">"}.get(start[:2], "")
        version = struct.unpack_from(f"{self.order}H", start, 2)[0] if self.order else 0
        if version not in (42, 43):
            raise ValueError("it does not start as a TIFF file does")
        self.big = version == 43
        self._head, self._entry = (8, 20) if self.big else (2, 12)
        self.first = self._offset(8 if self.big else 4)

    def _bytes(self, offset: int, count: int) -> bytes:
        if offset + count > self._size:
            raise ValueError("it ends too early")
        self._file.seek(offset)
        return self._file.read(count)

    def _offset(self, at: int) -> int:
        word, size = ("Q", 8) if self.big else ("I", 4)
        return int(struct.unpack(self.order + word, self._bytes(at, size))[0])

    def _count(self, offset: int) -> int:
        """Return the number of fields of the directory at an offset."""
        letter = "Q" if self.big else "H"
        return int(struct.unpack(self.order + letter, self._bytes(offset, self._head))[0])

    def after(self, offset: int) -> int:
        """Return the offset of the directory that follows the one at an offset; 0 if none does."""
        return self._offset(offset + self._head + self._entry * self._count(offset))

    def linked(self, link: Field | None) -> Directory:
        """Read the directory a field points to; an empty one where it points to none."""
        letter = {LONG: "I", 13: "I", LONG8: "Q", 18: "Q"}.get(link.kind) if link else None
        if link is None or letter is None or not link.data:
            return Directory({})
        try:
            return self.read(struct.unpack_from(self.order + letter, link.data)[0])
        except ValueError:
            return Directory({})

    def read(self, offset: int, wanted: set[int] | None = None) -> Directory:
        """Read one directory, or the wanted tags of it, without fields that cannot be."""
        order, head, entry = self.order, self._head, self._entry
        inline, word = (8, "Q") if self.big else (4, "I")
        count = self._count(offset)
        if not 0 < count <= _MOST_FIELDS:
            raise ValueError(f"a directory of {count} fields")
        table = self._bytes(offset + head, count * entry)
        fields: Fields = {}
        note = None
        for start in range(0, len(table), entry):
            tag, kind, number = struct.unpack_from(f"{order}HH{word}", table, start)
            if (wanted is not None and tag not in wanted) or kind not in _SIZES or not number:
                continue
            size, place = number * _SIZES[kind], offset + head + start + entry - inline
            if size > inline:
                (place,) = struct.unpack_from(order + word, table, start + entry - inline)
            if size > min(_LARGEST_FIELD, self._left) or place + size > self._size:
                continue
            fields[tag] = Field(kind, self._bytes(place, size))
            self._left -= size
            note = place if tag == MAKER_NOTE else note
        return Directory(fields, note)


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
