"""How a fit ended: its status, the value of its objective, what it cost, and how close to the optimum it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

__all__ = ["BayesianSolution", "FitRecord", "Iterate", "Solution", "Status", "Steps", "TraceEntry", "run"]


class Status(Enum):
    """How a solve ended; the value is the sentence a user reads.

    Examples
    --------
    >>> Status.CONVERGED.name, Status.CONVERGED.value
    ('CONVERGED', 'converged: the estimated distance to the optimum is within the tolerance')
    >>> print(Status.SEPARATED)
    separated: classes can be told apart without error, so no finite optimum exists
    """

    CONVERGED = "converged: the estimated distance to the optimum is within the tolerance"
    ITERATION_LIMIT = "iteration limit: stopped before the tolerance was reached"
    SEPARATED = "separated: classes can be told apart without error, so no finite optimum exists"
    INTERRUPTED = "interrupted: the best parameters so far were kept"
    DIVERGED = "diverged: the objective grew or ceased to be finite; the best parameters so far were kept"

    def __str__(self) -> str:
        return self.value


class Iterate(NamedTuple):
    """Where a solver stands after an iteration."""

    theta: np.ndarray
    objective: float
    gradient: np.ndarray
    gap: float | None = None
    """J - J* here as Newton's equation estimates it, where the solver has solved it."""
    rough: float | None = None
    """The solver's own cheaper estimate of J - J*, which certifies nothing."""

    @property
    def estimate(self) -> float | None:
        """The better of the two."""
        return self.rough if self.gap is None else self.gap


Steps = Generator[Iterate, None, Status]
"""A solver at work: yields an iterate per iteration and returns how it ended."""


class TraceEntry(NamedTuple):
    """One line of a solve's history."""

    objective: float
    gradient_norm: float
    gap: float | None


class FitRecord:
    """What the record of every fit has, whatever was fitted; reports and the command line read this interface."""

    if TYPE_CHECKING:  # declared, not defined: a dataclass would take inherited properties for defaults of its fields

        @property
        def status(self) -> Status:
            """How the fit ended."""

        @property
        def objective(self) -> float | None:
            """The number that the fit made small; None where the answer is in closed form."""

        @property
        def n_iter(self) -> int:
            """Iterations of the fit."""

        @property
        def n_passes(self) -> float:
            """Passes over all rows, of any kind."""

        @property
        def seconds(self) -> float | None:
            """Time that the fit took; None where it was not taken, as in files of earlier versions."""

        @property
        def trace(self) -> Sequence[Any]:
            """History of the fit, one entry after another."""

    @property
    def converged(self) -> bool:
        """Whether the status is `Status.CONVERGED`."""
        return self.status is Status.CONVERGED


@dataclass(frozen=True)
class Solution(FitRecord):
    """The end of a solve.

    Attributes
    ----------
    status : Status
    objective : float
        J at the returned parameters.
    gradient_norm : float
        Euclidean norm of its gradient.
    gap : float
        Newton-decrement estimate 1/2 g^T H^{-1} g of J - J*; not negative, infinite where there is no estimate.
    gap_bound : float or None
        Rigorous upper bound on J - J*, where one exists; the rounding of the gradient is part of it.
    n_iter : int
    n_passes : float
        Passes over all rows, of any kind.
    trace : list of TraceEntry
    separation : SeparatedClasses or None
        Which classes are separated, and along which direction, when the status says so.
    seconds : float or None
        Time from the first iteration to the certificate.
    tol : float or None
        The tolerance that was asked for; None where it is not known, as in files of earlier versions.
    rounding : float
        The rounding error of J: no difference below it can be seen.

    A record that says CONVERGED although the gap is above both tol * |J| and the rounding of J cannot be made: it is a
    ValueError. `Solution.ended` lets the gap decide the status.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> solution = SoftmaxRegression().fit(X, y).solution_
    >>> solution.converged, round(solution.objective, 4), solution.gap_bound < 1e-8
    (True, 11.078, True)
    """

    status: Status
    objective: float
    gradient_norm: float
    gap: float
    gap_bound: float | None
    n_iter: int
    n_passes: int
    trace: list[TraceEntry] = field(repr=False)
    separation: Any = None
    seconds: float | None = field(default=None, repr=False, compare=False)
    tol: float | None = field(default=None, repr=False)
    rounding: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        if self.tol is None:
            return
        if not self.gap >= 0:
            raise ValueError(f"The gap J - J* cannot be {self.gap}: it is not negative.")
        if self.converged and not self.gap <= _allowed(self.objective, self.tol, self.rounding):
            raise ValueError(
                f"A fit whose gap is {self.gap:.3g} has not converged: {self.tol:g} of J = {self.objective:.6g} was "
                "asked for."
            )

    @classmethod
    def ended(cls, status: Status, *, objective: float, gap: float, tol: float, rounding: float, **others: Any) -> Self:
        """The record of a solve, whose status follows from the gap where its end leaves that open.

        Only separation and interruption are facts of their own; whether it converged is not for the solver to say.
        """
        if status not in (Status.SEPARATED, Status.INTERRUPTED):
            reached = gap <= _allowed(objective, tol, rounding)
            stopped = Status.DIVERGED if status is Status.DIVERGED else Status.ITERATION_LIMIT
            status = Status.CONVERGED if reached else stopped
        return cls(status=status, objective=objective, gap=gap, tol=tol, rounding=rounding, **others)


