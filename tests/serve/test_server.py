"""The server as a process: signals, workers, files that change under load, and clients that misbehave."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.serve.conftest import Process, serving
from tests.serve.test_plain import GOOD
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app as command_line

BODY = orjson.dumps([GOOD])
JSON = {"content-type": "application/json"}


@contextmanager
def load(server: Process, n_clients: int = 4) -> Iterator[Counter[Any]]:
    """Clients that ask all the time, each over one connection; the statuses of their answers, or what went wrong."""
    found: Counter[Any] = Counter()
    stop = threading.Event()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        while not stop.is_set():
            try:
                connection.request("POST", "/predict", BODY, JSON)
            except OSError:  # nothing was taken: the server has closed an idle connection, or is gone
                found["refused"] += 1
                connection.close()
                if found["refused"] > 50:
                    return
                continue
            try:
                reply = connection.getresponse()
                reply.read()
                found[reply.status] += 1
                if reply.will_close:
                    connection.close()
            except (http.client.RemoteDisconnected, ConnectionResetError):
                found["cut off"] += 1
                connection.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def version(server: Process) -> str:
    return server.get("/models").json()["models"][0]["version"]


@pytest.fixture(scope="module")
def server(model_file: Path) -> Iterator[Process]:
    with serving(str(model_file), "--max-megabytes", "2", "--log-level", "warning") as process:
        yield process


class TestSignals:
    """What it hears."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
    def test_it_answers_what_it_has_begun_and_ends(self, model_file: Path, number: int) -> None:
        with serving(str(model_file), "--log-level", "warning") as process, load(process, 4) as found:
            wait_for(lambda: found[200] > 200)
            process.process.send_signal(number)
            assert process.process.wait(15) == 0
        assert set(found) <= {200, "refused"}, found

    @pytest.mark.slow
    def test_a_body_that_is_on_its_way_is_answered(self, model_file: Path) -> None:
        with serving(str(model_file), "--log-level", "warning") as process:
            with socket.create_connection(("127.0.0.1", process.port)) as client:
                head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n"
                client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + BODY[:10])
                time.sleep(0.3)
                process.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
                client.sendall(BODY[10:])
                answer = client.recv(100_000)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert process.process.wait(15) == 0

    @pytest.mark.slow
    @pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
    def test_a_signal_before_it_serves_does_not_end_it(self, model_file: Path) -> None:
        with serving(str(model_file), ready=False) as process:
            process.process.send_signal(signal.SIGHUP)
            wait_for(lambda: any("startup complete" in line for line in process.lines))
            assert process.get("/ping").status_code == 200

    @pytest.mark.slow
    @pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
    def test_a_signal_loads_the_models_again(self, model: Any, penguins: Any, tmp_path: Path) -> None:
        path = tmp_path / "birds.model"
        po.save(model, path)
        with serving(str(path)) as process:
            before = version(process)
            X, y = penguins.drop(columns="species"), penguins["species"]
            po.save(po.ConformalClassifier(model, random_state=0).fit(X, y), path)
            process.process.send_signal(signal.SIGHUP)
            wait_for(lambda: version(process) != before)
            assert "set" in process.get("/models").json()["models"][0]["answers"]


class TestFiles:
    """A file that changes under load."""

    @pytest.mark.slow
    def test_garbage_and_a_new_model_lose_no_request(self, model: Any, model_file: Path, tmp_path: Path) -> None:
        path = tmp_path / "birds.model"
        shutil.copy(model_file, path)
        with serving(str(path)) as process, load(process, 4) as found:
            before = version(process)
            wait_for(lambda: found[200] > 50)
            path.write_bytes(b"garbage" * 1000)
            wait_for(lambda: any("reload failed" in line for line in process.lines))
            assert version(process) == before
            asked = found[200]
            wait_for(lambda: found[200] > asked + 50)
            shutil.copy(model_file, tmp_path / "new")
            os.replace(tmp_path / "new", path)
            wait_for(lambda: any('"event":"reloaded"' in line for line in process.lines))
            asked = found[200]
            wait_for(lambda: found[200] > asked + 50)
        assert set(found) == {200}, found


