"""Uploaded frames: checked by their content, then refused in one line or added to a stack."""

from __future__ import annotations

import filecmp
import math
import re
import threading
import unicodedata
from pathlib import Path

from cofuse.errors import CofuseError
from cofuse.files import read_metadata, write_image
from cofuse.files.reading import inspect, stated_white
from cofuse.files.sources import format_of, natural_key
from cofuse.files.tiff import has_more_pages
from cofuse.images import Stack as Pictures
from cofuse.images.memory import available_memory
from cofuse.web.pyramid import eight_bits, encoded, to_srgb
from cofuse.web.schemas import FrameRecord, StackRecord
from cofuse.web.store import Store, new_id

_LONGEST_NAME = 120
#: Longest side of a thumbnail in pixels.
_THUMBNAIL = 320

#: Two frames are decoded at a time at most: they may be large.
_decoding = threading.Semaphore(2)


def clean_name(given: str, fallback: str) -> str:
    """Make a name safe to show and to list: no folders, no control characters, not too long."""
    text = given.encode("utf-8", "replace").decode("utf-8")
    text = re.split(r"[/\\]", unicodedata.normalize("NFC", text))[-1]
    # Categories C: control, format (which may turn the direction of writing), unassigned.
    text = "".join(c for c in text if unicodedata.category(c)[0] != "C").strip()
    if len(text) > _LONGEST_NAME:  # the end of a name tells frames apart
        text = text[: _LONGEST_NAME // 2] + "…" + text[-_LONGEST_NAME // 2 + 1 :]
    return text if text.strip(". ") else fallback


def thumbnail_path(path: Path) -> Path:
    """Where a frame's thumbnail lies."""
    return path.with_name(f"{path.name}.thumbnail.jpg")


def add_frames(
    store: Store, stack: StackRecord, arrived: dict[Path, str]
) -> tuple[list[FrameRecord], list[dict[str, str]]]:
    """Check files in a stack's folder, by the clients' names for them, and add the good ones.

    They come in the natural order of their names: among the frames that are there if those are in
    it as well, else, as somebody has put those in another order, after them.
    """
    good: list[FrameRecord] = []
    refused: list[dict[str, str]] = []
    added: list[FrameRecord] = []
    try:
        for path, given in arrived.items():
            name = clean_name(given, "frame")
            try:
                with _decoding:
                    good.append(_look_at(path, name, store))
            except CofuseError as error:
                line = " ".join(str(error).replace(str(path), name).split())
                refused.append({"name": name, "error": line})
        with store.lock:
            store.stacks[stack.id]  # it may have been deleted meanwhile
            most, pages = store.config.max_frames, stack.pages
            for frame in good:
                there = any(_is_same(store, stack, frame, one) for one in stack.frames + added)
                if there or pages + frame.pages > most:
                    too_many = f"one frame too many; a stack may have {most}"
                    why = "in the stack already" if there else too_many
                    refused.append({"name": frame.name, "error": f"{frame.name} is {why}"})
                    continue
                pages += frame.pages
                added.append(frame)
            if added:
                is_ordered = stack.frames == _in_order(stack.frames)
                frames = [*stack.frames, *_in_order(added)]
                frames = _in_order(frames) if is_ordered else frames
                store.stacks.change(stack, frames=frames, noise=None)
                store.size += sum(frame.bytes for frame in added)
    finally:  # none is kept that the record does not know
        kept = {store.frame_path(stack.id, frame) for frame in stack.frames}
        for path in arrived.keys() - kept:
            delete_frame(path)
    return added, refused


def _in_order(frames: list[FrameRecord]) -> list[FrameRecord]:
    return sorted(frames, key=lambda frame: natural_key(frame.name))


def _is_same(store: Store, stack: StackRecord, one: FrameRecord, other: FrameRecord) -> bool:
    """Whether two frames are the same, by name and content."""
    if (one.name, one.bytes) != (other.name, other.bytes):
        return False
    first, second = (store.frame_path(stack.id, frame) for frame in (one, other))
    return filecmp.cmp(first, second, shallow=False)


def delete_frame(path: Path) -> None:
    """Delete a frame's file, and its thumbnail."""
    path.unlink(missing_ok=True)
    thumbnail_path(path).unlink(missing_ok=True)


def _look_at(path: Path, name: str, store: Store) -> FrameRecord:
    """Check the header against the limits, decode, and write a thumbnail."""
    kind = format_of(path)
    # Some TIFFs hold small copies of each frame as well, hence more pages than frames.
    if kind == "tiff" and has_more_pages(path, 5 * store.config.max_frames):
        raise CofuseError(f"{name} holds far more pages than a stack may have frames")
    pictures = inspect([path])
    first, most = pictures[0], store.config.max_pixels
    for picture in pictures:
        height, width = picture.shape[:2]
        if height * width > most:
            raise CofuseError(
                f"{name} declares {width}x{height} pixels; a frame may have {most / 1e6:g} "
                "megapixels here (--max-pixels)"
            )
    if len(pictures) > store.config.max_frames:
        raise CofuseError(f"{name} holds {len(pictures)} frames; a stack may have fewer")
    if 3 * math.prod(first.shape) * first.dtype.itemsize > available_memory():
        raise CofuseError(f"{name} does not fit into memory; make it smaller")
    white = None if first.dtype.kind == "f" else stated_white(pictures)
    pixels = Pictures.from_arrays([first.decode()], white=white, names=[name])
    thumbnail_path(path).write_bytes(_thumbnail(pixels, read_metadata(path).icc))
    return FrameRecord(
        id=path.name.removesuffix(path.suffix),
        name=name,
        format=kind,
        width=first.shape[1],
        height=first.shape[0],
        depth=8 * first.dtype.itemsize,
        colour=len(first.shape) == 3,
        bytes=path.stat().st_size,
        pages=len(pictures),
        suffix=path.suffix,
    )


def _thumbnail(stack: Pictures, profile: bytes | None) -> bytes:
    """The first frame as a JPEG of at most `_THUMBNAIL` pixels a side."""
    import cv2

    step = max(1, max(stack.shape[:2]) // (4 * _THUMBNAIL))  # of large frames not all pixels count
    levels = stack.to_levels(stack[0][::step, ::step])
    scale = min(1.0, _THUMBNAIL / max(levels.shape[:2]))
    width, height = (max(1, round(scale * side)) for side in levels.shape[1::-1])
    small = cv2.resize(levels, (width, height), interpolation=cv2.INTER_AREA)
    return encoded(to_srgb(profile)(eight_bits(small, 255.0)))


def add_sample(store: Store) -> StackRecord:
    """Make a stack of the demo's frames."""
    from cofuse.evaluation.simulation import demo_simulation

    stack = store.new_stack("Sample", sample=True)
    arrived = {}
    for number, frame in enumerate(demo_simulation().frames, start=1):
        path = stack.folder / "frames" / f"{new_id()}.png"
        write_image(path, frame)
        arrived[path] = f"frame-{number:02}.png"
    add_frames(store, stack, arrived)
    return stack
