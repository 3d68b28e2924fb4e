"""The commands and their arguments; the work is imported when a command runs."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import posteriori
from posteriori.cli.output import error_sentence, errors_as_sentences, printable
from posteriori.cli.process import exit_code, leave_at_once, let_go_of_output, show_every_character, was_stopped


class CommandLine(typer.Typer):
    """The commands as a program that ends as other programs do: quietly where nobody reads what it prints."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run the command that the arguments name, and exit with its code."""
        show_every_character()
        try:
            return super().__call__(*args, **options)
        except SystemExit as end:
            code = exit_code(end)
            if was_stopped(code):
                leave_at_once(code)
            sys.exit(code)
        except OSError as error:  # outside of a command, as in --help
            let_go_of_output()
            typer.echo(f"Error: {error_sentence(error)}", err=True)
            sys.exit(2)


app = CommandLine(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False)


class Markup(StrEnum):
    """Formats of text."""

    markdown = "markdown"
    latex = "latex"


class ModelName(StrEnum):
    """Models that can be fitted, and auto, which chooses one of them or a stack."""

    auto = "auto"
    stack = "stack"
    softmax = "softmax"
    bayes = "bayes"
    gaussian = "gaussian"
    forest = "forest"
    boosting = "boosting"
    gp = "gp"
    deep_gp = "deep-gp"


class PriorName(StrEnum):
    """Priors of bayes and softmax: how many strengths the evidence chooses."""

    evidence = "evidence"
    blocks = "blocks"
    ard = "ard"


_AFTER_READING = dict.fromkeys(
    (ModelName.auto, ModelName.stack), " Then models are fitted, from seconds to minutes; --model bayes takes less."
)


class LogLevel(StrEnum):
    """What a server writes down, from this level on."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Form(StrEnum):
    """Formats of tables."""

    csv = "csv"
    parquet = "parquet"
    jsonl = "jsonl"


Tables = Annotated[
    list[str],
    typer.Argument(metavar="TABLE...", help="CSV or Parquet files, patterns, or - for a CSV on standard input."),
]
Stored = Annotated[str, typer.Argument(metavar="MODEL", help="A model file, as written by `posteriori fit --out`.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write here instead of the screen.")]
Format = Annotated[
    Form | None, typer.Option("--format", help="How to write; otherwise by the name of the file, or CSV.")
]
Keep = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Columns of the table to repeat first; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]


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
    """Probabilistic multiclass classification: from a table to probabilities, and to the decision that follows.

    A first look:

        posteriori demo

        posteriori fit penguins.csv --target species --out penguins.model

        posteriori evaluate penguins.model new.csv

        posteriori predict penguins.model new.csv --out predictions.csv

        posteriori decide penguins.model new.csv --utility utility.csv
    """


@app.command()
def demo(
    report: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Where the report goes, if not among temporary files.")
    ] = None,
) -> None:
    """Fit the Palmer penguins, show what comes out, decide, and write a report."""
    with errors_as_sentences():
        from posteriori.cli.demo import run

        run(report)


@app.command()
def fit(
    table: Tables,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column with the classes.")],
    model: Annotated[
        ModelName, typer.Option(help="What to fit; auto takes the best on rows left out, or a stack of them.")
    ] = ModelName.auto,
    prior: Annotated[
        PriorName | None,
        typer.Option(
            help="For bayes and softmax: one strength for all weights (the default), one for each column of the table "
            "that is a category and one for numbers, or one for each feature."
        ),
    ] = None,
    max_levels: Annotated[
        int,
        typer.Option(
            "--max-levels", metavar="N", min=1, help="The most levels of a category that are not pooled to (other)."
        ),
    ] = 64,
    min_frequency: Annotated[
        int,
        typer.Option("--min-frequency", metavar="N", min=1, help="Levels with fewer rows are pooled to (other)."),
    ] = 5,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Store the model in this file.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="A column with weights of the rows.")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; repeatable.")] = None,
    keep_id: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-id", metavar="COLUMN", help="A column to use although it looks like row numbers; repeatable."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.0, help="For auto and stack: begin no further model after this time."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For what is drawn at random.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not say what is going on.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a table.

    Columns may hold numbers, text, dates, and gaps: they are encoded by rules that the summary shows. Rows without a
    target are left out.

    For example:

        posteriori fit penguins.csv --target species --out penguins.model

        posteriori fit 'part-*.parquet' --target species --model bayes --drop island

        posteriori fit sales.csv --target kind --model bayes --prior blocks --max-levels 500 --min-frequency 1
    """
    with errors_as_sentences(debug):
        if not quiet:
            typer.echo(f"Reading {printable(', '.join(table))}.{_AFTER_READING.get(model, '')}", err=True)
        from posteriori.cli.fit import run
        from posteriori.cli.training_rows import FitColumns

        columns = FitColumns(target, weight, tuple(drop or ()), tuple(keep_id or ()), max_levels, min_frequency)
        run(table, columns, model.value, prior and prior.value, out, seed, json, quiet, budget)


