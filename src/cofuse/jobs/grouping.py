"""Which pictures make one stack: by folder, by name, or by the time they were taken."""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from cofuse.arguments import check_number
from cofuse.errors import CofuseError
from cofuse.files import read_metadata
from cofuse.files.exif import parse_block
from cofuse.files.sources import RAW_SUFFIXES, pictures_in

_DATE_TIME_ORIGINAL, _SUB_SECONDS_ORIGINAL = 0x9003, 0x9291


@dataclass(frozen=True)
class Group:
    """Pictures of one stack."""

    #: The name of its results; no two stacks of a batch have the same.
    name: str
    #: The pictures in the order of the frames; these or their folder as inputs of a `Request`.
    files: tuple[Path, ...] = ()
    inputs: tuple[str, ...] = ()
    #: Why the folder cannot be read, if it cannot.
    trouble: str | None = None


def find_groups(
    folders: Sequence[Path],
    *,
    recursive: bool = False,
    pattern: str | None = None,
    gap: float | None = None,
    leave_out: Path | None = None,
    taken: Sequence[str] = (),
) -> list[Group]:
    r"""Find the stacks in folders, in the order given, those below each by name.

    A folder that holds pictures is one stack, and so is each of its sub-folders that does. Or a
    folder is divided: by ``pattern``, a regular expression such as ``(.+)_\d+\.jpg`` for whole file
    names, whose first group (or that named ``stack``) is the same within a stack; and by ``gap``,
    the longest pause in seconds between two pictures of a stack. Sub-folders are then looked into
    only if ``recursive``, but at any depth; never into ``leave_out``, that of the results. Names
    in ``taken`` are not given. A folder that cannot be read is among the groups, with its trouble.
    """
    if gap is not None:
        check_number("gap", gap, 0, unit="seconds")
    expression = None if pattern is None else _compiled(pattern)
    by_folder = expression is None and gap is None
    depth = None if recursive else int(by_folder)
    paths: list[tuple[str, ...]] = []
    found: list[Group] = []
    seen = set() if leave_out is None else {os.path.realpath(leave_out)}
    for given in folders:
        if not given.is_dir():
            what = "is no folder" if given.exists() else "does not exist"
            raise CofuseError(f"{given} {what}; expected folders of pictures")
        if os.path.realpath(given) in seen:
            continue
        before = len(found)
        for folder in _walk(given, depth, seen):
            # Names of links are kept: who sorts by links means them.
            parts = Path(os.path.normpath(folder.absolute())).parts[1:] or ("stack",)
            try:
                groups = [
                    Group(name, tuple(files), tuple(map(str, [folder] if by_folder else files)))
                    for name, files in _divided(folder, pictures_in(folder), expression, gap)
                    if files
                ]
            except OSError as error:
                trouble = f"{error.filename or folder} cannot be opened: {error.strerror}"
                groups = [Group("", trouble=trouble)]
            paths += [(*parts, group.name) if group.name else parts for group in groups]
            found += groups
        if len(found) == before:
            warnings.warn(f"nothing in {given} makes a stack", stacklevel=2)
    names = _unique(paths, taken)
    return [replace(group, name=name) for name, group in zip(names, found, strict=True)]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise CofuseError(f"`pattern` {pattern!r} is no regular expression: {error}") from error
    if not expression.groups:
        raise CofuseError(
            f"`pattern` {pattern!r} has no group; put what the names of one stack share in "
            r"brackets, for example '(.+)_\d+\.jpg'"
        )
    return expression


