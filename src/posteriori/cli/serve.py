"""The server, from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["run"]


def run(
    models: Sequence[str],
    utility: Path | None,
    token_file: Path | None,
    *,
    host: str,
    port: int,
    hosts: Sequence[str],
    origins: Sequence[str],
    max_rows: int,
    max_megabytes: int,
    timeout: float,
    workers: int,
    log_level: str,
    open_page: bool,
) -> None:
    """Serve until a signal ends it."""
    try:
        from posteriori.serve.guard import Limits
        from posteriori.serve.server import Settings, run
    except ModuleNotFoundError as error:  # uvicorn, which only the server itself needs
        raise ImportError(
            f"The server needs {error.name}, which is not installed: pip install 'posteriori[serve]'."
        ) from None
    limits = Limits(
        body_bytes=max_megabytes << 20, rows=max_rows, seconds=timeout, waiting_bytes=max(2 * max_megabytes, 64) << 20
    )
    run(
        Settings(
            models=list(models),
            utility=None if utility is None else str(utility),
            token_file=None if token_file is None else str(token_file),
            host=host,
            port=port,
            hosts=tuple(hosts),
            origins=tuple(origins),
            workers=workers,
            limits=limits,
            log_level=log_level,
            open_page=open_page,
        )
    )
