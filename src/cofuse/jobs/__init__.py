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

_GROUPS: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (Reading, Aligning, Fusing, Writing, Maps)
}
#: The group that every option is in, and how those are read that are files or words.
_GROUP_OF = {field.name: name for name, kind in _GROUPS.items() for field in fields(kind)}
_KINDS: dict[str, Any] = {
    f.name: Path for kind in _GROUPS.values() for f in fields(kind) if "Path" in str(f.type)
}
_KINDS |= dict.fromkeys(("sigma", "max_memory", "bit_depth"), str)


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
        if value is not None and name in _KINDS:
            value = _KINDS[name](value)
        given[_GROUP_OF[name]][name] = value
    groups = {name: kind(**given[name]) for name, kind in _GROUPS.items()}
    names = [inputs] if isinstance(inputs, str | Path) else inputs

    from cofuse.jobs.run import Job  # takes a while to load

    return Job(Request(tuple(map(str, names)), Path(output), **groups)).run(progress)
