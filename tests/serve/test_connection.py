"""Connections on which a client takes its time: in this process, with short times."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import pytest
import uvicorn
from tests.serve.test_plain import GOOD

from posteriori.serve import app, connection


@contextmanager
def listening(application: Any) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in a thread, and its port."""
    config = uvicorn.Config(application, http=connection.Connection, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def asked(n_rows: int) -> bytes:
    body = orjson.dumps([GOOD] * n_rows)
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def received(client: socket.socket) -> bytes:
    """One short answer."""
    answer = b""
    while not answer.endswith(b"}"):
        answer += client.recv(4000)
    return answer


@pytest.fixture
def connected(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[uvicorn.Server, socket.socket]]:
    monkeypatch.setattr(connection, "_UNREAD_SECONDS", 0.3)
    monkeypatch.setattr(connection, "_REST_SECONDS", 0.3)
    with listening(app(model)) as (server, port), socket.create_connection(("127.0.0.1", port), 10) as client:
        yield server, client


def test_an_answer_that_nobody_reads_is_given_up(connected: tuple[uvicorn.Server, socket.socket]) -> None:
    server, client = connected
    client.sendall(asked(60_000))
    assert within(10, lambda: bool(server.server_state.connections))
    assert within(20, lambda: not server.server_state.connections)


def test_an_answer_that_is_read_slowly_arrives(connected: tuple[uvicorn.Server, socket.socket]) -> None:
    _, client = connected
    client.sendall(asked(60_000))
    start = time.monotonic()
    answer = bytearray()
    while not answer.endswith(b"]}"):
        part = client.recv(40_000)
        assert part, "the connection was cut off"
        answer += part
        time.sleep(0.005)
    assert time.monotonic() - start > 0.6  # the server has looked at least twice
    assert len(orjson.loads(answer.partition(b"\r\n\r\n")[2])["rows"]) == 60_000


def test_a_body_that_was_refused_and_does_not_end(connected: tuple[uvicorn.Server, socket.socket]) -> None:
    server, client = connected
    client.sendall(b"POST /predict HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n{")
    assert received(client).startswith(b"HTTP/1.1 421 ")
    end = time.monotonic() + 3
    with suppress(OSError):
        while time.monotonic() < end and server.server_state.connections:
            client.sendall(b" ")  # what still comes does not keep the connection
            time.sleep(0.1)
    assert not server.server_state.connections


def test_a_body_that_was_refused_and_ends_leaves_the_connection(
    connected: tuple[uvicorn.Server, socket.socket],
) -> None:
    _, client = connected
    client.sendall(b"POST /predict HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n{")
    assert received(client).startswith(b"HTTP/1.1 421 ")
    client.sendall(b" " * 999)
    time.sleep(0.6)
    client.sendall(asked(1))
    assert received(client).startswith(b"HTTP/1.1 200 ")
