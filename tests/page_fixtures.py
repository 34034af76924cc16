"""Fixtures of the tests of the page: a real server, a real browser, frames and a finished job.

A plugin, named by ``pytest_plugins`` in the modules that want it; nothing imports it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cofuse.evaluation.simulation import sample_picture, simulate_stack
from cofuse.files import write_image
from tests.waiting import PATIENCE
from tests.web_server import RealServer, finished, start, upload

NO_BROWSER = "no browser: neither chromium nor google-chrome was found"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer("--data-dir", tmp_path_factory.mktemp("page") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three small noisy frames, whose names sort naturally and not by letter."""
    folder = tmp_path_factory.mktemp("frames") / "beetle"
    folder.mkdir()
    sharp = np.ascontiguousarray(sample_picture()[60:260, 40:340])
    stack = simulate_stack(sharp, frames=3, sigma=8.0, seed=1)
    for number, frame in zip((1, 2, 10), stack.frames, strict=True):
        write_image(folder / f"shot {number}.png", frame)
    return folder


@pytest.fixture(scope="session")
def fused(server: RealServer, frames: Path) -> str:
    """The id of a finished job with a depth map; tests must leave it as it was."""
    files = {path.name: path.read_bytes() for path in frames.iterdir()}
    stack = upload(server.client, files)["stack"]["id"]
    job = finished(server.client, start(server.client, stack, depth=True))
    assert job["state"] == "done", job
    return str(job["id"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Of a module, not of the session: while it lives no other test may run an event loop.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path  # there after `playwright install chromium`
        path = next(filter(None, map(shutil.which, (*BROWSERS, own))), None)
        if path is None:
            pytest.skip(NO_BROWSER)
        # Containers often have no user namespaces, and no graphics card.
        arguments = ["--no-sandbox", "--enable-unsafe-swiftshader"]
        chromium = playwright.chromium.launch(
            executable_path=path, args=arguments, timeout=1000 * PATIENCE
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, server: RealServer) -> Iterator[Any]:
    """Open the page at a place; afterwards nothing may have gone wrong on any that was opened."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_one(place: str = "", **options: Any) -> Any:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        context = browser.new_context(reduced_motion="reduce", accept_downloads=True, **options)
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        # Browsers tell of a conflict on the console, even one that the page settles.
        page.on(
            "console",
            lambda line: (
                line.type != "error"
                or "409 (Conflict)" in line.text
                or wrong.append(f"{line.text} {line.location['url']}")
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith((server.address, "blob:", "data:"))
                or wrong.append(f"request to {request.url}")
            ),
        )
        page.goto(f"{server.address}/?token={server.token}")
        page.wait_for_selector("html[data-ready]")
        assert "token" not in page.url
        if place:
            page.goto(f"{server.address}/{place}")
            page.wait_for_selector("html[data-ready]")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert wrong == []
