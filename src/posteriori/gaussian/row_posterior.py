"""What the class probabilities of a row may be: quantiles and entropies over the posterior of all parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.uncertainty import entropy
from posteriori.gaussian.densities import ClassDensities, log_joint, within_reach
from posteriori.gaussian.niw import Belief
from posteriori.maths.softmax import softmax_in_place
from posteriori.rows.products import as_dense

__all__ = ["RowPosterior", "drawn_entropies", "drawn_quantiles"]

_FEWEST_DRAWS = 128
_NUMBERS_OF_A_ROW = 1 << 18
"""Numbers that all draws of one row may take: fewer draws are made where features or classes are very many."""

_NUMBERS_AT_ONCE = 1 << 20
"""Numbers that the draws of some rows may take while they are made."""


@dataclass(frozen=True)
class RowPosterior:
    """The belief about the classes, from which the probabilities of rows are drawn.

    Attributes
    ----------
    densities : ClassDensities
        The densities with all parameters integrated out.
    belief : Belief
        About the coordinates of the densities, divided by `unit`.
    unit : ndarray (D,), or (r + 1,) in a row space
    concentrations : ndarray (K,) or None
        Of the Dirichlet that is believed of the class frequencies; None where these are given.
    """

    densities: ClassDensities
    belief: Belief
    unit: np.ndarray
    concentrations: np.ndarray | None


def drawn_quantiles(X: Any, posterior: RowPosterior, n_draws: int, levels: tuple[float, ...]) -> np.ndarray:
    """Quantiles of each class probability, (len(levels) K, n), one level after the other."""

    def ends(P: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return np.concatenate(np.quantile(P, levels, axis=0, method="hazen"))

    return _by_parts(X, posterior, n_draws, ends)


def drawn_entropies(X: Any, posterior: RowPosterior, n_draws: int) -> np.ndarray:
    """Total entropy H[E p] and aleatoric entropy E[H p] in nats, (2, n)."""

    def parts(P: np.ndarray, mean: np.ndarray) -> np.ndarray:
        total = np.maximum(entropy(mean, axis=0), 0.0)
        return np.stack([total, np.minimum(entropy(P, axis=1).mean(axis=0), total)])

    return _by_parts(X, posterior, n_draws, parts)


def _by_parts(X: Any, posterior: RowPosterior, n_draws: int, function: Any) -> np.ndarray:
    """The function of draws (S, K, n) and of their mean (K, n), for some rows at a time."""
    K, D = posterior.belief.means.shape
    width = K + posterior.belief.structure.drawn_width(K, D)
    n_draws = max(min(n_draws, _NUMBERS_OF_A_ROW // width), _FEWEST_DRAWS)
    step = max(1, _NUMBERS_AT_ONCE // (n_draws * width))
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            function(*_drawn(within_reach(as_dense(X[start : start + step]), posterior.densities), posterior, n_draws))
            for start in range(0, X.shape[0], step)
        ]
    return np.concatenate(found, axis=1)


def _drawn(X: np.ndarray, posterior: RowPosterior, n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the class probabilities, (S, K, n), and their mean over all parameters, (K, n).

    The generator begins anew for all rows, so that a row's draws do not depend on the rows beside it.
    """
    rng = np.random.default_rng(0)
    mean = _known_logits(log_joint(X, posterior.densities), posterior)
    softmax_in_place(mean)
    # as many draws of each class as its probability says: one for each step of the cumulative probabilities
    steps = (np.arange(n_draws) + 0.5) / n_draws
    h = (mean.cumsum(axis=0)[:-1, None, :] <= steps[:, None]).sum(axis=0)
    Z = posterior.densities.coordinates(X) / posterior.unit
    logits = posterior.belief.structure.drawn_log_densities(Z, posterior.belief, h, rng)
    logits = _known_logits(logits + _drawn_log_frequencies(posterior, h, rng), posterior)
    P = logits.transpose(1, 0, 2).reshape(len(mean), -1)
    softmax_in_place(P)
    return P.reshape(len(mean), n_draws, -1).transpose(1, 0, 2), mean


def _known_logits(logits: np.ndarray, posterior: RowPosterior) -> np.ndarray:
    """Logits (..., K, n); where distances are beyond all numbers, they are those of the class frequencies alone."""
    unknown = np.isnan(logits) | ~np.isfinite(logits.max(axis=-2, keepdims=True))
    return np.where(unknown, posterior.densities.log_prior[:, None], logits)


def _drawn_log_frequencies(posterior: RowPosterior, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of log pi_k up to a number for each draw and row, (S, K, n), after the row as one of class h.

    Frequencies of a Dirichlet are gamma variables over their sum; one more row adds an exponential variable.
    """
    if posterior.concentrations is None:
        return posterior.densities.log_prior[None, :, None]
    K = len(posterior.concentrations)
    before = rng.standard_gamma(posterior.concentrations, (len(h), K))
    after = before + rng.standard_exponential((len(h), K))
    mine = h[:, None, :] == np.arange(K)[:, None]
    with np.errstate(divide="ignore"):
        return np.log(np.where(mine, after[:, :, None], before[:, :, None]))