class TestWorkers:
    """Several processes."""

    @pytest.mark.slow
    def test_two_workers(self, model_file: Path) -> None:
        with serving(str(model_file), "--workers", "2", "--log-level", "warning") as process:
            with load(process, 4) as found:
                wait_for(lambda: found[200] > 200, 30)
            assert set(found) == {200}
            total = found[200]

            def counted() -> int:
                text = process.get("/metrics").text
                lines = [line for line in text.splitlines() if line.startswith("posteriori_rows_total")]
                return int(lines[0].split()[-1]) if lines else 0

            wait_for(lambda: counted() == total)  # both have counted, whoever is asked
            process.process.send_signal(signal.SIGTERM)
            assert process.process.wait(20) == 0

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes")
    def test_ctrl_c_in_a_terminal_answers_what_has_begun(self, model_file: Path) -> None:
        with serving(str(model_file), "--workers", "2", own_group=True) as process:
            wait_for(lambda: sum("startup complete" in line for line in process.lines) == 2, 30)
            with socket.create_connection(("127.0.0.1", process.port), 10) as client:
                head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n"
                client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + BODY[:10])
                time.sleep(0.3)
                os.killpg(process.process.pid, signal.SIGINT)  # as a terminal does
                time.sleep(1)
                client.sendall(BODY[10:])
                assert client.recv(4000).startswith(b"HTTP/1.1 200 ")
            assert process.process.wait(15) == 0
        assert not any("Traceback" in line for line in process.lines)

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="nothing can be killed so")
    def test_workers_end_with_their_supervisor(self, model_file: Path) -> None:
        with serving(str(model_file), "--workers", "2") as process:
            wait_for(lambda: sum("startup complete" in line for line in process.lines) == 2, 30)
            process.process.kill()

            def is_free() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", process.port)) != 0

            wait_for(is_free)


