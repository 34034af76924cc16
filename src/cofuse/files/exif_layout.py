"""EXIF fields laid out as a block: directories, their values, and the maker's note in its place.

Many makers store offsets in their note that count from the start of the block, so the note is the
one thing that cannot be moved freely. It is put back to where it stood, and all else around it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from cofuse.files.exif import (
    EXIF_IFD,
    GPS_IFD,
    INTEROP_IFD,
    LONG,
    LONG8,
    MAKER_NOTE,
    Exif,
    Field,
    Fields,
)

__all__ = ["directory_size", "pack_directory", "serialise"]

#: A note further behind than this came from a RAW file; the gap before it would be for nothing.
_FURTHEST_NOTE = 2**16


def serialise(exif: Exif, *, big: bool = False, most: int | None = None) -> bytes | None:
    """Lay out a block, a TIFF file without pixels.

    Parameters
    ----------
    exif
        What to write.
    big
        Write the offsets of 64 bits that a BigTIFF file has.
    most
        The bytes there is room for; to keep to them the maker's note is moved, then left out.

    Returns
    -------
    bytes
        The block, or None where there is not room enough.
    """
    without = {tag: value for tag, value in exif.photo.items() if tag != MAKER_NOTE}
    for attempt in (exif, replace(exif, note_offset=None), replace(exif, photo=without)):
        block = _lay_out(attempt, big)
        if most is None or len(block) <= most:
            return block
    return None


def directory_size(count: int, big: bool) -> int:
    """Return the bytes of a directory of so many fields, without their values."""
    return 16 + 20 * count if big else 6 + 12 * count


def pack_directory(
    fields: Fields,
    order: str,
    big: bool,
    place: Callable[[int], int],
    fixed: Mapping[int, int] | None = None,
) -> tuple[bytes, dict[int, bytes]]:
    """Write a directory that is the last of its chain.

    Parameters
    ----------
    fields
        What it holds.
    order, big
        Byte order; whether offsets have 64 bits.
    place
        Finds room for so many bytes.
    fixed
        Offsets of values that stand somewhere already, by tag.

    Returns
    -------
    bytes, dict
        The directory; and by offset the values that do not fit into it.
    """
    inline, word = (8, "Q") if big else (4, "I")
    table = struct.pack(order + ("Q" if big else "H"), len(fields))
    values: dict[int, bytes] = {}
    for tag, field in sorted(fields.items()):
        data = field.data
        cell = data.ljust(inline, b"\0")
        if len(data) > inline:
            offset = (fixed or {}).get(tag)
            if offset is None:
                offset = place(len(data))
                values[offset] = data
            cell = struct.pack(order + word, offset)
        table += struct.pack(f"{order}HH{word}", tag, field.kind, field.count) + cell
    return table + bytes(inline), values


def _lay_out(exif: Exif, big: bool) -> bytes:
    """Lay out a block with the maker's note where it stood, if that is known and near."""
    order, start = exif.order, 16 if big else 8
    note, offset = exif.photo.get(MAKER_NOTE), exif.note_offset
    fixed: dict[int, int] = {}
    if note and offset is not None and start <= offset <= _FURTHEST_NOTE and len(note.data) > 8:
        fixed[MAKER_NOTE] = offset
    layout = _Layout(start, fixed.get(MAKER_NOTE), len(note.data) if note else 0)
    parts = {} if note is None else dict.fromkeys(fixed.values(), note.data)

    def add(fields: Fields, at: int | None = None, fixed: Mapping[int, int] | None = None) -> int:
        """Place a directory and its values; return where it stands."""
        at = layout.place(directory_size(len(fields), big)) if at is None else at
        table, values = pack_directory(fields, order, big, layout.place, fixed)
        parts.update(values | {at: table})
        return at

    def linked(fields: Fields, tag: int, target: int) -> Fields:
        word = struct.pack(order + ("Q" if big else "I"), target)
        return fields | {tag: Field(LONG8 if big else LONG, word)}

    # Readers that take no pains expect the first directory first, and it points to the others.
    links = bool(exif.photo) + bool(exif.gps)
    first = layout.place(directory_size(len(exif.image) + links, big))
    image, photo = exif.image, exif.photo
    if exif.interop and photo:
        photo = linked(photo, INTEROP_IFD, add(exif.interop))
    if photo:
        image = linked(image, EXIF_IFD, add(photo, fixed=fixed))
    if exif.gps:
        image = linked(image, GPS_IFD, add(exif.gps))
    add(image, first)
    block = bytearray(layout.end)
    header = struct.pack(f"{order}HHHQ", 43, 8, 0, first) if big else b""
    header = header or struct.pack(f"{order}HI", 42, first)
    parts[0] = (b"II" if order == "<" else b"MM") + header
    for at, data in parts.items():
        block[at : at + len(data)] = data
    return bytes(block)


class _Layout:
    """Gives out places: before the maker's note while there is room, then behind it."""

    def __init__(self, start: int, note: int | None, length: int) -> None:
        self._low, self._note = start, note
        self.end = start if note is None else _even(note + length)

    def place(self, size: int) -> int:
        """Find room for so many bytes."""
        if self._note is not None and self._low + size <= self._note:
            at, self._low = self._low, _even(self._low + size)
        else:
            at, self.end = self.end, _even(self.end + size)
        return at


def _even(offset: int) -> int:
    """Values stand on word boundaries."""
    return offset + offset % 2
