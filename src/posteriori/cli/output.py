"""What commands print: results on standard output, notes and errors on standard error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["error_sentence", "errors_as_sentences", "plain_table", "print_json", "print_note", "result_console"]

_ERRORS_OF_INPUT = (ValueError, TypeError, OSError, ImportError, FloatingPointError)
"""Errors that a user can correct: arguments, files, packages, and numbers too large to compute with."""
_ADVICE = "This should not have happened: run the command again with --debug to see where, and please report it."


@contextmanager
def errors_as_sentences(debug: bool) -> Iterator[None]:
    """Turn errors into a sentence and an exit code: 2 for what the user can correct, 1 for our own faults."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if debug:
                raise
            ours = not isinstance(error, _ERRORS_OF_INPUT)
            typer.echo(f"Error: {error_sentence(error)}", err=True)
            if ours:
                typer.echo(_ADVICE, err=True)
            raise typer.Exit(1 if ours else 2) from None
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught if _concerns_users(warning)):
                print_note(text)


def print_note(text: str) -> None:
    """Print a remark on standard error, where programs do not take it for a result."""
    typer.echo(f"Note: {text}", err=True)


def result_console() -> Console:
    """The console that results are printed on."""
    from rich.console import Console  # not all commands print, and all start sooner without it

    return Console(highlight=False, soft_wrap=False)


def print_json(value: dict[str, Any]) -> None:
    """Print a result for programs, as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str))


def plain_table(*columns: str) -> Table:
    """An empty table without lines: the first column to the left, the others to the right, as numbers are."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim", show_header=any(columns))
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right")
    return table


def _concerns_users(warning: warnings.WarningMessage) -> bool:
    return not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))


def error_sentence(error: BaseException) -> str:
    """The error's own words on one line; those of the operating system with the file that they are about."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
