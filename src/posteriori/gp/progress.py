"""A bar for long fits: steps, energy, and the time that is left at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(verbose: int, max_iter: int) -> Iterator[Callable[[Any], None] | None]:
    """What to call after each chunk of steps: nothing, a bar kept up to date (1), or one line each (2)."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, highlight=False)
    if verbose > 1:
        yield lambda chunk: console.print(
            f"step {chunk.n_steps}  energy {chunk.energy:.3f}  rate {chunk.rate:.2g}  {chunk.seconds:.1f} s"
        )
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left at most"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("compiling", total=max_iter)

        def update(chunk: Any) -> None:
            bar.update(task, completed=chunk.n_steps, description=f"energy {chunk.energy:.2f}")

        yield update
