"""The real server, in processes of its own: killed, restarted."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from cofuse.cli.serve import user_folder
from tests.waiting import PATIENCE, until
from tests.web_server import RealServer, finished, small_stack, start

#: A job of some seconds, to be interrupted.
MODERATE = {"count": 8, "size": (600, 800), "sigma": 10}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.mark.slow
def test_killed_server_leaves_results_and_no_processes(tmp_path):
    folder = tmp_path / "data"
    with RealServer("--data-dir", folder, "--demo") as server:
        client = server.client
        assert client.get("/api/info").json()["demo"] is True
        sample = client.get("/api/stacks").json()[0]
        assert sample["sample"] and len(sample["frames"]) == 5
        done = finished(client, start(client, small_stack(client)))
        file = client.get(f"/api/jobs/{done['id']}/download").content
        job = start(client, small_stack(client, **MODERATE))
        until(lambda: client.get(f"/api/jobs/{job}").json()["stage"])
        workers = children(server.process.pid)
        assert workers
        for worker in workers:  # so that the job is not over too early
            os.kill(worker, signal.SIGSTOP)
        waiting = start(client, small_stack(client))
        server.process.kill()
        server.process.wait(PATIENCE)
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    until(lambda: not any(map(is_alive, workers)))
    with RealServer("--data-dir", folder, "--demo") as server:
        client = server.client
        jobs = {one["id"]: one for one in client.get("/api/jobs").json()}
        assert jobs[done["id"]] == done
        for broken in (jobs[job], jobs[waiting]):
            assert broken["state"] == "interrupted" and "stopped" in broken["error"]
        assert client.get(f"/api/jobs/{done['id']}/download").content == file
        assert len([s for s in client.get("/api/stacks").json() if s["sample"]]) == 1
        assert finished(client, start(client, jobs[waiting]["stack"]))["state"] == "done"
        second = RealServer.__new__(RealServer)
        with pytest.raises(AssertionError, match="in use by another server"):
            second.__init__("--data-dir", folder)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_results_stay_in_the_users_folder_and_that_is_said(tmp_path, monkeypatch, how):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    folder = user_folder()
    assert folder == tmp_path / "cofuse"
    with RealServer() as server:
        assert server.address.startswith("http://127.0.0.1:")
        client = server.client
        done = finished(client, start(client, small_stack(client), preset="fast", sigma=0))
        file = client.get(f"/api/jobs/{done['id']}/download").content
        job = start(client, small_stack(client))
        with client.stream("GET", f"/api/jobs/{job}/events") as events:
            until(lambda: next(events.iter_lines()))
            server.process.send_signal(how)
            server.process.wait(PATIENCE)
    code, said = server.process.returncode, server.said
    assert code == 0 and "Ctrl-C" in said and "Traceback" not in said, said
    last = said.splitlines()[-1]
    # The second job may just have ended.
    assert said.count(str(folder)) == 2 and re.search(r"\d results? and 2 stacks", last), said
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    with RealServer() as server:
        assert server.client.get(f"/api/jobs/{done['id']}/download").content == file


@pytest.mark.parametrize(
    ("system", "variable", "end"),
    [
        ("linux", "XDG_DATA_HOME", ".local/share/cofuse"),
        ("darwin", "", "Library/Application Support/cofuse"),
        ("win32", "LOCALAPPDATA", "AppData/Local/cofuse"),
    ],
)
def test_every_system_has_a_place_for_the_data_of_users(monkeypatch, system, variable, end):
    monkeypatch.setattr("sys.platform", system)
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert user_folder() == Path.home() / end
    if variable:
        monkeypatch.setenv(variable, "/elsewhere")
        assert user_folder() == Path("/elsewhere/cofuse")


@pytest.mark.skipif(os.name != "posix", reason="the browser is a shell script")
def test_no_command_line_holds_the_token(tmp_path):
    """Any user of the machine can read with which words a browser was started."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.new && mv {seen}.new {seen}\n')
    browser.chmod(0o700)
    with RealServer("--data-dir", tmp_path / "data", browser=f"{browser} %s") as server:
        until(seen.exists)
        words = seen.read_text()
        assert server.token not in words
        path = Path(unquote(urlparse(words.strip()).path))
        assert path.stat().st_mode & 0o077 == 0
        assert server.token in path.read_text()


@pytest.mark.slow
def test_connections_that_ask_for_nothing_are_closed(tmp_path):
    with RealServer("--data-dir", tmp_path / "data") as server:
        port = server.client.base_url.port
        silent, half, again = (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(3)
        )
        half.sendall(b"GET / HT")
        # One that was answered before is no better.
        again.sendall(f"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert again.recv(4096).startswith(b"HTTP/1.1 401")
        again.sendall(b"GET / HT")
        with server.client.stream("GET", "/api/events") as events:
            lines = events.iter_lines()
            assert next(lines)
            for line in (silent, half, again):
                while line.recv(4096):
                    pass
                line.close()
            # Who is being answered stays: a sign of life comes every ten seconds.
            until(lambda: "still here" in next(lines))
