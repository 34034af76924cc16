"""What tests of the server share: frames as files, a server in this process, and a real one."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from fastapi import FastAPI
from PIL import Image

from cofuse.web.app import create_app
from cofuse.web.options import Config
from cofuse.web.service import Service
from cofuse.web.store import taken
from tests.waiting import PATIENCE, until

TOKEN = "a-token-that-only-tests-know"
BEARER = {"authorization": f"Bearer {TOKEN}"}

#: Exif tells when a file was written.
_WHEN = re.compile(rb"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d")


def png(pixels: np.ndarray) -> bytes:
    """A picture as PNG."""
    import imagecodecs

    return bytes(imagecodecs.png_encode(np.ascontiguousarray(pixels)))


def jpeg(pixels: np.ndarray) -> bytes:
    """A picture as JPEG, with EXIF and a colour profile."""
    from PIL import ImageCms

    exif = Image.Exif()
    exif[271] = "Maker of cameras"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, exif=exif, icc_profile=profile)
    return file.getvalue()


def frames(
    count: int = 3, size: tuple[int, int] = (72, 96), *, sigma: float = 0.0
) -> list[np.ndarray]:
    """A stack of colour frames, each sharp in a stripe of its own."""
    import cv2

    rng = np.random.default_rng(3)
    coarse = rng.integers(20, 235, (-(-size[0] // 4), -(-size[1] // 4), 3))
    sharp = np.kron(coarse, np.ones((4, 4, 1))).astype(np.float32)[: size[0], : size[1]]
    blurred = cv2.GaussianBlur(sharp, (0, 0), 3)
    stripe = np.arange(size[1]) * count // size[1]
    stack = []
    for k in range(count):
        frame = np.where((stripe == k)[None, :, None], sharp, blurred)
        noisy = frame + sigma * rng.standard_normal(frame.shape, np.float32)
        stack.append(np.rint(np.clip(noisy, 0, 255)).astype(np.uint8))
    return stack


def without_time(data: bytes) -> bytes:
    """A file's bytes, but for when it was written."""
    return _WHEN.sub(b"", data)


class AppClient(httpx.Client):
    """A client of a server in this process, with the token, and the server's parts."""

    app: FastAPI
    service: Service
    origin: str


@contextmanager
def client_of(folder: Path, **options: Any) -> Iterator[AppClient]:
    """A server in a thread of this process, with its worker, and a client of it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener,
        taken(folder),
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        port = listener.getsockname()[1]
        app = create_app(Config(folder=folder, port=port, token=TOKEN, **options))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, lifespan="on")
        )
        app.state.service.closing = lambda: server.should_exit
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            origin = f"http://127.0.0.1:{port}"
            with AppClient(base_url=origin, headers=BEARER, timeout=PATIENCE) as client:
                client.app, client.service, client.origin = app, app.state.service, origin
                yield client
        finally:
            server.should_exit = True
            thread.join()


def upload(client: Any, files: dict[str, bytes], stack: str | None = None) -> dict[str, Any]:
    """Upload files; what the server says of them."""
    if stack is None:
        stack = client.post("/api/stacks", json={"name": "Test"}).json()["id"]
    parts = [("file", (name, data)) for name, data in files.items()]
    answer = client.post(f"/api/stacks/{stack}/frames", files=parts)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def small_stack(client: Any, **options: Any) -> str:
    """Upload a small stack; its identifier."""
    files = {f"f{k}.png": png(frame) for k, frame in enumerate(frames(**options))}
    return str(upload(client, files)["stack"]["id"])


def start(client: Any, stack: str, **options: Any) -> str:
    """Start a job; its identifier."""
    answer = client.post("/api/jobs", json={"stack": stack, "options": options})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def finished(client: Any, job: str) -> dict[str, Any]:
    """Wait for the end of a job."""

    def look() -> Any:
        now = client.get(f"/api/jobs/{job}").json()
        return now if now["state"] not in ("waiting", "running") else None

    return dict(until(look))


class RealServer:
    """``cofuse serve`` in a process of its own, and a client of it with the token."""

    def __init__(
        self,
        *options: object,
        port: int = 0,
        within: Sequence[str] = (),
        browser: str | None = None,
    ) -> None:
        """Start it with these options, by the command ``within`` and with a browser, if given."""
        shown = {} if browser is None else {"BROWSER": browser}
        # Not a pipe: one that is not read could fill up.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*within, sys.executable, "-m", "cofuse", "serve", "--port", str(port)]
            + ["--no-open"] * (browser is None)
            + [str(option) for option in options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"} | shown,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        self.address, _, self.token = line.partition("/?token=")
        if not self.token:
            self._wait()
            raise AssertionError(self.said)
        headers = {"authorization": f"Bearer {self.token}"}
        self.client = httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE)

    def _wait(self) -> None:
        """Wait for its end, and keep what it wrote to standard error."""
        self.process.communicate(timeout=PATIENCE)
        with self._log as log:
            log.seek(0)
            self.said = log.read()

    def get(self, path: str) -> Any:
        """Ask for something; JSON or bytes."""
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        is_json = answer.headers["content-type"] == "application/json"
        return answer.json() if is_json else answer.content

    def __enter__(self) -> RealServer:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it as a user does, unless it has stopped already."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self._wait()
