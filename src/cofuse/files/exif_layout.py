"""EXIF fields laid out as a block: directories, their values, and the maker's note in its place.

Many makers store offsets in their note that count from the start of the block, so the note stays
at its offset, and everything else is placed around it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from cofuse.files import exif as tags
from cofuse.files.exif import MAKER_NOTE, Exif, Field, Fields

__all__ = ["pack_directory", "serialise"]

#: A note at a larger offset came from a RAW file; to keep it there would leave a useless gap.
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
        The most bytes it may have; to keep to them the maker's note is moved, then left out.

    Returns
    -------
    bytes
        The block, or None where it is too large.
    """
    without = {tag: value for tag, value in exif.photo.items() if tag != MAKER_NOTE}
    for attempt in (exif, replace(exif, note_offset=None), replace(exif, photo=without)):
        block = _lay_out(attempt, big)
        if most is None or len(block) <= most:
            return block
    return None


def pack_directory(
    fields: Fields,
    order: str,
    big: bool,
    place: Callable[[int], int],
    note: int | None = None,
) -> tuple[bytes, dict[int, bytes]]:
    """Write a directory that is the last of its chain.

    Parameters
    ----------
    fields
        What it holds.
    order, big
        Byte order; whether offsets have 64 bits.
    place
        Takes a number of bytes and returns the offset of free space for them.
    note
        Offset of the maker's note, where that is written already.

    Returns
    -------
    bytes, dict
        The directory; and by offset the values that do not fit into it.
    """
    inline, word = (8, "Q") if big else (4, "I")
    table = struct.pack(order + ("Q" if big else "H"), len(fields))
    values: dict[int, bytes] = {}
    for tag, field in sorted(fields.items()):
        cell = field.data.ljust(inline, b"\0")
        if len(field.data) > inline:
            offset = note if tag == MAKER_NOTE else None
            if offset is None:
                offset = place(len(field.data))
                values[offset] = field.data
            cell = struct.pack(order + word, offset)
        table += struct.pack(f"{order}HH{word}", tag, field.kind, field.count) + cell
    return table + bytes(inline), values


def _lay_out(exif: Exif, big: bool) -> bytes:
    """Lay out a block with the maker's note at its offset, if that is known and near."""
    order, start = exif.order, 16 if big else 8
    note, parts = None, {}
    data = exif.photo[MAKER_NOTE].data if MAKER_NOTE in exif.photo else b""
    if len(data) > 8 and start <= (exif.note_offset or 0) <= _FURTHEST_NOTE:
        note = exif.note_offset
    layout = _Layout(start, note, len(data))
    if note is not None:
        parts[note] = data

    def room(count: int) -> int:
        return layout.place(16 + 20 * count if big else 6 + 12 * count)

    def add(fields: Fields, at: int | None = None, note: int | None = None) -> int:
        """Place a directory and its values; return its offset."""
        at = room(len(fields)) if at is None else at
        table, values = pack_directory(fields, order, big, layout.place, note)
        parts.update(values | {at: table})
        return at

    def linked(fields: Fields, tag: int, target: int) -> Fields:
        word = struct.pack(order + ("Q" if big else "I"), target)
        return fields | {tag: Field(tags.LONG8 if big else tags.LONG, word)}

    # Simple readers expect the first directory first; it points to the others.
    first = room(len(exif.image) + bool(exif.photo) + bool(exif.gps))
    image, photo = exif.image, exif.photo
    if exif.interop and photo:
        photo = linked(photo, tags.INTEROP_IFD, add(exif.interop))
    if photo:
        image = linked(image, tags.EXIF_IFD, add(photo, note=note))
    if exif.gps:
        image = linked(image, tags.GPS_IFD, add(exif.gps))
    add(image, first)
    header = struct.pack(f"{order}HHHQ", 43, 8, 0, first) if big else b""
    header = header or struct.pack(f"{order}HI", 42, first)
    parts[0] = (b"II" if order == "<" else b"MM") + header
    block = bytearray(layout.end)
    for at, part in parts.items():
        block[at : at + len(part)] = part
    return bytes(block)


class _Layout:
    """Finds free space: before the maker's note as long as it suffices, then behind it."""

    def __init__(self, start: int, note: int | None, length: int) -> None:
        self._low, self._note = start, note
        self.end = start if note is None else _even(note + length)

    def place(self, size: int) -> int:
        """Return the offset of ``size`` free bytes."""
        if self._note is not None and self._low + size <= self._note:
            at, self._low = self._low, _even(self._low + size)
        else:
            at, self.end = self.end, _even(self.end + size)
        return at


def _even(offset: int) -> int:
    """Round up: values stand at even offsets."""
    return offset + offset % 2
