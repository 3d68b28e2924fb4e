r"""How strong a prior should be: as the evidence says, unless left-out rows deny it, and how unsure that is.

A prior that was searched has precisions R of highest evidence; its *strength* is a factor s on all of them. At

.. math:: s = 4^{j}, \qquad j = 0, \pm 1, \pm 2, \ldots

the mode, Laplace's evidence and the log-loss of left-out rows by the mode are known. If a mode of another strength
predicts left-out rows better than that of s = 1, by more than the standard error of the difference (two of them where
several strengths are likely), its strength is chosen. Otherwise the evidence is believed, and with it how unsure it is:
the posterior is a mixture over s with weights proportional to p(Y | s) p(s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posteriori.softmax.laplace import Laplace, laplace, mode
from posteriori.softmax.leave_one_out import Referee
from posteriori.softmax.objective import SoftmaxObjective

__all__ = ["Strength", "StrengthPoint", "Strengths"]

_STEP = np.log(4.0)
_MOST = 6
"""Steps to either side."""
_WORTH = 5e-4
"""Nats a row that a step must gain to be worth taking."""
_MODE_TOL = 1e-8
"""Relative decrement to which modes are found."""
_IRRELEVANT, _IRRELEVANT_A_ROW = 0.5, 1e-4
"""Nats that a change of the prior by one step may cost all rows together, or each of them, and not matter."""
_SURE = 25.0
"""Parameters that rows determine from which on no other strength is likely: a step costs half a nat for each."""
_LEAST_WEIGHT = 0.01
"""Weight, relative to the largest, below which a strength has no part in an average."""


@dataclass(frozen=True)
class StrengthPoint:
    """A strength that was tried: its factor, the log evidence if it is known, and the left-out log-loss by the mode."""

    factor: float
    log_evidence: float | None
    loss: float


@dataclass(frozen=True, eq=False)
class Strength:
    """A prior of another strength than that of highest evidence.

    Attributes
    ----------
    step : int
        j of the factor 4^j.
    objective : SoftmaxObjective
    at_mode : Laplace
    referee : Referee
    """

    step: int
    objective: SoftmaxObjective
    at_mode: Laplace
    referee: Referee

    @cached_property
    def log_p(self) -> np.ndarray:
        """Log-probabilities (n,) of the referee's rows under the others, by the mode."""
        return self.referee.by_mode(self.at_mode.posterior)

    @property
    def factor(self) -> float:
        """4^j."""
        return float(np.exp(self.step * _STEP))


class Strengths:
    """Strengths of one prior, each looked at when it is asked for (docs/theory.md, section 3.3).

    Parameters
    ----------
    objective_at : callable
        Factor -> the objective with precisions that many times as large.
    objective : SoftmaxObjective
        That of factor one.
    at_mode : Laplace
        Laplace's approximation there.
    referee : Referee
    """

    def __init__(
        self,
        objective_at: Callable[[float], SoftmaxObjective],
        objective: SoftmaxObjective,
        at_mode: Laplace,
        referee: Referee,
    ) -> None:
        self.objective_at, self.referee = objective_at, referee
        self.known = {0: Strength(0, objective, at_mode, referee)}

    def __getitem__(self, step: int) -> Strength:
        """The strength 4^step, found from its neighbour."""
        if step not in self.known:
            near = self[step - 1 if step > 0 else step + 1].at_mode
            objective = self.objective_at(float(np.exp(step * _STEP)))
            theta, _ = mode(objective, near.posterior.mean, near.likelihood_hessian, _MODE_TOL)
            self.known[step] = Strength(step, objective, laplace(objective, theta), self.referee)
        return self.known[step]

    @property
    def path(self) -> list[StrengthPoint]:
        """The strengths that were compared, from the weakest on; none if they do not matter."""
        if len(self.known) == 1:
            return []
        return [
            StrengthPoint(at.factor, at.at_mode.log_evidence, self.referee.loss(at.log_p))
            for _, at in sorted(self.known.items())
        ]

    @property
    def matters(self) -> bool:
        """Whether one step makes a difference: how far it moves the mode, in nats, as the curvature there tells."""
        first = self[0]
        pull = (np.exp(_STEP) - 1.0) * first.objective.prior.times(first.at_mode.posterior.mean)
        cost = 0.5 * float(np.vdot(pull, first.at_mode.posterior.solve(pull)))
        return cost > max(_IRRELEVANT, _IRRELEVANT_A_ROW * first.objective.n_rows)

    @property
    def determined(self) -> float:
        """gamma = d - tr(R S), the number of parameters that the rows determine: they tell how large all are."""
        posterior = self[0].at_mode.posterior
        R = self[0].objective.prior.of_contrasts(posterior.basis).precision
        return len(R) - float(np.vdot(R, posterior.inner))

    def best(self, unsure: bool) -> Strength:
        """The strength to take: that of highest evidence, unless left-out rows are predicted better by another.

        An evidence that is `unsure` is denied by two standard errors: an average over strengths allows for the rest.
        """
        first = self[0]
        if not self.matters:
            return first
        best = min((self._downhill(direction) for direction in (-1, 1)), key=lambda at: self.referee.loss(at.log_p))
        gain, error = self.referee.gain(best.log_p, first.log_p)
        return best if gain > (2.0 if unsure else 1.0) * error else first

    def _downhill(self, direction: int) -> Strength:
        """The best strength in one direction: steps are taken while they are worth it."""
        here = self[0]
        while abs(here.step) < _MOST:
            there = self[here.step + direction]
            if self.referee.loss(there.log_p) > self.referee.loss(here.log_p) - _WORTH:
                break
            here = there
        return here

    def likely(self, log_prior: Callable[[float], float]) -> list[Strength]:
        """The strengths that have a part in an average."""
        if self.determined > _SURE or not self.matters:
            return [self[0]]
        values = {0: self._log_weight(0, log_prior)}
        for direction in (-1, 1):
            for step in range(direction, direction * (_MOST + 1), direction):
                values[step] = self._log_weight(step, log_prior)
                if values[step] < max(values.values()) + np.log(_LEAST_WEIGHT):
                    break
        least = max(values.values()) + np.log(_LEAST_WEIGHT)
        return [self[step] for step, value in sorted(values.items()) if value >= least or step == 0]

    def _log_weight(self, step: int, log_prior: Callable[[float], float]) -> float:
        return self[step].at_mode.log_evidence + log_prior(self[step].factor)
