"""The server as a process: an address, a token, workers, and signals.

SIGTERM and SIGINT end it when what it has begun is answered; SIGHUP loads all models again.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from posteriori.decision.utility import Utility
from posteriori.serve.application import app
from posteriori.serve.connection import Connection
from posteriori.serve.guard import LOOPBACK, Limits
from posteriori.serve.logs import log_to_stderr
from posteriori.serve.private_folder import private_folder

__all__ = ["Settings", "run"]

_log = logging.getLogger("posteriori.serve")
_SHORTEST_TOKEN = 16
_BACKLOG = 2048
_SECONDS_BETWEEN_LOOKS = 0.5
_ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Settings:
    """How a server runs.

    Attributes
    ----------
    models : list of str
        FILE, NAME=FILE or NAME@VERSION=FILE.
    utility, token_file : str or None
        Files.
    host, port
        Where it listens; port 0 is any that is free.
    hosts, origins : list of str
        Further names by which it may be called; other sites whose pages may ask.
    workers : int
    limits : Limits
    log_level : str
    open_page : bool
        Whether the page is opened in a browser.
    """

    models: list[str]
    utility: str | None = None
    token_file: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    log_level: str = "info"
    open_page: bool = False
    folder: str = ""
    """A private folder that the workers share."""

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the address."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return True

    def known_hosts(self) -> tuple[str, ...] | None:
        """Names by which the server may be called; None, which is any, only where a token is asked for."""
        if self.hosts:
            return (*LOOPBACK, *self.hosts)
        return None if self.is_public else tuple(dict.fromkeys((*LOOPBACK, self.host)))


def run(settings: Settings) -> None:
    """Serve until a signal ends it; raise if something is wrong with the settings or the models."""
    token = _token(settings)
    if settings.is_public and token is None:
        raise ValueError(
            f"--host {settings.host} can be reached from other machines, and no token is asked for: give --token-file "
            "FILE, or serve on 127.0.0.1 behind a proxy that checks who asks."
        )
    log_to_stderr(settings.log_level)
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # models are being loaded as it is, until it is heard
    with private_folder() as folder:
        settings = replace(settings, folder=str(folder))
        application = _application(settings)  # models are loaded here first: what is wrong with them is said at once
        with _listening(settings) as listener:
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"posteriori serves on http://{shown}:{port}", file=sys.stderr, flush=True)
            if settings.open_page:
                webbrowser.open(f"http://{shown}:{port}/")
            if settings.workers == 1:
                _serve(application, settings, listener)
            else:
                del application
                _supervise(settings, listener)


def _application(settings: Settings) -> Any:
    utility = None if settings.utility is None else Utility.from_csv(settings.utility)
    return app(
        settings.models,
        utility=utility,
        token=_token(settings),
        limits=settings.limits,
        hosts=settings.known_hosts(),
        origins=settings.origins,
        folder=settings.folder,
    )


def _token(settings: Settings) -> str | None:
    if settings.token_file is None:
        return None
    token = Path(settings.token_file).read_text(encoding="utf-8").strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"{settings.token_file} must hold one token of {_SHORTEST_TOKEN} or more letters, digits and signs: make "
            "one with: python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
    return token


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host.strip("[]"), settings.port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"Port {settings.port} of {settings.host} cannot be used ({error.strerror}): choose another with --port."
        ) from None
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _serve(application: Any, settings: Settings, listener: socket.socket) -> None:
    """Serve in this process, until a signal ends it."""
    limits = settings.limits
    config = uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(limits.seconds + limits.body_seconds) + 1,
        backlog=_BACKLOG,
    )
    server = _Server(config)
    gc.collect()
    gc.freeze()  # libraries and models stay: later collections need not look at them, which takes a third of a request

    async def main() -> None:
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, application.reload)
        await server.serve([listener])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(main())


class _Server(uvicorn.Server):
    """A server that ends with a signal as a job that is done: the signal is not raised again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        self.config.app.close()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals while serving; one that is ignored on purpose stays ignored."""
        if sys.platform == "win32":  # whose event loop hears no signals
            with super().capture_signals():
                yield
            return
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _worker(settings: Settings, listener: socket.socket) -> None:
    """Serve as one of several processes."""
    log_to_stderr(settings.log_level)
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    _serve(_application(settings), settings, listener)


def _end_with_supervisor() -> None:
    """End where the supervisor was killed: nobody else would tell."""
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _supervise(settings: Settings, listener: socket.socket) -> None:
    """Keep as many workers as are wanted, and pass signals on to them."""
    context = multiprocessing.get_context("spawn")
    ended = threading.Event()
    workers: list[Any] = []

    def start() -> Any:
        worker = context.Process(target=_worker, args=(settings, listener))
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for all processes: workers wait to be told
        worker.start()
        signal.signal(signal.SIGINT, heard)
        return worker

    def end(number: int, _: Any) -> None:
        if ended.is_set() and number == signal.SIGINT:  # somebody does not want to wait
            for worker in workers:
                worker.kill()
        ended.set()

    def pass_on(number: int, _: Any) -> None:
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    for number in _ENDING:
        signal.signal(number, end)
    workers += [start() for _ in range(settings.workers)]
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, pass_on)
    while not ended.wait(_SECONDS_BETWEEN_LOOKS):
        for i, worker in enumerate(workers):
            if not worker.is_alive():
                _log.error("worker ended", extra={"exit_code": worker.exitcode})
                workers[i] = start()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
