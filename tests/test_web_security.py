"""Who may come in: tokens, hosts, origins, and what answers tell a browser."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import httpx
import pytest

from cofuse.cli.serve import can_show
from cofuse.web.options import Config
from cofuse.web.security import is_loopback, is_own_host
from tests.command_line import run
from tests.waiting import PATIENCE, until
from tests.web_server import TOKEN, client_of


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with client_of(tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture
def stranger(client):
    """A client without the token."""
    with httpx.Client(base_url=client.origin, timeout=PATIENCE) as stranger:
        yield stranger


def is_error(answer: httpx.Response, status: int) -> bool:
    return answer.status_code == status and list(answer.json()) == ["error"]


@pytest.mark.parametrize(
    "path", ["/api/info", "/api/openapi.json", "/api/stacks", "/api/events", "/static/index.html"]
)
def test_nothing_is_told_without_the_token(stranger, path):
    assert stranger.get(path).status_code == 401
    assert stranger.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert stranger.get(path, headers={"authorization": "Bearer ü".encode()}).status_code == 401
    assert stranger.get(path, headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    assert stranger.get(f"{path}?token={TOKEN}").status_code == 401  # only the page's own address


def test_page_without_the_token_says_what_to_do(stranger):
    answer = stranger.get("/")
    assert answer.status_code == 401 and "cofuse serve" in answer.text
    assert "text/html" in answer.headers["content-type"]
    assert stranger.get("/?token=wrong").status_code == 401


def test_token_leaves_the_address_and_becomes_a_cookie(client, stranger):
    answer = stranger.get(f"/?token={TOKEN}")
    # The browser goes on from here by itself; on a redirection that began in a file it would
    # withhold the cookie.
    assert answer.status_code == 200 and 'content="0; url=/"' in answer.text
    assert TOKEN not in answer.text
    assert answer.headers["cache-control"] == "no-store"  # its address holds the token
    assert 'rel="icon"' in answer.text  # otherwise the browser asks for one that is not there
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    assert str(client.service.config.port) in cookie
    assert stranger.get("/api/info").status_code == 200  # the cookie was kept
    assert stranger.get("/").status_code == 200


def test_cookie_alone_changes_nothing(client, stranger):
    stranger.get(f"/?token={TOKEN}")
    assert is_error(stranger.post("/api/stacks", json={}), 403)
    ours = {"origin": client.origin}
    made = stranger.post("/api/stacks", json={}, headers=ours)
    assert made.status_code == 201
    for origin in (
        "http://evil.example",
        "null",
        client.origin + ".evil.example",
        "https://127.0.0.1",
    ):
        for headers in ({"origin": origin}, {"origin": origin, "authorization": f"Bearer {TOKEN}"}):
            assert is_error(stranger.post("/api/stacks", json={}, headers=headers), 403)
            assert is_error(stranger.get("/api/stacks", headers=headers), 403)
    gone = f"/api/stacks/{made.json()['id']}"
    assert is_error(stranger.delete(gone), 403)
    assert stranger.delete(gone, headers=ours).status_code == 204


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_cannot_even_look(client, site):
    answer = client.get("/api/stacks", headers={"sec-fetch-site": site})
    assert is_error(answer, 403)
    assert client.get("/api/stacks", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_no_other_site_is_allowed_by_a_preflight(client, stranger):
    stranger.get(f"/?token={TOKEN}")
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x"}
    for path in ("/api/stacks", "/api/jobs", "/"):
        answer = stranger.options(path, headers=asked | {"origin": "http://evil.example"})
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert stranger.options(path, headers=asked | {"origin": client.origin}).status_code == 405
        assert stranger.options(path).status_code == 403
    for method in ("TRACE", "CONNECT", "PROPFIND"):
        assert stranger.request(method, "/api/stacks").status_code in (400, 403, 404, 405)
    assert client.head("/").status_code == 200 and client.head("/").content == b""
    assert client.head("/api/info").status_code in (404, 405)
    assert httpx.head(client.origin).status_code == 401


def test_odd_cookies_of_others_do_not_hide_ours(client, stranger):
    ours = f"cofuse-{client.service.config.port}"
    for before in ('a={"b": [1, "c"]}; ', "=; ", "; ; x; ", 'q="un;even; ', f"{ours}=old; "):
        answer = stranger.get("/api/info", headers={"cookie": f"{before}{ours}={TOKEN}; y=1"})
        assert answer.status_code == 200, before
    for wrong in (f"{ours}=", f"{ours}={TOKEN}x", f"x{ours}={TOKEN}", f"cofuse={TOKEN}", "ü=ü;"):
        answer = stranger.get("/api/info", headers={"cookie": wrong.encode()})
        assert answer.status_code == 401, wrong


def test_no_address_leads_out_of_the_page(client):
    for path in (
        "/../pyproject.toml",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/%2fetc%2fpasswd",
        "/static/js/..%5c..%5capp.py",
        "/static",
        "/js",
        "/index.html%00",
    ):
        request = client.build_request("GET", client.origin)
        request.url = request.url.copy_with(raw_path=path.encode())
        assert client.send(request).status_code == 404, path
    page = client.get("/static/index.html")
    assert page.text == client.get("/").text and page.headers["cache-control"] == "no-cache"
    script = client.get("/static/js/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    again = client.get("/js/main.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304 and again.content == b""


def test_nested_and_endless_json_is_refused(client):
    kind = {"content-type": "application/json"}
    for body in (b"[" * 200_000, b'{"name":' * 50_000, b"\xff", b"", b"null", b"NaN", b"1e999"):
        answer = client.post("/api/stacks", content=body, headers=kind)
        assert answer.status_code in (400, 422) and list(answer.json()) == ["error"]
        assert len(answer.text) < 400
    deep = client.get("/api/command", params={"stack": "x", "options": "[" * 1900})
    assert deep.status_code == 422


def test_no_more_watch_than_may(client):
    service = client.service
    watchers, service.watchers = service.watchers, asyncio.Semaphore(3)
    lines = []
    with ExitStack() as stack:
        for _ in range(3):
            answer = stack.enter_context(client.stream("GET", "/api/events"))
            lines.append(answer.iter_lines())  # one that is let go hangs up
            next(lines[-1])
        refused = client.get("/api/events")
        assert is_error(refused, 429) and "watching" in refused.json()["error"]
        assert client.get("/api/jobs").status_code == 200
    until(lambda: service.watchers._value == 3)
    service.watchers = watchers


def test_only_our_own_name_is_answered(client):
    port = client.service.config.port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"LOCALHOST:{port}"):
        assert client.get("/api/info", headers={"host": host}).status_code == 200
    wrong = ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", "")
    for host in (
        *wrong,
        f"127.0.0.1.evil.example:{port}",
        f"[::1]:{port}",
        f"localhost.:{port}",
        f"127.0.0.1.:{port}",
    ):
        assert client.get("/api/info", headers={"host": host}).status_code in (400, 403), host
        assert client.get(f"/?token={TOKEN}", headers={"host": host}).status_code in (400, 403)


def test_server_for_all_addresses_answers_numbers_and_no_foreign_names(tmp_path):
    for host, port, name, own in (
        ("0.0.0.0", 80, "192.168.1.5:80", True),
        ("0.0.0.0", 80, "192.168.1.5", True),
        ("0.0.0.0", 80, "[fe80::1]:80", True),
        ("0.0.0.0", 80, "localhost", True),
        ("0.0.0.0", 80, "evil.example:80", False),
        ("0.0.0.0", 80, "192.168.1.5:81", False),
        ("::1", 8765, "[::1]:8765", True),
        ("::1", 8765, "127.0.0.1:8765", False),
    ):
        assert is_own_host(name, Config(folder=tmp_path, host=host, port=port)) is own, name
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("example.org")


def test_every_answer_tells_the_browser_the_rules(client, stranger):
    answers = [
        client.get("/api/info"),
        client.get("/api/nothing"),
        client.get("/nothing"),
        client.post("/api/stacks", content=b"{"),
        stranger.get("/"),
        stranger.get("/api/info"),
        client.get("/api/info", headers={"origin": "http://evil.example"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'self'", "script-src 'self'", "frame-ancestors 'none'"):
            assert rule in policy
        assert "unsafe" not in policy and "base-uri 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert TOKEN not in answer.text


def test_token_is_not_shown_where_the_settings_are(tmp_path):
    assert TOKEN not in repr(Config(folder=tmp_path, token=TOKEN))
    assert (
        Config(folder=tmp_path).token != Config(folder=tmp_path).token
        and len(Config(folder=tmp_path).token) >= 32
    )


def test_long_requests_are_cut_off(client):
    body = b'{"name": "' + b"x" * 17_000_000 + b'"}'
    assert is_error(client.post("/api/stacks", content=body), 413)
    assert client.get("/api/info").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "--i-know"),
        (("--host", "no.such.host.invalid", "--i-know"), "cannot listen"),
        (("--port", "99999"), "--port"),
        (("--max-upload", "much"), "--max-upload"),
        (("--max-pixels", "0MP"), "--max-pixels"),
        (("--max-frames", "0"), "--max-frames"),
        (("--keep-days", "0"), "--keep-days"),
        (("--keep-size", "-1"), "--keep-size"),
    ],
)
def test_bad_options_of_serve_are_refused(capsys, arguments, words):
    assert run("serve", "--no-open", *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err.splitlines()[-1] and "error" in err


def test_browser_is_opened_only_where_there_is_a_screen(monkeypatch):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not can_show()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert can_show()
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr("sys.platform", "darwin")
    assert can_show()


def test_folder_of_other_files_is_left_alone(tmp_path, capsys):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.txt").write_text("precious")
    assert run("serve", "--no-open", "--port", "0", "--data-dir", tmp_path) == 2
    assert "not cofuse's" in capsys.readouterr().err
    assert (tmp_path / "stacks" / "mine.txt").read_text() == "precious"


def test_serve_without_its_packages_names_the_remedy(monkeypatch, capsys):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "uvicorn" else found(name, *a)
    )
    assert run("serve") == 2
    out, err = capsys.readouterr()
    assert "pip install 'cofuse[web]'" in err and err.count("\n") == 1 and out == ""
