"""The door of the server: who may come in, with how much, for how long, and what is written down of it.

Everything that is asked passes here first. A request from another site (its Host or Origin says so), without the token,
too large or too slow is refused before anything of it is read by a model; errors become one sentence.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from posteriori.serve.bodies import Bounds
from posteriori.serve.errors import Refusal
from posteriori.serve.metrics import Metrics

__all__ = ["Access", "Guard", "Limits", "body_of"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("posteriori.serve")
_HARMLESS = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/", "/v2/health/live", "/v2/health/ready", "/ping", "/health", "/favicon.ico")
"""Paths that need no token: whether the server lives, and the page, which holds nothing of a model."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_SAFETY = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_UNKEPT = (b"cache-control", b"no-store")
"""Of answers that do not say themselves how long they may be kept: they hold data."""
_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"content-encoding")
"""Headers that decide: of two, one reader takes the first and another the last."""
_SMALL_BODY = 1 << 18
"""Bodies up to so many bytes wait for no room: large ones that do not come cannot keep them out."""


@dataclass(frozen=True)
class Limits:
    """What one request may need.

    Attributes
    ----------
    body_bytes : int
        The largest body.
    rows, columns : int
        The largest table.
    seconds : float
        Time for an answer, from the last byte of the request.
    body_seconds : float
        Time in which a body must arrive.
    waiting_bytes : int
        Bytes of bodies that are in memory at the same time; further requests wait for their turn.

    Examples
    --------
    >>> Limits(rows=1_000).bounds
    Bounds(rows=1000, columns=4096)
    """

    body_bytes: int = 256 << 20
    rows: int = 1_000_000
    columns: int = 4_096
    seconds: float = 60.0
    body_seconds: float = 30.0
    waiting_bytes: int = 512 << 20

    @property
    def bounds(self) -> Bounds:
        """The largest table."""
        return Bounds(self.rows, self.columns)


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes
    ----------
    token : str or None
        What requests must carry as ``Authorization: Bearer TOKEN``; None asks for nothing.
    hosts : tuple of str, or None
        Names by which the server may be called (the header Host), without ports; None takes any.
    origins : tuple of str
        Other sites whose pages may ask, such as ``https://example.org``; ``*`` is all.
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = LOOPBACK
    origins: tuple[str, ...] = ()

    def require_host(self, host: str) -> None:
        """Refuse names that are not ours: a page elsewhere may have made its own name point to this address."""
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise Refusal("The header Host names another server: call this one by a name that it knows.", status=421)

    def require_origin(self, headers: dict[bytes, bytes], host: str) -> None:
        """Refuse what a page of another site sends."""
        origin = headers.get(b"origin")
        if origin is None:
            if headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none"):
                return
        elif self.allows(origin.decode("latin-1")) or origin.decode("latin-1").partition("://")[2] == host:
            return
        raise Refusal("Pages of other sites may not ask this server.", status=403)

    def allows(self, origin: str) -> bool:
        """Whether pages of this other site may ask."""
        return "*" in self.origins or origin in self.origins

    def require_token(self, headers: dict[bytes, bytes]) -> None:
        """Refuse requests without the token; how long the comparison takes says nothing about it."""
        if self.token is None:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(given.strip(), self.token.encode())
        if scheme.lower() != b"bearer" or not right:
            raise Refusal(
                "A token is needed: send it as Authorization: Bearer TOKEN.",
                status=401,
                headers={"www-authenticate": "Bearer"},
            )


@dataclass
class Room:
    """Bytes of bodies that may be in memory at the same time."""

    free: int
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, n_bytes: int, seconds: float) -> None:
        """Wait until there is room for so many bytes."""
        if n_bytes <= self.free:
            self.free -= n_bytes
            return
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: n_bytes <= self.free)
                self.free -= n_bytes
        except TimeoutError:
            raise Refusal(
                "Too many large requests are being answered: try again.", status=503, headers={"retry-after": "5"}
            ) from None

    async def give(self, n_bytes: int) -> None:
        """Give room back."""
        self.free += n_bytes
        async with self._changed:
            self._changed.notify_all()


