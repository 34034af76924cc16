"""The server of ``cofuse serve``: its address, its folder, its beginning and its end."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from cofuse.errors import CofuseError
from cofuse.web.app import create_app
from cofuse.web.limits import Config
from cofuse.web.security import is_loopback

__all__ = ["Serving", "can_show"]

_PORT, _PORTS_TRIED = 8765, 40
#: Seconds that open answers may take when the server stops.
_PATIENCE = 2


@dataclass(frozen=True)
class Serving:
    """What `cofuse.cli.serve.serve` was asked for."""

    host: str
    port: int | None
    data_dir: Path | None
    demo: bool
    may_be_reached: bool
    limits: dict[str, Any]

    def run(self, *, open_browser: bool, say: Callable[[str], None]) -> None:
        """Serve until somebody stops it."""
        if not is_loopback(self.host):
            if not self.may_be_reached:
                raise CofuseError(
                    f"{self.host} can be reached from other machines, and nothing is encrypted; "
                    "pass --i-know if you want that, or leave --host out"
                )
            say(
                f"warning: other machines can reach {self.host}; whoever learns the token can use "
                "this server, and the traffic is not encrypted"
            )
        with self._listening() as listener, self._folder() as folder:
            config = Config(
                folder=folder,
                host=self.host,
                port=listener.getsockname()[1],
                token=secrets.token_urlsafe(24),
                demo=self.demo,
                **self.limits,
            )
            app = create_app(config)
            server = _Server(
                uvicorn.Config(
                    app,
                    log_level="warning",
                    access_log=False,  # addresses may hold the token
                    server_header=False,
                    timeout_graceful_shutdown=_PATIENCE,
                    limit_concurrency=1000,
                )
            )
            app.state.service.closing = lambda: server.should_exit
            address = f"{config.address}?token={config.token}"

            def ready() -> None:
                print(address, flush=True)
                say("the page is served at this address; stop it with Ctrl-C")
                if open_browser and can_show():
                    # Some browsers do not return until they are closed.
                    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

            server.ready = ready
            with contextlib.suppress(KeyboardInterrupt), _ending_gently(server):
                server.run(sockets=[listener])

    @contextlib.contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        """Take the port asked for, or the first that is free."""
        ports = range(_PORT, _PORT + _PORTS_TRIED) if self.port is None else (self.port,)
        if not 0 <= ports[0] < 2**16:
            raise CofuseError(f"--port is {self.port}; expected a number from 0 to 65535")
        reason: OSError | None = None
        for port in ports:
            try:
                info = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)[0]
                # With the protocol named, asyncio sends small answers without delay.
                listener = socket.socket(info[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
            except OSError as error:
                raise CofuseError(f"cannot listen at {self.host}:{port} ({error})") from error
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(info[4])
                listener.listen(512)
            except OSError as error:
                listener.close()
                reason = error
                continue
            with listener:
                yield listener
            return
        raise CofuseError(
            f"cannot listen at {self.host}:{ports[0]} ({reason}); choose another --port"
        )

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """A private folder that goes with the server, or the one that stays."""
        if self.data_dir is None:
            with tempfile.TemporaryDirectory(prefix="cofuse-", ignore_cleanup_errors=True) as name:
                yield Path(name).resolve()
            return
        folder = self.data_dir.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (folder / ".lock").open("w")
        except OSError as error:
            raise CofuseError(f"{folder} cannot be used: {error.strerror}; name another") from error
        with lock:
            _lock(lock, folder)
            yield folder


def can_show() -> bool:
    """Whether there is a screen to open a browser on; one of text would take the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


@contextlib.contextmanager
def _ending_gently(server: uvicorn.Server) -> Iterator[None]:
    """Let a closed terminal or a shutdown end the server as Ctrl-C does, folder and all."""

    def end(*_: object) -> None:
        server.should_exit = True

    before = {}
    for name in ("SIGTERM", "SIGHUP"):  # uvicorn sends the first once more when it is done
        if hasattr(signal, name):
            before[name] = signal.signal(getattr(signal, name), end)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


class _Server(uvicorn.Server):
    """Says when it is ready."""

    ready: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()


def _lock(file: Any, folder: Path) -> None:
    """Refuse a folder that another server is using."""
    try:
        import fcntl
    except ImportError:  # not Unix
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CofuseError(f"{folder} is in use by another server; stop it first") from error
