"""The commands and their arguments; the work is imported when a command runs."""

from typing import Annotated

import typer

import posteriori

app = typer.Typer(no_args_is_help=True, add_completion=False)


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
