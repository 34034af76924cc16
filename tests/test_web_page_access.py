"""The page for everybody: keyboard, screen readers, phones, light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofuse.files import read_image
from tests.page_browser import on_screen, wait_for_result, wait_until, zoom_of
from tests.web_server import RealServer

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
TABS = ("look", "pixel", "retouch", "save")
#: What is seen in each way of looking at a result.
SHOWN = {"slider": "[role=slider]:visible", "panes": ".pane >> nth=3", "relief": "#relief:visible"}


def findings(page: Any) -> list[str]:
    """What axe finds serious or critical."""
    if not page.evaluate("typeof window.axe === 'object'"):
        # Evaluated, not put into the page, whose policy would forbid it.
        page.evaluate(AXE.read_text(encoding="utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{found['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    open_page: Any, server: RealServer, fused: str, frames: Path, scheme: str
) -> None:
    page = open_page(color_scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert findings(page) == [], "nothing there yet"
    page.click("#help-button")
    assert findings(page) == [], "help"
    page.keyboard.press("Escape")
    page.set_input_files("#file-input", [*sorted(frames.iterdir()), Path(__file__)])
    page.wait_for_selector(".frame >> nth=2")
    page.wait_for_selector("#refused:visible")
    page.click("#advanced summary")
    page.check("input[name=noise][value=manual]", force=True)
    wait_until(page, "document.getElementById('command').innerText.includes('cofuse fuse')")
    assert findings(page) == [], "frames"
    page.goto(f"{server.address}/#job={fused}")
    wait_for_result(page)
    for tab in TABS:
        page.click(f"#tab-{tab}")
        if tab == "pixel":
            page.fill("#pixel-x", "9")
            page.fill("#pixel-y", "9")
            page.keyboard.press("Enter")
            page.wait_for_selector("#pixel-facts:visible")
        assert findings(page) == [], tab
    for mode in SHOWN:
        page.check(f"input[value={mode}]", force=True)
        page.wait_for_selector(SHOWN[mode])
        assert findings(page) == [], mode


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until something has the focus, and see that the focus can be seen."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("(s) => document.activeElement.matches(s)", selector):
            seen = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            assert page.evaluate(seen), f"the focus on {selector} cannot be seen"
            return
    raise AssertionError(f"no way to {selector} by the keyboard")


def test_from_the_sample_to_the_download_without_a_mouse(open_page: Any, tmp_path: Path) -> None:
    page = open_page()
    tab_to(page, "#try-sample")
    page.keyboard.press("Enter")
    page.wait_for_selector(".frame >> nth=4")
    tab_to(page, "#preset")
    page.keyboard.press("f")  # fast
    assert page.input_value("#preset") == "fast"
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile("#job="))
    wait_for_result(page)
    assert "fused" in page.locator("#live").inner_text()
    tab_to(page, "#viewer .openseadragon-canvas")
    page.keyboard.press("+")
    page.keyboard.press("Enter")  # facts on the pixel in the middle
    page.wait_for_selector("#pixel-facts:visible")
    tab_to(page, "[role=tab][aria-selected=true]")
    page.keyboard.press("End")
    assert page.locator("#panel-save").is_visible()
    tab_to(page, "#download-main")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    waiting.value.save_as(tmp_path / "result.tif")
    assert read_image(tmp_path / "result.tif").dtype == np.uint8


def test_a_phone_needs_no_scrolling_sideways(
    open_page: Any, server: RealServer, fused: str, frames: Path
) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)

    def check(where: str) -> None:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, where

    check("nothing there yet")
    page.set_input_files("#file-input", sorted(frames.iterdir()))
    page.wait_for_selector(".frame >> nth=2")
    page.tap("#advanced summary")
    check("frames")
    page.goto(f"{server.address}/#job={fused}")
    wait_for_result(page)
    for tab in TABS:
        page.tap(f"#tab-{tab}")
        check(tab)
    zoom = page.locator("#zoom").inner_text()
    for mode in SHOWN:
        page.locator(f"input[value={mode}]").tap(force=True)
        page.wait_for_selector(SHOWN[mode])
        check(mode)
        if mode == "panes":  # they are smaller
            wait_until(page, "(z) => document.getElementById('zoom').innerText !== z", zoom)
    page.locator("input[value=picture]").tap(force=True)
    wait_until(page, "(z) => document.getElementById('zoom').innerText === z", zoom)


def test_fingers_zoom_and_paint(open_page: Any, fused: str) -> None:
    page = open_page(f"#job={fused}", viewport={"width": 390, "height": 844}, has_touch=True)
    wait_for_result(page)
    devtools = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    box = page.locator("#viewer").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = zoom_of(page)
    touch("touchStart", (x - 20, y), (x + 20, y))
    for apart in range(20, 120, 10):
        touch("touchMove", (x - apart, y), (x + apart, y))
    touch("touchEnd")
    assert zoom_of(page) > 1.5 * before
    page.click("#zoom-fit")
    page.click("#tab-retouch")
    page.evaluate("window.scrollTo(0, 0)")
    x, y = on_screen(page, 100, 100)
    touch("touchStart", (x, y))
    for step in range(0, 60, 10):
        touch("touchMove", (x + step, y))
    touch("touchEnd")
    wait_until(page, "document.getElementById('retouch-words').innerText.startsWith('1 stroke')")
    page.click("#undo")


def test_the_theme_follows_the_system_until_it_is_chosen(open_page: Any) -> None:
    page = open_page(color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.emulate_media(color_scheme="light")
    wait_until(page, f"{theme} === 'light'")
    page.click("#theme-button")
    assert page.evaluate(theme) == "dark"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(theme) == "dark"
