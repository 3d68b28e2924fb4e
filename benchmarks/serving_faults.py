"""What `posteriori serve` does when clients, files and signals misbehave: a table of what each of them got."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import records
from benchmarks.serving import JSON, PARQUET, memory, ours, prepare

CLIENTS, UPLOADS, UPLOAD_ROWS = 16, 100, 100_000
TOKEN = "a-token-of-many-letters"

NOTES = """\
One process of `posteriori serve` with the bundled penguins, asked over loopback. "others": requests for a single row
that another client made meanwhile, and how many of them failed. "memory" is the resident memory of the server before
and after, in MB. Every run is in `serving_faults.jsonl`."""

HEADER = ("fault", "what it got", "others, failed", "memory (MB)")


def run(out: Path, *, quick: bool = False) -> None:
    """Try all faults; results are on disk after each."""
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder = Path(name)
        prepare(folder, 1_000)
        (folder / "token.txt").write_text(TOKEN)
        row = (folder / "row.json").read_bytes()
        with ours(folder, "penguins.model") as port:
            for fault, attempt in faults(folder, quick=quick).items():
                before = memory(port)
                with others(port, row) as answered:
                    got = attempt(port)
                note(out, fault, got, answered, (before, memory(port)))
        note(out, "wrong token", *wrong_token(folder, row))
        note(out, "kill -TERM under load", *terminated(folder, row))


def faults(folder: Path, *, quick: bool) -> dict[str, Callable[[int], str]]:
    """What is tried on one running server."""
    deep = b"[" * 10_000 + b"]" * 10_000
    wide = json.dumps({f"c{i}": 1.0 for i in range(10_000)}).encode()
    wide_csv = (",".join(f"c{i}" for i in range(10_000)) + "\n" + ",".join("1" * 10_000) + "\n").encode()
    return {
        "model file replaced by garbage, then by a model": lambda port: replaced(port, folder),
        "body of 1 GB, size stated": lambda port: large_stated(port),
        "body of 1 GB in chunks, size not stated": lambda port: large_in_chunks(port),
        "10,000 columns, JSON": lambda port: answer(port, "/predict", wide),
        "10,000 columns, CSV": lambda port: answer(port, "/predict", wide_csv, "text/csv"),
        "JSON 10,000 deep": lambda port: answer(port, "/predict", deep),
        "small Parquet body that unpacks to 2 GB": lambda port: answer(port, "/predict", bomb(), PARQUET),
        "200 connections that send their head slowly": lambda port: slow_heads(port, 20 if quick else 200),
        "body that stops half way": slow_body,
        "wrong Host": lambda port: answer(port, "/predict", b"{}", host="evil.example"),
        "page of another site": lambda port: answer(port, "/predict", b"{}", origin="https://evil.example"),
        "path in the name of a model": paths,
        f"{UPLOADS} uploads of {UPLOAD_ROWS:,} rows at once": lambda port: uploads(
            port, folder, 10 if quick else UPLOADS
        ),
    }


@contextmanager
def others(port: int, row: bytes, n_clients: int = 1) -> Iterator[Counter[Any]]:
    """Clients that ask for a row all the time; the statuses they got, or that they were cut off."""
    found: Counter[Any] = Counter()
    stop = threading.Event()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not stop.is_set():
            try:
                connection.request("POST", "/predict", row, {"Content-Type": JSON})
            except OSError:  # nobody listens any more: nothing was accepted
                found["not accepted"] += 1
                connection.close()
                time.sleep(0.01)
                continue
            try:
                reply = connection.getresponse()
                reply.read()
                found[reply.status] += 1
                if reply.will_close:
                    connection.close()
            except (http.client.HTTPException, OSError):
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
            thread.join(60)


def answer(
    port: int, path: str, body: bytes, kind: str = JSON, host: str = "localhost", origin: str | None = None
) -> str:
    """Status and sentence."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Content-Type": kind, "Host": host} | ({} if origin is None else {"Origin": origin})
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    sentence = json.loads(text).get("error", text) if text.startswith("{") else text
    return f"{reply.status}: {sentence[:140]}{'…' if len(sentence) > 140 else ''}"


def replaced(port: int, folder: Path) -> str:
    """Replace the file twice; what the metrics say of it."""
    path, copy = folder / "penguins.model", folder / "copy"
    shutil.copy(path, copy)
    path.write_bytes(b"garbage" * 10_000)
    time.sleep(4)
    os.replace(copy, path)
    time.sleep(4)
    with http_get(port, "/metrics") as text:
        lines = [line for line in text.splitlines() if line.startswith("posteriori_reloads_total")]
    return "; ".join(line.removeprefix("posteriori_reloads_total") for line in lines)


