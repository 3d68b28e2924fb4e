"""A load of HTTP requests over kept connections, and how long each answer took.

A closed load asks again as soon as an answer is there; an open load asks at a fixed rate, and the time an answer takes
counts from when it was due to be asked, so that a server that stops for a moment is not spared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Request(NamedTuple):
    """What is sent, again and again."""

    port: int
    path: str
    body: bytes
    content_type: str
    accept: str = "application/json"

    @property
    def raw(self) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: {self.content_type}\r\n"
            f"Accept: {self.accept}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


class Connection(asyncio.Protocol):
    """A kept connection that has one request under way at most."""

    def __init__(self) -> None:
        self.received, self.needed = b"", -1
        self.answered: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, raw: bytes) -> asyncio.Future[int]:
        """Send a request; the future is the status of its answer."""
        self.received, self.needed = b"", -1
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(raw)  # type: ignore[attr-defined]
        return self.answered

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.needed < 0:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.received[:end].lower()
            at = head.find(b"content-length:")
            chunked = at < 0
            self.needed = 0 if chunked else end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
        whole = self.received.endswith(b"0\r\n\r\n") if self.needed == 0 else len(self.received) >= self.needed
        if whole and self.answered is not None and not self.answered.done():
            self.answered.set_result(int(self.received[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(exc or ConnectionResetError("the connection was closed"))


async def measure(request: Request, connections: int, seconds: float, rate: float | None, most: int | None) -> dict:
    """The load, and what came of it: requests per second, quantiles of the time, failures."""
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(Connection, "127.0.0.1", request.port))[1] for _ in range(connections)]
    raw, took, failed = request.raw, [], 0
    begin = time.perf_counter()
    end, asked = begin + seconds, 0

    async def closed(connection: Connection) -> None:
        nonlocal failed, asked
        while time.perf_counter() < end and (most is None or asked < most):
            asked += 1
            start = time.perf_counter()
            if await connection.ask(raw) != 200:
                failed += 1
            took.append(time.perf_counter() - start)

    async def paced(connection: Connection, i: int) -> None:
        nonlocal failed
        assert rate is not None
        due, step = begin + i / rate, connections / rate
        while due < end:
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            if await connection.ask(raw) != 200:
                failed += 1
            took.append(time.perf_counter() - due)
            due += step

    await asyncio.gather(*(closed(one) if rate is None else paced(one, i) for i, one in enumerate(opened)))
    spent = time.perf_counter() - begin
    quantiles = np.quantile(took, [0.5, 0.99]) * 1e3
    return {
        "requests": len(took),
        "failed": failed,
        "per_second": len(took) / spent,
        "p50_ms": float(quantiles[0]),
        "p99_ms": float(quantiles[1]),
        "worst_ms": float(np.max(took) * 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", type=Path, required=True)
    parser.add_argument("--type", required=True)
    parser.add_argument("--accept", default="application/json")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--most", type=int)
    given = parser.parse_args()
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    request = Request(given.port, given.path, given.body.read_bytes(), given.type, given.accept)
    with asyncio.Runner(loop_factory=factory) as runner:
        found = runner.run(measure(request, given.connections, given.seconds, given.rate, given.most))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
