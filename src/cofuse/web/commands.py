"""The command line that does what a job of the page does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cofuse.web.schemas import Options

__all__ = ["command_line"]


def command_line(names: Sequence[str], options: Options) -> str:
    """Write the ``cofuse fuse`` command for frames of these names; options left alone are left out.

    >>> command_line(["a b.jpg", "-c.jpg"], Options(sigma=5, align=False))
    "cofuse fuse 'a b.jpg' ./-c.jpg -o result.tif --sigma 5 --no-align"
    """
    plain = Options()
    # A name is a name, even one that looks like an option or a list.
    files = [f"./{name}" if name[:1] in "-@" else name for name in names]
    words = ["cofuse", "fuse", *files, "-o", "result.tif"]
    for option in ("preset", "sigma", "denoise", "hot_pixels", "max_memory", "device"):
        value = getattr(options, option)
        if value != getattr(plain, option):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{option.replace('_', '-')}", text]
    if not options.align:
        words.append("--no-align")
    if options.depth:
        words += ["--depth-map", "depth.png"]
        if options.z_step is not None:
            # A negative number would be taken for an option.
            words.append(f"--z-step={options.z_step:g}")
    return shlex.join(words)
