"""Retouching on the page: strokes, and where they are kept."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from tests.page_browser import looks, on_screen, wait_for_result, wait_until
from tests.waiting import until
from tests.web_server import RealServer, finished, start

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow


def another(server: RealServer, fused: str) -> str:
    """Fuse the frames of a job once more; the id of the new job."""
    stack = server.get(f"/api/jobs/{fused}")["stack"]
    return str(finished(server.client, start(server.client, stack, preset="fast"))["id"])


def stroke(page: Any, *places: tuple[int, int]) -> None:
    page.mouse.move(*on_screen(page, *places[0]))
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*on_screen(page, *place), steps=4)
    page.mouse.up()


def words(page: Any, text: str) -> None:
    """Wait until the page says this of the strokes."""
    wait_until(page, "(t) => document.getElementById('retouch-words').textContent === t", text)


def test_retouching_with_undo_and_redo(
    open_page: Any, server: RealServer, fused: str, frames: Any
) -> None:
    job = another(server, fused)
    page = open_page(f"#job={job}")
    wait_for_result(page)

    def served() -> bytes:
        # Pixels: the file also holds the time of the last change.
        content = server.get(f"/api/jobs/{job}/download?format=png")
        return Image.open(io.BytesIO(content)).tobytes()

    untouched = served()
    page.click("#tab-retouch")
    page.select_option("#retouch-frame", "2")
    clean = looks(page)
    stroke(page, (60, 60), (120, 80))
    words(page, "1 stroke not applied yet")
    page.mouse.move(5, 5)
    until(lambda: looks(page) != clean)  # the frame's own pixels, before anything is sent
    stroke(page, (200, 50), (220, 90))
    words(page, "2 strokes not applied yet")
    kept = f"/api/jobs/{job}/strokes"
    until(lambda: len(server.get(kept)["strokes"]) == 2)
    assert server.get(kept)["applied"] == 0
    assert server.get(f"/api/jobs/{job}")["retouched"] == 0 and served() == untouched
    page.keyboard.press("Control+z")
    words(page, "1 stroke not applied yet")
    page.keyboard.press("Control+Shift+Z")
    words(page, "2 strokes not applied yet")
    page.click("#undo")
    page.click("#retouch-apply")
    words(page, "1 stroke applied")
    (sent,) = server.get(f"/api/jobs/{job}/strokes")["strokes"]
    assert sent["frame"] == 2
    assert sent["points"][0] == pytest.approx([60.5, 60.5], abs=1.5)
    assert sent["points"][-1] == pytest.approx([120.5, 80.5], abs=1.5)
    touched = served()
    assert touched != untouched
    assert server.get(f"/api/jobs/{job}")["retouched"] == 1
    # A reload knows the strokes; taking back one that is in the picture takes it out of it.
    page.reload()
    wait_for_result(page)
    page.click("#tab-retouch")
    words(page, "1 stroke applied")
    page.click("#undo")
    words(page, "")
    assert served() == untouched
    page.click("#redo")
    words(page, "1 stroke not applied yet")
    page.click("#retouch-apply")
    words(page, "1 stroke applied")
    assert served() == touched
    page.click("#retouch-clear")
    words(page, "")
    assert served() == untouched
    # By the keyboard: a dab in the middle of the view.
    page.locator("#viewer .openseadragon-canvas").focus()
    page.keyboard.press("Enter")
    words(page, "1 stroke not applied yet")
    page.keyboard.press("Control+z")
    words(page, "")
    # Without the brush a drag moves the picture.
    page.uncheck("#retouch-paint")
    page.click("#zoom-in")
    stroke(page, (150, 100), (160, 110))
    words(page, "")


def test_strokes_stay_with_their_result(open_page: Any, server: RealServer, fused: str) -> None:
    one, other = another(server, fused), another(server, fused)
    page = open_page(f"#job={one}")
    wait_for_result(page)
    untouched = looks(page)
    page.click("#tab-retouch")
    page.select_option("#retouch-frame", "2")
    stroke(page, (60, 60), (120, 80))
    words(page, "1 stroke not applied yet")
    page.mouse.move(5, 5)
    # They are seen, and said to be missing in the file, beside the other tools.
    for tab in ("look", "save"):
        page.click(f"#tab-{tab}")
        assert "1 stroke not applied yet" in page.locator("#pending").inner_text()
        until(lambda: looks(page) != untouched)
    painted = looks(page)
    # Another result has none of them, neither its list nor its picture.
    page.click(f"#strip [href='#job={other}']")
    assert wait_for_result(page) == other
    words(page, "")
    assert not page.locator("#pending").is_visible()
    until(lambda: looks(page) == untouched)
    page.click(f"#strip [href='#job={one}']")
    assert wait_for_result(page) == one
    words(page, "1 stroke not applied yet")
    until(lambda: looks(page) == painted)
    # Nor does a reload lose them, and one may apply them where one is.
    page.reload()
    wait_for_result(page)
    words(page, "1 stroke not applied yet")
    page.click("#tab-save")
    page.click("#pending-apply")
    words(page, "1 stroke applied")
    assert not page.locator("#pending").is_visible()
    assert server.get(f"/api/jobs/{one}")["retouched"] == 1


def test_two_pages_keep_the_strokes_of_both(open_page: Any, server: RealServer, fused: str) -> None:
    job = another(server, fused)
    pages = [open_page(f"#job={job}"), open_page(f"#job={job}")]
    for page in pages:
        wait_for_result(page)
        page.click("#tab-retouch")
        words(page, "")
    for number, page in enumerate(pages):
        stroke(page, (60 + 100 * number, 60), (80 + 100 * number, 80))
        words(page, f"{'1 stroke' if number == 0 else '2 strokes'} not applied yet")
    assert "another page" in pages[1].locator(".toast").inner_text().lower()
    until(lambda: len(server.get(f"/api/jobs/{job}/strokes")["strokes"]) == 2)
    # What one page applies the other shows.
    pages[1].click("#retouch-apply")
    for page in pages:
        words(page, "2 strokes applied")
