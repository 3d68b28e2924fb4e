"""Progress of a fit, shown while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from posteriori.gp.solution import Chunk

__all__ = ["Report", "progress_bar"]

Report = Callable[[Chunk], None]
"""A function that is called with every entry of a trace."""


@contextmanager
def progress_bar(verbose: int, max_iter: int) -> Iterator[Report | None]:
    """A function to call after each chunk: None if `verbose` is 0, a bar for 1, one line for each chunk for 2."""
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
        task = bar.add_task("starting", total=max_iter)

        def update(chunk: Chunk) -> None:
            bar.update(task, completed=chunk.n_steps, description=f"energy {chunk.energy:.2f}")

        yield update
