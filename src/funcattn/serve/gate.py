"""The gate before the service: who may ask, how much may be sent, and what is counted."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from funcattn.serve.limits import Access

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/health", "/docs", "/openapi.json")
"""These need no token, and neither do the page and its files: they have no secrets."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    # Nothing is loaded from elsewhere, and no other page shows this one in a frame.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
}


@dataclass
class Gate:
    """Refuses requests without the token, of other hosts' pages, and after the end has begun."""

    app: App
    access: Access
    ending: Callable[[], bool]
    count: Callable[[str, str, int, float], None]
    """Called with the route, the method, the status and the seconds of every request."""
    begun: Callable[[], AbstractContextManager[object]]
    """Called for every request, which is answered inside."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        allowed = self._cross_origin(scope)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [
                    (k.lower().encode(), v.encode()) for k, v in {**HEADERS, **allowed}.items()
                ]
                names = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(each for each in extra if each[0] not in names),
                ]
            await send(message)

        refusal = self._refusal(scope)
        try:
            with self.begun():
                await (refusal or self.app)(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.count(route, scope["method"], status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> Response | None:
        """What to answer in the place of the service, if anything."""
        request = Request(scope)
        host = request.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or "" if _plain(host) else ""
        if self.access.hosts and name not in self.access.hosts:
            return _refused(403, f"host: expected {' or '.join(self.access.hosts)}, got another")
        origin = request.headers.get("origin")
        if origin is not None and not self._same(origin, host):
            if origin not in self.access.origins:
                return _refused(
                    403,
                    "origin: expected a page of this service, got one of another; "
                    "--allow-origin lets it in",
                )
            if request.method == "OPTIONS":
                return Response(status_code=204)
        if self.ending():
            refused = _refused(503, "the service is ending: ask again when it is back")
            refused.headers.update({"Retry-After": "10", "Connection": "close"})
            return refused
        path = scope["path"]
        if not self.access.token or path in OPEN or path == "/" or path.startswith("/static/"):
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), self.access.token.encode()
        ):
            return None
        refused = _refused(401, "token: expected the header Authorization: Bearer TOKEN")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused

    def _same(self, origin: str, host: str) -> bool:
        return _plain(origin) and urlsplit(origin).netloc == host

    def _cross_origin(self, scope: Scope) -> Mapping[str, str]:
        """Headers that let a page of an allowed host read the answer."""
        origin = Request(scope).headers.get("origin")
        if origin is None or origin not in self.access.origins:
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Expose-Headers": "X-Funcattn-Warnings, X-Funcattn-Seconds, Retry-After",
            "Vary": "Origin",
        }


def _plain(word: str) -> bool:
    """Whether a header can be split as an address."""
    try:
        return urlsplit(word if "://" in word else f"//{word}").hostname is not None
    except ValueError:
        return False


def _refused(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


class TooLargeError(Exception):
    """A body beyond the limit."""


class SlowError(Exception):
    """A request beyond its time."""


class CrowdedError(Exception):
    """More than may be worked on at a time."""


class Bodies:
    """Reads bodies, with bounds on each, on all that are read at a time, and on their time."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds, self.held = most, seconds, 0
        self.together = 4 * most

    async def read(self, request: Request) -> bytes:
        """The body of a request."""
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.most:
            raise TooLargeError(f"body: expected at most {self.most} bytes, got {declared}")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self.held += len(chunk)
                    if size > self.most:
                        raise TooLargeError(f"body: expected at most {self.most} bytes, got more")
                    if self.held > self.together:
                        raise CrowdedError("too much is being sent at a time")
                    parts.append(chunk)
        except TimeoutError as error:
            raise SlowError(
                f"body: expected all of it within {self.seconds:g} s, got {size} bytes"
            ) from error
        finally:
            self.held -= size
        return b"".join(parts)
