"""The summary of a fit, as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.cli.output import counted, plain_table, printable, result_console

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["plain", "print_fit"]

_MOST_CLASSES = 12
"""The most classes that are shown one by one."""
_MOST_COLUMNS = 60
"""The most columns that are shown one by one."""
_MOST_BLOCKS = 8
"""The most blocks of columns that are shown one by one."""


def print_fit(summary: dict[str, Any], *, asked: str) -> None:
    """Print the summary of a fit; `asked` is the model that the user named."""
    console = result_console()
    memory = summary["peak_memory_mb"]
    console.print(
        f"{summary['class']} fitted to {counted(summary['rows'])} in {summary['seconds']:.2g} s: {summary['target']} "
        f"from {counted(summary['features'], 'feature')}."
        + (f" Peak memory: {memory:,} MB." if memory is not None else "")
    )
    if not summary["learned"]:
        _print_nothing_learned(console, summary)
    console.print()
    _print_classes(console, summary)
    if summary["choice"] is not None:
        _print_choice(console, summary, asked)
    _print_columns(console, summary)
    if summary["notes"]:
        console.print("\nLook at:")
        for note in summary["notes"]:
            console.print(f"  - {printable(note)}", soft_wrap=not console.is_terminal)
    training = summary["training"]
    console.print(
        f"\nOn rows of the fit: accuracy {training['accuracy']:.3f}, log-loss {training['log_loss']:.4f} (class "
        f"frequencies alone: {training['log_loss_of_frequencies']:.4f}). What new rows would show, "
        "`posteriori evaluate` says."
    )
    if summary["block_precisions"] is not None:
        _print_blocks(console, summary["block_precisions"])
    if summary["log_evidence"] is not None:
        console.print(f"Log evidence: {summary['log_evidence']:.2f}.")


def _print_nothing_learned(console: Console, summary: dict[str, Any]) -> None:
    console.print(
        f"\nNothing was learned: {summary['choice']['reason']}. The model stored tells no row from another: it "
        "predicts the class frequencies. More rows, or other columns, may help.",
        style="bold",
    )


def _print_classes(console: Console, summary: dict[str, Any]) -> None:
    classes = plain_table("class", "rows", "share")
    shown = sorted(summary["classes"].items(), key=lambda item: -item[1])
    for name, count in shown[:_MOST_CLASSES]:
        classes.add_row(name, f"{count:,}", f"{count / summary['rows']:.1%}")
    if len(shown) > _MOST_CLASSES:
        rest = sum(count for _, count in shown[_MOST_CLASSES:])
        classes.add_row(f"{len(shown) - _MOST_CLASSES} more", f"{rest:,}", f"{rest / summary['rows']:.1%}")
    console.print(classes)


def _print_choice(console: Console, summary: dict[str, Any], asked: str) -> None:
    choice = summary["choice"]
    if asked in ("auto", "stack") and summary["learned"]:
        console.print(f"\nModel: {summary['model']}, {choice['reason']}.")
    elif choice["candidates"]:
        console.print("\nOn rows left out:")
    if not choice["candidates"]:
        return
    table = plain_table("candidate", "log-loss", "behind", "+-", "seconds")
    for model in choice["candidates"]:
        numbers = (model["log_loss"], model["behind"], model["error"])
        table.add_row(model["name"], *(_shown(number) for number in numbers), f"{model['seconds']:.2g}")
    console.print(table)
    if choice["rows_with_a_twin"]:
        console.print(f"{counted(choice['rows_with_a_twin'])} have a twin: identical in every column and in the label.")


def _print_columns(console: Console, summary: dict[str, Any]) -> None:
    columns = plain_table("column", "kind", "missing", "becomes")
    columns.columns[1].justify = columns.columns[3].justify = "left"
    for row in summary["columns"][:_MOST_COLUMNS]:
        becomes = f"dropped: {row['dropped']}" if row["dropped"] else row["becomes"]
        columns.add_row(row["column"], row["kind"], f"{row['missing']:.1%}" if row["missing"] else "", becomes)
    console.print()
    console.print(columns)
    more = len(summary["columns"]) - _MOST_COLUMNS
    if more > 0:
        console.print(f"  {counted(more, 'column')} more: --json shows all.")


def _print_blocks(console: Console, precisions: dict[str, float]) -> None:
    """The blocks of columns whose effects may be largest, which are those of the weakest prior."""
    ranked = sorted(precisions, key=lambda label: precisions[label])
    shown = ", ".join(f"{printable(label)} {precisions[label]:.3g}" for label in ranked[:_MOST_BLOCKS])
    more = len(ranked) - _MOST_BLOCKS
    console.print(
        f"Precision of the prior by block of columns: {shown}{f' and {more} stronger' if more > 0 else ''}.",
        soft_wrap=not console.is_terminal,
    )


def _shown(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.4f}"


def plain(value: Any) -> Any:
    """A value for JSON: a number of Python, and None for what is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
