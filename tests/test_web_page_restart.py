"""The page when the server stops, and when it is started anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.page_browser import wait_until
from tests.waiting import PATIENCE
from tests.web_server import RealServer

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow


def test_an_open_page_says_what_to_do_after_a_restart(browser: Any, tmp_path: Path) -> None:
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    said = "(words) => document.getElementById('offline').innerText.includes(words)"
    with RealServer("--data-dir", tmp_path / "data") as first:
        page.goto(f"{first.address}/?token={first.token}")
        page.wait_for_selector("html[data-ready]")
    wait_until(page, said, "is cofuse serve still running?")
    with RealServer(
        "--data-dir", tmp_path / "data", port=int(first.address.rpartition(":")[2])
    ) as second:
        assert second.address == first.address and second.token != first.token
        wait_until(page, said, "open the address that cofuse serve printed last")
        # What is asked for now is answered in the same words.
        page.click("#try-sample")
        page.wait_for_selector(".toast")
        assert "open the address" in page.locator(".toast").inner_text()
        page.reload()
        told = page.locator("body").inner_text()
        assert "locked" in told and "in the terminal" in told
        page.goto(f"{second.address}/?token={second.token}")
        page.wait_for_selector("html[data-ready]")
        assert not page.locator("#offline").is_visible()
    context.close()
