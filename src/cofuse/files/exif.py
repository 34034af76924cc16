"""EXIF: a block read into its fields, changed where the picture changed, and laid out again.

A block is a small TIFF file. Values are kept as the bytes they are stored in, so that what is not
understood passes through whole. Many makers store offsets in their note that count from the start
of the block, so the note stays at its offset, and everything else is placed behind it.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import BinaryIO

from cofuse import __version__

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
#: Larger blocks of metadata, of any kind, are damage or an attack.
LARGEST_BLOCK = 32 * 2**20
#: A maker's note farther off came from a RAW file; the gap before it would be useless.
_FARTHEST_NOTE = 2**16


@dataclass(frozen=True)
class Field:
    """One value: its TIFF type, its bytes in the order of the block, the offset it was read at."""

    kind: int
    data: bytes
    at: int = 0


Fields = dict[int, Field]


@dataclass(frozen=True)
class Exif:
    """The directories of a block that stay true when the pixels change; not the thumbnail's."""

    order: str = "<"  # byte order, as `struct` writes it
    image: Fields = field(default_factory=dict)  # first directory, by tag
    photo: Fields = field(default_factory=dict)  # what EXIF adds
    gps: Fields = field(default_factory=dict)
    interop: Fields = field(default_factory=dict)

    def number(self, tag: int) -> float | None:
        """Return the first value of a number in the first directory, if it is one."""
        found = self.image.get(tag, Field(0, b""))
        form = {1: "B", SHORT: "H", LONG: "I", RATIONAL: "II"}.get(found.kind)
        if form is None:
            return None
        value, *below = struct.unpack_from(self.order + form, found.data)
        if below == [0]:
            return None
        return float(value / below[0] if below else value)

    def dpi(self) -> tuple[float, float] | None:
        """Return the pixels an inch across and down, where a unit is given."""
        x, y = self.number(X_RESOLUTION), self.number(Y_RESOLUTION)
        unit = {2: 1.0, 3: 2.54}.get(int(self.number(RESOLUTION_UNIT) or 2))
        return (x * unit, y * unit) if x and y and unit else None


def parse_block(block: bytes | BinaryIO | None, extra: frozenset[int] = frozenset()) -> Exif:
    """Read an EXIF block if there is one, or a TIFF file.

    Of its first directory descriptive and ``extra`` tags are read. Single damaged fields are left
    out; without a first directory it is a `ValueError`.
    """
    if block is None:
        return Exif()
    file = io.BytesIO(block.removeprefix(JPEG_EXIF)) if isinstance(block, bytes) else block
    directories = Directories(file)
    image = directories.read(directories.first, _DESCRIPTIVE | {EXIF_IFD, GPS_IFD} | extra)
    photo = directories.linked(image.pop(EXIF_IFD, None))
    gps = directories.linked(image.pop(GPS_IFD, None))
    interop = directories.linked(photo.pop(INTEROP_IFD, None))
    return Exif(directories.order, image, photo, gps, interop)


