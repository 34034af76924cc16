"""``cofuse serve``: a page in the browser, on this machine only."""

from __future__ import annotations

from pathlib import Path

from cofuse.cli.console import Flag, Whole, say
from cofuse.errors import CofuseError

__all__ = ["serve"]


def serve(
    *,
    host: str = "127.0.0.1",
    port: Whole | None = None,
    data_dir: Path | None = None,
    demo: Flag = False,
    no_open: Flag = False,
    i_know: Flag = False,
    max_upload: str = "4GB",
    max_frames: Whole = 400,
    max_pixels: str = "400MP",
    keep_days: float = 14.0,
    keep_size: str = "50GB",
) -> None:
    """Serve a page to fuse stacks with, and open it in the browser.

    Parameters
    ----------
    host
        The address to listen at. Anything but this machine's own needs --i-know.
    port
        The port; 0 for any that is free, by default 8765 or the next that is free.
    data_dir
        Keep stacks and results in this folder, over restarts too; by default they go with the
        server.
    demo
        Have a sample stack at hand.
    no_open
        Do not open the browser.
    i_know
        Listen at an address that other machines can reach. There is no encryption: who can see
        the traffic can see the token and the pictures.
    max_upload
        Most bytes of the files of one stack.
    max_frames
        Most frames of one stack.
    max_pixels
        Most pixels of one frame, in megapixels.
    keep_days
        Delete what was not used for so many days.
    keep_size
        Delete the oldest when all takes more than this.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "python_multipart")):
        raise CofuseError("the page needs more packages; install them: pip install 'cofuse[web]'")
    from cofuse.cli.serving import Serving

    Serving(
        host=host,
        port=port,
        data_dir=data_dir,
        demo=demo,
        may_be_reached=i_know,
        limits={
            "max_upload": _size(max_upload, "--max-upload"),
            "max_frames": _count(max_frames, "--max-frames"),
            "max_pixels": _pixels(max_pixels),
            "keep_days": _days(keep_days),
            "keep_size": _size(keep_size, "--keep-size"),
        },
    ).run(open_browser=not no_open, say=say)


def _size(text: str, option: str) -> int:
    from cofuse.images.memory import parse_size

    try:
        return parse_size(text)
    except CofuseError:
        raise CofuseError(f"{option} is {text!r}; expected a size such as 4GB") from None


def _pixels(text: str) -> int:
    number = text.strip().upper().removesuffix("MP").strip()
    try:
        pixels = int(float(number) * 1e6)
    except (ValueError, OverflowError):
        pixels = 0
    if pixels < 1:
        raise CofuseError(f"--max-pixels is {text!r}; expected megapixels such as 400MP")
    return pixels


def _count(number: int, option: str) -> int:
    if number < 1:
        raise CofuseError(f"{option} is {number}; expected 1 or more")
    return number


def _days(days: float) -> float:
    if not 0 < days < 36500:
        raise CofuseError(f"--keep-days is {days}; expected a number of days above 0")
    return days
