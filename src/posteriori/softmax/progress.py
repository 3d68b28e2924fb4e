"""A line of progress for long fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from posteriori.rows.blocks import Blocks
from posteriori.solvers.solution import Iterate

__all__ = ["progress"]


@contextmanager
def progress(
    verbose: int, blocks: Blocks, tell: Callable[[Iterate], None] | None = None
) -> Iterator[Callable[[int, Iterate], None] | None]:
    """A function to call after each iteration, which also calls `tell`; None if there is nothing to say to anybody.

    It says nothing if `verbose` is 0, keeps a line up to date for 1, and says one each for 2.
    """
    with _lines(verbose, blocks) as report:
        if tell is None:
            yield report
            return

        def both(i: int, now: Iterate) -> None:
            if report is not None:
                report(i, now)
            tell(now)

        yield both


@contextmanager
def _lines(verbose: int, blocks: Blocks) -> Iterator[Callable[[int, Iterate], None] | None]:
    if not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    start = perf_counter()

    def line(i: int, now: Iterate) -> str:
        gap = "" if now.estimate is None else f"  gap {now.estimate:.1e}"
        return (
            f"iteration {i}  objective {now.objective:.9g}{gap}  "
            f"{blocks.n_passes} passes  {perf_counter() - start:.1f} s"
        )

    if verbose > 1:
        yield lambda i, now: console.print(line(i, now))
        return
    latest = ""
    with console.status("first pass over the data") as status:

        def update(i: int, now: Iterate) -> None:
            nonlocal latest
            latest = line(i, now)
            status.update(latest)

        yield update
    console.print(latest)
