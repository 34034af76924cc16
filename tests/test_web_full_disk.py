"""A full disk: the server lives, says so in one clear line, and keeps only what is written."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.web_server import RealServer, finished, start

#: A small file system of its own for the command that follows the folder.
_SMALL = 'mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"'
_WITHIN = "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SMALL


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealServer, Path, str]]:
    """A server with a result, whose disk has become full; its folder; the job."""
    mount = tmp_path_factory.mktemp("small")
    if not shutil.which("unshare") or subprocess.run([*_WITHIN, mount, "true"]).returncode:
        pytest.skip("this system lets nobody make a file system in memory")
    within = [*_WITHIN, str(mount)]
    with RealServer("--data-dir", mount / "data", within=within) as server:
        stack = server.client.post("/api/stacks/sample").json()["id"]
        job = finished(server.client, start(server.client, stack, preset="fast", sigma=0))
        assert job["state"] == "done", job
        seen_from_here = Path(f"/proc/{server.process.pid}/root{mount}")
        fill(seen_from_here)
        yield server, seen_from_here / "data", job["id"]


def fill(folder: Path) -> None:
    """Take all the room there is."""
    with (folder / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(2**20)):
            pass


def said(answer: object) -> str:
    assert answer.status_code == 507, answer.text
    line = answer.json()["error"]
    assert line.startswith("the disk is full") and "/" not in line
    return line


def test_a_tile_that_finds_no_room_is_refused_and_the_server_lives(full):
    server, folder, job = full
    # Room to begin with, so that a file of full length can be made, but not filled.
    filler = folder.parent / "filler"
    os.truncate(filler, filler.stat().st_size - 2 * 4096)
    for name in ("result", "frame-0", "average"):
        said(server.client.get(f"/api/jobs/{job}/pictures/{name}/tiles/3/0_0"))
    assert not list((folder / "jobs" / job).glob("levels/*"))
    assert server.process.poll() is None
    # What needs no room is still shown.
    top = server.get(f"/api/jobs/{job}/pictures")[0]["levels"] - 1
    assert server.get(f"/api/jobs/{job}/pictures/result/tiles/{top}/0_0")
    fill(folder.parent)


def test_a_name_that_cannot_be_written_is_not_kept(full):
    server, _, job = full
    stack = server.get(f"/api/jobs/{job}")["stack"]
    said(server.client.patch(f"/api/stacks/{stack}", json={"name": "Another"}))
    assert server.get(f"/api/stacks/{stack}")["name"] == "Sample"
    before = len(server.get("/api/stacks"))
    said(server.client.post("/api/stacks", json={"name": "New"}))
    assert len(server.get("/api/stacks")) == before


def test_retouching_and_downloads_without_room_leave_nothing(full):
    server, folder, job = full
    before = sorted((folder / "jobs" / job).rglob("*.*"))
    stroke = {"frame": 0, "radius": 9, "points": [[40, 30]]}
    refused = server.client.put(f"/api/jobs/{job}/strokes", json={"strokes": [stroke]})
    assert "the disk is full" in refused.json()["error"]
    assert server.get(f"/api/jobs/{job}/strokes")["strokes"] == []
    said(server.client.get(f"/api/jobs/{job}/download?format=png&depth=8"))
    assert server.get(f"/api/jobs/{job}")["retouched"] == 0
    assert sorted((folder / "jobs" / job).rglob("*.*")) == before


def test_a_job_that_fills_the_disk_says_so(full):
    server, folder, job = full
    stack = server.get(f"/api/jobs/{job}")["stack"]
    small = folder.parent
    (small / "filler").unlink()
    begun = start(server.client, stack, preset="fast", sigma=0)
    fill(small)
    failed = finished(server.client, begun)
    assert failed["state"] == "failed" and failed["error"].startswith("the disk is full")
    # Deleting works on a full disk, too.
    assert server.client.delete(f"/api/jobs/{job}").status_code == 204
    assert not (folder / "jobs" / job).exists()
    (small / "filler").unlink()
    again = finished(server.client, start(server.client, stack, preset="fast", sigma=0))
    assert again["state"] == "done", again
