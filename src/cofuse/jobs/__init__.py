"""Whole jobs: from files of frames to the files asked for.

`Request` says what is asked for; `cofuse.jobs.run.Job` does it (importing it takes longer), and
`fuse_files` is both in one call.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cofuse.errors import CofuseError
from cofuse.jobs.options import Aligning, Fusing, Maps, Reading, Request, Writing
from cofuse.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from cofuse.jobs.run import Outcome

__all__ = ["Aligning", "Fusing", "Maps", "Reading", "Request", "Writing", "fuse_files"]

_GROUPS = {
    "reading": Reading,
    "aligning": Aligning,
    "fusing": Fusing,
    "writing": Writing,
    "maps": Maps,
}
#: The group that every option is in.
_GROUP_OF = {field.name: name for name, kind in _GROUPS.items() for field in fields(kind)}
#: Options that are files, and such as are read as they are typed on a command line.
_PATHS = {f.name for kind in _GROUPS.values() for f in fields(kind) if "Path" in str(f.type)}
_AS_TYPED = {"sigma", "max_memory", "bit_depth"}


def fuse_files(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    progress: ProgressCallback = silent,
    **options: Any,
) -> Outcome:
    """Fuse files of frames into a picture file, as ``cofuse fuse`` does with the same options.

    Parameters
    ----------
    inputs
        The frames in the order of their focus: a folder, a pattern such as ``"shots/*.tif"``, a
        multi-page TIFF, or several files.
    output
        The picture to write. Its ending names the format.
    progress
        Called with a `Progress` now and then; may raise to cancel.
    **options
        The options of ``cofuse fuse``, with underscores: ``align=False``,
        ``preset="fast"``, ``depth_map="depth.png"``, ``overwrite=True``. Defaults are the same.

    Returns
    -------
    Outcome
        ``fusion`` as `fuse` returns it, ``stack`` (the frames in their places, read again from
        their files when asked for), ``alignment``, ``hot_pixels``, ``depth`` if it was asked for,
        and the ``report`` that ``report=`` writes.
    """
    given: dict[str, dict[str, Any]] = {name: {} for name in _GROUPS}
    for name, value in options.items():
        if name not in _GROUP_OF:
            near = difflib.get_close_matches(name, _GROUP_OF, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise CofuseError(f"there is no option `{name}`{hint}")
        if name == "align_only":
            raise CofuseError(
                "`align_only` writes no picture; align with cofuse.align_stack and cofuse.aligned"
            )
        if value is not None and name in _AS_TYPED:
            value = str(value)
        elif value is not None and name in _PATHS:
            value = Path(value)
        given[_GROUP_OF[name]][name] = value
    groups = {name: kind(**given[name]) for name, kind in _GROUPS.items()}
    names = [inputs] if isinstance(inputs, str | Path) else inputs

    from cofuse.jobs.run import Job  # takes a while to load

    return Job(Request(tuple(map(str, names)), Path(output), **groups)).run(progress)
