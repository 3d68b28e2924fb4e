"""What a fit of Gaussian processes is doing, in words, and how long it may take, told while it runs.

A fit goes through stages. Steps of a stage cost the same, and a stage says what its steps cost beside those of the
others, so that the seconds of the steps so far tell those of all that are ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from posteriori.gp.solution import Chunk

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Narration", "RelayedReport", "Report", "Stage", "begin_stage", "progress_bar", "shown_by", "sweep_cost"]

Report = Callable[[Chunk], None]
"""A function that is called with every entry of a trace; if it has a method `stage`, also with every `Stage`."""

_SMALL = 1000.0
"""The number of rows at which what grows with their square costs as much as what grows with their cube."""


class Stage(NamedTuple):
    """What is done next, how many steps that takes, and what they cost."""

    words: str
    n_steps: int | None = None
    """The number of steps, if anything is known of it."""
    cost: float | None = None
    """The cost of a step, in units that all stages of a fit share, if it is known."""
    later: float = 0.0
    """The cost of all that comes after this stage."""
    at_most: bool = True
    """Whether there are no more steps than `n_steps`, or that is what is usual."""


def begin_stage(
    report: Report | None,
    words: str,
    n_steps: int | None = None,
    cost: float | None = None,
    later: float = 0.0,
    *,
    at_most: bool = True,
) -> None:
    """Say what is done next to the one who watches, if any; a plain function is told of steps alone."""
    tell = getattr(report, "stage", None)
    if tell is not None:
        tell(Stage(words, n_steps, cost, later, at_most))


def sweep_cost(n: int, K: int) -> float:
    """The cost of a sweep over n rows of K classes that all see each other.

    Matrices are factored, in K n^3 operations, and filled, in K n^2 slower ones; two classes have a single latent.
    """
    return (0.5 if K == 2 else K) * n**2 * (n + _SMALL)


class Narration:
    """A report that keeps the time of every stage, and says in a line how far the fit is.

    Parameters
    ----------
    max_iter : int
        The number of steps of a fit that names no stages, at most.
    done : callable, optional
        Called with the last line of every stage.
    clock : callable
        The time in seconds.
    """

    def __init__(
        self, max_iter: int, done: Callable[[str], None] | None = None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._unnamed = Stage("learning", max_iter)
        self._done, self._clock = done, clock
        self._pace: float | None = None
        self._otherwise = "starting"
        self._begin(None)

    def _begin(self, stage: Stage | None) -> None:
        self._n_steps, self._before, self._energy = 0, 0, ""
        self._began = self._clock()
        self._seen: list[tuple[int, float]] = []
        self._stage = stage

    def stage(self, stage: Stage) -> None:
        """End the last stage, and begin this one."""
        self.end()
        self._begin(stage)

    def end(self) -> None:
        """End the last stage."""
        if self._stage is not None and self._done is not None:
            self._done(self.line(ended=True))
        if self._stage is not None and self._stage.cost is not None:
            self._pace = self._seconds_each()
        self._stage, self._otherwise = None, "done"

    def __call__(self, chunk: Chunk) -> None:
        """Take note of steps; those of a stage of several ascents are counted from one in each."""
        if self._stage is None:
            self._stage = self._unnamed
        self._n_steps += chunk.n_steps - (self._before if chunk.n_steps > self._before else 0)
        self._before, self._energy = chunk.n_steps, f"energy {chunk.energy:.2f}"
        self._seen.append((self._n_steps, self._clock()))

    def _seconds_each(self) -> float | None:
        """Seconds that a unit of cost takes: between steps of this stage, as the first takes longer, or before it."""
        stage, seen = self._stage, self._seen  # a display reads them in a thread of its own
        if stage is None:
            return self._pace
        unit = 1.0 if stage.cost is None else stage.cost
        if len(seen) > 1 and seen[-1][0] > seen[0][0]:
            return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]) / unit
        if stage.cost is None:
            return None
        return (seen[0][1] - self._began) / seen[0][0] / unit if seen and self._pace is None else self._pace

    def left(self) -> float | None:
        """Seconds that may be left; None where nothing tells."""
        stage, seen, each = self._stage, self._seen, self._seconds_each()
        if stage is None or stage.n_steps is None or each is None:
            return None
        n_steps, at = seen[-1] if seen else (0, self._began)
        if n_steps > stage.n_steps:
            return None
        ahead = (stage.n_steps - n_steps) * (1.0 if stage.cost is None else stage.cost) + stage.later
        return max(0.0, each * ahead - (self._clock() - at))

    def line(self, *, ended: bool = False) -> str:
        """How far the fit is, or how far its last stage came."""
        stage, n_steps, energy = self._stage, self._n_steps, self._energy
        if stage is None:
            return self._otherwise
        seconds = self._clock() - self._began
        if ended:
            took = f"{seconds:.1f} s" if seconds < 10.0 else f"{seconds:.0f} s"
            steps = [f"{n_steps} {'step' if n_steps == 1 else 'steps'}", energy] if n_steps else []
            return f"{stage.words}: {', '.join([*steps, took])}"
        limit = f" of {stage.n_steps}" if stage.n_steps is not None and stage.at_most else ""
        parts = [f"step {n_steps}{limit}", energy] if n_steps else []
        parts.append(f"{seconds:.0f} s")
        left = self.left()
        if left is not None:
            parts.append(f"left {'at most' if stage.cost is None else 'about'} {_roughly(left)}")
        return f"{stage.words}: {', '.join(parts)}"

    def __rich__(self) -> Text:
        """Give the line as it is now: a display that is alive asks for it again and again."""
        from rich.text import Text

        return Text(self.line())


def _roughly(seconds: float) -> str:
    """A time that is not known exactly, with one digit.

    >>> _roughly(0.2), _roughly(17.0), _roughly(100.0), _roughly(8000.0)
    ('1 s', '20 s', '2 min', '3 h')
    """
    value, unit = max(seconds, 1.0), "s"
    for larger in ("min", "h"):
        if value > 50.0:
            value, unit = value / 60.0, larger
    digit = 1 if value <= 10.0 else 10
    return f"{digit * ceil(value / digit)} {unit}"


_show: ContextVar[Callable[[Narration], None] | None] = ContextVar("show", default=None)
"""What shows the fits that do not show themselves."""


@contextmanager
def shown_by(show: Callable[[Narration], None]) -> Iterator[None]:
    """Have `show` called with the narration of each fit in this thread that begins, unless the fit is verbose.

    The narration is a renderable of rich, and changes as the fit goes on.
    """
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)


@contextmanager
def progress_bar(verbose: int, max_iter: int) -> Iterator[Report | None]:
    """A report for a fit: for `verbose` of 1 a line that is kept up to date and a line for each stage, for 2 each step.

    For 0 it is None, unless another shows the fit (`shown_by`).
    """
    show = _show.get()
    if not verbose:
        if show is None:
            yield None
        else:
            show(narration := Narration(max_iter))
            try:
                yield narration
            finally:
                narration.end()
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    tell = partial(console.print, soft_wrap=True)
    if verbose > 1:
        yield _EveryStep(tell)
        return
    narration = Narration(max_iter, done=tell)
    with console.status(narration):
        try:
            yield narration
        finally:
            narration.end()


class RelayedReport:
    """A report that passes everything on to another, if there is one, and tells whoever watches of every step."""

    def __init__(self, report: Report | None, tell: Callable[[None], None]) -> None:
        self._report, self._tell = report, tell

    def stage(self, stage: Stage) -> None:
        """Pass the stage on."""
        tell = getattr(self._report, "stage", None)
        if tell is not None:
            tell(stage)

    def __call__(self, chunk: Chunk) -> None:
        """Pass the step on, and tell of it."""
        if self._report is not None:
            self._report(chunk)
        self._tell(None)


class _EveryStep:
    """A report that prints a line for every stage, and for every step."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def stage(self, stage: Stage) -> None:
        """Print what is done next."""
        self._tell(stage.words)

    def __call__(self, chunk: Chunk) -> None:
        """Print how far it is."""
        self._tell(f"step {chunk.n_steps}  energy {chunk.energy:.3f}  rate {chunk.rate:.2g}  {chunk.seconds:.1f} s")
