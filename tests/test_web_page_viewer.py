"""The result on the page: zoom, compare, maps, pixels, relief and retouching."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import cofuse
from cofuse.depth.maps import colour_table
from tests.page_browser import (
    VIEWER,
    looks,
    on_screen,
    wait_for_result,
    wait_until,
    zoom_of,
)
from tests.waiting import settled, until
from tests.web_server import RealServer, finished, png, start, upload

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow


@pytest.fixture
def page(open_page: Any, fused: str) -> Any:
    """The page with a finished job on the stage."""
    opened = open_page(f"#job={fused}")
    wait_for_result(opened)
    return opened


def test_zoom_by_wheel_keys_and_buttons(page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    home = zoom_of(page)
    x, y = on_screen(page, 150, 100)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    wait_until(page, f"{VIEWER}.viewport.getZoom() > {home} * 1.1")
    page.click("#zoom-fit")
    assert zoom_of(page) == pytest.approx(home)
    page.click("#zoom-in")
    assert zoom_of(page) > home
    page.locator("#viewer .openseadragon-canvas").focus()
    page.keyboard.press("0")
    assert zoom_of(page) == pytest.approx(home)
    for key in ("+", "+", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert zoom_of(page) == pytest.approx(home * 1.4**2)
    page.keyboard.press("1")
    wait_until(page, "document.getElementById('zoom').innerText === '100 %'")
    # Keys of the viewer's library that would turn or mirror the picture do nothing.
    page.keyboard.press("r")
    page.keyboard.press("f")
    assert page.evaluate(f"{VIEWER}.viewport.getRotation() === 0 && !{VIEWER}.viewport.getFlip()")
    # The picture comes in tiles only.
    assert all("/tiles/" in url for url in asked if "/pictures/" in url)
    assert page.locator("#job-view .stage img:visible").count() == 0


def test_before_and_after(page: Any) -> None:
    alone = looks(page)
    page.check("input[value=slider]", force=True)
    divider = page.get_by_role("slider", name="Before and after")
    until(lambda: looks(page) != alone)
    half = looks(page)
    box = divider.bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(middle - 150, box["y"] + 50, steps=4)
    page.mouse.up()
    assert int(divider.get_attribute("aria-valuenow")) < 45
    until(lambda: looks(page) != half)
    divider.focus()
    page.keyboard.press("Home")
    assert divider.get_attribute("aria-valuenow") == "0"
    before = page.locator("#before")
    assert before.input_value() == "average"
    page.keyboard.press("End")
    average = looks(page)
    before.select_option("frame-2")
    wait_until(page, "document.getElementById('tag-before').innerText.includes('10')")
    until(lambda: looks(page) != average)
    page.check("input[value=picture]", force=True)
    assert not divider.is_visible()


def test_no_frame_stays_behind_when_frames_were_changed_quickly(page: Any) -> None:
    alone = looks(page)
    page.check("input[value=slider]", force=True)
    page.wait_for_selector("[role=slider]:visible")
    looks(page)
    held: list[Any] = []
    page.route("**/pictures/frame-*/tiles/**", lambda route: held.append(route))
    page.locator("#before").focus()
    for frame in range(3):
        page.keyboard.press("ArrowDown")
        until(lambda: page.wait_for_timeout(20) or held)
        assert page.input_value("#before") == f"frame-{frame}"
        held.clear()
    page.check("input[value=picture]", force=True)
    page.unroute("**/pictures/frame-*/tiles/**")  # the tiles come now
    wait_until(page, f"{VIEWER}.world.getItemCount() === 1")
    assert looks(page) == alone


def test_up_to_four_pictures_zoom_together(page: Any) -> None:
    page.check("input[value=panes]", force=True)
    panes = page.locator(".pane")
    page.wait_for_selector(".pane >> nth=3")
    assert panes.count() == 4
    zooms = (
        "() => [...document.querySelectorAll('.pane .layer')].map((element) => {"
        " const view = OpenSeadragon.getViewer(element).viewport, c = view.getCenter();"
        " return [view.getZoom(), c.x, c.y]; })"
    )
    wait_until(page, f"({zooms})().every(([zoom]) => zoom > 0)")
    first = settled(lambda: page.evaluate(zooms))
    box = panes.nth(2).bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 100)
    page.mouse.wheel(0, -500)
    wait_until(page, f"({zooms})()[0][0] > {first[0][0]} * 1.1")

    def together() -> bool:
        now = page.evaluate(zooms)
        return all(pane == pytest.approx(now[0]) for pane in now[1:])

    until(together)
    page.select_option("#pane-count", "2")
    assert panes.count() == 2
    panes.nth(1).locator("select").select_option("depth")
    page.check("input[value=picture]", force=True)
    assert not page.locator("#panes").is_visible()
    # What was chosen is remembered.
    page.check("input[value=panes]", force=True)
    assert panes.nth(1).locator("select").input_value() == "depth"


#: Pixels of the screen for one of the picture, and the pixel in the middle, of every viewer.
VIEWS = (
    "() => [...document.querySelectorAll('#viewer, .pane .layer')].map((element) => {"
    " const { viewport, world } = OpenSeadragon.getViewer(element);"
    " const item = world.getItemAt(0);"
    " if (!item) return null; const middle = item.viewportToImageCoordinates(viewport.getCenter());"
    " return [item.viewportToImageZoom(viewport.getZoom()), middle.x, middle.y]; })"
)


def test_zoom_and_place_stay(page: Any) -> None:
    viewers = page.evaluate("OpenSeadragon._viewers.size")
    x, y = on_screen(page, 80, 60)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    (first,) = settled(lambda: page.evaluate(VIEWS))

    def percent() -> float:
        return float(page.locator("#zoom").inner_text().removesuffix(" %"))

    zoom = percent()

    def kept(panes: int) -> None:
        """The view is the same in all viewers, the one behind the panes and theirs."""

        def same() -> bool:
            views = page.evaluate(VIEWS)
            return len(views) == 1 + panes and all(
                view is not None and view == pytest.approx(first, rel=1e-3) for view in views
            )

        until(same)
        assert percent() == pytest.approx(zoom, abs=1)  # it is rounded

    page.check("input[value=panes]", force=True)
    kept(4)
    for count in (2, 4, 3):
        page.select_option("#pane-count", str(count))
        kept(count)
    page.set_viewport_size({"width": 1100, "height": 640})
    kept(3)
    page.check("input[value=picture]", force=True)
    kept(0)
    page.set_viewport_size({"width": 1400, "height": 700})
    kept(0)
    assert page.evaluate("OpenSeadragon._viewers.size") == viewers


def test_maps_lie_over_the_picture(page: Any) -> None:
    seen = looks(page)
    for name in ("source", "confidence", "depth"):
        page.check(f"#overlay-{name}")
        wait_until(page, f"{VIEWER}.world.getItemCount() === 2")
        until(lambda: looks(page) != seen)
        over = looks(page)
        slider = page.locator(".overlay-row", has=page.locator(f"#overlay-{name}"))
        slider.locator("input[type=range]").fill("100")
        until(lambda over=over: looks(page) != over)
        page.uncheck(f"#overlay-{name}")
        until(lambda: looks(page) == seen)


def test_the_legend_has_the_colours_of_the_maps() -> None:
    static = Path(cofuse.__file__).parent / "web" / "static"
    style = (static / "css" / "viewer.css").read_text(encoding="utf-8")
    (ramp,) = re.findall(r"\.ramp\.colours \{\s*background: linear-gradient\(([^)]*)\)", style)
    stops = [bytes.fromhex(stop) for stop in re.findall(r"#(\w{6})", ramp)]
    table = colour_table()
    steps = np.linspace(0, len(table) - 1, len(stops)).round().astype(int)
    np.testing.assert_array_equal([list(stop) for stop in stops], table[steps])


def test_a_click_tells_of_a_pixel(page: Any, server: RealServer, fused: str) -> None:
    page.mouse.click(*on_screen(page, 120, 80))
    page.wait_for_selector("#pixel-facts:visible")
    assert [page.input_value("#pixel-x"), page.input_value("#pixel-y")] == ["120", "80"]
    facts = server.get(f"/api/jobs/{fused}/pixel?x=120&y=80")
    told = page.locator("#pixel-facts").inner_text()
    assert f"Frame {facts['frame'] + 1} · {facts['frame_name']}" in told
    assert " · ".join(str(value) for value in facts["value"]) in told
    assert not page.locator("#activity-group").is_visible()  # auto chose by its model
    # By the keyboard, too.
    page.fill("#pixel-x", "10")
    page.fill("#pixel-y", "20")
    page.keyboard.press("Enter")
    wait_until(page, "document.getElementById('pixel-table').innerText.includes('10, 20')")


def test_activity_is_shown_where_it_chose_the_frame(
    open_page: Any, server: RealServer, fused: str
) -> None:
    stack = server.get(f"/api/jobs/{fused}")["stack"]
    job = finished(server.client, start(server.client, stack, preset="fast", sigma=0))["id"]
    page = open_page(f"#job={job}")
    wait_for_result(page)
    page.click("#tab-pixel")
    page.mouse.click(*on_screen(page, 120, 80))
    page.wait_for_selector("#activity .bar >> nth=2")
    assert page.locator("#activity .bar.chosen").count() == 1


def test_histogram_metrics_and_facts(page: Any) -> None:
    page.wait_for_selector("#histogram polygon >> nth=2")
    wait_until(page, "/Q\\s*MI/.test(document.getElementById('metrics').innerText)")
    facts = page.locator("#facts").inner_text()
    assert "300 × 200" in facts and "estimated" in facts


def test_the_relief_turns(page: Any) -> None:
    page.check("input[value=relief]", force=True)
    relief = page.locator("#relief")
    relief.wait_for()
    until(lambda: len(relief.screenshot()) > 20_000)  # more than an even ground
    first = settled(relief.screenshot)
    relief.focus()
    page.keyboard.press("ArrowLeft")
    until(lambda: relief.screenshot() != first)
    turned = settled(relief.screenshot)
    box = relief.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 320, box["y"] + 240, steps=3)
    page.mouse.up()
    until(lambda: relief.screenshot() != turned)
    assert not page.locator("#viewer-problem").is_visible()


def test_the_relief_of_a_picture_of_real_size(open_page: Any, server: RealServer) -> None:
    """Left red and near, right blue and far: the surface must show each colour on its own side."""
    rng = np.random.default_rng(0)
    height, width = 1536, 2048
    texture = rng.integers(60, 250, (height, width), np.uint8)
    blurred = cv2.GaussianBlur(texture, (0, 0), 3)
    left = np.arange(width) < width // 2
    files = {}
    for number, sharp in enumerate((left, ~left)):
        frame = np.zeros((height, width, 3), np.uint8)
        grey = np.where(sharp, texture, blurred)
        frame[:, left, 0], frame[:, ~left, 2] = grey[:, left], grey[:, ~left]
        files[f"{number}.png"] = png(frame)
    stack = upload(server.client, files)["stack"]["id"]
    options = {"preset": "fast", "sigma": 0, "align": False, "depth": True, "hot_pixels": "off"}
    job = finished(server.client, start(server.client, stack, **options))
    assert job["state"] == "done", job
    page = open_page(f"#job={job['id']}")
    wait_for_result(page)
    page.check("input[value=relief]", force=True)
    relief = page.locator("#relief")
    relief.wait_for()
    until(lambda: len(relief.screenshot()) > 20_000)
    page.locator("#relief-height").fill("0")  # flat: all of it is seen
    seen = np.asarray(Image.open(io.BytesIO(settled(relief.screenshot))).convert("RGB")).astype(int)
    saturation = seen.max(axis=2) - seen.min(axis=2)
    red, blue = ((saturation > 40) & (seen.argmax(axis=2) == channel) for channel in (0, 2))
    assert min(red.sum(), blue.sum()) > 5000
    # A straight line between them: hardly a pixel lies on the wrong side of the best one.
    rows, columns = np.nonzero(red | blue)
    side = np.where(red[rows, columns], -1.0, 1.0)
    places = np.stack([rows, columns, np.ones_like(rows)], axis=1).astype(float)
    line, *_ = np.linalg.lstsq(places, side, rcond=None)
    assert np.mean(np.sign(places @ line) != side) < 0.01


def test_a_relief_that_does_not_fit_together_is_refused(page: Any, fused: str) -> None:
    def shortened(route: Any) -> None:
        facts = route.fetch().json()
        route.fulfill(json=facts | {"heights": facts["heights"][:-1]})

    page.route(f"**/api/jobs/{fused}/relief", shortened)
    page.check("input[value=relief]", force=True)
    page.get_by_text("do not fit together").wait_for()
