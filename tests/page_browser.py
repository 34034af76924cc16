"""What tests of the page share: the server as a program sees it, and the viewer's state."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE, until


@dataclass
class Server:
    """A running ``cofuse serve``."""

    address: str
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Speak to the API as a program would; JSON or bytes."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            content = answer.read()
            kind = answer.headers.get_content_type()
        return json.loads(content) if kind == "application/json" else content

    def upload(self, frames: Path, name: str) -> str:
        """Make a stack of the pictures of a folder; its id."""
        stack = self.ask("POST", "/api/stacks", {"name": name})["id"]
        parts = b""
        for path in sorted(frames.iterdir()):
            head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{path.name}"'
            parts += head.encode() + b"\r\n\r\n" + path.read_bytes() + b"\r\n"
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "multipart/form-data; boundary=edge",
        }
        request = urllib.request.Request(
            f"{self.address}/api/stacks/{stack}/frames", parts + b"--edge--\r\n", headers
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert not json.load(answer)["refused"]
        return str(stack)

    def fuse(self, stack: str, **options: Any) -> str:
        """Run a job to its end; its id."""
        job = self.ask("POST", "/api/jobs", {"stack": stack, "options": options})["id"]
        self.wait(job, "done")
        return str(job)

    def wait(self, job: str, state: str) -> dict[str, Any]:
        """Wait for a state of a job."""

        def look() -> Any:
            now = self.ask("GET", f"/api/jobs/{job}")
            assert now["state"] in ("waiting", "running", state), now
            return now["state"] == state and now

        return dict(until(look))


def wait_until(page: Any, expression: str, *values: Any) -> None:
    """Wait until something is true on the page, whose policy forbids playwright's own way."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression, *values):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(50)


def wait_for_result(page: Any) -> str:
    """Wait until a finished job is on the stage; its id."""
    page.wait_for_selector("#toolbar:visible")
    wait_until(page, f"{VIEWER}?.world.getItemAt(0)?.getFullyLoaded()")
    return str(page.url.partition("#job=")[2])


#: The viewer of the result, in the page's words.
VIEWER = "OpenSeadragon.getViewer('viewer')"


def zoom_of(page: Any, element: str = "viewer") -> float:
    """Magnification that a viewer heads for."""
    return float(page.evaluate(f"OpenSeadragon.getViewer('{element}').viewport.getZoom()"))


def on_screen(page: Any, x: float, y: float) -> tuple[float, float]:
    """Where a pixel of the result is on the screen."""
    place = page.evaluate(
        "([x, y]) => { const item = " + VIEWER + ".world.getItemAt(0);"
        " const at = item.imageToWindowCoordinates(new OpenSeadragon.Point(x + 0.5, y + 0.5));"
        " return [at.x, at.y]; }",
        [x, y],
    )
    return float(place[0]), float(place[1])
