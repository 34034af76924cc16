"""``cofuse serve``: a page in the browser, on this machine only."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cofuse.arguments import check, check_number
from cofuse.cli import say
from cofuse.cli.application import Flag, Whole
from cofuse.errors import CofuseError
from cofuse.images.memory import format_size, parse_size

if TYPE_CHECKING:
    from cofuse.web.store import Store

_PORT, _PORTS_TRIED = 8765, 40
#: Seconds that open answers may take when the server stops.
_PATIENCE = 2


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
        Keep stacks and results in this folder; by default in one of your own data.
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
        Delete uploaded frames that were not used for this number of days; results stay.
    keep_size
        Delete the oldest uploaded frames when all takes more than this, and take no more.
    """
    if any(
        importlib.util.find_spec(name) is None
        for name in ("fastapi", "uvicorn", "python_multipart")
    ):
        raise CofuseError("the page needs more packages; install them: pip install 'cofuse[web]'")
    import uvicorn

    from cofuse.web.app import create_app
    from cofuse.web.options import Config
    from cofuse.web.security import Connection, is_loopback
    from cofuse.web.store import taken

    if port is not None:
        check_number("port", port, 0, 2**16 - 1, whole=True)
    check_number("max_frames", max_frames, 1, whole=True)
    check("keep_days", keep_days, "a number of days above 0", lambda days: 0 < days < 36500)
    configured = partial(
        Config,
        max_upload=_size("max_upload", max_upload),
        max_frames=max_frames,
        max_pixels=_pixels(max_pixels),
        keep_days=keep_days,
        keep_size=_size("keep_size", keep_size),
        demo=demo,
    )
    if not is_loopback(host):
        if not i_know:
            raise CofuseError(
                f"{host} can be reached from other machines, and nothing is encrypted; pass "
                "--i-know if you want that, or leave --host out"
            )
        say(
            f"warning: other machines can reach {host}; whoever learns the token can use this "
            "server, and the traffic is not encrypted"
        )
    with _listening(host, port) as listener, taken(data_dir or user_folder()) as folder:
        config = configured(folder=folder, host=host, port=listener.getsockname()[1])
        app = create_app(config)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,  # addresses may hold the token
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
                limit_concurrency=1000,
                http=Connection,
            )
        )
        app.state.service.closing = lambda: server.should_exit
        named = f"[{host}]" if ":" in host else host
        address = f"http://{named}:{config.port}/?token={config.token}"
        if hasattr(signal, "SIGHUP"):  # a closed terminal ends the server as Ctrl-C does
            signal.signal(signal.SIGHUP, server.handle_exit)
        with contextlib.suppress(KeyboardInterrupt):
            # The port listens already: who comes early waits until the server answers.
            print(address, flush=True)
            say("the page is served at this address; stop it with Ctrl-C")
            say(
                f"results are kept in {folder} until you delete them, uploaded frames for "
                f"{keep_days:g} days after their last use (--keep-days)"
            )
            if not no_open and can_show():
                with contextlib.suppress(OSError):  # a full disk; the address is printed anyway
                    words = (_entrance(folder, address),)
                    # Some browsers do not return until they are closed.
                    threading.Thread(target=webbrowser.open, args=words, daemon=True).start()
            server.run(sockets=[listener])
        say(f"stopped; {_kept(app.state.service.store)} in {folder}")


def _kept(store: Store) -> str:
    """What a server leaves behind, in words."""
    from cofuse.web.store import folder_bytes

    results, stacks = sum(job.result is not None for job in store.jobs.all()), len(store.stacks)
    size = format_size(folder_bytes(store.config.folder))
    words = f"{results} result{'s' * (results != 1)} and {stacks} stack{'s' * (stacks != 1)}"
    return f"{words} ({size}) are kept"


def user_folder() -> Path:
    """The folder of this user's data where this system keeps such folders."""
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "cofuse"


def _size(name: str, text: str) -> int:
    try:
        return parse_size(text)
    except CofuseError:
        raise CofuseError(f"`{name}` is {text!r}; expected a size such as 4GB") from None


def _pixels(text: str) -> int:
    number = text.strip().upper().removesuffix("MP")
    check("max_pixels", text, "megapixels such as 400MP", lambda _: 1e-6 <= float(number) < 1e9)
    return int(float(number) * 1e6)


@contextlib.contextmanager
def _listening(host: str, port: int | None) -> Iterator[socket.socket]:
    """Take the port asked for, or the first that is free."""
    ports = range(_PORT, _PORT + _PORTS_TRIED) if port is None else (port,)
    reason: OSError | None = None
    for number in ports:
        try:
            info = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            # With the protocol named, asyncio sends small answers without delay.
            listener = socket.socket(info[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError as error:
            raise CofuseError(f"cannot listen at {host}:{number} ({error})") from error
        with listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(info[4])
                listener.listen(512)
            except OSError as error:
                reason = error
                continue
            yield listener
            return
    raise CofuseError(f"cannot listen at {host}:{ports[0]} ({reason}); choose another --port")


def _entrance(folder: Path, address: str) -> str:
    """Write a file that leads to the page; return its address.

    All users of a machine can read the command line of a browser, but nobody else this file.
    """
    path = folder / "open.html"
    path.unlink(missing_ok=True)
    path.touch(0o600)
    target = html.escape(address)
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>cofuse</title>'
        '<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={target}">'
        f'<a href="{target}">cofuse</a></html>',
        "utf-8",
    )
    return path.as_uri()


def can_show() -> bool:
    """Whether there is a screen to open a browser on; one of text would take the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