@contextmanager
def http_get(port: int, path: str) -> Iterator[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    yield connection.getresponse().read().decode()
    connection.close()


def large_stated(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        return client.recv(1000).split(b"\r\n")[0].decode() + ", before anything was read"


def large_in_chunks(port: int) -> str:
    piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):
            for _ in range(1000):
                client.sendall(piece)
                sent += 1
        with suppress(OSError):
            return f"{client.recv(1000).split(chr(13).encode())[0].decode()}, after {sent} MB"
    return f"cut off after {sent} MB"


def bomb() -> bytes:
    """A small file of much text."""
    import pyarrow as pa
    from pyarrow import parquet

    packed = io.BytesIO()
    text = pa.array(["x" * 20_000_000] * 100, pa.large_string())
    parquet.write_table(pa.table({"island": text}), packed, compression="zstd", use_dictionary=False)
    return packed.getvalue()


def slow_heads(port: int, n: int) -> str:
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]
    start = time.monotonic()
    for client in clients:
        client.sendall(b"POST /predict HTTP/1.1\r\n")
    for client in clients:
        client.settimeout(60)
        assert client.recv(10) == b""
        client.close()
    return f"closed after {time.monotonic() - start:.0f} s"


def slow_body(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(60)
        start = time.monotonic()
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n[")
        return f"{client.recv(1000).split(chr(13).encode())[0].decode()}, after {time.monotonic() - start:.0f} s"


def paths(port: int) -> str:
    got = Counter()
    for path in (
        "/v2/models/..%2f..%2fetc%2fpasswd/infer",
        "/predict?model=../../etc/passwd",
        "/static/..%2f..%2fserver.py",
        "/static/../../../../etc/passwd",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST" if "static" not in path else "GET", path, b"{}", {"Content-Type": JSON})
        reply = connection.getresponse()
        assert b"root:" not in reply.read()
        got[reply.status] += 1
    return ", ".join(f"{count} x {status}" for status, count in got.items())


def uploads(port: int, folder: Path, n: int) -> str:
    """Send large bodies at the same time."""
    table = pd.DataFrame(json.loads((folder / "row.json").read_text()), index=[0])
    many = table.loc[np.zeros(UPLOAD_ROWS, dtype=int)]
    body = many.to_csv(index=False).encode()
    got: Counter[Any] = Counter()

    def upload() -> None:
        got[answer(port, "/predict?answers=class", body, "text/csv")[:3]] += 1

    start = time.monotonic()
    threads = [threading.Thread(target=upload) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.monotonic() - start
    return (
        ", ".join(f"{count} x {status}" for status, count in got.items())
        + f", {len(body) / 1e6:.0f} MB each, {spent:.0f} s"
    )


def wrong_token(folder: Path, row: bytes) -> tuple[str, Counter[Any], tuple[float, float]]:
    with ours(folder, "penguins.model", "--token-file", str(folder / "token.txt")) as port:
        before = memory(port)
        got = []
        for given in (None, f"Bearer {TOKEN}0", f"Bearer {TOKEN}"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"Content-Type": JSON} | ({} if given is None else {"Authorization": given})
            connection.request("POST", "/predict", row, headers)
            got.append(connection.getresponse().status)
        return f"none {got[0]}, wrong {got[1]}, right {got[2]}", Counter(), (before, memory(port))


def terminated(folder: Path, row: bytes) -> tuple[str, Counter[Any], tuple[float, float]]:
    with ours(folder, "penguins.model") as port:
        from psutil import Process, net_connections

        pid = next(c.pid for c in net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN")
        before = memory(port)
        with others(port, row, CLIENTS) as answered:
            time.sleep(2)
            after = memory(port)
            os.kill(pid, signal.SIGTERM)
            start = time.monotonic()
            Process(pid).wait(60)
            spent = time.monotonic() - start
        refused = answered.pop("not accepted", 0)
        return f"ended after {spent:.1f} s; {refused} later requests found nobody", answered, (before, after)


def note(out: Path, fault: str, got: str, answered: Counter[Any], megabytes: tuple[float, float]) -> None:
    failed = sum(count for status, count in answered.items() if status != 200)
    line = {"problem": fault, "got": got, "others": sum(answered.values()), "failed": failed, "mb": megabytes}
    stored = records.store(out / "serving_faults.jsonl", [line])
    records.write(
        out / "serving_faults.md",
        records.markdown("Faults of clients, files and signals", NOTES, HEADER, map(row_of, stored)),
    )
    print(line, flush=True)


def row_of(line: dict[str, Any]) -> tuple[str, ...]:
    others_failed = f"{line['others']:,}, {line['failed']}" if line["others"] else ""
    return (
        line["problem"],
        line["got"].replace("|", r"\|"),
        others_failed,
        " to ".join(f"{mb:.0f}" for mb in line["mb"]),
    )