class Guard:
    """An ASGI application in front of another one.

    Parameters
    ----------
    inner : ASGI application
        Takes its body by `body_of`.
    access : Access
    limits : Limits
    metrics : Metrics
    """

    def __init__(self, inner: Any, access: Access, limits: Limits, metrics: Metrics) -> None:
        self.inner, self.access, self.limits, self.metrics = inner, access, limits, metrics
        self.room = Room(limits.waiting_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.inner(scope, receive, send)
            return
        start = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        reply = _Reply(send, self._reply_headers(headers))
        try:
            await self._admit(scope, headers, receive)
            async with asyncio.timeout(self.limits.seconds):
                await self.inner(scope, _nothing_more, reply)
        except Refusal as refusal:
            await reply.refuse(refusal)
        except _Preflight:
            await reply({"type": "http.response.start", "status": 204, "headers": []})
            await reply({"type": "http.response.body", "body": b""})
        except HTTPException as error:  # a method that the route does not have
            allowed = {name.lower(): value for name, value in (error.headers or {}).items()}
            sentence = f"{scope['method']} is not possible here."
            await reply.refuse(Refusal(sentence, status=error.status_code, headers=allowed))
        except TimeoutError:
            late = f"No answer was found in {self.limits.seconds:g} seconds: send fewer rows, or ask for less."
            await reply.refuse(Refusal(late, status=504))
        except _Gone:
            reply.status = 499
        except Exception as error:
            frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            _log.error("failed", extra={"reason": type(error).__name__, "frames": frames})
            await reply.refuse(Refusal("The server failed to answer: this is its own fault.", status=500))
        finally:
            if room := scope.pop("posteriori.room", 0):
                await self.room.give(room)
        self._note(scope, reply.status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> None:
        """Let a request in, and read its body."""
        if len(headers) < len(scope["headers"]):
            _require_once([name for name, _ in scope["headers"]])
        host = headers.get(b"host", b"").decode("latin-1")
        self.access.require_host(host)
        path = _path_within(scope)
        if scope["method"] not in _HARMLESS:
            self.access.require_origin(headers, host)
        elif scope["method"] == "OPTIONS" and b"origin" in headers:
            self.access.require_origin(headers, host)
            raise _Preflight
        if path not in _OPEN and not path.startswith("/static/"):
            self.access.require_token(headers)
        scope["posteriori.body"] = b""
        if scope["method"] not in _HARMLESS:
            _require_plain(headers)
            scope["posteriori.body"] = await self._read(scope, headers, receive)

    async def _read(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The body of a request; the room that a large one takes is noted in the scope."""
        stated = headers.get(b"content-length")
        length = int(stated) if stated is not None and stated.isdigit() else None
        most = self.limits.body_bytes
        if length is not None and length > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                is_whole = await _append(body, receive, _SMALL_BODY, most)
            if not is_whole:
                room = most if length is None else length  # of a body in chunks only the bound is known
                await self.room.take(room, self.limits.seconds)
                scope["posteriori.room"] = room
                async with asyncio.timeout(self.limits.body_seconds):
                    await _append(body, receive, most, most)
        except TimeoutError:
            raise Refusal(
                f"The body did not arrive within {self.limits.body_seconds:g} seconds.",
                status=408,
                headers={"connection": "close"},
            ) from None
        return bytes(body)

    def _reply_headers(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Headers that every answer has."""
        origin = headers.get(b"origin")
        if origin is None or not self.access.origins or not self.access.allows(origin.decode("latin-1")):
            return _SAFETY
        allowed = [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-headers", b"authorization, content-type, accept"),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"vary", b"origin"),
        ]
        return [*(pair for pair in _SAFETY if pair[0] != b"cross-origin-resource-policy"), *allowed]

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        self.metrics.request(route, status, seconds)
        if _log.isEnabledFor(logging.INFO):
            noted = {
                "method": scope["method"],
                "route": route,
                "status": status,
                "milliseconds": round(1e3 * seconds, 3),
            }
            _log.info("request", extra=noted | scope.get("posteriori.noted", {}))


class _Reply:
    """Sends an answer with further headers, and remembers its status."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self.send, self.headers, self.status = send, headers, 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message.get("headers", ()))
            kept = any(name == b"cache-control" for name, _ in own)
            message["headers"] = [*own, *self.headers, *([] if kept else [_UNKEPT])]
        await self.send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal; an answer that is on its way already is cut off, and its status is that of the refusal."""
        if self.status:
            self.status = refusal.status
            return
        body = orjson.dumps(refusal.body())
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


class _Preflight(Exception):
    """A browser asks whether a page of another site may ask: the headers of every answer say so."""


class _Gone(Exception):
    """The client has gone away."""


async def _append(body: bytearray, receive: Receive, enough: int, most: int) -> bool:
    """Append what arrives of a body until it has more bytes than are enough; whether it is whole."""
    while len(body) <= enough:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        if not message.get("more_body"):
            return True
    return False


async def _nothing_more() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def _too_large(most: int) -> Refusal:
    return Refusal(
        f"The body is larger than {most:,} bytes: send the rows in parts.",
        status=413,
        headers={"connection": "close"},
    )


def _require_once(names: list[bytes]) -> None:
    """Refuse a request that says twice what decides about it."""
    twice = next((name for name in _ONCE if names.count(name) > 1), None)
    if twice is not None:
        raise Refusal(f"The header {twice.decode().title()} is there more than once: once is needed.")


def _require_plain(headers: dict[bytes, bytes]) -> None:
    """Refuse a body that is not simply what follows the head."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal("Content-Encoding: the body must not be compressed.", status=415)
    if b"upgrade" in headers:  # the parser takes what follows the head for another protocol
        name = headers[b"upgrade"].decode("latin-1")
        raise Refusal(
            f"The request asks to go over to {name[:50]!r}, which is not spoken here: send HTTP/1.1 without Upgrade.",
            headers={"connection": "close"},
        )


def _name_of(host: str) -> str:
    """The name in a header Host, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _path_within(scope: Scope) -> str:
    """The path below the one at which the application is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def body_of(scope: Scope) -> bytes:
    """The body that was read at the door."""
    return scope["posteriori.body"]
