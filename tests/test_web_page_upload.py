"""Pictures and folders come in: which become which stack, and what may be done meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.page_browser import drag, drop, names, stack_of, wait_for_result, wait_until
from tests.waiting import until
from tests.web_server import RealServer

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow

SHOTS = ["shot 1.png", "shot 2.png", "shot 10.png"]


@pytest.fixture
def card(tmp_path: Path, frames: Path) -> Path:
    """A memory card: two folders of frames, one of other files, one that is empty."""
    for name in ("fly", "moth"):
        shutil.copytree(frames, tmp_path / "card" / "DCIM" / name)
    (tmp_path / "card" / "MISC" / "none").mkdir(parents=True)
    (tmp_path / "card" / "MISC" / "notes.txt").write_text("nobody means this")
    (tmp_path / "card" / ".hidden").mkdir()
    shutil.copy(frames / "shot 1.png", tmp_path / "card" / ".hidden")
    return tmp_path / "card"


def drag_and_drop(page: Any, *paths: Path) -> None:
    for kind in ("dragEnter", "dragOver", "drop"):
        drag(page, kind, *paths)


def stacks_of(server: RealServer) -> dict[str, int]:
    """Frames of every stack by its id."""
    return {stack["id"]: len(stack["frames"]) for stack in server.get("/api/stacks")}


def test_every_folder_becomes_a_stack(open_page: Any, server: RealServer, card: Path) -> None:
    page, before = open_page(), stacks_of(server)
    drag_and_drop(page, card)
    page.wait_for_selector("#refused:visible")
    wait_until(page, "document.getElementById('upload').hidden")
    new = [stack for stack in server.get("/api/stacks") if stack["id"] not in before]
    found = {stack["name"]: [frame["name"] for frame in stack["frames"]] for stack in new}
    assert found == {"fly": SHOTS, "moth": SHOTS}
    # The first is shown, the others are in the strip; what is no picture is named.
    assert page.input_value("#stack-name") == "fly" and names(page) == SHOTS
    assert page.locator("#refused-list").inner_text().startswith("notes.txt")
    page.locator(".strip-link", has_text="moth").first.click()
    wait_until(page, "document.getElementById('stack-name').value === 'moth'")


def test_a_folder_does_not_go_into_the_stack_that_is_shown(
    open_page: Any, server: RealServer, frames: Path, card: Path
) -> None:
    page = open_page()
    drag_and_drop(page, card / "DCIM" / "fly")
    fly = stack_of(page)
    # Pictures do, a folder does not.
    drop(page, {"shot 11.png": (frames / "shot 1.png").read_bytes()})
    page.wait_for_selector(".frame >> nth=3")
    drag_and_drop(page, card / "DCIM" / "moth")
    wait_until(page, "document.getElementById('stack-name').value === 'moth'")
    page.wait_for_selector(".frame >> nth=2")
    assert stack_of(page) != fly and names(page) == SHOTS
    assert stacks_of(server)[fly] == 4


def test_what_brings_no_frame_leaves_no_stack(
    open_page: Any, server: RealServer, card: Path
) -> None:
    page, before = open_page(), stacks_of(server)
    drop(page, {"note.png": b"no picture"})
    page.wait_for_selector("#refused:visible")
    wait_until(page, "document.getElementById('upload').hidden")
    drag_and_drop(page, card / "MISC" / "none")
    page.wait_for_selector(".toast")
    assert "none" in page.locator(".toast").inner_text()
    until(lambda: stacks_of(server) == before)
    assert "#stack" not in page.url


def test_fuse_waits_for_the_upload_which_disturbs_nobody(
    open_page: Any, server: RealServer, frames: Path, fused: str
) -> None:
    page = open_page()
    files = {path.name: path.read_bytes() for path in frames.iterdir()}
    drop(page, files)
    page.wait_for_selector(".frame >> nth=2")
    stack = stack_of(page)
    wait_until(page, "!document.getElementById('fuse').disabled")
    held: list[Any] = []
    page.route("**/frames", lambda route: held.append(route))
    drop(page, {"shot 11.png": files["shot 1.png"]})
    until(lambda: page.wait_for_timeout(20) or held)
    assert page.locator("#fuse").is_disabled()
    assert "uploaded" in page.locator("#fuse-words").inner_text()
    # To a result meanwhile: there one stays when the upload ends.
    page.click(f"#strip [href='#job={fused}']")
    wait_for_result(page)
    held.pop().continue_()
    until(lambda: page.wait_for_timeout(20) or stacks_of(server)[stack] == 4)
    wait_until(page, "document.getElementById('upload').hidden")
    assert page.url.endswith(fused) and page.locator("#canvas-area").is_visible()
    page.go_back()
    page.wait_for_selector(".frame >> nth=3")
    assert page.locator("#fuse").inner_text() == "Fuse 4 frames"


@pytest.mark.parametrize("shown", ["stack", "job"])
def test_where_files_may_be_dropped_is_shown(
    open_page: Any, frames: Path, fused: str, shown: str
) -> None:
    page = open_page(f"#job={fused}" if shown == "job" else "")
    if shown == "stack":
        drag_and_drop(page, frames)
        stack_of(page)
    target = page.locator("#target")
    drag(page, "dragEnter", frames)
    drag(page, "dragOver", frames)
    target.wait_for()
    assert ("added to “beetle”" in target.inner_text()) == (shown == "stack")
    assert "folder" in target.inner_text()
    # Out of the window again, which the browser's own tools cannot do.
    page.evaluate("document.body.dispatchEvent(new DragEvent('dragleave', { bubbles: true }))")
    target.wait_for(state="hidden")
