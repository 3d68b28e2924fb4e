"""A command as a process among others: signals, closed pipes, and terminals that cannot show every character."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

__all__ = [
    "SIGPIPE_CODE",
    "Stopped",
    "exit_code",
    "is_closed_pipe",
    "leave_at_once",
    "let_go_of_output",
    "show_every_character",
    "stopping_at_once",
    "was_stopped",
]

SIGPIPE_CODE = 141
"""The exit code of a program whose reader has gone, as a shell tells it: 128 and the number of the signal."""
_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(BaseException):
    """The user, or the system, asks this process to stop.

    It is not a KeyboardInterrupt, after which a fit would keep the best parameters so far: a command that was stopped
    leaves nothing behind.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Raise `Stopped` where the process is told to stop; a signal that is ignored on purpose stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = {number: signal.getsignal(number) for number in _STOPPING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def _stop(number: int, _: Any) -> None:
    raise Stopped(number)


def was_stopped(code: Any) -> bool:
    """Whether an exit code is that of a process that was told to stop."""
    return code in [128 + number for number in _STOPPING]


def leave_at_once(code: int) -> NoReturn:
    """End the process without waiting for what runs in the background: a compilation that is left may not end well."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the error says that nobody reads what is written."""
    return isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ECONNRESET)


def let_go_of_output() -> None:
    """Send what is still to be written to standard output nowhere, so that the end of the process is quiet."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def exit_code(end: SystemExit) -> Any:
    """The exit code of a process, once all that it printed has gone out; another one if that is not possible."""
    cause: BaseException | None = end
    while cause is not None:  # Typer and Rich exit with code 1 where nobody reads what they print
        if is_closed_pipe(cause):
            let_go_of_output()
            return SIGPIPE_CODE
        cause = cause.__context__
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        let_go_of_output()
        return SIGPIPE_CODE if is_closed_pipe(error) else 2
    return end.code


def show_every_character() -> None:
    r"""Let a terminal of another encoding than UTF-8 show what it cannot write as \u00e4, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
