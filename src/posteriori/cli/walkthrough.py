"""The walkthrough on the command line: as plain text, to the screen or to a file."""

import os
from pathlib import Path

import typer

from posteriori import walkthrough


def run(format: str, digits: int, alpha: float, out: Path | None) -> None:
    """Print the built-in example, or write it to a file; LaTeX is a whole document."""
    try:
        result = walkthrough(alpha=alpha, digits=digits, format=format)
        text = result.to_latex(document=True) if format == "latex" else result.to_markdown()
        if out is None:
            typer.echo(text, nl=False)
        else:
            write(out, text)
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {_sentence(error, out)}", err=True)
        raise typer.Exit(2) from None


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all: under another name in the same folder first, then renamed."""
    path = path.resolve()  # a link keeps pointing to the file
    if path.exists() and not path.is_file():
        raise OSError(None, "it is no regular file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sentence(error: Exception, out: Path | None) -> str:
    """What went wrong; the operating system's words without the temporary name."""
    if isinstance(error, OSError):
        return f"{out} cannot be written: {error.strerror}."
    return str(error)
