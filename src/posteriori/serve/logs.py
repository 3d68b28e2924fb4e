"""Logs as lines of JSON: what was asked of which model, how long it took, how it ended; never what was in the rows."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

__all__ = ["Lines", "log_to_stderr"]

_PLAIN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class Lines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        entry |= {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


def log_to_stderr(level: str = "info") -> None:
    """Write the logs of the server to standard error, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name in ("posteriori.serve", "uvicorn", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = ([handler] if name != "uvicorn.error" else []), name == "uvicorn.error"
        log.setLevel(level.upper())
