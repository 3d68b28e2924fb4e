"""The walkthrough on the command line: as plain text, to the screen or to a file."""

import typer

from posteriori import walkthrough
from posteriori.cli.destinations import STANDARD_OUTPUT, naming, require_destination
from posteriori.files import replacing


def run(format: str, digits: int, alpha: float, out: str | None) -> None:
    """Print the built-in example, or write it to a file; LaTeX is a whole document."""
    if out is not None and out != STANDARD_OUTPUT:
        require_destination(out, what="the walkthrough")
    result = walkthrough(alpha=alpha, digits=digits, format=format)
    text = result.to_latex(document=True) if format == "latex" else result.to_markdown()
    if out is None or out == STANDARD_OUTPUT:
        typer.echo(text, nl=False)
        return
    with naming(out), replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
