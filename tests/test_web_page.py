"""The page, as a person uses it: from frames to a fused picture, in a real browser."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from cofuse.files import read_image
from tests.command_line import run
from tests.page_browser import drop, names, stack_of, wait_for_result, wait_until
from tests.waiting import until
from tests.web_server import RealServer, finished
from tests.web_server import start as start_job

pytest_plugins = ("tests.page_fixtures",)
pytestmark = pytest.mark.slow


def start(page: Any) -> str:
    """Press Fuse; the id of the job."""
    page.click("#fuse")
    page.wait_for_url(re.compile("#job="))
    return str(page.url.partition("#job=")[2])


def test_the_file_that_a_browser_is_opened_with_leads_to_the_page(
    browser: Any, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    script.chmod(0o700)
    with RealServer("--data-dir", tmp_path / "data", browser=f"{script} %s") as server:
        until(opened.exists)
        context = browser.new_context()
        page = context.new_page()
        page.goto(opened.read_text().strip())
        page.wait_for_selector("html[data-ready]")
        assert page.url.rstrip("/") == server.address
        context.close()


def test_dropped_files_are_shown_in_natural_order_and_bad_ones_are_named(
    open_page: Any, frames: Path
) -> None:
    page = open_page()
    files = {path.name: path.read_bytes() for path in frames.iterdir()}
    cut_off = files["shot 2.png"][:3000]
    drop(page, {**files, "cut off.png": cut_off, "notes.txt": b"no picture", "empty.jpg": b""})
    page.wait_for_selector(".frame >> nth=2")
    stack_of(page)
    assert names(page) == ["shot 1.png", "shot 2.png", "shot 10.png"]
    refused = page.locator("#refused").inner_text()
    assert "3 files" in refused
    for name in ("cut off.png", "notes.txt", "empty.jpg"):
        assert name in refused
    facts = page.locator(".frame").first.inner_text()
    assert "300 × 200" in facts and "PNG" in facts and "8 bit" in facts
    shown = page.locator(".frame img").first
    wait_until(page, "(image) => image.naturalWidth > 0", shown.element_handle())
    # The estimate, and the command line that does the same.
    wait_until(page, "document.getElementById('noise-estimate').innerText.includes('σ')")
    estimate = page.locator("#noise-estimate").inner_text()
    assert 5 < float(re.findall(r"[\d.]+", estimate)[0]) < 11
    line = page.locator("#command")
    wait_until(page, "document.getElementById('command').innerText.includes('cofuse fuse')")
    assert "'shot 1.png' 'shot 2.png' 'shot 10.png' -o result.tif" in line.inner_text()
    page.check("input[name=noise][value=manual]", force=True)
    page.select_option("#format", "jpeg")
    wait_until(page, "document.getElementById('command').innerText.includes('--sigma')")
    assert "-o result.jpg --bit-depth 8" in line.inner_text()


def test_what_is_remarkable_about_the_noise_is_said(open_page: Any, frames: Path) -> None:
    page = open_page()
    remarks = ["coarse-grained", "JPEG blocks"]
    answer = {"sigma": 7.25, "character": remarks}
    page.route("**/api/stacks/*/noise", lambda route: route.fulfill(json=answer))
    drop(page, {path.name: path.read_bytes() for path in frames.iterdir()})
    wait_until(page, "document.getElementById('noise-estimate').innerText.includes('σ')")
    said = page.locator("#noise-estimate").inner_text()
    assert re.fullmatch(r"Estimated: σ 7\.[23] of 255, coarse-grained, JPEG blocks", said)


def test_a_folder_is_taken_and_frames_are_put_in_order(
    open_page: Any, frames: Path, server: RealServer
) -> None:
    page = open_page()
    page.set_input_files("#folder-input", frames)
    page.wait_for_selector(".frame >> nth=2")
    stack = stack_of(page)
    assert page.input_value("#stack-name") == "beetle"
    # By the mouse: the first to the end.
    cards = page.locator(".frame-picture")
    first, last = cards.nth(0).bounding_box(), cards.nth(2).bounding_box()
    page.mouse.move(first["x"] + 40, first["y"] + 60)
    page.mouse.down()
    page.mouse.move(first["x"] + 80, first["y"] + 60, steps=3)
    with page.expect_response(lambda answer: answer.request.method == "PATCH"):
        page.mouse.move(last["x"] + last["width"] - 10, last["y"] + 60, steps=5)
        page.mouse.up()
    assert names(page) == ["shot 2.png", "shot 10.png", "shot 1.png"]
    # By the keyboard: back again, the focus staying on the frame's button.
    page.get_by_role("button", name="Move shot 1.png earlier").focus()
    for _ in range(2):
        with page.expect_response(lambda answer: answer.request.method == "PATCH"):
            page.keyboard.press("Enter")
    assert names(page) == ["shot 1.png", "shot 2.png", "shot 10.png"]
    page.get_by_role("button", name="Remove shot 2.png").click()
    page.wait_for_selector(".frame >> nth=2", state="detached")
    kept = [frame["name"] for frame in server.get(f"/api/stacks/{stack}")["frames"]]
    assert kept == names(page) == ["shot 1.png", "shot 10.png"]
    # A reload finds the stack again.
    page.reload()
    page.wait_for_selector(".frame >> nth=1")
    assert names(page) == kept


def test_the_list_scrolls_while_a_frame_is_dragged(open_page: Any, tmp_path: Path) -> None:
    for number in range(65):
        Image.fromarray(np.full((48, 64, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    page = open_page()
    page.set_input_files("#file-input", sorted(tmp_path.glob("*.png")))
    page.wait_for_selector(".frame >> nth=64")
    wait_until(page, "document.getElementById('upload').hidden")
    first = page.locator(".frame-picture").first.bounding_box()
    page.mouse.move(first["x"] + 40, first["y"] + 40)
    page.mouse.down()
    # Held at the lower edge, and not moved any more, until all has passed by.
    page.mouse.move(first["x"] + 60, 640, steps=4)
    wait_until(
        page,
        "() => { const stage = document.querySelector('.stack-stage');"
        " return stage.scrollTop + stage.clientHeight > stage.scrollHeight - 2; }",
    )
    with page.expect_response(lambda answer: answer.request.method == "PATCH"):
        page.mouse.up()
    assert names(page).index("0.png") > 50


def test_downloads_are_what_the_library_writes(
    open_page: Any, fused: str, frames: Path, tmp_path: Path
) -> None:
    page = open_page(f"#job={fused}")
    wait_for_result(page)
    page.click("#tab-save")
    assert page.locator("#job-command").inner_text().startswith("cofuse fuse 'shot 1.png'")
    paths = [frames / f"shot {number}.png" for number in (1, 2, 10)]
    wanted: dict[int, Any] = {}
    for kind, depth in (("tiff", 8), ("tiff", 16), ("png", 8), ("png", 16), ("jpeg", 8)):
        with page.expect_download() as waiting:
            page.click(f"[data-format={kind}-{depth}]")
        taken = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(taken)
        assert taken.suffix == {"tiff": ".tif", "png": ".png", "jpeg": ".jpg"}[kind]
        if kind != "png":  # its pixels are those of the TIFF file
            written = tmp_path / f"written{taken.suffix}"
            words = ["--bit-depth", depth, "--overwrite", "--quiet"]
            assert run("fuse", *paths, "-o", written, *words) == 0
            wanted[depth] = read_image(written)
        ours = read_image(taken)
        assert ours.dtype == (np.uint16 if depth == 16 else np.uint8)
        np.testing.assert_array_equal(ours, wanted[depth])
    with page.expect_download() as waiting:
        page.click("#report-json")
    assert waiting.value.suggested_filename.endswith(".json")
    with page.expect_popup() as opened:
        page.click("#report-html")
    assert "cofuse" in opened.value.content()


def test_a_job_is_watched_reloaded_and_cancelled(open_page: Any, server: RealServer) -> None:
    page = open_page()
    page.click("#try-sample")
    page.wait_for_selector(".frame >> nth=4")
    page.select_option("#preset", "paper")  # slow enough to be looked at
    job = start(page)
    page.wait_for_selector("#running-stages .now")
    page.wait_for_selector("#preview[src]:visible")
    wait_until(page, "document.getElementById('running-bar').value > 0")
    wait_until(page, "document.getElementById('running-left').innerText.includes('left')")
    page.reload()
    page.wait_for_selector("#running-stages .now")
    assert page.url.endswith(job) and page.locator("#cancel").is_visible()
    assert page.locator(f"#strip [href='#job={job}'] progress").is_visible()
    page.click("#cancel")
    wait_until(page, "document.getElementById('running-title').innerText === 'Cancelled'")
    assert server.get(f"/api/jobs/{job}")["state"] == "cancelled"
    # It stays in the list until it is taken off.
    page.reload()
    page.wait_for_selector("#forget:visible")
    page.click("#forget")
    page.wait_for_selector(f"#strip [href='#job={job}']", state="detached")


def test_a_result_that_is_deleted_elsewhere_goes(
    open_page: Any, server: RealServer, fused: str
) -> None:
    stack = server.get(f"/api/jobs/{fused}")["stack"]
    job = finished(server.client, start_job(server.client, stack, preset="fast"))["id"]
    one, other = open_page(f"#job={job}"), open_page(f"#job={fused}")
    for page in (one, other):
        wait_for_result(page)
    assert server.client.delete(f"/api/jobs/{job}").status_code == 204
    for page in (one, other):
        page.wait_for_selector(f"#strip [href='#job={job}']", state="detached")
    one.wait_for_url(re.compile("#new"))
    assert "deleted" in one.locator(".toast").inner_text()
    assert other.locator("#canvas-area").is_visible()


def test_two_jobs_at_once_both_end_and_stay_in_the_list(
    open_page: Any, server: RealServer, frames: Path
) -> None:
    one, other = open_page(), open_page()
    jobs = []
    for page, preset in ((one, "fast"), (other, "auto")):
        page.set_input_files("#file-input", sorted(frames.iterdir()))
        page.wait_for_selector(".frame >> nth=2")
        stack_of(page)
        page.select_option("#preset", preset)
        jobs.append(start(page))
    assert jobs[0] != jobs[1]
    for page, job in zip((one, other), jobs, strict=True):
        assert wait_for_result(page) == job
        for each in jobs:
            page.wait_for_selector(f"#strip [href='#job={each}'] img:visible")
    # From one result to the other, and it is the other that is shown.
    one.click(f"#strip [href='#job={jobs[1]}']")
    assert wait_for_result(one) == jobs[1]
    one.wait_for_selector("#facts:has-text('auto')")


def test_a_job_that_fails_says_why(open_page: Any, frames: Path) -> None:
    page = open_page()
    page.set_input_files("#file-input", sorted(frames.iterdir()))
    page.wait_for_selector(".frame >> nth=2")
    stack = stack_of(page)
    page.click("#advanced summary")
    page.fill("#max-memory", "1kB")
    start(page)
    page.wait_for_selector("#running-error:visible")
    assert "allow more with “Memory at most”" in page.locator("#running-error").inner_text()
    page.click("#again")
    page.wait_for_url(re.compile(f"#stack={stack}"))
    assert names(page) == ["shot 1.png", "shot 2.png", "shot 10.png"]


def test_what_is_no_longer_there_is_said_to_be_gone(open_page: Any) -> None:
    page = open_page()
    for place in ("job", "stack"):
        page.evaluate("(place) => { window.location.hash = `${place}=never-there`; }", place)
        page.wait_for_url(re.compile("#new"))
        page.wait_for_selector(".toast")
        assert page.locator("#drop").is_visible()


def test_frames_that_do_not_go_together_are_not_fused(open_page: Any, tmp_path: Path) -> None:
    page = open_page()
    for width in (64, 65):
        content = io.BytesIO()
        Image.fromarray(np.full((48, width, 3), 90, np.uint8)).save(content, "PNG")
        (tmp_path / f"{width}.png").write_bytes(content.getvalue())
    page.set_input_files("#file-input", sorted(tmp_path.glob("*.png")))
    page.wait_for_selector("#stack-problem:visible")
    assert page.locator("#fuse").is_disabled()


def test_sixteen_bits_stay_sixteen_bits(open_page: Any, frames: Path, tmp_path: Path) -> None:
    for number in (1, 2, 10):
        wide = np.asarray(Image.open(frames / f"shot {number}.png"), np.uint16) * 257
        tifffile.imwrite(tmp_path / f"{number}.tif", wide, photometric="rgb")
    page = open_page()
    page.set_input_files("#file-input", sorted(tmp_path.glob("*.tif")))
    page.wait_for_selector(".frame >> nth=2")
    stack_of(page)
    assert "16 bit" in page.locator(".frame").first.inner_text()
    start(page)
    wait_for_result(page)
    page.click("#tab-save")
    assert page.locator("#download-main").inner_text().strip() == "Download TIFF, 16 bit"
    with page.expect_download() as waiting:
        page.click("#download-main")
    waiting.value.save_as(tmp_path / "result.tif")
    assert tifffile.imread(tmp_path / "result.tif").dtype == np.uint16
