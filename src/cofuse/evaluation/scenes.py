"""Which files belong together: a scene's frames, its truth, and the pictures fused from it.

A scene's folder holds its frames, or a folder ``stack`` with the frames as ``cofuse simulate``
writes it. It may hold the truth (``truth.png``, or another suffix) and a folder ``clean`` with the
frames before noise was added. Source maps beside the frames are left out. A method's folder holds
one picture a scene, named as the scene.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cofuse.errors import CofuseError
from cofuse.files.sources import format_of, picture_files

_NO_FRAMES = ("truth", "source-map", "true-source-map")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The frames of a scene, and the pictures fused from them by method.

    ``name`` is empty where there is only one scene; ``clean_sources`` are the frames before noise
    was added and ``truth`` the picture that is sharp everywhere, where they are known.
    """

    name: str = ""
    sources: Sequence[Path]
    clean_sources: Sequence[Path]
    truth: Path | None
    fused: Mapping[str, Path]


def gather_scene(
    sources: Sequence[Path],
    *,
    clean_sources: Sequence[Path] = (),
    truth: Path | None = None,
    fused: Sequence[Path] = (),
) -> Scene:
    """Put one scene together from files and folders.

    What scene folders among the sources hold as truth and clean frames is taken, unless ``truth``
    and ``clean_sources`` say otherwise.
    """
    frames: list[Path] = []
    truths, clean = [], picture_files(clean_sources)
    for place in sources:
        if not place.is_dir():
            frames.append(place)
            continue
        inner = place / "stack"
        files = picture_files(inner if inner.is_dir() else place)
        own = [path for path in files if path.stem not in _NO_FRAMES]
        if not own:
            raise CofuseError(f"{place} holds a truth but no frames; add the frames")
        frames += own
        truths += sorted(path for path in place.glob("truth.*") if path.is_file())
        if not clean_sources and (place / "clean").is_dir():
            clean += picture_files(place / "clean")
    if truth is None and len(truths) > 1:
        raise CofuseError(f"there are two truths, {truths[0]} and {truths[1]}; keep one")
    truths = [truth] if truth else truths
    if clean and len(clean) != len(frames):
        raise CofuseError(f"{len(frames)} sources but {len(clean)} clean ones; expected as many")
    pictures = picture_files(fused)
    for path in (*frames, *clean, *truths, *pictures):
        format_of(path)  # which refuses what is no picture
    names = _short_names(pictures, [path.stem for path in pictures])
    return Scene(
        sources=frames,
        clean_sources=clean,
        truth=truths[0] if truths else None,
        fused=dict(zip(names, pictures, strict=True)),
    )


def find_scenes(folder: Path, methods: Sequence[Path]) -> list[Scene]:
    """Find every scene of a folder, and its picture in every method's folder."""
    for path in (folder, *methods):
        if not path.is_dir():
            what = "is no folder" if path.exists() else "does not exist"
            raise CofuseError(f"{path} {what}; scenes and methods are given as folders")
    names = _short_names(methods, [path.resolve().name for path in methods])
    places = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not places:
        raise CofuseError(f"{folder} holds no folders; expected one a scene, with its frames")
    scenes = []
    for place in places:
        results = [find_picture(path, [place.name]) for path in methods]
        fused = dict(zip(names, results, strict=True))
        scenes.append(replace(gather_scene([place]), name=place.name, fused=fused))
    # A mean over some scenes only would look like one over all of them.
    for what, field in (("a truth", "truth"), ("clean frames", "clean_sources")):
        names_by = {bool(getattr(scene, field)): scene.name for scene in scenes}
        if len(names_by) > 1:
            raise CofuseError(
                f"{names_by[True]} has {what} but {names_by[False]} has none; expected all scenes "
                "alike"
            )
    return scenes


def find_picture(folder: Path, names: Sequence[str]) -> Path:
    """Find the one picture of a folder that bears, but for its suffix, the first name that fits."""
    files = picture_files(folder)
    for name in names:
        matches = [path for path in files if path.stem == name]
        if len(matches) > 1:
            raise CofuseError(
                f"{folder} holds {' and '.join(path.name for path in matches)}; keep one of them"
            )
        if matches:
            return matches[0]
    expected = " or ".join(f"{name}.png" for name in names)
    raise CofuseError(f"{folder} holds no picture {expected} (or .tif, .jpg, ...); add it")


def scene_names(given: Sequence[Path], frames: Sequence[Path]) -> list[str]:
    """Names a stack may go by, the likeliest first.

    A single folder or multi-page file gives its own name. Files give what their names begin with
    in common (``lytro-01-A`` and ``lytro-01-B``: ``lytro-01``), then the folder they lie in.
    """
    if len(given) == 1:
        path = given[0].resolve()
        return [path.name if path.is_dir() else path.stem]
    stems = [path.stem for path in frames]
    common = os.path.commonprefix(stems)  # noqa: RUF071 - of names, not of paths
    if any(stem[len(common) : len(common) + 1].isdigit() for stem in stems):
        common = common.rstrip("0123456789")  # half a number is no name
    folders = {path.resolve().parent for path in frames}
    names = [re.sub(r"[\s._-]+$", "", common)]
    if len(folders) == 1:
        names.append(folders.pop().name)
    return [name for name in dict.fromkeys(names) if name] or ["stack"]


def _short_names(paths: Sequence[Path], short: list[str]) -> list[str]:
    """Use the short names unless two were the same; a path given twice is a mistake."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise CofuseError("a picture or folder to score was given twice; name each once")
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
