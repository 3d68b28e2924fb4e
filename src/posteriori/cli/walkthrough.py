"""The walkthrough on the command line: as plain text, to the screen or to a file."""

from pathlib import Path

import typer

from posteriori import walkthrough
from posteriori.files import replacing


def run(format: str, digits: int, alpha: float, out: Path | None) -> None:
    """Print the built-in example, or write it to a file; LaTeX is a whole document."""
    try:
        result = walkthrough(alpha=alpha, digits=digits, format=format)
        text = result.to_latex(document=True) if format == "latex" else result.to_markdown()
        if out is None:
            typer.echo(text, nl=False)
        else:
            with replacing(out) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {_sentence(error, out)}", err=True)
        raise typer.Exit(2) from None


def _sentence(error: Exception, out: Path | None) -> str:
    """The message of an error; that of the operating system without the temporary name."""
    if isinstance(error, OSError):
        return f"{out} cannot be written: {error.strerror}."
    return str(error)
