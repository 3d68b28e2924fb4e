"""What all solvers are: small parameter objects that scikit-learn can inspect, clone and search over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from posteriori.solvers.solution import Steps

__all__ = ["Solver"]


@dataclass
class Solver(BaseEstimator):
    """Parameters of an algorithm; a field left None inherits the estimator's."""

    random: ClassVar[bool] = False
    """Whether `steps` takes a generator of random numbers, ``rng``."""

    def steps(self, problem: Any, theta: np.ndarray, tol: float) -> Steps:
        """Iterate from theta until J is within ``tol * |J|`` of its minimum."""
        raise NotImplementedError

    def validate(self) -> None:
        """Raise unless the parameters make sense."""
        for name in ("tol", "max_iter"):
            value = getattr(self, name, None)
            self.require(value is None or value >= 0, name, "None or not negative")

    def require(self, holds: bool, name: str, what: str) -> None:
        """Raise an error that names the parameter unless the condition holds."""
        if not holds:
            raise ValueError(f"{type(self).__name__}({name}={getattr(self, name)!r}) must be {what}.")
