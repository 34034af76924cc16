"""What tests of the page share: waiting for the page, and the viewer's state."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE, settled


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


def looks(page: Any) -> bytes:
    """What is seen of the picture, once all of its tiles are there and it changes no more."""
    wait_until(
        page,
        f"() => {{ const w = {VIEWER}.world; for (let i = 0; i < w.getItemCount(); i++)"
        " if (!w.getItemAt(i).getFullyLoaded()) return false; return true; }",
    )
    return bytes(settled(page.locator("#canvas-area").screenshot))


_DROP = """(files) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  document.getElementById("main").dispatchEvent(
    new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def drop(page: Any, files: dict[str, bytes]) -> None:
    """Drop files on the page."""
    page.evaluate(_DROP, [(name, base64.b64encode(data).decode()) for name, data in files.items()])


def drag(page: Any, kind: str, *paths: Path) -> None:
    """Drag files and folders over the page ("dragEnter", "dragOver") or "drop" them there.

    As the browser gets them from the desktop.
    """
    devtools = page.context.new_cdp_session(page)
    files = [str(path) for path in paths]
    data = {"items": [], "files": files, "dragOperationsMask": 1}
    devtools.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 200, "data": data})


def names(page: Any) -> list[str]:
    """Names of the frames that are shown."""
    found: list[str] = page.locator(".frame-name").all_text_contents()
    return found


def stack_of(page: Any) -> str:
    """Wait until a stack is shown; its id."""
    page.wait_for_url(re.compile("#stack="))
    return str(page.url.partition("#stack=")[2])
