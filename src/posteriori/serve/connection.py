"""One connection: slow or long heads of requests are cut off, and the last request is still answered."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from posteriori.serve.errors import Refusal

__all__ = ["HEAD_SECONDS", "Connection"]

HEAD_SECONDS = 10.0
"""Time in which the lines before a body must arrive."""
_HEAD_BYTES = 64 << 10
_ADDRESS_BYTES = (64 << 10) - 1
_TOO_LONG = "The head of the request, with its address, is too long: send options in the body."
_REST_SECONDS = 30.0
"""Time in which the rest of a body must arrive that was refused before it was there."""
_UNREAD_SECONDS = 30.0
"""Time after which an answer is given up of which the client has taken nothing meanwhile."""
_LINGER_SECONDS = 0.25
"""Time for which an idle connection stays open when the server ends: a request may be on its way."""


class Connection(HttpToolsProtocol):
    """A connection as uvicorn reads it, with bounds on what comes before a body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deadline: asyncio.TimerHandle | None = None
        self.unread: asyncio.TimerHandle | None = None
        self.unread_bytes = 0
        self.ending = False
        self.is_long = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        self._expect(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_is_there()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the head is too long, or what stands between parts of a body."""
        self.unread_bytes += len(data)
        if self.unread_bytes > _HEAD_BYTES + len(data):
            self._head_is_there()
            self.send_400_response(_TOO_LONG)
            return
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a line of the head; lines that follow a body in chunks say nothing."""
        if self.deadline is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self.unread_bytes = 0
        super().on_body(body)

    def on_url(self, url: bytes) -> None:
        """Note the address, of which the parser takes no more than this."""
        super().on_url(url)
        self.is_long = len(self.url) > _ADDRESS_BYTES

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, as other requests are refused."""
        sentence = _TOO_LONG if self.is_long or msg == _TOO_LONG else "What was sent is not HTTP."
        body = orjson.dumps(Refusal(sentence).body())
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of the head of a further request."""
        super().on_message_begin()
        self._expect(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """Pass the request on."""
        self._head_is_there()
        super().on_headers_complete()
        if self.ending:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The body has arrived, answered or not."""
        self._head_is_there()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for a further request, or for the rest of a body that was refused."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._expect(_REST_SECONDS)

    def pause_writing(self) -> None:
        """Begin to look whether the client takes its answer."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """The client has taken what there was."""
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which no further request came."""
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        """End with the request that is being answered, or with one that is on its way."""
        self.ending = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LINGER_SECONDS, self._close_idle)
        else:
            self.cycle.keep_alive = False

    def _close_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
            self._look()

    def _look(self, before: float = float("inf")) -> None:
        """Give the answer up unless the client has taken some of it since there were so many bytes of it."""
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        elif left:
            self.unread = self.loop.call_later(_UNREAD_SECONDS, self._look, left)

    def _expect(self, seconds: float) -> None:
        self._head_is_there()
        self.deadline = self.loop.call_later(seconds, self._cut_off)

    def _head_is_there(self) -> None:
        self.unread_bytes = 0
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _cut_off(self) -> None:
        self.deadline = None
        if not self.transport.is_closing():
            self.transport.close()
