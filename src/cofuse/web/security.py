"""Who may come in, from where, and what a browser may do with what it gets.

A page of another site must be able to do nothing here. It cannot know the token; requests that
name another host (DNS rebinding) or come from another origin are refused before anything else.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cofuse.web.options import Config

POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}

#: Seconds in which the head of a request must have come. Who may not come in is known by it.
_PATIENCE = 10.0
#: Most bytes of a request; uploads of frames have a limit of their own.
_LONGEST_BODY = 16 * 2**20

_LOCKED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>cofuse</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<h1>This page is locked</h1>
<p>Every start of <code>cofuse serve</code> makes a new address, and only that one opens the page.
It ends in <code>/?token=…</code> and stands in the terminal: open it from there.</p>
<p>What was kept with <code>--data-dir</code> is there again.</p></html>"""

#: Not a redirection: on one that began elsewhere, as in a file, a browser withholds the cookie.
_ENTRANCE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>cofuse</title>
<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url=/">
<a href="/">cofuse</a></html>"""


def refusal(status: int, line: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer that says what is wrong, in one line."""
    if status == 413:  # the rest would still be read, if only to be thrown away
        headers = {"connection": "close"}
    return JSONResponse({"error": " ".join(line.split())}, status, headers)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_host(host: str, config: Config) -> bool:
    """Whether a Host header names the address that the server is bound to."""
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, "80"
    if port != str(config.port):
        return False
    bound, name = config.host.lower(), name.strip("[]").lower()
    if name == bound or (is_loopback(bound) and name == "localhost"):
        return True
    if bound not in ("0.0.0.0", "::"):
        return False
    # Rebinding works by names: any number is as good as another, of names only our own.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in ("localhost", socket.gethostname().lower())
    return True


class AccessMiddleware:
    """Lets in who has the token, and says in every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self.app, self.config = app, config
        # Cookies do not tell ports apart: two servers must not lock each other out.
        self._cookie = f"cofuse-{config.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        path = scope["path"]
        uploading = path.startswith("/api/stacks/") and path.endswith("/frames")
        answer = self._answer(scope) or self.app
        await answer(scope, receive if uploading else _limited(receive), _guarded(send, path))

    def _answer(self, scope: Scope) -> Response | None:
        """Answer who may not come in, or gives the token in the address; None for all others."""
        headers, path = Headers(scope=scope), scope["path"]
        if line := self._objection(headers, path, scope["method"]):
            return refusal(403, line)
        given = QueryParams(scope["query_string"]).get("token")
        if path == "/" and given:
            return self._entrance(given)
        return None if self._is_known(headers) else _locked(path)

    def _objection(self, headers: Headers, path: str, method: str) -> str | None:
        """What is wrong with a request under another name or from another site."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not is_own_host(hosts[0], self.config):
            return "this server answers under its own address only"
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return "requests from other sites are refused"
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and path != "/":
            return "requests from other sites are refused"
        if method not in ("GET", "HEAD") and not origins and not _bearer(headers):
            return "a request that changes something needs an Origin or a Bearer token"
        return None

    def _is_known(self, headers: Headers) -> bool:
        """Whether a request carries the token."""
        given = _bearer(headers)
        if given is not None:
            return self._fits(given)
        cookies = cookie_parser(headers.get("cookie", ""))
        return self._fits(cookies.get(self._cookie, ""))

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.config.token.encode())

    def _entrance(self, given: str) -> Response:
        """Take the token out of the address bar and keep it where scripts cannot read it."""
        if not self._fits(given):
            return _locked("/")
        cookie = f"{self._cookie}={self.config.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = {"set-cookie": cookie, "cache-control": "no-store"}
        return HTMLResponse(_ENTRANCE, headers=headers)


def _locked(path: str) -> Response:
    if path.startswith("/api/"):
        return refusal(401, "the token is missing or wrong", {"www-authenticate": "Bearer"})
    return HTMLResponse(_LOCKED, 401)


def _bearer(headers: Headers) -> str | None:
    """The token that a program sent."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" and given.strip() else None


def _guarded(send: Send, path: str) -> Send:
    """Put the rules for browsers into every answer; whether a file has changed is asked anew."""
    kept = "no-store" if path.startswith("/api/") else "no-cache"

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("cache-control", kept)
        await send(message)

    return guarded


def _limited(receive: Receive) -> Receive:
    """Stop reading a body that is too long."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > _LONGEST_BODY:
            raise HTTPException(413, f"a request may have {_LONGEST_BODY} bytes")
        return message

    return limited


class Connection(H11Protocol):
    """A connection of HTTP/1.1; one that begins a request must send all of its head."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Close the connection in a while, unless a request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._late is None:
            self._late = self.loop.call_later(_PATIENCE, self.transport.close)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
