"""What a fit is doing and how long it may take, on standard error: lines, or one line that changes on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import typer

from posteriori.cli.output import counted, printable

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

    from posteriori.gp.progress import Narration
    from posteriori.meta.comparison import FoldReport

__all__ = ["Progress", "Shape", "expected_seconds", "in_words", "showing_progress"]

_SLOWER = 2.0
"""How much slower another machine, or one with other things to do, may be than the one that was measured."""
_PASSES = 20
"""Passes over rows that are not in memory, by a fit that takes many."""
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600)


class Shape(NamedTuple):
    """The size of a fit: rows, features and classes, and whether the rows are read anew in every pass."""

    rows: int
    features: int
    classes: int
    streamed: bool = False


def expected_seconds(name: str, shape: Shape) -> float:
    """Seconds that one fit of a model may take, from measurements on one core.

    Softmax models add up curvature of (K D)^2 entries over the rows and factor it. Gaussian classes try structures on
    at most 4,000 rows left out. Trees grow with the rows, and boosted ones take as long as their folds may. A Gaussian
    process factors matrices of all rows, up to some 2,000; a deep one compiles for some seconds, then learns in steps
    over all rows.
    """
    n, D, K, streamed = shape
    p = K * (D + 1)
    if name == "gp":
        seconds = 0.5 + 2.5e-6 * K * min(n, 2_000) ** 2 + 2e-3 * K * max(n - 2_000, 0) / 5
    elif name == "deep-gp":
        seconds = 24.0 + 0.04 * n * max(K, 3) / 3
    elif name == "forest":
        seconds = 0.5 + 4e-4 * n * (1.0 + D / 100)
    elif name == "boosting":
        seconds = 0.2 + min(4e-4 * n * K * (1.0 + D / 100), 12.0) + 5e-5 * n
    elif name == "gaussian":
        seconds = 0.4 + 2.5e-4 * min(n, 4_000) * (1.0 + D / 50) * (1.0 + K / 10) + 1e-9 * n * D * D
    else:
        q = min(p, 2_000)  # beyond, the posterior is diagonal, and the cost grows with the parameters alone
        seconds = 0.1 + 5e-10 * n * q * q + 1e-8 * q**3 + 2e-8 * n * max(p - q, 0)
    reading = _PASSES * 4e-8 * n * (D + 1) if streamed else 0.0
    return _SLOWER * (seconds + reading)


def in_words(seconds: float) -> str:
    """A time that is not known exactly.

    >>> in_words(0.3), in_words(45.0), in_words(1e5)
    ('about a second', 'up to about 1 minute', 'more than an hour')
    """
    step = next((step for step in _STEPS if seconds <= step), None)
    if step is None:
        return "more than an hour"
    if step == 1:
        return "about a second"
    return f"up to about {counted(step, 'second') if step < 60 else counted(step // 60, 'minute')}"


class Progress:
    """Lines about what is going on.

    Parameters
    ----------
    status : rich.status.Status or None
        The line of a terminal that changes; None where there is no terminal.
    quiet : bool
        Whether nothing is said.
    """

    def __init__(self, status: Status | None = None, quiet: bool = False) -> None:
        self.status, self.quiet = status, quiet
        self.doing = "fitting"

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.quiet:
            return
        if self.status is not None:  # above the line that changes
            self.status.console.print(_plain(text), soft_wrap=True)
            return
        with suppress(BrokenPipeError):
            typer.echo(printable(text), err=True)

    def show(self, text: str) -> None:
        """Show what is going on just now, on a terminal only."""
        if self.status is not None:
            self.status.update(_plain(text))

    def narrated(self, narration: Narration) -> None:
        """Show the stages of a fit that begins, after what the fit is for, on a terminal only."""
        if self.status is not None:
            self.status.update(_Narrated(self.doing, narration))

    def comparing(self, names: Sequence[str], shape: Shape) -> None:
        """Say which models are fitted and judged, and how long that may take."""
        seconds = sum(expected_seconds(name, shape) for name in names)
        what = f"Fitting {', '.join(names)}, judged by rows left out"
        self.say(f"{what} and against the class frequencies: {in_words(seconds)}.")

    def beginning(self, name: str) -> None:
        """Show which model is fitted now."""
        self.doing = f"fitting {name}"
        self.show(self.doing)

    def fitting(self, name: str, shape: Shape) -> None:
        """Say which model is fitted, and how long that may take."""
        size = f"{counted(shape.rows)}, {counted(shape.features, 'feature')}, {counted(shape.classes, 'class')}"
        self.say(f"Fitting {name} ({size}): {in_words(expected_seconds(name, shape))}.")
        self.doing = f"fitting {name}"
        self.show(self.doing)

    def judged(self, report: FoldReport) -> None:
        """Say how a model did on rows left out."""
        self.say(f"  {report.name}: log-loss {report.log_loss:.4f} on rows left out, {report.seconds:.2g} s")


class _Narrated:
    """What a fit is for, and the line of its narration as it is now."""

    def __init__(self, doing: str, narration: Narration) -> None:
        self.doing, self.narration = doing, narration

    def __rich__(self) -> Text:
        return _plain(f"{self.doing}; {self.narration.line()}")


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))


@contextmanager
def showing_progress(quiet: bool) -> Iterator[Progress]:
    """Progress on standard error; on a terminal the last line is alive."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield Progress(quiet=quiet)
        return
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    from posteriori.gp.progress import shown_by

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with Status(Text(""), console=console) as status:
        progress = Progress(status)
        with shown_by(progress.narrated):
            yield progress
