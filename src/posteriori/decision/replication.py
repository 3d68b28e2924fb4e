r"""Labels replicated under draws from a posterior, to see whether the model gives labels like those observed.

With draws P^s (n, K) of the class probabilities of all rows and their mean P, labels are replicated draw by draw,

.. math:: \tilde y_n^s \sim P_n^s, \qquad T(y):\; \text{a number made of labels } y \text{ and } P \text{ alone},

and T of the labels observed is compared with the distribution of T of the labels replicated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posteriori.decision.scores import calibration_bins
from posteriori.parameters import seed_from

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CheckedStatistic", "PosteriorCheck", "check_labels", "labels_rng", "replicated_labels", "require_one_each"]

_BINS = 10
_ENDS = (0.025, 0.975)


class CheckedStatistic(NamedTuple):
    """One number made of labels: of those observed, and of those replicated.

    Attributes
    ----------
    name : str
    observed : float
    replicated : ndarray (S,)
        One for each draw.
    """

    name: str
    observed: float
    replicated: np.ndarray

    @property
    def tail_probability(self) -> float:
        """The probability that a replicated number exceeds the observed one; equal numbers count one half."""
        return float((self.replicated > self.observed).mean() + 0.5 * (self.replicated == self.observed).mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The ends between which 95 % of the replicated numbers lie."""
        lower, upper = np.quantile(self.replicated, _ENDS)
        return float(lower), float(upper)


@dataclass(frozen=True, repr=False)
class PosteriorCheck:
    """Labels observed against labels replicated under draws from the posterior.

    A tail probability near 0 or 1 says that the model hardly ever gives labels with such a number. For the rows of the
    fit, tail probabilities lie closer to one half than those of rows that the model has not seen.

    Attributes
    ----------
    statistics : dict of str to CheckedStatistic
        "accuracy" and "log_loss" of the mean of the draws of probabilities; "calibration_error", the mean distance of
        probability and frequency over ten bins of the most probable class; "frequency of ...", the share of each class.
    n_rows, n_draws : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier, posterior_check
    >>> X, y = load_iris(return_X_y=True)
    >>> check = posterior_check(GaussianClassifier("tied").fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> check.to_frame()[["observed", "lower", "upper"]].round(2)
                       observed  lower  upper
    statistic
    accuracy               0.97   0.92   0.99
    log_loss               0.08   0.05   0.19
    calibration_error      0.03   0.01   0.04
    frequency of 0         0.33   0.33   0.33
    frequency of 1         0.33   0.32   0.41
    frequency of 2         0.33   0.25   0.35
    """

    statistics: dict[str, CheckedStatistic]
    n_rows: int
    n_draws: int

    def __getitem__(self, name: str) -> CheckedStatistic:
        if name not in self.statistics:
            raise KeyError(f"no statistic is called {name!r}; there are {', '.join(self.statistics)}")
        return self.statistics[name]

    def __repr__(self) -> str:
        width = max(map(len, self.statistics))
        head = f"PosteriorCheck of {self.n_rows} rows by {self.n_draws} draws"
        lines = [head, f"{'':{width}}  observed     95 % replicated  tail probability"]
        for name, each in self.statistics.items():
            lower, upper = each.interval
            ends = f"{lower:.4g} to {upper:.4g}"
            lines.append(f"{name:{width}}  {each.observed:8.4g}  {ends:>18}  {each.tail_probability:16.3f}")
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """One row for each statistic: observed; mean, sd, lower and upper of the replicated; tail_probability."""
        import pandas as pd

        rows = {
            name: (each.observed, each.replicated.mean(), each.replicated.std(), *each.interval, each.tail_probability)
            for name, each in self.statistics.items()
        }
        columns = ["observed", "mean", "sd", "lower", "upper", "tail_probability"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("statistic")


def labels_rng(random_state: Any) -> np.random.Generator:
    """The generator of replicated labels: another than that of the draws, which begins with the same seed."""
    return np.random.default_rng([seed_from(random_state), 1])


def replicated_labels(P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One label for every draw and row, (S, n), as places of classes, from probabilities (S, n, K).

    >>> replicated_labels(np.array([[[0.0, 1.0], [1.0, 0.0]]]), np.random.default_rng(0))
    array([[1, 0]])
    """
    reached = P.cumsum(axis=-1)
    u = rng.random(P.shape[:2]) * reached[..., -1]
    return (reached[..., :-1] <= u[..., None]).sum(axis=-1)


def require_one_each(codes: np.ndarray, n: int) -> None:
    """Raise unless there are as many labels as rows."""
    if len(codes) != n:
        raise ValueError(f"X has {n} rows, and y has {len(codes)} labels: pass one label for each row.")


def check_labels(
    P: np.ndarray, codes: np.ndarray, classes: Any, weights: np.ndarray | None, rng: np.random.Generator
) -> PosteriorCheck:
    """Compare labels with those replicated under draws of their probabilities.

    Parameters
    ----------
    P : ndarray (S, n, K)
        Draws of class probabilities: each draw is of all rows together.
    codes : ndarray of int (n,)
        Places of the observed labels among the classes.
    classes : sequence of K labels
    weights : ndarray (n,) or None
        By which rows count in every statistic. A row of weight two is one label that counts twice, not two labels.
    rng : numpy Generator
    """
    S, n, K = P.shape
    require_one_each(codes, n)
    c = np.ones(n) if weights is None else weights
    labels = np.concatenate([codes[None], replicated_labels(P, rng)])
    mean = P.mean(axis=0)
    top, rows = mean.argmax(axis=1), np.arange(n)
    hits = (labels == top).astype(np.float64)
    with np.errstate(divide="ignore"):
        loss = -np.log(mean)
    values = {
        "accuracy": hits @ c / c.sum(),
        "log_loss": np.array([c @ np.where(c > 0.0, loss[rows, y], 0.0) for y in labels]) / c.sum(),
        "calibration_error": np.array([_distance(mean[rows, top], hit, c) for hit in hits]),
    }
    for k in range(K):
        values[f"frequency of {classes[k]}"] = (labels == k) @ c / c.sum()
    checked = {name: CheckedStatistic(name, float(T[0]), T[1:]) for name, T in values.items()}
    return PosteriorCheck(checked, n, S)


def _distance(p: np.ndarray, hit: np.ndarray, weights: np.ndarray) -> float:
    """The mean distance of probability and frequency over bins of equal weight."""
    bins = calibration_bins(p, hit, weights, _BINS)
    return float(bins.weight @ np.abs(bins.probability - bins.frequency) / bins.weight.sum())
