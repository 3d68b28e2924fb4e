r"""The rows of a fit, each predicted without itself.

.. math:: \mathrm{loss}_n = -\sum_k Y_{nk} \log p(k \mid x_n, \text{rows outside the group of } n), \qquad
          L = \frac{\sum_n c_n\, \mathrm{loss}_n}{\sum_n c_n} .

Rows of one group leave together, so that the standard error of L is over G groups, not over rows:

.. math:: \mathrm{s.e.}(L)^2 = \frac{G}{G - 1}\,
          \frac{\sum_g \big(\sum_{n \in g} c_n (\mathrm{loss}_n - L)\big)^2}{\big(\sum_n c_n\big)^2} .
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LeftOut", "grouped_mean_and_error", "surprise"]


@dataclass(frozen=True, repr=False, eq=False)
class LeftOut:
    """Rows of a fit, each predicted without itself and the rows of its group.

    Attributes
    ----------
    classes : ndarray (K,)
    log_proba : ndarray (n, K)
        Log-probabilities of each row from all rows outside its group.
    targets : ndarray (n, K)
        The labels as rows of zeros and a one, or the soft labels of the fit.
    weights : ndarray (n,)
    rows : ndarray of int (n,)
        The numbers of these rows among those of the fit: all of them, or a random sample.
    groups : ndarray of int (n,)
        Rows of equal number were left out together.
    n_groups : int
    n_twins : int or None
        Rows identical to another one, in every column and in the label; None where nobody looked.
    copied : bool
        Whether twins were taken for copies, and left out together.
    reliability : ndarray (n,)
        How far to trust the formula for this row: 0 is fully, and from `limit` on it is not to be trusted. NaN for rows
        that were predicted by a fit without them.
    limit : float
    refitted : ndarray of bool (n,)
        Whether the row was predicted by a fit without its group, not by the formula.
    method : str
        How rows were left out, in words.
    seconds : float

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> result = SoftmaxRegression(0.1).fit(X, y).loo()
    >>> round(result.log_loss, 3), round(result.log_loss_error, 3), result.n_unreliable
    (0.072, 0.019, 1)
    """

    classes: np.ndarray
    log_proba: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    groups: np.ndarray
    n_twins: int | None
    copied: bool
    reliability: np.ndarray
    limit: float
    refitted: np.ndarray
    method: str
    seconds: float

    def __repr__(self) -> str:
        n = len(self.rows)
        said = f"log-loss {self.log_loss:.4f} +- {self.log_loss_error:.4f} of {n:,} rows left out {self.method}"
        if self.n_twins:
            together = "copies, left out together" if self.copied else "each left out alone"
            said += f"; {self.n_twins:,} rows have a twin ({together})"
        if self.n_unreliable:
            said += f"; the formula is not to be trusted for {self.n_unreliable:,}: see loo(exact='unreliable')"
        return f"LeftOut({said})"

    @cached_property
    def losses(self) -> np.ndarray:
        """-log p of each row's own label without the row, (n,); of soft labels the mean over them."""
        with np.errstate(invalid="ignore"):
            return -np.where(self.targets > 0.0, self.targets * self.log_proba, 0.0).sum(axis=1)

    def only(self, rows: np.ndarray) -> LeftOut:
        """A result for the rows of these numbers alone, in order."""
        at = np.flatnonzero(np.isin(self.rows, rows))
        if len(at) == len(self.rows):
            return self
        kept = ("log_proba", "targets", "weights", "rows", "groups", "reliability", "refitted")
        return replace(self, **{name: getattr(self, name)[at] for name in kept})

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(np.unique(self.groups))

    @property
    def log_loss(self) -> float:
        """The weighted mean of `losses`."""
        return grouped_mean_and_error(self.losses, self.weights, self.groups)[0]

    @property
    def log_loss_error(self) -> float:
        """The standard error of `log_loss`, over groups."""
        return grouped_mean_and_error(self.losses, self.weights, self.groups)[1]

    @property
    def total(self) -> float:
        """The sum of log-probabilities, known as elpd: minus the weighted sum of `losses`."""
        return -float(self.weights @ np.where(self.weights > 0.0, self.losses, 0.0))

    @property
    def accuracy(self) -> float:
        """The weighted share of rows whose most probable class is their label."""
        own = self.targets[np.arange(len(self.rows)), self.log_proba.argmax(axis=1)]
        return float(self.weights @ own / self.weights.sum())

    @property
    def unreliable(self) -> np.ndarray:
        """Whether the formula is not to be trusted for a row, and it was not fitted again, (n,)."""
        return ~self.refitted & ~(self.reliability < self.limit)

    @property
    def n_unreliable(self) -> int:
        """The number of such rows."""
        return int(self.unreliable.sum())

    def to_frame(self) -> pd.DataFrame:
        """A table with a line for each row: its number, label, loss, group, reliability, and its probabilities."""
        import pandas as pd

        table = pd.DataFrame(
            {
                "row": self.rows,
                "label": self.classes[self.targets.argmax(axis=1)],
                "log_loss": self.losses,
                "group": self.groups,
                "reliability": self.reliability,
                "refitted": self.refitted,
            }
        )
        for label, column in zip(self.classes.tolist(), np.exp(self.log_proba).T, strict=True):
            table[f"p({label})"] = column
        return table


def grouped_mean_and_error(values: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The weighted mean over rows, and its standard error over groups; infinite for a single group.

    Examples
    --------
    >>> grouped_mean_and_error(np.array([1.0, 2.0, 3.0, 2.0]), np.ones(4), np.arange(4))
    (2.0, 0.408248290463863)
    """
    counted = weights > 0.0
    values, weights, groups = values[counted], weights[counted], groups[counted]
    total = weights.sum()
    mean = float(weights @ values / total)
    _, place = np.unique(groups, return_inverse=True)
    if not np.isfinite(mean) or place.max(initial=0) < 1:
        return mean, np.inf
    deviations = np.bincount(place.reshape(-1), weights * (values - mean))
    G = len(deviations)
    return mean, float(np.sqrt(G / (G - 1.0) * (deviations @ deviations)) / total)


def surprise(log_p: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """How much less probable each row's label is than labels drawn from these probabilities, (n,) nats, at least 0.

    -sum_k Y_k log p_k - H[p]: a row of large surprise has had its say in what all rows chose together.

    Examples
    --------
    >>> surprise(np.log([[0.5, 0.5], [0.02, 0.98]]), np.array([[1.0, 0.0], [1.0, 0.0]])).round(2)
    array([0.  , 3.81])
    """
    P = np.exp(log_p)
    entropy = -np.where(P > 0.0, P * log_p, 0.0).sum(axis=1)
    return np.maximum(-np.where(Y > 0.0, Y * log_p, 0.0).sum(axis=1) - entropy, 0.0)
