"""The commands and their arguments; the work is imported when a command runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import posteriori

app = typer.Typer(no_args_is_help=True, add_completion=False)


class Markup(StrEnum):
    """How text is written."""

    markdown = "markdown"
    latex = "latex"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posteriori {posteriori.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Probabilistic multiclass classification."""


@app.command()
def demo() -> None:
    """Fit softmax regression to the Palmer penguins and show what comes out."""
    from posteriori.cli.demo import run

    run()


@app.command()
def walkthrough(
    format: Annotated[
        Markup, typer.Option(help="Markdown, legible as it is, or LaTeX, a whole document.")
    ] = Markup.markdown,
    digits: Annotated[int, typer.Option(help="Decimals shown, 2 to 10.")] = 4,
    alpha: Annotated[float, typer.Option(help="Precision of the prior on every weight, above 0.")] = 1.0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of the screen.")] = None,
) -> None:
    """Calculate a small Bayesian classification by hand, every step with its numbers.

    Six mornings, three kinds of weather: data, prior, likelihood, gradient, Hessian, Newton's method, posterior,
    predictive probabilities, evidence and decision, to be checked with a pocket calculator.

    For example:

        posteriori walkthrough

        posteriori walkthrough --digits 6 --alpha 0.5

        posteriori walkthrough --format latex --out walkthrough.tex
    """
    from posteriori.cli.walkthrough import run

    run(format.value, digits, alpha, out)
