"""Uploads that mean harm: names, sizes, lies in headers, streams without an end."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cofuse.web.frames import clean_name
from cofuse.web.service import with_own_names
from tests.command_line import contents
from tests.waiting import PATIENCE, until
from tests.web_server import TOKEN, client_of, frames, jpeg, png, upload


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def client(place):
    limits = {"max_upload": 300_000, "max_frames": 4, "max_pixels": 10_000}
    with client_of(place / "data", **limits) as client:
        yield client


PICTURE = png(frames(1)[0])

NAMES = [
    "../../x.png",
    "/etc/passwd.png",
    "..\\..\\x.png",
    "C:\\x.png",
    "a\0b.png",
    "x" * 5000 + ".png",
    "日本語 фото é.png",
    "\u202egnp.exe",
    ".",
    "..",
    "",
    " ",
    "\ud800.png",
    "-rf.png",
    "con.png",
    "a\r\nb: c.png",
    "%2e%2e%2fx.png",
    '<img src=x onerror="alert(1)">.png',
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_name_leads_out_of_the_folder(client, place, name):
    before = set(contents(place))
    called = {"name": name[:200].replace("\ud800", "?")}
    stack = client.post("/api/stacks", json=called).json()["id"]
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "surrogatepass")
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + quoted
    body = head + b'"\r\nContent-Type: text/html\r\n\r\n' + PICTURE + b"\r\n--b--\r\n"
    kind = {"content-type": "multipart/form-data; boundary=b"}
    answer = client.post(f"/api/stacks/{stack}/frames", content=body, headers=kind)
    assert answer.status_code in (200, 422), answer.text
    new = set(contents(place)) - before
    assert new and all(path.startswith(f"data/stacks/{stack}") for path in new)
    if answer.status_code == 200:
        (frame,) = answer.json()["added"]
        assert 0 < len(frame["name"]) <= 121 and frame["name"].isprintable()
        assert not set("/\\\0\r\n") & set(frame["name"])
        files = sorted(Path(path).name for path in new if "frames/" in path)
        assert files == [frame["id"], f"{frame['id']}.thumbnail.jpg"]
    client.delete(f"/api/stacks/{stack}")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def declared_png(width: int, height: int) -> bytes:
    """A small PNG that declares any size, and packs zeros."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"\0" * 10_000_000, 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, data) for kind, data in ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    )