class Directories:
    """Reads and writes directories of a TIFF file, of which an EXIF block is one.

    ``first`` is the offset of the first one. What is written is appended to the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        # Fields may overlap in a damaged file: the bytes they take together are bounded.
        self._left = LARGEST_BLOCK
        start = self._bytes(0, 8)
        self.order = {b"II": "<", b"MM": ">"}.get(start[:2], "")
        version = struct.unpack_from(f"{self.order}H", start, 2)[0] if self.order else 0
        if version not in (42, 43):
            raise ValueError("it does not start as a TIFF file does")
        big = version == 43  # BigTIFF, whose offsets have 64 bits
        self._word = struct.Struct(self.order + ("Q" if big else "I"))
        self._head = struct.Struct(self.order + ("Q" if big else "H"))
        self._entry = struct.Struct(f"{self.order}HH{self._word.format[-1]}{self._word.size}s")
        self.first = self._integer(self._word.size, self._word)

    def _bytes(self, offset: int, count: int) -> bytes:
        if offset + count > self._size:
            raise ValueError("it ends too early")
        self._file.seek(offset)
        return self._file.read(count)

    def _integer(self, at: int, form: struct.Struct) -> int:
        return int(form.unpack(self._bytes(at, form.size))[0])

    def after(self, offset: int) -> int:
        """Return the offset of the directory that follows the one at an offset; 0 if none does."""
        count = self._integer(offset, self._head)
        return self._integer(offset + self._head.size + self._entry.size * count, self._word)

    def linked(self, link: Field | None) -> Fields:
        """Read the directory a field points to; an empty one where it points to none."""
        letter = {LONG: "I", 13: "I", LONG8: "Q", 18: "Q"}.get(link.kind) if link else None
        if link is None or letter is None:
            return {}
        try:
            return self.read(struct.unpack_from(self.order + letter, link.data)[0])
        except ValueError:
            return {}

    def read(self, offset: int, wanted: set[int] | None = None) -> Fields:
        """Read one directory, or the wanted tags of it, without fields that cannot be."""
        total = self._integer(offset, self._head)
        if not 0 < total <= _MOST_FIELDS:
            raise ValueError(f"a directory of {total} fields")
        table = self._bytes(offset + self._head.size, total * self._entry.size)
        place, inline = offset + self._head.size - self._word.size, self._word.size
        fields: Fields = {}
        for tag, kind, count, cell in self._entry.iter_unpack(table):
            place += self._entry.size
            if (wanted is not None and tag not in wanted) or kind not in _SIZES or not count:
                continue
            size = count * _SIZES[kind]
            at = place if size <= inline else self._word.unpack(cell)[0]
            if size <= min(_LARGEST_FIELD, self._left) and at + size <= self._size:
                fields[tag] = Field(kind, self._bytes(at, size), at)
                self._left -= size
        return fields

    def add(self, fields: Fields) -> Field:
        """Write a directory that is the last of its chain, and its values; return a link to it."""
        at = _even(self._size)
        end = at + self._head.size + len(fields) * self._entry.size + self._word.size
        table, values = self._head.pack(len(fields)), b""
        for tag, value in sorted(fields.items()):
            cell = value.data
            if len(cell) > self._word.size:
                self._file.seek(value.at)  # it may stand there already, as it was read
                there = self._file.read(len(value.data)) == value.data
                cell = self._word.pack(value.at if there else _even(end) + len(values))
                values += b"" if there else value.data.ljust(_even(len(value.data)), b"\0")
            count = len(value.data) // _SIZES[value.kind]
            table += self._entry.pack(tag, value.kind, count, cell)
        table = (table + self._word.pack(0)).ljust(_even(end) - at, b"\0")
        self._file.seek(self._size)
        self._file.write(bytes(at - self._size) + table + values)
        self._size = self._file.tell()
        return Field(LONG if self._word.size == 4 else LONG8, self._word.pack(at))

    def begin_with(self, link: Field) -> None:
        """Make the directory that a link points to the first one."""
        self._file.seek(self._word.size)
        self._file.write(link.data)


def updated(exif: Exif, width: int, height: int, dpi: tuple[float, float] | None) -> Exif:
    """Say what is true of the new picture: its size, upright, made by this program now."""

    def text(value: str) -> Field:
        return Field(ASCII, value.encode("ascii") + b"\0")

    def number(kind: int, letters: str, *values: int) -> Field:
        return Field(kind, struct.pack(exif.order + letters, *values))

    image = exif.image | {
        ORIENTATION: number(SHORT, "H", 1),
        SOFTWARE: text(f"cofuse {__version__}"),
        DATE_TIME: text(datetime.now().strftime("%Y:%m:%d %H:%M:%S")),
    }
    if dpi:
        x, y = (number(RATIONAL, "II", *_fraction(value)) for value in dpi)
        image |= {X_RESOLUTION: x, Y_RESOLUTION: y, RESOLUTION_UNIT: number(SHORT, "H", 2)}
    photo = {tag: value for tag, value in exif.photo.items() if tag not in _STALE}
    if photo:
        photo |= {0xA002: number(LONG, "I", width), 0xA003: number(LONG, "I", height)}
    return replace(exif, image=image, photo=photo)


def _fraction(value: float) -> tuple[int, int]:
    """Write a positive number as a fraction of two 32-bit integers."""
    below = 10 ** max(0, 6 - max(0, math.ceil(math.log10(value))))
    return min(round(value * below), 2**32 - 1), below


def serialise(exif: Exif, *, big: bool = False, most: int | None = None) -> bytes | None:
    """Lay out a block, a TIFF file without pixels, with the offsets of a BigTIFF file if ``big``.

    To keep to ``most`` bytes the maker's note is left out; None where that does not suffice.
    """
    block = _lay_out(exif, big)
    if most is not None and len(block) > most:
        photo = {tag: value for tag, value in exif.photo.items() if tag != MAKER_NOTE}
        block = _lay_out(replace(exif, photo=photo), big)
    return block if most is None or len(block) <= most else None


def _lay_out(exif: Exif, big: bool) -> bytes:
    """Lay out a block with the maker's note at its offset, if that is near."""
    letters, values = ("HHHQ", (43, 8, 0, 0)) if big else ("HI", (42, 0))
    start = (b"II" if exif.order == "<" else b"MM") + struct.pack(exif.order + letters, *values)
    note = exif.photo.get(MAKER_NOTE, Field(0, b""))
    if len(start) <= note.at <= _FARTHEST_NOTE:
        start = start.ljust(note.at, b"\0") + note.data
    file = io.BytesIO(start)
    block = Directories(file)
    image, photo = exif.image, exif.photo
    if exif.interop and photo:
        photo = photo | {INTEROP_IFD: block.add(exif.interop)}
    for tag, fields in ((EXIF_IFD, photo), (GPS_IFD, exif.gps)):
        if fields:
            image = image | {tag: block.add(fields)}
    block.begin_with(block.add(image))
    return file.getvalue()


def _even(offset: int) -> int:
    """Round up: values stand at even offsets."""
    return offset + offset % 2
