"""What all solvers are: small parameter objects that scikit-learn can inspect, clone and search over."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.base import BaseEstimator

__all__ = ["Solver"]


@dataclass
class Solver(BaseEstimator):
    """Parameters of an algorithm; a field left None inherits the estimator's."""
