"""What tests of the page share: waiting for the page, and the viewer's state."""

from __future__ import annotations

import time
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