@app.command()
def evaluate(
    model: Stored,
    table: Tables,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column with the classes, if it has another name now.")
    ] = None,
    utility: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Also say what decisions by these utilities were worth.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write a page with charts, to be opened in a browser.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Score a stored model on rows whose classes are known.

    For example:

        posteriori evaluate penguins.model test.csv

        posteriori evaluate penguins.model test.csv --utility utility.csv --json

        posteriori evaluate penguins.model test.csv --report report.html
    """
    with errors_as_sentences(debug):
        from posteriori.cli.evaluate import run

        run(model, table, target, utility, report, json)


@app.command()
def predict(
    model: Stored,
    table: Tables,
    out: Out = None,
    form: Format = None,
    keep: Keep = None,
    interval: Annotated[
        float | None, typer.Option(metavar="LEVEL", help="Credible intervals of the probabilities, such as 0.95.")
    ] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Where uncertainty comes from: the world, or too few rows.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Predict classes and their probabilities.

    One row each, in the order of the table: `prediction`, then `p(class)` for every class.

    For example:

        posteriori predict penguins.model new.csv

        posteriori predict penguins.model new.csv --interval 0.95 --keep id --out predictions.parquet

        cat new.csv | posteriori predict penguins.model - --format jsonl
    """
    with errors_as_sentences(debug):
        from posteriori.cli.predict import predict

        predict(model, table, out, form and form.value, keep or [], interval, uncertainty)


@app.command()
def decide(
    model: Stored,
    table: Tables,
    utility: Annotated[
        Path, typer.Option(metavar="CSV", help="Utilities: actions in the first line, one line for every class.")
    ],
    out: Out = None,
    form: Format = None,
    keep: Keep = None,
    debug: Debug = False,
) -> None:
    """Choose the action with the highest expected utility, row by row.

    Written are `action`, the expected utility of every action, by how much the best is better than the second best
    (`margin`), and what knowing the truth before acting would be worth (`value_of_information`).

    Costs are negative. A column with one number throughout is a reject action, such as to ask somebody.

    For example, with this utility.csv:

        state,treat,wait,ask

        ill,10,-50,-2

        well,-5,0,-2

    the best action for each row is written by:

        posteriori decide patients.model new.csv --utility utility.csv --keep id --out actions.csv
    """
    with errors_as_sentences(debug):
        from posteriori.cli.predict import decide

        decide(model, table, utility, out, form and form.value, keep or [])


@app.command()
def walkthrough(
    format: Annotated[
        Markup, typer.Option(help="Markdown, legible as it is, or LaTeX, a whole document.")
    ] = Markup.markdown,
    digits: Annotated[int, typer.Option(help="Decimals shown, 2 to 10.")] = 4,
    alpha: Annotated[float, typer.Option(help="Precision of the prior on every weight, above 0.")] = 1.0,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write to this file instead of the screen.")] = None,
) -> None:
    """Calculate a small Bayesian classification by hand, every step with its numbers.

    Six mornings, three kinds of weather: data, prior, likelihood, gradient, Hessian, Newton's method, posterior,
    predictive probabilities, evidence and decision, to be checked with a pocket calculator.

    For example:

        posteriori walkthrough

        posteriori walkthrough --digits 6 --alpha 0.5

        posteriori walkthrough --format latex --out walkthrough.tex
    """
    with errors_as_sentences():
        from posteriori.cli.walkthrough import run

        run(format.value, digits, alpha, out)


@app.command()
def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="FILE, NAME=FILE or NAME@VERSION=FILE.")],
    utility: Annotated[
        Path | None, typer.Option(metavar="CSV", help="What actions are worth, unless a request says otherwise.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Who asks must send the token in this file.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name by which the server may be called; repeatable."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="ORIGIN", help="Another site whose pages may ask; repeatable."),
    ] = None,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="The most rows of one request.")] = 1_000_000,
    max_megabytes: Annotated[int, typer.Option("--max-megabytes", min=1, help="The largest body.")] = 256,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = 1,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="What is written down.")] = LogLevel.info,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Answer for stored models over HTTP, and show a page on which rows and utilities can be tried.

    Programs ask by POST /predict (JSON, CSV, Arrow, Parquet), by the Open Inference Protocol (/v2) or by that of
    MLflow (/invocations); /openapi.json describes it all. People open the address in a browser.

    For example:

        posteriori serve penguins.model --open

        posteriori serve penguins.model --utility utility.csv --port 9000

        posteriori serve birds@1=old.model birds@2=new.model --host 0.0.0.0 --token-file token.txt
    """
    with errors_as_sentences(debug):
        from posteriori.cli.serve import run

        run(
            models, utility, token_file, host=host, port=port, hosts=allow_host or [], origins=allow_origin or [],
            max_rows=max_rows, max_megabytes=max_megabytes, timeout=timeout, workers=workers,
            log_level=log_level.value, open_page=open_page,
        )  # fmt: skip