BOMBS = {
    "huge.png": declared_png(100_000, 100_000),
    "wide.png": declared_png(2**31 - 1, 1),
    "none.png": declared_png(0, 5),
    "large.png": declared_png(1000, 1000),
    "large.jpg": jpeg(frames(1, (200, 200))[0]),
    "text.png": b"<html><script>alert(1)</script></html>",
    "zip.png": b"PK\x03\x04" + b"\0" * 100,
    "head.png": b"\x89PNG\r\n\x1a\n",
    "tiff.tif": b"II*\0\xff\xff\xff\xff",
    "cut.jpg": jpeg(frames(1)[0])[:-200],
    "fake.dng": jpeg(frames(1)[0])[:50],
    "svg.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_lie_in_a_header_is_believed(client, name):
    said = upload(client, {name: BOMBS[name], "good.png": PICTURE})
    assert [r["name"] for r in said["refused"]] == [name], said
    assert [f["name"] for f in said["added"]] == ["good.png"]
    assert len(said["refused"][0]["error"]) < 400


def test_content_decides_not_the_name(client):
    said = upload(client, {"really.jpg": PICTURE})
    assert said["added"][0]["format"] == "png"


def test_too_many_frames_are_refused(client):
    files = {f"{k}.png": PICTURE for k in range(3)}
    stack = upload(client, files)["stack"]["id"]
    said = upload(client, {"3.png": PICTURE, "4.png": PICTURE}, stack)
    assert len(said["added"]) == 1 and "too many" in said["refused"][0]["error"]
    parts = [("file", (f"{k}.png", PICTURE)) for k in range(5)]
    answer = client.post(f"/api/stacks/{stack}/frames", files=parts)
    assert answer.status_code == 413 and "--max-frames" in answer.json()["error"]
    folder = client.service.store.stacks[stack].folder / "frames"
    assert len(list(folder.iterdir())) == 8


#: How a multipart body with a file begins.
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.png"\r\n\r\n'


def endless(sent: list[int]):
    """A file that never ends."""
    yield HEAD
    while sum(sent) < 10**9:
        sent.append(65536)
        yield b"\0" * 65536


def pages(count: int) -> bytes:
    """A TIFF of so many pages of one pixel."""
    entries = [(256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1)]
    entries.append((279, 1))
    size = 2 + 12 * len(entries) + 4
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    body = bytearray(b"II*\0" + struct.pack("<I", 12) + b"\x80\0\0\0")
    for k in range(count):
        last = 0 if k == count - 1 else 12 + (k + 1) * size
        body += struct.pack("<H", len(entries)) + fields + struct.pack("<I", last)
    return bytes(body)


@pytest.mark.parametrize("count", [5, 2_000])
def test_pages_are_counted_before_they_are_read(client, count):
    said = upload(client, {"many.tif": pages(count), "two.tif": pages(2)})
    assert [r["name"] for r in said["refused"]] == ["many.tif"], said
    words = "5 frames" if count == 5 else "far more pages"
    assert words in said["refused"][0]["error"]
    assert said["added"][0]["pages"] == 2


@contextmanager
def uploading(client, stack: str, length: int, body: bytes = b""):
    """Begin an upload that declares some length, and send a part of it."""
    port = client.service.config.port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        line.sendall(
            f"POST /api/stacks/{stack}/frames HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
            + body
        )
        yield line


@pytest.fixture
def stack(client) -> Iterator[str]:
    """An empty stack, in which nothing may be when the test is over."""
    stack = client.post("/api/stacks", json={}).json()["id"]
    folder = client.service.store.stacks[stack].folder / "frames"
    yield stack
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("late", [b"\r\n--b--\r\n", b"x" * 100_000], ids=["end", "more"])
def test_stack_deleted_during_an_upload_leaves_nothing(client, stack, late):
    first, folder = HEAD + PICTURE, client.service.store.stacks[stack].folder
    with uploading(client, stack, len(first) + len(late), first) as line:
        until(lambda: client.service.store.coming[stack])
        assert client.delete(f"/api/stacks/{stack}").status_code == 204
        line.sendall(late)
        assert line.recv(100).split()[1] in (b"404", b"422")
    assert not folder.exists()


def test_stream_without_an_end_is_cut_off(client, stack):
    kind = {"content-type": "multipart/form-data; boundary=b"}
    sent: list[int] = []
    try:
        answer = client.post(f"/api/stacks/{stack}/frames", content=endless(sent), headers=kind)
        assert answer.status_code == 413 and "--max-upload" in answer.json()["error"]
    except httpx.TransportError:
        pass  # the server hung up while we were still sending
    assert sum(sent) < 50_000_000


def test_declared_length_is_refused_before_a_byte_is_sent(client, stack):
    with uploading(client, stack, 99999999999) as line:
        assert line.recv(100).startswith(b"HTTP/1.1 413")


def test_upload_that_breaks_off_leaves_nothing(client, stack):
    files = client.service.store.stacks[stack].folder / "frames"
    with uploading(client, stack, 200_000, HEAD + b"abc"):
        until(lambda: client.service.store.coming[stack])
    until(lambda: not client.service.store.coming[stack])
    until(lambda: not list(files.iterdir()))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data; boundary=b"),
        (b"--b--\r\n", "multipart/form-data; boundary=b"),
        (b"nonsense", "multipart/form-data; boundary=b"),
        (b"--b\r\n\r\n\r\n", "multipart/form-data; boundary=b"),
        (b"--b\r\nX: " + b"y" * 20000 + b"\r\n\r\n\r\n--b--", "multipart/form-data; boundary=b"),
        (b"\r\n", "multipart/form-data; boundary=" + "b" * 3000),
        (b"{}", "application/json"),
        (b"x", "multipart/form-data"),
        (b"x", ""),
    ],
)
def test_nonsense_is_refused_in_one_line(client, stack, body, kind):
    headers = {"content-type": kind}
    answer = client.post(f"/api/stacks/{stack}/frames", content=body, headers=headers)
    assert answer.status_code == 422 and list(answer.json()) == ["error"], answer.text


def test_full_store_takes_no_more(tmp_path):
    with client_of(tmp_path / "data", keep_size=1) as client:
        stack = client.post("/api/stacks", json={}).json()["id"]
        store = client.service.store
        store.new_stack("in use")
        answer = client.post(f"/api/stacks/{stack}/frames", files={"file": ("x.png", PICTURE)})
        assert answer.status_code in (404, 413)  # its own stack may have had to go


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=300))
def test_names_are_always_safe(given_name):
    name = clean_name(given_name, "frame")
    assert name and not set(name) & set("/\\\0\n\r") and len(name) <= 121
    assert name.encode() and name not in (".", "..")


def test_own_names_are_said_at_any_depth():
    names = {"/data/x1.png": "a.png", "x1.png": "a.png"}
    facts = {"x1.png": ["/data/x1.png is odd", {"n": 1}]}
    assert with_own_names(facts, names) == {"a.png": ["a.png is odd", {"n": 1}]}