def _walk(folder: Path, depth: int | None, seen: set[str]) -> Iterator[Path]:
    """Yield a folder and its sub-folders down to a depth, each once however it is reached."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    yield folder
    if depth == 0:
        return
    try:
        inner = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    except OSError:  # refused when its pictures are looked for
        return
    for child in sorted(inner):
        yield from _walk(child, None if depth is None else depth - 1, seen)


def _divided(
    folder: Path, pictures: list[Path], expression: re.Pattern[str] | None, gap: float | None
) -> Iterator[tuple[str, list[Path]]]:
    """Divide the pictures of a folder into stacks, by their names; "" is all of them."""
    groups = {"": pictures} if expression is None else _by_name(folder, pictures, expression)
    if gap is None:
        yield from groups.items()
        return
    raw = sum(file.suffix.lower() in RAW_SUFFIXES for file in pictures)
    if expression is None and 0 < raw < len(pictures):
        raise CofuseError(
            f"{folder} holds camera RAW beside other pictures; choose one kind with `pattern`, for "
            r"example '(IMG).*\.jpg'"
        )
    for files in groups.values():
        times = _times(folder, files)
        ordered = sorted(files, key=times.__getitem__)  # stable: by name within one moment
        seconds = [(times[file] - times[ordered[0]]).total_seconds() for file in ordered]
        for part in cut_at_pauses(seconds, gap):
            yield ordered[part.start].stem, ordered[part.start : part.stop]


def _by_name(
    folder: Path, pictures: list[Path], expression: re.Pattern[str]
) -> dict[str, list[Path]]:
    """Divide pictures by the part of their names that matches a group of a pattern."""
    key = "stack" if "stack" in expression.groupindex else 1
    groups: dict[str, list[Path]] = {}
    others = []
    for file in pictures:
        match = expression.fullmatch(file.name)
        if match and match[key]:
            groups.setdefault(match[key], []).append(file)
        else:
            others.append(file.name)
    if others:
        count = f"{len(others)} of {len(pictures)} pictures in {folder}"
        warnings.warn(f"{count} do not match `pattern`, for example {others[0]}", stacklevel=2)
    return groups


def cut_at_pauses(times: Sequence[float], gap: float) -> list[range]:
    """Cut a series of moments where the pause before the next is longer than ``gap``.

    >>> cut_at_pauses([0, 1, 2, 10, 11], 1.5)
    [range(0, 3), range(3, 5)]
    """
    cuts = [k for k in range(1, len(times)) if times[k] - times[k - 1] > gap]
    return [range(*ends) for ends in zip([0, *cuts], [*cuts, len(times)], strict=True) if times]


def _times(folder: Path, files: list[Path]) -> dict[Path, datetime]:
    """When pictures were taken; where they do not say, when their files were written."""
    taken = {file: time_taken(file) for file in files}
    silent = [file.name for file, moment in taken.items() if moment is None]
    if silent:
        warnings.warn(
            f"{len(silent)} of {len(files)} pictures in {folder} do not say when they were taken, "
            f"for example {silent[0]}; the time of the file is used instead",
            stacklevel=2,
        )
    # Local time, as cameras write it.
    return {f: time or datetime.fromtimestamp(f.stat().st_mtime) for f, time in taken.items()}


def time_taken(file: Path) -> datetime | None:
    """When a picture was taken by its camera's clock, if it says so."""
    try:
        exif = parse_block(read_metadata(file).exif or b"")
        texts = {
            tag: field.data.decode("ascii", "replace").strip("\0 ")
            for tag, field in (exif.image | exif.photo).items()
            if tag in (_DATE_TIME_ORIGINAL, _SUB_SECONDS_ORIGINAL)
        }
        moment = datetime.strptime(texts[_DATE_TIME_ORIGINAL], "%Y:%m:%d %H:%M:%S")
    except (CofuseError, KeyError, ValueError, struct.error):
        return None  # a damaged file is refused when it is fused
    fraction = texts.get(_SUB_SECONDS_ORIGINAL, "")
    return moment + timedelta(seconds=float(f"0.{fraction}") if fraction.isdecimal() else 0.0)


def _unique(paths: list[tuple[str, ...]], taken: Sequence[str]) -> list[str]:
    """Name stacks by the fewest last parts of their paths with which all names differ."""
    lengths = [1] * len(paths)
    while True:
        names = ["-".join(path[-n:]) for path, n in zip(paths, lengths, strict=True)]
        # On some disks capitals and small letters are the same.
        counts = Counter(name.casefold() for name in (*names, *taken))
        clashing = [k for k, name in enumerate(names) if counts[name.casefold()] > 1]
        if not clashing:
            return names
        longer = [k for k in clashing if lengths[k] < len(paths[k])]
        if not longer:
            raise CofuseError(
                f"two stacks would be named {names[clashing[0]]}; do them in batches of their own"
            )
        for k in longer:
            lengths[k] += 1