class TestBadClients:
    """Clients that send what no client should."""

    def test_a_large_body_in_one_piece_and_in_chunks(self, server: Process) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 413 ")

        def endless() -> Iterator[bytes]:
            for _ in range(10_000):
                yield b" " * 100_000

        with suppress(httpx.WriteError):  # the connection is closed while we are still sending
            assert server.post("/predict", content=endless()).status_code == 413
        assert server.get("/models").status_code == 200

    @pytest.mark.slow
    def test_a_slow_head_is_cut_off(self, model_file: Path) -> None:
        from posteriori.serve import connection

        assert connection.HEAD_SECONDS <= 10
        with serving(str(model_file), "--log-level", "warning") as process:
            clients = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(50)]
            start = time.monotonic()
            for client in clients:
                client.sendall(b"POST /predict HTTP/1.1\r\nHost: local")
            assert process.get("/models").status_code == 200  # others are served meanwhile
            for client in clients:
                client.settimeout(connection.HEAD_SECONDS + 5)
                assert client.recv(100) == b""
                client.close()
            assert time.monotonic() - start < connection.HEAD_SECONDS + 3

    def test_a_long_head(self, server: Process) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(10)
            client.sendall(b"GET /models HTTP/1.1\r\nHost: localhost\r\n")
            answer = b""
            try:
                for _ in range(50):
                    client.sendall(b"X-Long: " + b"a" * 8000 + b"\r\n")
                client.sendall(b"\r\n")
                answer = client.recv(1000)
            except (BrokenPipeError, ConnectionResetError):
                answer = b"HTTP/1.1 400 closed"
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert server.get("/models").status_code == 200

    @pytest.mark.parametrize("endless", [b"0\r\n" + b"X: a\r\n" * 10_000, b"5;" + b"a" * 100_000])
    def test_what_goes_on_beside_a_body(self, server: Process, endless: bytes) -> None:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(10)
            try:
                client.sendall(head + endless)
                for _ in range(100):
                    client.sendall(endless[-60_000:])
                answer = client.recv(1000)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
        assert not answer or answer.startswith(b"HTTP/1.1 400 ")

    def test_trailers_say_nothing(self, server: Process) -> None:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(5)
            client.sendall(
                head + b"%x\r\n%s\r\n0\r\nHost: evil.example\r\nContent-Type: x/y\r\n\r\n" % (len(BODY), BODY)
            )
            assert client.recv(4000).startswith(b"HTTP/1.1 200 ")

    @pytest.mark.parametrize(
        ("head", "words"),
        [
            (b"GET /models?model=" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "too long"),
            (b"GET /models HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000, "too long"),
            (b"GET / HTTP/9.9\r\n\r\n", "not HTTP"),
        ],
    )
    def test_what_is_refused_before_it_is_a_request_is_a_refusal_too(
        self, server: Process, head: bytes, words: str
    ) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(5)
            with suppress(OSError):
                client.sendall(head)
            about, _, body = client.recv(4000).partition(b"\r\n\r\n")
        assert about.startswith(b"HTTP/1.1 400")
        assert b"content-type: application/json" in about
        assert words in orjson.loads(body)["error"]

    @pytest.mark.parametrize(
        "sent",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\r\n" * 100 + b"nonsense\r\n\r\n",
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET /models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        ],
    )
    def test_what_is_no_request(self, server: Process, sent: bytes) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.settimeout(5)
            client.sendall(sent)
            try:
                answer = client.recv(1000)
            except (ConnectionResetError, TimeoutError):
                answer = b""
            assert not answer or answer.split()[1].startswith(b"4"), answer
        assert server.get("/models").status_code == 200

    @pytest.mark.parametrize(
        "path",
        [
            "/v2/models/..%2f..%2fetc%2fpasswd",
            "/static/..%2f..%2fserver.py",
            "/static/../../server.py",
            "/predict?model=..%2f..%2fetc%2fpasswd",
            "/%00",
            "//etc/passwd",
            "/static/%2e%2e/%2e%2e/pyproject.toml",
        ],
    )
    def test_paths_lead_nowhere(self, server: Process, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.putrequest("GET", path, skip_host=False, skip_accept_encoding=True)
        connection.endheaders()
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status in (404, 405)
        assert b"import" not in text
        assert b"root:" not in text

    @pytest.mark.slow
    def test_a_hundred_uploads_at_once(self, server: Process, penguins: Any) -> None:
        content = penguins.to_csv(index=False).encode()
        found: Counter[int] = Counter()

        def upload() -> None:
            reply = server.post("/predict", content=content, headers={"content-type": "text/csv"}, timeout=60)
            found[reply.status_code] += 1

        threads = [threading.Thread(target=upload) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == {200: 100}


class TestCommand:
    """What is refused before anything is served."""

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["nothing.model"], "nothing.model: No such file or directory."),
            (["MODEL", "--host", "0.0.0.0"], "no token is asked for: give --token-file FILE"),
            (["MODEL", "--host", "models.example"], "no token is asked for"),
            (["MODEL", "--token-file", "nothing.txt"], "nothing.txt"),
            (["MODEL", "--token-file", "SHORT"], "must hold one token of 16 or more letters"),
            (["MODEL", "--utility", "SHORT"], "is not a table of utilities"),
            (["MODEL", "MODEL"], "Several models are called"),
            (["SHORT"], "SHORT"),
        ],
    )
    def test_errors(self, model_file: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
        short = tmp_path / "SHORT"
        short.write_text("secret")
        known = {"MODEL": str(model_file), "SHORT": str(short)}
        given = [known.get(argument, argument) for argument in arguments]
        result = CliRunner().invoke(command_line, ["serve", "--port", "0", *given])
        assert result.exit_code == 2, result.output
        assert words in " ".join(result.stderr.split())

    def test_a_port_that_is_taken(self, model_file: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            result = CliRunner().invoke(command_line, ["serve", str(model_file), "--port", str(taken.getsockname()[1])])
        assert result.exit_code == 2
        assert "choose another with --port" in " ".join(result.stderr.split())

    @pytest.mark.slow
    def test_a_public_address_with_a_token(self, model_file: Path, tmp_path: Path) -> None:
        token = tmp_path / "token.txt"
        token.write_text("0123456789abcdef\n")
        with serving(str(model_file), "--host", "0.0.0.0", "--token-file", str(token)) as process:
            process.url = process.url.replace("0.0.0.0", "127.0.0.1")
            assert process.get("/models").status_code == 401
            known = {"authorization": "Bearer 0123456789abcdef"}
            assert process.get("/models", headers=known).status_code == 200
            assert process.get("/models", headers=known | {"host": "any.example"}).status_code == 200
        assert not any("0123456789abcdef" in line for line in process.lines)
