"""The real server, in processes of its own: under load, killed, restarted."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import statistics
import time

import pytest

pytest.importorskip("fastapi")

from tests.web_server import RealServer, finished, small_stack, start, until

#: A job of some seconds, to be measured against and interrupted.
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


async def ask_all(server: RealServer, paths: list[str]) -> list[float]:
    """Send two hundred requests at once, each on a connection of its own; how long each took."""
    port, times = server.client.base_url.port, []
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]

    async def ask(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        begin = time.perf_counter()
        writer.write(f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode())
        answer = await reader.read(-1)
        times.append(time.perf_counter() - begin)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split()[1] == b"200", answer[:200]
        (length,) = re.findall(rb"content-length: (\d+)", head.lower())
        assert len(body) == int(length)

    await asyncio.gather(*(ask(paths[k % len(paths)], *line) for k, line in enumerate(lines)))
    return times


@pytest.mark.slow
def test_page_answers_while_a_job_runs(tmp_path):
    """Two hundred requests at once while a job takes all processors: 200 ms at the median.

    Each is timed from its first byte sent to its last byte received, all of them count, and none
    is lost. The client speaks HTTP by hand: httpx takes several milliseconds of a processor for a
    request, many times what the server does, and would mostly measure itself.
    """
    with RealServer("--data-dir", tmp_path / "data") as server:
        client = server.client
        warm = finished(client, start(client, small_stack(client)))
        tile = f"/api/jobs/{warm['id']}/pictures/result/tiles/7/0_0"
        paths = ["/", f"/api/jobs/{warm['id']}", "/api/jobs", "/api/stacks", "/api/info", tile]
        asyncio.run(ask_all(server, paths))
        job = start(client, small_stack(client, **MODERATE))
        until(lambda: client.get(f"/api/jobs/{job}").json()["stage"])
        times = [moment for _ in range(5) for moment in asyncio.run(ask_all(server, paths))]
        assert client.get(f"/api/jobs/{job}").json()["state"] == "running", "over too early"
        median, longest = statistics.median(times), max(times)
        words = f"200 at once: median {1000 * median:.0f} ms, longest {1000 * longest:.0f} ms"
        logging.getLogger(__name__).info(words)
        assert len(times) == 1000 and median < 0.2, words
        client.post(f"/api/jobs/{job}/cancel")
        assert finished(client, job)["state"] == "cancelled"


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
        waiting = start(client, small_stack(client))
        until(lambda: client.get(f"/api/jobs/{job}").json()["stage"])
        workers = children(server.process.pid)
        assert workers
        server.kill()
    until(lambda: not any(map(is_alive, workers)), 10)
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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_server_without_a_folder_leaves_nothing_behind(tmp_path, monkeypatch, how):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with RealServer() as server:
        assert server.address.startswith("http://127.0.0.1:")
        (private,) = tmp_path.glob("cofuse-*")
        assert private.stat().st_mode & 0o077 == 0
        client = server.client
        job = start(client, small_stack(client))
        with client.stream("GET", f"/api/jobs/{job}/events") as events:
            until(lambda: next(events.iter_lines()), 10)
            server.process.send_signal(how)
            server.process.wait(20)
    code, said = server.process.returncode, server.said
    assert code == 0 and "Ctrl-C" in said and "Traceback" not in said, said
    assert not list(tmp_path.glob("cofuse-*"))
