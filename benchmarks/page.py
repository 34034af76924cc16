"""How long the page's server takes to answer while a job takes all processors.

``python -m benchmarks.page`` starts a real server, lets it fuse a stack, and sends two hundred
requests at once, five times, each on a connection of its own and timed from its first byte sent to
its last byte received; none may be lost. The client speaks HTTP by hand: httpx takes several
milliseconds of a processor for a request, many times what the server does, and would mostly measure
itself.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time

from tests.waiting import until
from tests.web_server import RealServer, finished, small_stack, start


async def ask_all(server: RealServer, paths: list[str]) -> list[float]:
    """Send two hundred requests at once; how long each took."""
    port, times = server.client.base_url.port, []
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]

    async def ask(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        begin = time.perf_counter()
        writer.write(f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode())
        answer = await reader.read(-1)
        times.append(time.perf_counter() - begin)
        writer.close()
        said, _, body = answer.partition(b"\r\n\r\n")
        assert said.split()[1] == b"200", answer[:200]
        (length,) = re.findall(rb"content-length: (\d+)", said.lower())
        assert len(body) == int(length)

    await asyncio.gather(*(ask(paths[k % len(paths)], *line) for k, line in enumerate(lines)))
    return times


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, RealServer("--data-dir", folder) as server:
        client = server.client
        warm = finished(client, start(client, small_stack(client)))
        tile = f"/api/jobs/{warm['id']}/pictures/result/tiles/7/0_0"
        paths = ["/", f"/api/jobs/{warm['id']}", "/api/jobs", "/api/stacks", "/api/info", tile]
        asyncio.run(ask_all(server, paths))
        job = start(client, small_stack(client, count=8, size=(600, 800), sigma=10))
        until(lambda: client.get(f"/api/jobs/{job}").json()["stage"])
        times = [moment for _ in range(5) for moment in asyncio.run(ask_all(server, paths))]
        state = client.get(f"/api/jobs/{job}").json()["state"]
        median, longest = (1000 * value for value in (statistics.median(times), max(times)))
        print(f"200 at once: median {median:.0f} ms, longest {longest:.0f} ms; job {state}")


if __name__ == "__main__":
    main()