def _allowed(objective: float, tol: float, rounding: float) -> float:
    """The gap up to which a fit has converged."""
    return max(tol * abs(objective), rounding)


@dataclass(frozen=True)
class BayesianSolution(Solution):
    """The end of a Bayesian fit: the solve for the mode, and all that was chosen around it.

    Attributes
    ----------
    structure, structure_reason : str
        The structure of the posterior ("full", "kronecker" or "diagonal"), and why it was chosen.
    approximation, approximation_reason : str
        "laplace", "variational" or "importance".
    approximation_converged : bool or None
        Whether the steps towards a variational posterior had settled.
    scores : dict of str to float
        Left-out log-loss of each candidate, "plugin" for the mode alone; empty if there was no choice.
    predictive : str
        How probabilities are predicted unless asked otherwise: "quasi", averaged over the posterior, or "plugin", by
        the mode alone where that predicts left-out rows better.
    strength_reason : str
        Why a prior that was searched is as strong as it is; empty if it was given.
    strength_path : list
        Strengths of the prior that were compared, each with its log evidence and left-out log-loss.
    evidence_path : list
        Points visited in search of the prior, each with its log evidence and gradient.
    evidence_converged : bool or None
    bound : float or None
        Variational lower bound on the log evidence.
    k_hat, effective_sample_size : float or None
        How far importance weights can be trusted, and how many equal weights they are worth.
    """

    structure: str = "full"
    structure_reason: str = ""
    approximation: str = "laplace"
    approximation_reason: str = ""
    approximation_converged: bool | None = None
    scores: dict[str, float] = field(default_factory=dict)
    predictive: str = "quasi"
    strength_reason: str = ""
    strength_path: list[Any] = field(default_factory=list, repr=False)
    evidence_path: list[Any] = field(default_factory=list, repr=False)
    evidence_converged: bool | None = None
    bound: float | None = None
    k_hat: float | None = None
    effective_sample_size: float | None = None


def run(
    steps: Generator[Iterate, None, Any], max_iter: int, report: Callable[[int, Iterate], None] | None = None
) -> tuple[Iterate, Status, list[TraceEntry]]:
    """Run a solver until it ends, reaches `max_iter` or is interrupted; return the best iterate it saw."""
    trace: list[TraceEntry] = []
    best: Iterate | None = None
    status = Status.ITERATION_LIMIT
    try:
        while True:
            try:
                now = next(steps)
            except StopIteration as end:
                status = end.value
                break
            with np.errstate(over="ignore"):  # a solve that diverges may have a gradient of infinite norm
                norm = float(np.linalg.norm(now.gradient))
            trace.append(TraceEntry(now.objective, norm, now.estimate))
            if not np.isfinite(now.objective):
                status = Status.DIVERGED
                break
            if best is None or now.objective <= best.objective + 1e-11 * abs(best.objective):
                best = now
            if report is not None:
                report(len(trace) - 1, now)
            if len(trace) > max_iter:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        status = Status.INTERRUPTED
    finally:
        steps.close()
    if best is None:
        raise FloatingPointError("The objective is not finite at the starting values: check the scale of X.")
    return best, status, trace
