"""What commands print: results on standard output, notes and errors on standard error.

Text that comes from data is shown as it is: it is never read as markup, and characters that steer a terminal are
written as their codes.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import typer

from posteriori.cli.process import SIGPIPE_CODE, Stopped, is_closed_pipe, let_go_of_output, stopping_at_once

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "counted",
    "error_sentence",
    "errors_as_sentences",
    "plain_table",
    "print_json",
    "print_note",
    "printable",
    "result_console",
]

_ERRORS_OF_INPUT = (ValueError, TypeError, OSError, ImportError, FloatingPointError)
"""Errors that a user can correct: arguments, files, packages, and numbers too large to compute with."""
_ADVICE = "This should not have happened: run the command again with --debug to see where, and please report it."


@contextmanager
def errors_as_sentences(debug: bool = False) -> Iterator[None]:
    """Turn errors into a sentence and an exit code: 2 for what the user can correct, 1 for our own faults."""
    with warnings.catch_warnings(record=True) as caught, stopping_at_once():
        warnings.simplefilter("default")
        try:
            yield
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk, or a reader that has gone, is noticed here at the latest
            _print_warnings(caught)
        except typer.Exit:
            _print_warnings(caught)
            raise
        except Stopped as stop:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(stop.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            let_go_of_output()
            if is_closed_pipe(error):
                raise typer.Exit(SIGPIPE_CODE) from None
            _print_warnings(caught)  # what went wrong stands last
            if debug:
                raise
            raise typer.Exit(_print_error(error)) from None


def _print_warnings(caught: list[warnings.WarningMessage]) -> None:
    for text in dict.fromkeys(str(warning.message) for warning in caught if _concerns_users(warning)):
        print_note(text)


def _print_error(error: Exception) -> int:
    """Print what went wrong, and return the exit code for it."""
    typer.echo(f"Error: {error_sentence(error)}", err=True)
    if isinstance(error, _ERRORS_OF_INPUT):
        return 2
    typer.echo(_ADVICE, err=True)
    return 1


def print_note(text: str) -> None:
    """Print a remark on standard error, where programs do not take it for a result."""
    with suppress(BrokenPipeError):  # nobody reads it, and the result does not depend on it
        typer.echo(f"Note: {printable(text)}", err=True)


def result_console() -> Console:
    """The console that results are printed on; square brackets and colons are text."""
    from rich.console import Console  # not all commands print, and all start sooner without it

    return Console(highlight=False, soft_wrap=False, markup=False, emoji=False)


def print_json(value: dict[str, Any]) -> None:
    """Print a result for programs, as JSON, in characters that the output can hold."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    ascii_only = encoding.replace("-", "") not in ("utf8", "utf16", "utf32")
    typer.echo(json.dumps(value, indent=2, ensure_ascii=ascii_only, allow_nan=False, default=str))


def plain_table(*columns: str) -> Table:
    """An empty table without lines: the first column to the left, the others to the right, as numbers are."""
    from rich.table import Table
    from rich.text import Text

    class PlainTable(Table):
        """A table whose cells are plain text."""

        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*(Text(printable(str(cell))) for cell in cells), **options)

    table = PlainTable(box=None, padding=(0, 0, 0, 2), header_style="dim", show_header=any(columns))
    for i, name in enumerate(columns):
        table.add_column(Text(printable(name)), justify="left" if i == 0 else "right")
    return table


def printable(text: str) -> str:
    r"""The text on one line, with codes in place of the characters that steer a terminal.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def counted(n: int, word: str = "row") -> str:
    """A number of things in words.

    >>> counted(1), counted(2_000), counted(2, "class")
    ('1 row', '2,000 rows', '2 classes')
    """
    return f"{n:,} {word if n == 1 else word + ('es' if word.endswith('s') else 's')}"


def _concerns_users(warning: warnings.WarningMessage) -> bool:
    return not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))


def error_sentence(error: BaseException) -> str:
    """The error's own words on one line; those of the operating system with the file that they are about."""
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}.")
    return printable(str(error)) or type(error).__name__
